# SPDX-License-Identifier: Apache-2.0
"""What a guest that was taken over can do: nothing but to end its own stream."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from daemonkit.protobuf import decode, encode
from kata_bridge.api.messages import Capabilities, Part
from kata_bridge.channels import agent, origins, relay
from kata_bridge.channels.channel import GuestState, Unreachable
from kata_bridge.core.sandboxes import Appeared, Sandbox
from kata_bridge.credentials import SERVER_NAME, Credentials
from kata_bridge.guest.messages import (
    ATTACH,
    FromGuest,
    HeldRules,
    Hello,
    Outcome,
    OutcomeCode,
    State,
    ToGuest,
)
from ruleset.document import Document, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend
from tests.functional.kata_bridge.guest.conftest import Node, StartAgent, until

DIGEST = "ab" * 32


@asynccontextmanager
async def dialled(target: str, credentials: Path, **files: Path) -> AsyncIterator[Any]:
    """A stream of a client that speaks gRPC and says what it wants."""
    paths = {name: credentials / name for name in ("ca.crt", "tls.key", "tls.crt")} | files
    pems = [path.read_bytes() for path in paths.values()]
    options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.secure_channel(
        target, grpc.ssl_channel_credentials(*pems), options=options
    ) as channel:
        yield channel.stream_stream(ATTACH.path)()


def hello(sandbox: str = "") -> bytes:
    return encode(FromGuest(hello=Hello(sandbox, "1", "boot", Capabilities(backends=("iptables",)), State())))


async def refusal(call: Any, *sent: bytes) -> tuple[grpc.StatusCode, str]:
    """How the node ends a stream on which `sent` was sent."""
    async with asyncio.timeout(20):
        try:
            for data in sent:
                await call.write(data)
            await call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        return await call.code(), await call.details()


@pytest.fixture
def target(directory: Path) -> str:
    return f"unix:{directory}/node.sock"


@pytest.mark.asyncio
async def test_nobody_is_another_guest_than_its_certificate_says(node: Node, target: str) -> None:
    node.credentials.issue("victim")
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        assert await refusal(call, hello("victim")) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "its hello names another sandbox than its certificate",
        )
    assert node.attached == []


@pytest.mark.asyncio
async def test_a_certificate_of_a_sandbox_that_is_gone_is_of_nobody(
    node: Node, target: str, tmp_path: Path
) -> None:
    issued = node.credentials.issue("sb")
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in issued.directory.iterdir():
        (kept / path.name).write_bytes(path.read_bytes())
    node.credentials.revoke("sb")
    node.credentials.issue("sb")
    async with dialled(target, kept) as call:
        code, details = await refusal(call, hello("sb"))
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert details == "this certificate is of no sandbox that lives"


@pytest.mark.asyncio
async def test_a_certificate_of_another_authority_or_none_gets_no_further_than_tls(
    node: Node, directory: Path, target: str
) -> None:
    other = Credentials.open(directory / "other").issue("sb").directory
    ca = node.credentials.issue("sb").directory / "ca.crt"
    async with dialled(target, other, **{"ca.crt": ca}) as call:
        assert (await refusal(call, hello("sb")))[0] is grpc.StatusCode.UNAVAILABLE
    async with grpc.aio.secure_channel(
        target,
        grpc.ssl_channel_credentials(ca.read_bytes()),
        options=[("grpc.ssl_target_name_override", SERVER_NAME)],
    ) as channel:
        code, _ = await refusal(channel.stream_stream(ATTACH.path)(), hello("sb"))
    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.asyncio
async def test_an_agent_does_not_talk_to_another_node(
    node: Node, directory: Path, start_agent: StartAgent
) -> None:
    node.credentials.issue("sb")
    other = Credentials.open(directory / "other").issue("sb").directory
    start_agent(other)
    await asyncio.sleep(1)  # a while in which it tries several times
    assert node.attached == []


@pytest.mark.asyncio
async def test_a_certificate_that_comes_out_of_another_guest(node: Node, directory: Path) -> None:
    stolen = node.credentials.issue("victim").directory
    await node.links.listen_hybrid("sb", directory / "clh.sock", 1033)
    async with dialled(f"unix:{directory}/clh.sock_1033", stolen) as call:
        assert await refusal(call, hello("victim")) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "its certificate came through the socket of sandbox sb",
        )


@pytest.mark.asyncio
async def test_by_tcp_a_certificate_comes_from_its_sandboxs_address(node: Node) -> None:
    port = await node.links.listen_tcp("127.0.0.1", 0)
    node.addresses.take(
        Appeared(Sandbox(name, "n", name, name, ips=ips))
        for name, ips in (("victim", ("10.0.0.5", "fd00::5")), ("own", ("127.0.0.1",)), ("silent", ()))
    )
    async with dialled(f"127.0.0.1:{port}", node.credentials.issue("victim").directory) as call:
        assert await refusal(call, hello("victim")) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "its certificate came from 127.0.0.1, which is not its sandbox's address",
        )
    for name in ("own", "silent"):
        async with dialled(f"127.0.0.1:{port}", node.credentials.issue(name).directory) as call:
            await call.write(hello(name))
            await node.channel(name)


@pytest.mark.asyncio
async def test_who_was_refused_is_hung_up_on(
    node: Node, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ATTACH_S", 3600.0)
    issued = node.credentials.issue("sb").directory
    async with dialled(target, issued) as call:
        assert (await refusal(call, b"nonsense"))[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert node.links.status()["connections"] == 1
        # The client keeps its connection; the node does not.
        await until(lambda: node.links.status()["connections"] == 0)


@pytest.mark.asyncio
async def test_the_server_behind_the_relay_is_not_for_guests(node: Node, directory: Path) -> None:
    inner = node.links.inner_port
    async with dialled(f"127.0.0.1:{inner}", node.credentials.issue("sb").directory) as call:
        assert (await refusal(call, hello("sb")))[0] is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.asyncio
async def test_revoking_ends_the_stream_at_once(node: Node, target: str) -> None:
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        await call.write(hello("sb"))
        channel = await node.channel("sb")
        node.credentials.revoke("sb")
        node.links.forget("sb")
        assert (await refusal(call))[0] is grpc.StatusCode.UNAVAILABLE
    assert "its sandbox is gone" in channel.ended
    assert node.detached == [channel]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "first",
    [b"\xff\xff\xff", b"", encode(FromGuest(state=State(1, DIGEST))), encode(FromGuest(answers=1))],
    ids=["nonsense", "empty", "a state", "an answer"],
)
async def test_the_first_message_is_a_hello_or_the_last(node: Node, target: str, first: bytes) -> None:
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        assert (await refusal(call, first))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert node.attached == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff\xff", "it sent what is no message"),
        (encode(FromGuest()), "it sent what nobody asked for"),
        (hello("sb"), "it sent what nobody asked for"),
        (encode(FromGuest(held=HeldRules())), "it sent what nobody asked for"),
        (b"x" * (9 << 20), "it hung up"),
    ],
    ids=["nonsense", "empty", "a second hello", "rules", "nine megabytes"],
)
async def test_nonsense_ends_the_stream_and_hurts_nobody_else(
    node: Node, target: str, data: bytes, why: str
) -> None:
    async with (
        dialled(target, node.credentials.issue("other").directory) as good,
        dialled(target, node.credentials.issue("sb").directory) as bad,
    ):
        await good.write(hello("other"))
        await bad.write(hello("sb"))
        channel = await node.channel("sb")
        await refusal(bad, data)
        await until(lambda: bool(channel.ended))
        assert why in channel.ended
        other = await node.channel("other")
        asked, question = await asyncio.gather(other.state(), _answer(good, State(7, DIGEST, False)))
        assert asked == GuestState(7, DIGEST, False)
        assert question.check is not None


async def _answer(call: Any, state: State) -> ToGuest:
    question = decode(ToGuest, await call.read())
    await call.write(encode(FromGuest(question.id, outcome=Outcome(OutcomeCode.DONE, "", state))))
    return question


@pytest.mark.asyncio
async def test_another_pods_generation_is_a_word_and_moves_nothing(node: Node, target: str) -> None:
    """A guest may lie about its own rules; what it says is kept under its own name alone."""
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        await call.write(hello("sb"))
        await node.channel("sb")
        await call.write(encode(FromGuest(state=State(1 << 60, DIGEST, True))))
        await until(lambda: bool(node.states))
    assert node.states == [("sb", GuestState(1 << 60, DIGEST, True))]


@pytest.mark.asyncio
async def test_a_bomb_is_not_inflated(node: Node, target: str) -> None:
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        await call.write(hello("sb"))
        channel = await node.channel("sb")

        async def bomb() -> None:
            question = decode(ToGuest, await call.read())
            part = Part("ipv4", "iptables", b"x", 1 << 40)
            await call.write(encode(FromGuest(question.id, held=HeldRules((part,)))))

        with pytest.raises(Unreachable, match="larger than"):
            await asyncio.gather(channel.read_back(), bomb())


@pytest.mark.asyncio
async def test_who_talks_without_being_asked_is_ended(node: Node, target: str) -> None:
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        await call.write(hello("sb"))
        channel = await node.channel("sb")
        await refusal(call, *[encode(FromGuest(state=State(1, DIGEST)))] * 50)
        await until(lambda: bool(channel.ended))
    assert "it talks without being asked" in channel.ended
    assert len(node.states) == agent.MAX_UNASKED


@pytest.mark.asyncio
async def test_who_answers_without_being_asked_is_ended(node: Node, target: str) -> None:
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        await call.write(hello("sb"))
        channel = await node.channel("sb")
        await refusal(call, *[encode(FromGuest(77, outcome=Outcome(OutcomeCode.DONE)))] * 50)
        await until(lambda: bool(channel.ended))
    assert "it talks without being asked" in channel.ended


@pytest.mark.asyncio
@pytest.mark.parametrize("field", [b"\x12\x00", b"\x2a\x00", b"\x78\x00"], ids=["hello", "held", "unknown"])
async def test_who_says_megabytes_of_nothing_is_not_listened_to(
    node: Node, target: str, field: bytes
) -> None:
    nothing = field * (3 << 20)
    loop = asyncio.get_running_loop()
    issued = node.credentials.issue("sb").directory
    async with dialled(target, issued) as call:
        assert await refusal(call, nothing) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "its hello cannot be read",
        )
    async with dialled(target, issued) as call:
        await call.write(hello("sb"))
        channel = await node.channel("sb")
        began = loop.time()
        await refusal(call, nothing)
        await until(lambda: bool(channel.ended))
        assert loop.time() - began < 2.0
    assert "it said more than it was asked" in channel.ended


@pytest.mark.asyncio
async def test_who_attaches_again_and_again_has_to_wait(
    node: Node, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "MAX_ATTACHES", 3)
    issued = node.credentials.issue("sb").directory
    for _ in range(3):
        async with dialled(target, issued) as call:
            await call.write(hello("sb"))
            await node.channel("sb")
        await until(lambda: node.links.channel("sb") is None)
    async with dialled(target, issued) as call:
        assert await refusal(call, hello("sb")) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "it attaches too often",
        )
    async with dialled(target, node.credentials.issue("other").directory) as call:
        await call.write(hello("other"))
        await node.channel("other")


@pytest.mark.asyncio
async def test_who_does_not_read_is_ended(node: Node, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "WRITE_S", 0.5)
    rules = tuple(f"-d 10.{i // 65536}.{i // 256 % 256}.{i % 256}/32 -j DROP" for i in range(400_000))
    large = make_ruleset(1, [Document(Family.IPV4, Backend.IPTABLES, {"filter/VCN-A": rules})])
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        await call.write(hello("sb"))
        channel = await node.channel("sb")
        # The client's library reads ahead, up to a window: more than that has to be under way.
        for _ in range(40):
            with suppress(TimeoutError, Unreachable):
                async with asyncio.timeout(0.2):
                    await channel.apply(large, [])
            if channel.ended:
                break
    assert "it does not read" in channel.ended


@pytest.mark.asyncio
async def test_the_newer_of_two_streams_wins(node: Node, target: str) -> None:
    issued = node.credentials.issue("sb").directory
    async with dialled(target, issued) as old, dialled(target, issued) as new:
        await old.write(hello("sb"))
        first = await node.channel("sb")
        await new.write(hello("sb"))
        await until(lambda: node.links.channel("sb") is not first)
        second = await node.channel("sb")
        assert "a newer stream took its place" in first.ended
        assert (await refusal(old))[0] is grpc.StatusCode.UNAVAILABLE
        asked, _ = await asyncio.gather(second.state(), _answer(new, State(1, DIGEST, False)))
        assert asked.digest == DIGEST
    assert node.attached == [first, second]
    await until(lambda: len(node.detached) == 2)
    assert node.detached == [first, second]


@pytest.mark.asyncio
async def test_without_tls_1_3_there_is_no_handshake(node: Node, directory: Path) -> None:
    issued = node.credentials.issue("sb").directory

    def handshake(highest: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=str(issued / "ca.crt"))
        context.load_cert_chain(issued / "tls.crt", issued / "tls.key")
        context.maximum_version = highest
        context.set_alpn_protocols(["h2"])
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(10)
            plain.connect(str(directory / "node.sock"))
            with context.wrap_socket(plain, server_hostname=SERVER_NAME) as tls:
                return tls.version()

    assert await asyncio.to_thread(handshake, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(OSError, match=r"."):
        await asyncio.to_thread(handshake, ssl.TLSVersion.TLSv1_2)


@pytest.mark.asyncio
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
async def test_who_says_nothing_does_not_stay(
    node: Node, directory: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(relay, "ATTACH_S", 0.3)
    reader, writer = await asyncio.open_unix_connection(directory / "node.sock")
    writer.write(said)
    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


@pytest.mark.asyncio
async def test_a_stream_without_a_hello_does_not_stay(
    node: Node, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "HELLO_S", 0.3)
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        code, details = await refusal(call)
        assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "no hello in time")


@pytest.mark.asyncio
async def test_connections_of_one_guest_are_counted(node: Node, directory: Path) -> None:
    await node.links.listen_hybrid("sb", directory / "clh.sock", 1033)
    opened = [await asyncio.open_unix_connection(f"{directory}/clh.sock_1033") for _ in range(20)]
    alive = 0
    for reader, writer in opened:
        try:
            async with asyncio.timeout(0.05):
                await reader.read(1)
        except TimeoutError:
            alive += 1
        except ConnectionResetError:
            pass
        writer.close()
    assert alive == origins.MAX_PER_GUEST
