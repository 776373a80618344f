# SPDX-License-Identifier: Apache-2.0
"""A client whose writes for a tenant are sent only while this process holds that tenant."""

from collections.abc import Mapping

from daemonkit.kube.client import MAX_RESPONSE_BYTES, Requester, UnreachableError
from syncer.sharding.port import TenantOwnership


class NotHeldError(UnreachableError):
    """Another replica has the tenant, or may have it: nothing was sent."""


class FencedClient:
    """A `Requester` of one tenant, for either cluster. Reads are always sent."""

    def __init__(self, client: Requester, ownership: TenantOwnership, tenant: str) -> None:
        self._client = client
        self._ownership = ownership
        self._tenant = tenant

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = MAX_RESPONSE_BYTES,
    ) -> bytes:
        if method == "GET":
            return await self._client.request(method, path, params, limit_bytes=limit_bytes)
        if not self._ownership.begin_write(self._tenant):
            raise NotHeldError("the tenant is not held by this replica")
        try:
            return await self._client.request(
                method, path, params, body, content_type=content_type, limit_bytes=limit_bytes
            )
        finally:
            self._ownership.end_write(self._tenant)
