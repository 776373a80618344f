# SPDX-License-Identifier: Apache-2.0
"""What the operator writes for a control plane that it has adopted.

In the root namespace are the kubeconfig as Secret `admin-kubeconfig`, by which vc-syncer and the operator
work in the tenant, and what vn-agent is to know. Nothing is written into the Secrets of others, and no
workload is made. So the deletion of the root namespace removes all that was written, and leaves the control
plane as it was found.
"""

import base64
from collections.abc import Mapping

from tenancy import keys
from tenant_operator.model import names
from tenant_operator.model.objects import Object


def kubeconfig_copy(digest: str, key: str, labels: Mapping[str, str], text: bytes) -> Object:
    """Secret `admin-kubeconfig` of the root namespace. `digest` is of the kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.SYNCER_CLIENT,
            "namespace": key,
            "labels": dict(labels),
            "annotations": {keys.SPEC_DIGEST: digest},
        },
        "data": {names.SYNCER_CLIENT: base64.b64encode(text).decode()},
    }


def is_copied(digest: str, annotations: Mapping[str, str] | None) -> bool:
    """Whether the copy is of this kubeconfig. `annotations` are those of the copy; None if there is none.

    Those who wrote the Secret renew its certificate in place: the copy follows.
    """
    return annotations is not None and annotations.get(keys.SPEC_DIGEST) == digest
