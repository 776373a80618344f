# SPDX-License-Identifier: Apache-2.0
"""Guests that send bytes without messages: the node limits how many it reads."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from bridge_api.messages import Capabilities, Part
from daemonkit.protobuf import decode, encode
from devkit.pki import Authority
from guest_agent.api.messages import (
    ATTACH,
    AgentHello,
    AgentMessage,
    InstalledParts,
    NodeRequest,
    RulesetState,
)
from guest_agent.http2.call import GrpcCall
from kata_bridge.channels.agent.channel import MAX_TO_GUEST_BYTES
from kata_bridge.channels.agent.receive_budget import (
    BEFORE_ATTACHED_BYTES,
    BETWEEN_MESSAGES_BYTES,
    FLIGHT_BYTES,
    ReceiveBudget,
)
from kata_bridge.channels.port import GuestRefused, GuestState, Unreachable
from kata_bridge.guest_certificates import SERVER_NAME
from ruleset.model import Family
from ruleset.names import Backend
from tests.functional.guest_agent.conftest import AgentServerNode, StartAgent
from tests.functional.guest_agent.dialling import DIGEST, attached, complete_request, dialled, hello, refusal
from tests.waiting import until

pytestmark = pytest.mark.asyncio

# A reset in gRPC's client: while reading, or while writing.
CUT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)
# Two sockets and the relay buffer between sender and reader.
BUFFERS_BYTES = 4 << 20
FLOOD_BYTES = 64 << 20

PING = bytes.fromhex("0000080600000000000102030405060708")
SETTINGS = bytes.fromhex("000000040000000000")
PRIORITY = bytes.fromhex("0000050200000000010000000010")
WINDOW_UPDATE = bytes.fromhex("00000408000000000000000001")
RST_STREAM = bytes.fromhex("00000403000000000300000008")
UNKNOWN = bytes.fromhex("000004fe000000000000000001")
FRAMES = {
    "ping": PING,
    "settings": SETTINGS,
    "priority": PRIORITY,
    "window": WINDOW_UPDATE,
    "reset": RST_STREAM,
    "unknown": UNKNOWN,
}


@contextlib.contextmanager
def connected(path: Path, credentials: Path) -> Iterator[ssl.SSLSocket]:
    """A guest's connection after its handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(credentials / "ca.crt")
    context.load_cert_chain(credentials / "tls.crt", credentials / "tls.key")
    context.set_alpn_protocols(["h2"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plain:
        plain.settimeout(20)
        plain.connect(str(path))
        with context.wrap_socket(plain, server_hostname=SERVER_NAME) as connection:
            yield connection


def flood(connection: ssl.SSLSocket, frame: bytes) -> int:
    """Send frames until the node closes the connection; return how many bytes it took."""
    chunk, sent = frame * (16_000 // len(frame)), 0
    with contextlib.suppress(OSError):
        while sent < FLOOD_BYTES:
            connection.sendall(chunk)
            sent += len(chunk)
    return sent


def begin(connection: ssl.SSLSocket, first: bytes = b"") -> None:
    """Start HTTP/2 and the call, with a message if there is one."""
    call = GrpcCall(ATTACH.path, SERVER_NAME)
    if first:
        call.send_message(first)
    connection.sendall(bytes(call.data_to_send()))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_frames_before_hello_are_limited(node: AgentServerNode, short_dir: Path, frame: bytes) -> None:
    credentials = node.credentials.issue("sb").directory

    def attack() -> int:
        with connected(short_dir / "node.sock", credentials) as connection:
            begin(connection)
            return flood(connection, frame)

    assert await asyncio.to_thread(attack) <= BEFORE_ATTACHED_BYTES + BUFFERS_BYTES
    assert node.attached == []


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_frames_without_a_message_are_limited(
    node: AgentServerNode, short_dir: Path, frame: bytes
) -> None:
    credentials = node.credentials.issue("sb").directory
    first = encode(
        AgentMessage(hello=AgentHello("sb", "1", "b", Capabilities(backends=("iptables",)), RulesetState()))
    )

    def attack() -> int:
        with connected(short_dir / "node.sock", credentials) as connection:
            begin(connection, first)
            return flood(connection, frame)

    assert await asyncio.to_thread(attack) <= BETWEEN_MESSAGES_BYTES + BUFFERS_BYTES
    await until(lambda: len(node.detached) == len(node.attached))


async def test_bytes_before_hello_are_not_buffered(node: AgentServerNode, target: str) -> None:
    """Eight guests that sent 8 MiB each on many connections grew the daemon tenfold."""
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        assert (await refusal(call, b"\x12\x00" * (4 << 20)))[0] in CUT
    assert node.attached == []


@pytest.mark.parametrize(("size", "is_taken"), [(FLIGHT_BYTES - 3_000, True), (FLIGHT_BYTES, False)])
async def test_a_long_certificate_chain_is_not_read(
    node: AgentServerNode, short_dir: Path, size: int, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BoringSSL copies the issuer's name of a certificate for each of its distribution points: 490 MiB for a
    chain of 43 KB. Here the leaf is the guest's own, and the rest is only long."""
    verdicts: list[bool] = []
    spend = ReceiveBudget.try_spend

    def noted(self: ReceiveBudget, size: int) -> bool:
        verdicts.append(spend(self, size))
        return verdicts[-1]

    monkeypatch.setattr(ReceiveBudget, "try_spend", noted)
    credentials = node.credentials.issue("sb").directory
    leaf = credentials / "tls.crt"
    other = Authority.create("x" * 64).cert_pem
    more = size // len(ssl.PEM_cert_to_DER_cert(other.decode()))
    await asyncio.to_thread(leaf.write_bytes, leaf.read_bytes() + other * more)

    def attack() -> bytes:
        with connected(short_dir / "node.sock", credentials) as connection:
            begin(connection, hello("sb"))
            return connection.recv(1 << 14)  # the server's settings

    with contextlib.nullcontext() if is_taken else contextlib.suppress(OSError):
        assert bool(await asyncio.to_thread(attack)) == is_taken
    assert all(verdicts) == is_taken


@pytest.mark.parametrize("size", [16 << 10, 60 << 10])
async def test_an_oversized_hello_is_rejected(node: AgentServerNode, target: str, size: int) -> None:
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        assert (await refusal(call, b"\x78\x00" * (size // 2 + 1)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert node.attached == []


async def test_an_endless_message_ends_the_stream(node: AgentServerNode, target: str) -> None:
    async with attached(node, target) as (call, channel):
        await refusal(call, b"\x78\x00" * (4 << 20))
        await until(lambda: bool(channel.ended))


async def test_responses_renew_the_allowance(node: AgentServerNode, target: str) -> None:
    """In total more than the allowance, one message at a time."""
    long = RulesetState(7, DIGEST + "x" * 10_000, False)
    async with attached(node, target) as (call, channel):
        for _ in range(BETWEEN_MESSAGES_BYTES // 10_000 * 3):
            state, _ = await asyncio.gather(channel.state(), complete_request(call, long))
            assert state == GuestState(7, "", False)
        assert channel.ended == ""


async def test_drift_reported_during_a_read_back_is_allowed(
    node: AgentServerNode, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator reads a drifted guest back just when its agent reports the drift."""
    renewed, renew = asyncio.Event(), ReceiveBudget.renew

    def anew(self: ReceiveBudget) -> None:
        renewed.set()
        renew(self)

    async def guest(call: Any) -> None:
        question = decode(NodeRequest, await call.read())
        renewed.clear()
        await call.write(encode(AgentMessage(state=RulesetState(7, DIGEST, True))))
        await renewed.wait()
        # Four times what may come unsolicited.
        part = Part(Family.IPV4.value, Backend.IPTABLES.value, text=b"\n" * (4 * BETWEEN_MESSAGES_BYTES))
        await call.write(encode(AgentMessage(question.id, installed=InstalledParts((part,)))))

    monkeypatch.setattr(ReceiveBudget, "renew", anew)
    async with asyncio.timeout(30), attached(node, target) as (call, channel):
        outcome, _ = await asyncio.gather(channel.read_back(), guest(call), return_exceptions=True)
        # The text is invalid, but it was read: the stream stays.
        assert isinstance(outcome, Unreachable)
        assert "cannot be read" in str(outcome)
        assert channel.ended == ""


async def test_a_cancelled_read_back_may_get_its_response(node: AgentServerNode, target: str) -> None:
    """An operator presses Ctrl-C while a long response is in flight."""
    async with asyncio.timeout(30), attached(node, target) as (call, channel):
        reading = asyncio.ensure_future(channel.read_back())  # noqa: TID251 - left alone, as its client does
        question = decode(NodeRequest, await call.read())
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        part = Part(Family.IPV4.value, Backend.IPTABLES.value, text=b"\n" * (4 * BETWEEN_MESSAGES_BYTES))
        await call.write(encode(AgentMessage(question.id, installed=InstalledParts((part,)))))
        state, _ = await asyncio.gather(
            channel.state(), complete_request(call, RulesetState(7, DIGEST, False))
        )
        assert state == GuestState(7, DIGEST, False)
        assert channel.ended == ""


async def test_our_hello_is_below_512_bytes() -> None:
    assert len(hello("x" * 64)) < 512


async def test_the_largest_push_fits_the_allowance_twice(
    node: AgentServerNode, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent to our own agent."""
    spent, most = 0, 0
    spend, renew = ReceiveBudget.try_spend, ReceiveBudget.renew

    def noted(self: ReceiveBudget, size: int) -> bool:
        nonlocal spent, most
        spent += size
        most = max(most, spent)
        return spend(self, size)

    def anew(self: ReceiveBudget) -> None:
        nonlocal spent
        spent = 0
        renew(self)

    monkeypatch.setattr(ReceiveBudget, "try_spend", noted)
    monkeypatch.setattr(ReceiveBudget, "renew", anew)
    start_agent(node.credentials.issue("sb").directory)
    channel = await node.channel("sb")
    assert most < BEFORE_ATTACHED_BYTES / 4
    most = 0
    with pytest.raises(GuestRefused, match="65536 bytes at most"):
        await channel.set_resolv_conf("x" * (MAX_TO_GUEST_BYTES - 1_000))
    assert channel.ended == ""
    assert 0 < most < BETWEEN_MESSAGES_BYTES / 2
