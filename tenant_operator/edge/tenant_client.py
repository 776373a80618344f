# SPDX-License-Identifier: Apache-2.0
"""The operator's credential for a tenant's control plane."""

import base64
from pathlib import Path

from daemonkit.kube import kubeconfig
from daemonkit.kube.kubeconfig import Access, KubeconfigError
from tenant_operator.model import names
from tenant_operator.model.objects import Object


class TenantClientError(Exception):
    """The credential is missing or unusable; the text has the remedy."""


def access_of(secret: Object | None, key: str = names.KUBECONFIG_KEY) -> Access:
    """How the Secret's kubeconfig leads to the tenant. Raises TenantClientError."""
    try:
        text = base64.b64decode(((secret or {}).get("data") or {})[key])
        return kubeconfig.parse(text, Path("/"))
    except (KeyError, ValueError, KubeconfigError):
        raise TenantClientError("its kubeconfig is unusable; delete the Secret: it is issued anew") from None
