# SPDX-License-Identifier: Apache-2.0
"""Reads a list page by page. What is too large for one page is read in smaller ones: a tenant that fills
objects makes pages smaller, and does not end the list."""

import asyncio
from collections.abc import Mapping

from daemonkit.kube.client import AnswerTooLargeError, ApiClient

# An object of etcd is smaller.
MAX_PAGE_BYTES = 4 << 20


class PageReader:
    """Of one list. A page has `most` objects or fewer, and comes within `timeout_s`."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        params: Mapping[str, str],
        most: int,
        timeout_s: float | None = None,
    ) -> None:
        self._client = client
        self._path = path
        self._query = params
        self._most = self._limit = most
        self._timeout_s = timeout_s

    async def read(self, token: str, limit_bytes: int = MAX_PAGE_BYTES) -> bytes:
        """The page behind this token. Raises ApiError, UnreachableError and TimeoutError."""
        following = {"continue": token} if token else {}
        while True:
            params = {**self._query, "limit": str(self._limit), **following}
            try:
                async with asyncio.timeout(self._timeout_s):
                    body = await self._client.request("GET", self._path, params, limit_bytes=limit_bytes)
            except AnswerTooLargeError:
                if self._limit == 1:
                    raise
                self._limit //= 2
                continue
            self._limit = min(self._most, self._limit * 2)
            return body
