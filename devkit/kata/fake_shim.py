# SPDX-License-Identifier: Apache-2.0
"""A fake of a Kata shim's management socket (docs/spec/kata.md#shim), in Go's manner or in Rust's.

It forwards to an agent over ttrpc, as the real ones do. No ring runs a Kata shim, as that needs /dev/kvm.
"""

import asyncio
import contextlib
import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from daemonkit.protobuf import decode, encode
from devkit.kata.listener import Listener
from kata_bridge.channels.stock import kata_messages as m
from kata_bridge.channels.stock.shim import SOCKET_NAME
from kata_bridge.ttrpc.client import TtrpcClient
from kata_bridge.ttrpc.status import Code, TtrpcError

_AGENT_TIMEOUT_S = 60.0
# net/http sends a Content-Length only if the reply fits this buffer.
_GO_BUFFER_BYTES = 2048


class Flavour(enum.Enum):
    GO = "go"
    RUST = "rust"


class _DroppedError(Exception):
    """The connection is closed without a reply."""


@dataclass(slots=True)
class FakeShim:
    """The shim of sandbox `sandbox_id` below `root`; `async with` starts it.

    `url` is the agent's address that it reports, `agent_path` the agent's socket that it uses itself.
    `is_booting`: the guest is not up yet; `boot` ends that. `is_old`: before 2.5, without /iptables.
    `is_silent`: takes requests and never answers. `requests` are "METHOD target", in order.
    """

    root: Path
    sandbox_id: str
    agent_path: Path
    url: str
    flavour: Flavour = Flavour.GO
    is_booting: bool = False
    is_old: bool = False
    is_silent: bool = False
    requests: list[str] = field(default_factory=list)
    _listener: Listener | None = None

    @property
    def path(self) -> Path:
        return self.root / self.sandbox_id / SOCKET_NAME

    async def __aenter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._listener = Listener(self.path, self._serve)
        if not self.is_booting or self.flavour is Flavour.RUST:
            await self._listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.crash()
        self.path.unlink(missing_ok=True)

    async def boot(self) -> None:
        """Finish booting the guest."""
        self.is_booting = False
        if self._listener is not None and not self._listener.is_listening:
            await self._listener.start()

    async def crash(self) -> None:
        """Stop listening and cut open connections; the socket's file stays, as of a process that died."""
        if self._listener is not None:
            await self._listener.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(_DroppedError):
            await self._exchange(reader, writer)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, *lines = head.split("\r\n")
        method, target, _version = request_line.split(" ")
        fields = dict(line.lower().split(": ", 1) for line in lines if line)
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        self.requests.append(f"{method} {target}")
        if self.is_silent:
            await reader.read()  # until the client gives up
            raise _DroppedError
        status, answer = await self._answer(method, target, body)
        writer.write(self._reply(status, answer))
        await writer.drain()

    def _reply(self, status: int, body: bytes) -> bytes:
        head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\nConnection: close\r\n"
        if self.flavour is Flavour.RUST or len(body) <= _GO_BUFFER_BYTES:
            return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        cut = _GO_BUFFER_BYTES
        chunks = (body[:cut], body[cut:])
        coded = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
        return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + coded + b"0\r\n\r\n"

    async def _answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        is_go = self.flavour is Flavour.GO
        try:
            match method, target:
                case "GET", "/agent-url":
                    return 200, b"" if self.is_booting else self.url.encode()
                case "GET", "/iptables" | "/ip6tables" if not self.is_old:
                    request = m.GetIPTablesRequest(target == "/ip6tables")
                    reply = await self._forward("GetIPTables", encode(request))
                    return 200, decode(m.GetIPTablesResponse, reply).data
                case "PUT", "/iptables" | "/ip6tables" if not self.is_old:
                    pushed = m.SetIPTablesRequest(target == "/ip6tables", body)
                    reply = await self._forward("SetIPTables", encode(pushed))
                    return 200, b"" if is_go else decode(m.SetIPTablesResponse, reply).data
                case _, "/iptables" | "/ip6tables" if not self.is_old and is_go:
                    return 501, b""
                case "PUT", "/policy" if is_go and not self.is_old:
                    await self._forward("SetPolicy", encode(m.SetPolicyRequest(body.decode())))
                    return 200, b""
        except TtrpcError as error:
            if not is_go:
                raise _DroppedError from None
            return 500, go_status(error).encode()
        return 404, b"404 page not found\n" if is_go else b"URL NOT FOUND"

    async def _forward(self, method: str, payload: bytes) -> bytes:
        if self.is_booting:
            raise _DroppedError
        reader, writer = await asyncio.open_unix_connection(self.agent_path)
        async with TtrpcClient(reader, writer) as client:
            return await client.call(m.AGENT, method, payload, _AGENT_TIMEOUT_S)


def go_status(error: TtrpcError) -> str:
    """A status as Go's gRPC prints it."""
    name = "".join(word.capitalize() for word in Code(error.code).name.split("_"))
    return f"rpc error: code = {name} desc = {error.message}"
