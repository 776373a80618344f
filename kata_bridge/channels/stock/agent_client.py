# SPDX-License-Identifier: Apache-2.0
"""A guest's stock kata-agent itself, over ttrpc at the address that its shim tells.

It says exactly what is wrong, in codes, where a shim gives a text or nothing.
"""

import asyncio
import re
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from daemonkit.protobuf import BadMessage, decode, encode
from kata_bridge import off_loop
from kata_bridge.channels.guest_text import word
from kata_bridge.channels.stock import hybrid_vsock
from kata_bridge.channels.stock import kata_messages as m
from kata_bridge.channels.stock.faults import CallFailedError, NoAnswerError
from kata_bridge.ttrpc.client import Client, ConnectionLost
from kata_bridge.ttrpc.status import Code, TtrpcError
from ruleset.model import Family

T = TypeVar("T")

# As for the shim: the agent's own limits are longer, a waiting pod's patience is not.
TIMEOUT_S = 10.0

# sockaddr_un has 108 bytes of path, and it is the shim that says this.
_MAX_URL_CHARACTERS = 256
_URL = re.compile(
    r"(vsock)://([0-9]{1,10}):([0-9]{1,10})|(hvsock)://(/.{1,255}):([0-9]{1,10})|unix://(.{1,255})"
)


@dataclass(frozen=True, slots=True)
class VsockAddress:
    cid: int
    port: int


@dataclass(frozen=True, slots=True)
class HybridVsockAddress:
    path: Path
    port: int


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """`path` as connect(2) takes it: an abstract one begins with a NUL."""

    path: str


Address = VsockAddress | HybridVsockAddress | UnixAddress


def parse_agent_url(url: str) -> Address:
    """Read what `/agent-url` says. Raises `ValueError` for what is none of the three kinds."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"{url[:_MAX_URL_CHARACTERS]!r} is no address of an agent")
    if match[1]:
        return VsockAddress(int(match[2]), int(match[3]))
    if match[4]:
        return HybridVsockAddress(Path(match[5]), int(match[6]))
    return UnixAddress("\0" + match[7][1:] if match[7].startswith("@") else match[7])


class StockAgentClient:
    """The calls of a stock agent at `url`. Each has a connection of its own: there is none to lose.

    All raise `NoAnswerError` and `CallFailedError`, whose code is set.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Raises `ValueError` for a bad `url`."""
        self._url = url
        self._address = parse_agent_url(url)
        self._timeout_s = timeout_s

    async def check(self) -> bool:
        """Whether the agent serves; no policy applies to this call."""
        reply = await self._call(m.HEALTH, "Check", m.CheckRequest(), m.HealthCheckResponse)
        return reply.status is m.ServingStatus.SERVING

    async def version(self) -> str:
        """Return the agent's version; no policy applies to this call either."""
        reply = await self._call(m.HEALTH, "Version", m.CheckRequest(), m.VersionCheckResponse)
        return word(reply.agent_version)

    async def details(self) -> m.AgentDetails:
        """Return what the agent says of itself, as far as its policy lets it."""
        request = m.GuestDetailsRequest()
        reply = await self._call(m.AGENT, "GetGuestDetails", request, m.GuestDetailsResponse)
        return reply.agent_details or m.AgentDetails()

    async def get_tables(self, family: Family) -> bytes:
        """Return what iptables-save prints of all tables; nothing if there is none, or if it failed."""
        request = m.GetIPTablesRequest(family is Family.IPV6)
        return (await self._call(m.AGENT, "GetIPTables", request, m.GetIPTablesResponse)).data

    async def set_tables(self, family: Family, text: bytes) -> None:
        """Hand `text` to iptables-restore, which replaces every table that it names."""
        request = m.SetIPTablesRequest(family is Family.IPV6, text)
        await self._call(m.AGENT, "SetIPTables", request, m.SetIPTablesResponse)

    async def set_policy(self, text: str) -> None:
        """Replace the agent's policy, all of it."""
        await self._call(m.AGENT, "SetPolicy", m.SetPolicyRequest(text), m.Empty)

    async def copy_file(self, path: str, data: bytes) -> None:
        """Write a file of the guest, for its root alone, whole or not at all; and what leads to it.

        Agents take paths below /run/kata-containers, newer ones below its shared directory alone.
        """
        mode = stat.S_IFREG | 0o600
        request = m.CopyFileRequest(path, len(data), file_mode=mode, dir_mode=0o700, data=data)
        await self._call(m.AGENT, "CopyFile", request, m.Empty)

    async def _call(self, service: str, method: str, request: object, cls: type[T]) -> T:
        payload = encode(request)
        async with self._connected() as client:
            try:
                data = await client.call(service, method, payload, self._timeout_s)
                return await off_loop.run(len(data), decode, cls, data)
            except TtrpcError as error:
                if error.code != Code.DEADLINE_EXCEEDED:
                    raise CallFailedError(error.code, error.message) from None
                raise self._late(method) from None  # the agent's clock, which was given our time
            except TimeoutError:
                raise self._late(method) from None
            except ConnectionLost as error:
                raise NoAnswerError(f"{self._url}: {error}") from None
            except BadMessage as error:
                raise NoAnswerError(
                    f"{self._url}: the answer to {method} is no such message: {error}"
                ) from None

    def _late(self, method: str) -> NoAnswerError:
        text = f"{self._url}: no answer to {method} within {self._timeout_s:g} s"
        return NoAnswerError(text, may_run=True)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        reader, writer = await self._connect()
        async with Client(reader, writer) as client:
            yield client

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        match self._address:
            case HybridVsockAddress(path, port):
                return await hybrid_vsock.connect(path, port, self._timeout_s)
            case VsockAddress(cid, port):
                return await self._connect_to(socket.AF_VSOCK, (cid, port))
            case UnixAddress(path):
                return await self._connect_to(socket.AF_UNIX, path)

    async def _connect_to(
        self, family: socket.AddressFamily, place: tuple[int, int] | str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # a kernel without AF_VSOCK, or a seccomp profile
            raise NoAnswerError(f"{self._url}: {error.strerror or error}") from None
        try:
            sock.setblocking(False)
            async with asyncio.timeout(self._timeout_s):
                await asyncio.get_running_loop().sock_connect(sock, place)
                return await asyncio.open_connection(sock=sock)
        except TimeoutError:
            sock.close()
            raise NoAnswerError(f"{self._url}: no connection within {self._timeout_s:g} s") from None
        except OSError as error:
            sock.close()
            raise NoAnswerError(f"{self._url}: {error.strerror or error}") from None
        except BaseException:
            sock.close()
            raise
