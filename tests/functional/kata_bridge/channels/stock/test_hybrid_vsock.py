# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devkit.kata.fake_vmm import FakeVmm
from devkit.kata.listener import Listener
from kata_bridge.channels.stock import hybrid_vsock
from kata_bridge.channels.stock.faults import NoAnswerError

pytestmark = pytest.mark.asyncio

_SHORT_S = 0.3


@asynccontextmanager
async def echo(path: Path) -> AsyncIterator[None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)

    listener = Listener(path, serve)
    await listener.start()
    yield
    await listener.stop()


async def test_port_of_the_guest_is_reached(short_dir: Path) -> None:
    async with echo(short_dir / "echo"), FakeVmm(short_dir / "vmm", {1024: short_dir / "echo"}) as vmm:
        reader, writer = await hybrid_vsock.connect(vmm.path, 1024)
        writer.write(b"hello")

        assert await asyncio.wait_for(reader.readexactly(5), 5) == b"hello"
        assert vmm.connects == [1024]
        writer.close()


async def test_bytes_after_the_handshake_are_kept(short_dir: Path) -> None:
    vmm = FakeVmm(short_dir / "vmm", {1024: short_dir / "echo"}, greeting=b"\nOK 7\nearly")
    async with echo(short_dir / "echo"), vmm:
        reader, writer = await hybrid_vsock.connect(vmm.path, 1024)

        assert await asyncio.wait_for(reader.readexactly(11), 5) == b"\nOK 7\nearly"
        writer.close()


async def test_closed_port_of_the_guest_raises_no_answer(short_dir: Path) -> None:
    async with FakeVmm(short_dir / "vmm", {1024: short_dir / "echo"}) as vmm:
        with pytest.raises(NoAnswerError, match="closed, nothing listens there in the guest"):
            await hybrid_vsock.connect(vmm.path, 1025)


async def test_missing_vmm_raises_no_answer(short_dir: Path) -> None:
    with pytest.raises(NoAnswerError, match=r"hvsock:///.*/vmm:1024: No such file or directory"):
        await hybrid_vsock.connect(short_dir / "vmm", 1024)


async def test_silent_vmm_raises_no_answer(short_dir: Path) -> None:
    async with FakeVmm(short_dir / "vmm", is_mute=True) as vmm:
        with pytest.raises(NoAnswerError, match=r"no handshake within 0.3 s"):
            await hybrid_vsock.connect(vmm.path, 1024, _SHORT_S)


@pytest.mark.parametrize(
    ("received", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "the VMM answers b'HTTP/1.1 400 Bad Request"),
        (b"x" * 100_000, "without an end of line"),
        (b"O", "closed, nothing listens"),
    ],
)
async def test_other_peer_than_a_vmm_raises_no_answer(short_dir: Path, received: bytes, why: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(received)

    listener = Listener(short_dir / "vmm", serve)
    await listener.start()
    with pytest.raises(NoAnswerError, match=why):
        await hybrid_vsock.connect(short_dir / "vmm", 1024)
    await listener.stop()
