# SPDX-License-Identifier: Apache-2.0
"""What a control plane needs to know of its datastore."""

import msgspec

from tenant_operator.model.objects import Object
from tenant_operator.model.pods import Files


class Datastore(msgspec.Struct, frozen=True):
    """A way to keep objects, resolved for one control plane.

    `problem`: why a control plane may not be made with it; empty if it may.
    `apiserver_digests`: keys of `ManifestInputs.digests` of files that the API server reads once.
    `volumes` and `mounts`: of the API server's pod and container, beside its files.
    `sidecars`: containers that start before the API server and end after it.
    `apiserver_egress`: rules of the API server's NetworkPolicy; `policies`: NetworkPolicies of its own pods.
    """

    manifests: tuple[Object, ...] = ()
    apiserver_flags: dict[str, str] = {}
    apiserver_files: tuple[Files, ...] = ()
    apiserver_digests: tuple[str, ...] = ()
    apiserver_mounts: tuple[Object, ...] = ()
    apiserver_volumes: tuple[Object, ...] = ()
    sidecars: tuple[Object, ...] = ()
    apiserver_egress: tuple[Object, ...] = ()
    policies: tuple[Object, ...] = ()
    secrets: tuple[str, ...] = ()
    problem: str = ""
