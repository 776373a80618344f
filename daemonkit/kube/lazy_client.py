# SPDX-License-Identifier: Apache-2.0
"""An API server as a transport, whatever becomes of its kubeconfig."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from daemonkit.kube.client import MAX_RESPONSE_BYTES, Client, UnreachableError
from daemonkit.kube.credentials import CredentialsError
from daemonkit.remedies import Cause


class LazyClient:
    """A client that is made when it is first needed.

    A missing or invalid kubeconfig raises UnreachableError, as an unreachable API server does. The
    caller retries with backoff.
    """

    def __init__(self, kubeconfig: Path, user_agent: str) -> None:
        self._kubeconfig = kubeconfig
        self._user_agent = user_agent
        self._client: Client | None = None

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
        return await self._opened().request(
            method, path, params, body, content_type=content_type, limit_bytes=limit_bytes
        )

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        stream = self._opened().stream(path, params, idle_timeout_s=idle_timeout_s, timeout_s=timeout_s)
        async with stream as chunks:
            yield chunks

    def _opened(self) -> Client:
        if self._client is None:
            try:
                self._client = Client.from_kubeconfig(self._kubeconfig, user_agent=self._user_agent)
            except CredentialsError as error:
                raise UnreachableError(f"kubeconfig: {error}", Cause.CONFIGURATION) from None
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
