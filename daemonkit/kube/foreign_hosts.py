# SPDX-License-Identifier: Apache-2.0
"""Resolves the hosts of kubeconfigs that others wrote. What is judged is what is dialled: a name may have
another address a moment later."""

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import SplitResult, urlsplit

from daemonkit.kube.foreign_address import port_refusal, refusal
from daemonkit.os_errors import AddressRefusedError
from daemonkit.remedies import one_line

# A name has a few; each may take its time.
MAX_ADDRESSES = 4
# Names that are resolved at a time.
MAX_NAMES = 16


class ForeignNames:
    """Resolves names in threads that nothing else needs: a name server may keep one of them for half a
    minute, also when no caller waits any more. Each name has one at a time. `resolve` is as `getaddrinfo`."""

    def __init__(self, resolve: Callable[..., Sequence[Any]] = socket.getaddrinfo) -> None:
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(MAX_NAMES, "foreign-names")
        self._running: dict[tuple[str, int], asyncio.Future[Sequence[Any]]] = {}

    async def lookup(self, host: str, port: int) -> list[str]:
        """The addresses of a host, as the resolver orders them. Raises OSError."""
        future = self._running.get((host, port))
        if future is None:
            call = functools.partial(self._resolve, host, port, type=socket.SOCK_STREAM)
            future = asyncio.get_running_loop().run_in_executor(self._threads, call)
            self._running[host, port] = future
            future.add_done_callback(functools.partial(self._over, (host, port)))
        found = await asyncio.shield(future)
        return list(dict.fromkeys(str(each[4][0]) for each in found))

    def _over(self, name: tuple[str, int], future: asyncio.Future[Sequence[Any]]) -> None:
        del self._running[name]
        if not future.cancelled():
            future.exception()  # its callers may have given up


class ForeignHosts:
    """`super_server` has the URL of the super cluster's API server, to which none may lead, and `nodes` the
    addresses of its nodes, which have other servers of their own."""

    def __init__(
        self,
        super_server: Callable[[], str],
        lookup: Callable[[str, int], Awaitable[list[str]]] | None = None,
        *,
        nodes: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._super_server = super_server
        self._nodes = nodes
        self._lookup = ForeignNames().lookup if lookup is None else lookup

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses to dial. Raises AddressRefusedError if one must not be dialled, and OSError."""
        found = await self._lookup(host, port)
        place = urlsplit(self._super_server())
        own = await self._addresses_of(place) if port == (place.port or 443) else []
        nodes = self._nodes()
        for each in found:
            problem = refusal(each) or ("it is the super cluster's API server" if each in own else "")
            problem = problem or port_refusal(each, port, nodes)
            if problem:
                text = f"{one_line(host)} leads to {each}, which is not dialled: {problem}"
                raise AddressRefusedError(text)
        return found[:MAX_ADDRESSES]

    async def _addresses_of(self, place: SplitResult) -> list[str]:
        try:
            return await self._lookup(place.hostname or "", place.port or 443)
        except OSError:
            return []
