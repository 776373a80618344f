# SPDX-License-Identifier: Apache-2.0
"""The client of a shim's socket, against fakes of both flavours, and peers that break off."""

import asyncio
import socket
from pathlib import Path

import pytest

from devkit.kata.fake_agent import AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.fake_shim import Flavour
from devkit.kata.guest_tables import FakeTables
from devkit.kata.listener import Listener
from kata_bridge.channels.stock.faults import CallFailedError, NoAnswerError, NoEndpointError
from kata_bridge.channels.stock.shim import SOCKET_NAME, Shim
from kata_bridge.ttrpc.status import Code
from ruleset.model import Family

pytestmark = pytest.mark.asyncio

V4 = Family.IPV4
_SHORT_S = 0.3
NAT = b"*nat\n:VCN-X - [0:0]\nCOMMIT\n"
flavours = pytest.mark.parametrize("flavour", Flavour)


@flavours
async def test_tables_are_set_and_printed(short_dir: Path, flavour: Flavour) -> None:
    async with FakeKata(short_dir, FakeTables(), flavour=flavour) as kata:
        shim = Shim(kata.sandbox_id, roots=kata.roots)

        assert await shim.get_tables(V4) == b""
        await shim.set_tables(V4, NAT)
        assert b":VCN-X - [0:0]\n" in await shim.get_tables(V4)
        assert await shim.get_tables(Family.IPV6) == b""
        assert await shim.agent_url() == kata.agent.url
        assert kata.shim.requests == [
            "GET /iptables",
            "PUT /iptables",
            "GET /iptables",
            "GET /ip6tables",
            "GET /agent-url",
        ]


@flavours
async def test_large_text_passes_both_ways(short_dir: Path, flavour: Flavour) -> None:
    chains = "".join(f":VCN-{number:020} - [0:0]\n" for number in range(60_000))
    async with FakeKata(short_dir, FakeTables(), flavour=flavour) as kata:
        shim = Shim(kata.sandbox_id, roots=kata.roots)

        await shim.set_tables(V4, f"*nat\n{chains}COMMIT\n".encode())

        assert chains.encode() in await shim.get_tables(V4)


async def test_error_of_the_go_shim_has_code_and_text(short_dir: Path) -> None:
    quirks = AgentQuirks(allowed_endpoints=frozenset())
    async with FakeKata(short_dir, FakeTables(), quirks=quirks) as kata:
        with pytest.raises(CallFailedError) as caught:
            await Shim(kata.sandbox_id, roots=kata.roots).set_tables(V4, NAT)

    assert (caught.value.code, caught.value.text) == (Code.UNIMPLEMENTED, "SetIPTablesRequest is blocked")


async def test_error_of_the_rust_shim_is_a_closed_connection(short_dir: Path) -> None:
    quirks = AgentQuirks(allowed_endpoints=frozenset())
    async with FakeKata(short_dir, FakeTables(), quirks=quirks, flavour=Flavour.RUST) as kata:
        with pytest.raises(NoAnswerError, match="connection closed, not an HTTP reply") as caught:
            await Shim(kata.sandbox_id, roots=kata.roots).set_tables(V4, NAT)

    assert not caught.value.may_run


@flavours
async def test_old_shim_lacks_the_endpoint(short_dir: Path, flavour: Flavour) -> None:
    async with FakeKata(short_dir, FakeTables(), flavour=flavour) as kata:
        kata.shim.is_old = True
        with pytest.raises(NoEndpointError, match=r"the shim does not support PUT /iptables \(404\)"):
            await Shim(kata.sandbox_id, roots=kata.roots).set_tables(V4, NAT)


async def test_rust_shim_lacks_the_policy_endpoint(short_dir: Path) -> None:
    async with FakeKata(short_dir, FakeTables(), flavour=Flavour.RUST) as kata:
        with pytest.raises(NoEndpointError, match=r"the shim does not support PUT /policy \(404\)"):
            await Shim(kata.sandbox_id, roots=kata.roots).set_policy("package agent_policy\n")


async def test_go_shims_root_is_first(short_dir: Path) -> None:
    go = FakeKata(short_dir, FakeTables(), sandbox_id="same")
    rust = FakeKata(short_dir / "other", FakeTables(), sandbox_id="same", flavour=Flavour.RUST)
    (short_dir / "other").mkdir()
    async with go, rust:
        roots = (go.roots[0], rust.roots[1])
        await Shim("same", roots=roots).agent_url()
        await Shim("same", roots=roots[::-1]).agent_url()

    assert (go.shim.requests, rust.shim.requests) == (["GET /agent-url"], ["GET /agent-url"])


