# SPDX-License-Identifier: Apache-2.0
"""Writes into a tenant's control plane, by the operator's own credential for it."""

import base64
from collections.abc import Callable
from pathlib import Path

from daemonkit.kube import kubeconfig
from daemonkit.kube.kubeconfig import Access, KubeconfigError
from tenant_operator.defaults.kinds import KINDS
from tenant_operator.edge.surroundings import ApiClient
from tenant_operator.edge.tenant_api import TenantApi
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


async def apply_all(
    access: Access, open_client: Callable[[Access], ApiClient], manifests: tuple[Object, ...]
) -> None:
    """Server-side apply of each, in their order. Raises ApiError and UnreachableError for the first that
    fails."""
    client = open_client(access)
    api = TenantApi(client)
    try:
        for manifest in manifests:
            metadata = manifest["metadata"]
            resource = KINDS[manifest["apiVersion"], manifest["kind"]]
            path = resource.path(metadata.get("namespace"), metadata["name"])
            await api.apply(path, manifest, forces=True)
    finally:
        await client.close()
