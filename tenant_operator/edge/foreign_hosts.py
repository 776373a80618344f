# SPDX-License-Identifier: Apache-2.0
"""Resolves the hosts of kubeconfigs that others wrote. What is judged is what is dialled: a name may have
another address a moment later."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from tenant_operator.model.foreign_text import one_line
from tenant_operator.provisioners.imported.foreign_address import refusal

# A name has a few; each may take its time.
MAX_ADDRESSES = 4


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a host, as the resolver orders them. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class ForeignHosts:
    """`super_server` is the URL of the super cluster's API server, to which none may lead."""

    def __init__(
        self, super_server: str, lookup: Callable[[str, int], Awaitable[list[str]]] = lookup
    ) -> None:
        place = urlsplit(super_server)
        self._super = place.hostname or "", place.port or 443
        self._lookup = lookup

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses to dial. Raises OSError if one of them is nobody's to dial."""
        found = await self._lookup(host, port)
        own = await self._super_addresses() if port == self._super[1] else []
        for each in found:
            problem = refusal(each) or ("it is the super cluster's API server" if each in own else "")
            if problem:
                raise OSError(f"{one_line(host)} leads to {each}, which is not dialled: {problem}")
        return found[:MAX_ADDRESSES]

    async def _super_addresses(self) -> list[str]:
        try:
            return await self._lookup(*self._super)
        except OSError:
            return []