async def test_shims_before_the_guest_is_up(short_dir: Path) -> None:
    go = FakeKata(short_dir, FakeTables(), sandbox_id="a", is_booting=True)
    rust = FakeKata(short_dir, FakeTables(), sandbox_id="b", is_booting=True, flavour=Flavour.RUST)
    async with go, rust:
        with pytest.raises(
            NoAnswerError, match=r"the shim has not made shim-monitor.sock of sandbox a in /.*/sbs, /.*/kata"
        ):
            await Shim("a", roots=go.roots).get_tables(V4)
        with pytest.raises(NoAnswerError, match="connection closed"):
            await Shim("b", roots=go.roots).get_tables(V4)
        assert await Shim("b", roots=go.roots).agent_url() == ""

        for kata in (go, rust):
            await kata.shim.boot()
            assert await Shim(kata.sandbox_id, roots=kata.roots).get_tables(V4) == b""


async def test_socket_of_a_dead_shim_raises_no_answer(short_dir: Path) -> None:
    async with FakeKata(short_dir, FakeTables()) as kata:
        await kata.shim.crash()
        with pytest.raises(NoAnswerError, match="Connection refused"):
            await Shim(kata.sandbox_id, roots=kata.roots).get_tables(V4)


async def test_unanswered_call_to_the_shim_may_run(short_dir: Path) -> None:
    async with FakeKata(short_dir, FakeTables()) as kata:
        kata.shim.is_silent = True
        with pytest.raises(NoAnswerError, match=r"no reply within 0.3 s") as caught:
            await Shim(kata.sandbox_id, roots=kata.roots, timeout_s=_SHORT_S).set_tables(V4, NAT)

    assert caught.value.may_run


async def test_call_without_a_connection_does_not_run(short_dir: Path) -> None:
    path = short_dir / "sbs" / "abc" / SOCKET_NAME
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as waiting:
        full.bind(str(path))
        full.listen(0)
        waiting.connect(str(path))
        with pytest.raises(NoAnswerError) as caught:
            await Shim("abc", roots=[short_dir / "sbs"], timeout_s=_SHORT_S).set_tables(V4, NAT)

    assert not caught.value.may_run


async def test_too_long_socket_path_is_named(short_dir: Path) -> None:
    root = short_dir / ("x" * 120)
    path = root / "abc" / SOCKET_NAME
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "s"))
        (short_dir / "s").rename(path)
        with pytest.raises(NoAnswerError, match="the path is longer than 107 bytes"):
            await Shim("abc", roots=[root]).agent_url()


@pytest.mark.parametrize(
    "received",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b"HTTP/1.1 2", b"\0" * 100],
    ids=["nothing", "half a body", "half a head", "no HTTP"],
)
async def test_incomplete_reply_of_a_shim_raises_no_answer(short_dir: Path, received: bytes) -> None:
    path = short_dir / "sbs" / "abc" / SOCKET_NAME
    path.parent.mkdir(parents=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(received)

    listener = Listener(path, serve)
    await listener.start()
    with pytest.raises(NoAnswerError, match="connection closed"):
        await Shim("abc", roots=[short_dir / "sbs"]).agent_url()
    await listener.stop()


@pytest.mark.parametrize("size_bytes", [0, 10, 3_000_000])
async def test_early_reply_counts(short_dir: Path, size_bytes: int) -> None:
    path = short_dir / "sbs" / "abc" / SOCKET_NAME
    path.parent.mkdir(parents=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    listener = Listener(path, serve)
    await listener.start()
    with pytest.raises(NoEndpointError):
        await Shim("abc", roots=[short_dir / "sbs"]).set_tables(V4, b"#" * size_bytes)
    await listener.stop()


async def test_endless_reply_is_cut_off(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kata_bridge.channels.stock.shim_http.MAX_REPLY_BYTES", 1 << 20)
    path = short_dir / "sbs" / "abc" / SOCKET_NAME
    path.parent.mkdir(parents=True)

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    listener = Listener(path, serve)
    await listener.start()
    with pytest.raises(NoAnswerError, match="the reply is larger than 1048576 bytes"):
        await Shim("abc", roots=[short_dir / "sbs"]).agent_url()
    await listener.stop()
