# SPDX-License-Identifier: Apache-2.0
"""The one gate of all writes, to the super cluster and to tenants: only the replica that leads may send one.

Another replica may have begun to lead since the plan was made, or since the step before. So the question is
asked again for each request, with nothing awaited between the answer and the bytes. What writes takes a
`GatedClient`, which mypy holds it to; only the election writes without the gate.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from daemonkit.kube.client import MAX_RESPONSE_BYTES, ApiClient, UnreachableError

# All other methods may change something. A review (POST) changes nothing, and is refused all the same.
_READS = frozenset({"GET"})


class NotLeaderError(UnreachableError):
    """Another replica leads, or may lead: nothing was sent."""


class GatedClient:
    """An `ApiClient` that sends what is no read only while `may_write`."""

    def __init__(self, client: ApiClient, may_write: Callable[[], bool]) -> None:
        self._client = client
        self._may_write = may_write

    @property
    def server(self) -> str:
        return self._client.server

    def check_leads(self) -> None:
        """For what is written elsewhere than by this client. Raises NotLeaderError."""
        if not self._may_write():
            raise NotLeaderError("another replica leads")

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = MAX_RESPONSE_BYTES,
        before_send: Callable[[], None] | None = None,
    ) -> bytes:
        """As the client does it. Raises NotLeaderError, and what the client raises."""

        def check() -> None:
            self.check_leads()
            if before_send is not None:
                before_send()

        return await self._client.request(
            method,
            path,
            params,
            body,
            content_type=content_type,
            limit_bytes=limit_bytes,
            before_send=before_send if method in _READS else check,
        )

    def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A watch, which reads."""
        return self._client.stream(path, params, idle_timeout_s=idle_timeout_s, timeout_s=timeout_s)

    async def close(self) -> None:
        await self._client.close()
