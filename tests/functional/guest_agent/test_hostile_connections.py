# SPDX-License-Identifier: Apache-2.0
"""Connections of a compromised guest: their number, rate, and silence are limited."""

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kata_bridge.channels.agent import peer_origin, relay, server
from kata_bridge.guest_certificates import SERVER_NAME
from tests.functional.guest_agent.conftest import AgentServerNode
from tests.functional.guest_agent.dialling import attached, dialled, refusal
from tests.waiting import until

pytestmark = pytest.mark.asyncio


async def test_tls_1_2_is_rejected(node: AgentServerNode, short_dir: Path) -> None:
    issued = node.credentials.issue("sb").directory

    def handshake(highest: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=str(issued / "ca.crt"))
        context.load_cert_chain(issued / "tls.crt", issued / "tls.key")
        context.maximum_version = highest
        context.set_alpn_protocols(["h2"])
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(10)
            plain.connect(str(short_dir / "node.sock"))
            with context.wrap_socket(plain, server_hostname=SERVER_NAME) as tls:
                return tls.version()

    assert await asyncio.to_thread(handshake, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(OSError, match=r"."):
        await asyncio.to_thread(handshake, ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
async def test_a_silent_connection_is_closed(
    node: AgentServerNode, short_dir: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(relay, "ATTACH_S", 0.3)
    reader, writer = await asyncio.open_unix_connection(short_dir / "node.sock")
    writer.write(sent)
    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


async def test_a_stream_without_hello_is_closed(
    node: AgentServerNode, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HELLO_S", 0.3)
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        code, details = await refusal(call)
        assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "no hello within 0.3 s")


async def test_a_rejected_connection_is_closed(
    node: AgentServerNode, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ATTACH_S", 3600.0)
    issued = node.credentials.issue("sb").directory
    async with dialled(target, issued) as call:
        assert (await refusal(call, b"nonsense"))[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert node.links.status()["connections"] == 1
        # The client keeps its connection; the node does not.
        await until(lambda: node.links.status()["connections"] == 0)


async def test_attaching_is_rate_limited(
    node: AgentServerNode, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_ATTACHES", 3)
    for _ in range(3):
        async with attached(node, target):
            pass
        await until(lambda: node.links.channel("sb") is None)
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        assert await refusal(call) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "the agent attaches too often",
        )
    async with attached(node, target, "other"):
        pass


async def test_connections_per_guest_are_limited(node: AgentServerNode, short_dir: Path) -> None:
    await node.links.listen_hybrid("sb", short_dir / "clh.sock", 1033)
    opened = [await asyncio.open_unix_connection(f"{short_dir}/clh.sock_1033") for _ in range(20)]

    def ended() -> int:
        return sum(reader.at_eof() or reader.exception() is not None for reader, _ in opened)

    # Each belongs to the guest, or was closed.
    await until(lambda: ended() + node.links.status()["connections"] == len(opened))
    alive = len(opened) - ended()
    for _, writer in opened:
        writer.close()
    assert alive == peer_origin.MAX_PER_GUEST
