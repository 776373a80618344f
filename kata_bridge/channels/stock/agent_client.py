# SPDX-License-Identifier: Apache-2.0
"""Calls of a guest's stock kata-agent, over ttrpc at the address that its shim reports.

The agent returns exact status codes, where a shim returns a text or nothing.
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
from kata_bridge.ttrpc.client import ConnectionLost, TtrpcClient
from kata_bridge.ttrpc.status import Code, TtrpcError
from ruleset.model import Family

T = TypeVar("T")

# As for the shim: the agent's own deadlines are longer than a pod should wait.
TIMEOUT_S = 10.0

# sockaddr_un has 108 bytes of path; the shim chooses this text.
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
    """`path` is as for connect(2): an abstract one begins with a NUL."""

    path: str


ShimAddress = VsockAddress | HybridVsockAddress | UnixAddress


def parse_agent_url(url: str) -> ShimAddress:
    """Parse the text of `/agent-url`. Raises `ValueError` unless it is of one of the three kinds."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"{url[:_MAX_URL_CHARACTERS]!r} is not the address of an agent")
    if match[1]:
        return VsockAddress(int(match[2]), int(match[3]))
    if match[4]:
        return HybridVsockAddress(Path(match[5]), int(match[6]))
    return UnixAddress("\0" + match[7][1:] if match[7].startswith("@") else match[7])


class StockAgentClient:
    """The calls of a stock agent at `url`, each on a connection of its own.

    All raise `NoAnswerError` and `CallFailedError`, whose code is set.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Raises `ValueError` for a bad `url`."""
        self._url = url
        self._address = parse_agent_url(url)
        self._timeout_s = timeout_s

    async def version(self) -> str:
        """Return the agent's version. Not subject to policy."""
        reply = await self._call(m.HEALTH, "Version", m.CheckRequest(), m.VersionCheckResponse)
        return word(reply.agent_version)

    async def get_tables(self, family: Family) -> bytes:
        """Return the output of iptables-save for all tables; empty if there is none, or if it failed."""
        request = m.GetIPTablesRequest(family is Family.IPV6)
        return (await self._call(m.AGENT, "GetIPTables", request, m.GetIPTablesResponse)).data

    async def set_tables(self, family: Family, text: bytes) -> None:
        """Pass `text` to iptables-restore, which replaces every table that it names."""
        request = m.SetIPTablesRequest(family is Family.IPV6, text)
        await self._call(m.AGENT, "SetIPTables", request, m.SetIPTablesResponse)

    async def set_policy(self, text: str) -> None:
        """Replace the agent's whole policy."""
        await self._call(m.AGENT, "SetPolicy", m.SetPolicyRequest(text), m.Empty)

    async def copy_file(self, path: str, data: bytes) -> None:
        """Write a file of the guest atomically, with its directories; only root may read it.

        Agents accept paths below /run/kata-containers, newer ones only below its shared directory.
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
                raise self._timed_out(method) from None  # the agent got our deadline, and its clock was first
            except TimeoutError:
                raise self._timed_out(method) from None
            except ConnectionLost as error:
                raise NoAnswerError(f"{self._url}: {error}") from None
            except BadMessage as error:
                raise NoAnswerError(f"{self._url}: the answer to {method} cannot be read: {error}") from None

    def _timed_out(self, method: str) -> NoAnswerError:
        text = f"{self._url}: no answer to {method} within {self._timeout_s:g} s"
        return NoAnswerError(text, may_run=True)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[TtrpcClient]:
        reader, writer = await self._connect()
        async with TtrpcClient(reader, writer) as client:
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
        self, family: socket.AddressFamily, target: tuple[int, int] | str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # a kernel without AF_VSOCK, or a seccomp profile
            raise NoAnswerError(f"{self._url}: {error.strerror or error}") from None
        try:
            sock.setblocking(False)
            async with asyncio.timeout(self._timeout_s):
                await asyncio.get_running_loop().sock_connect(sock, target)
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
