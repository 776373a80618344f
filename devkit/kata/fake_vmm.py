# SPDX-License-Identifier: Apache-2.0
"""A fake of a VMM's hybrid vsock: unix sockets in place of a guest's vsock ports.

No ring runs a VMM that has one, as that needs /dev/kvm: it follows docs/spec/kata.md#vsock.
"""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from devkit.kata.listener import Listener

_CONNECT = re.compile(rb"connect ([0-9]{1,10})\n", re.IGNORECASE)
_READ_BYTES = 1 << 16
_FIRST_HOST_PORT = 1_073_741_824


@dataclass(slots=True)
class FakeVmm:
    """The VMM's socket `path`; `ports` maps ports of the guest to unix sockets.

    `is_mute`: accepts connections and sends nothing. `greeting`: bytes that the guest sends in one write with
    the VMM's `OK`.
    """

    path: Path
    ports: Mapping[int, Path] = field(default_factory=dict)
    is_mute: bool = False
    greeting: bytes = b""
    connects: list[int] = field(default_factory=list)
    _listener: Listener | None = None

    @property
    def url(self) -> str:
        return f"hvsock://{self.path}:1024"

    async def __aenter__(self) -> Self:
        self._listener = Listener(self.path, self._serve)
        await self._listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            await self._listener.stop()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_mute:
            await reader.read()
            return
        match = _CONNECT.fullmatch(await reader.readuntil(b"\n"))
        target = self.ports.get(int(match[1])) if match else None
        if match is None or target is None:
            return  # nothing listens there in the guest: closed without a reply
        inner_reader, inner_writer = await asyncio.open_unix_connection(target)
        try:
            self.connects.append(int(match[1]))
            host_port = _FIRST_HOST_PORT + len(self.connects)
            writer.write(f"OK {host_port}\n".encode("ascii") + self.greeting)
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        finally:
            inner_writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
