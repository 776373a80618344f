# SPDX-License-Identifier: Apache-2.0
"""Resolves the hosts of kubeconfigs that others wrote. What is judged is what is dialled: a name may have
another address a moment later."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlsplit

from daemonkit.kube.foreign_address import refusal
from daemonkit.os_errors import AddressRefusedError
from daemonkit.remedies import one_line

# A name has a few; each may take its time.
MAX_ADDRESSES = 4


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a host, as the resolver orders them. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class ForeignHosts:
    """`super_server` has the URL of the super cluster's API server, to which none may lead."""

    def __init__(
        self,
        super_server: Callable[[], str],
        lookup: Callable[[str, int], Awaitable[list[str]]] = lookup,
    ) -> None:
        self._super_server = super_server
        self._lookup = lookup

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses to dial. Raises AddressRefusedError if one is nobody's to dial, and OSError."""
        found = await self._lookup(host, port)
        place = urlsplit(self._super_server())
        own = await self._addresses_of(place) if port == (place.port or 443) else []
        for each in found:
            problem = refusal(each) or ("it is the super cluster's API server" if each in own else "")
            if problem:
                text = f"{one_line(host)} leads to {each}, which is not dialled: {problem}"
                raise AddressRefusedError(text)
        return found[:MAX_ADDRESSES]

    async def _addresses_of(self, place: SplitResult) -> list[str]:
        try:
            return await self._lookup(place.hostname or "", place.port or 443)
        except OSError:
            return []
