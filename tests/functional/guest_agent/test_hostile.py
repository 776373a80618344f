# SPDX-License-Identifier: Apache-2.0
"""A compromised guest can end its own stream and nothing else."""

import asyncio
from contextlib import suppress

import grpc
import grpc.aio
import pytest

from daemonkit.protobuf import encode
from guest_agent.api.messages import (
    AgentMessage,
    AgentResult,
    AgentResultCode,
    InstalledParts,
    RulesetState,
)
from kata_bridge.channels.agent import server
from kata_bridge.channels.port import GuestState, Unreachable
from ruleset.document import Document, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend
from tests.functional.guest_agent.conftest import AgentServerNode
from tests.functional.guest_agent.dialling import DIGEST, attached, complete_request, dialled, hello, refusal
from tests.waiting import until

pytestmark = pytest.mark.asyncio

# A reset in gRPC's client: while reading, or while writing.
CUT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)


@pytest.mark.parametrize(
    "first",
    [
        b"\xff\xff\xff",
        b"",
        encode(AgentMessage(state=RulesetState(1, DIGEST))),
        encode(AgentMessage(request_id=1)),
    ],
    ids=["nonsense", "empty", "a state", "an answer"],
)
async def test_a_stream_must_begin_with_hello(node: AgentServerNode, target: str, first: bytes) -> None:
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        assert (await refusal(call, first))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert node.attached == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff\xff", "the agent sent an invalid message"),
        (encode(AgentMessage()), "the agent sent an unexpected message"),
        (hello("sb"), "the agent sent an unexpected message"),
        (encode(AgentMessage(installed=InstalledParts())), "the agent sent an unexpected message"),
        (b"x" * (9 << 20), "the agent closed the stream"),
    ],
    ids=["nonsense", "empty", "a second hello", "rules", "nine megabytes"],
)
async def test_an_invalid_message_ends_only_its_stream(
    node: AgentServerNode, target: str, data: bytes, why: str
) -> None:
    async with attached(node, target, "other") as (good, other), attached(node, target) as (bad, channel):
        await refusal(bad, data)
        await until(lambda: bool(channel.ended))
        assert why in channel.ended
        assert node.links.channel("other") is other
        reported, question = await asyncio.gather(
            other.state(), complete_request(good, RulesetState(7, DIGEST, False))
        )
        assert reported == GuestState(7, DIGEST, False)
        assert question.check_drift is not None


async def test_a_reported_state_counts_for_its_guest_only(node: AgentServerNode, target: str) -> None:
    """A guest may lie about its own rules only."""
    async with attached(node, target) as (call, _):
        await call.write(encode(AgentMessage(state=RulesetState(1 << 60, DIGEST, True))))
        await until(lambda: bool(node.states))
    assert node.states == [("sb", GuestState(1 << 60, DIGEST, True))]


async def test_too_many_unsolicited_states_end_the_stream(node: AgentServerNode, target: str) -> None:
    async with attached(node, target) as (call, channel):
        await refusal(call, *[encode(AgentMessage(state=RulesetState(1, DIGEST)))] * 50)
        await until(lambda: bool(channel.ended))
    assert "the agent sent too many unsolicited messages" in channel.ended
    assert len(node.states) == server.MAX_UNSOLICITED


async def test_too_many_unknown_responses_end_the_stream(node: AgentServerNode, target: str) -> None:
    async with attached(node, target) as (call, channel):
        await refusal(call, *[encode(AgentMessage(77, result=AgentResult(AgentResultCode.DONE)))] * 50)
        await until(lambda: bool(channel.ended))
    assert "the agent sent too many unsolicited messages" in channel.ended


@pytest.mark.parametrize("field", [b"\x12\x00", b"\x2a\x00", b"\x78\x00"], ids=["hello", "held", "unknown"])
async def test_megabytes_of_empty_fields_end_the_stream(
    node: AgentServerNode, target: str, field: bytes
) -> None:
    nothing = field * (3 << 20)
    async with dialled(target, node.credentials.issue("sb").directory) as call:
        assert (await refusal(call, nothing))[0] in CUT
    async with attached(node, target) as (call, channel):
        await refusal(call, nothing)
        await until(lambda: bool(channel.ended))
    async with attached(node, target) as (call, channel):
        await refusal(call, nothing[: 100 << 10])
        await until(lambda: bool(channel.ended))
    assert "the agent sent a longer message than was due" in channel.ended


async def test_an_agent_that_does_not_read_is_detached(
    node: AgentServerNode, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WRITE_S", 0.5)
    rules = tuple(f"-d 10.{i // 65536}.{i // 256 % 256}.{i % 256}/32 -j DROP" for i in range(400_000))
    large = make_ruleset(1, [Document(Family.IPV4, Backend.IPTABLES, {"filter/VCN-A": rules})])
    async with attached(node, target) as (_, channel):
        # The client's library reads ahead up to its window, so more than that is sent.
        for _ in range(40):
            with suppress(TimeoutError, Unreachable):
                async with asyncio.timeout(0.2):
                    await channel.apply(large, [])
            if channel.ended:
                break
    assert "the agent does not read" in channel.ended


async def test_a_newer_stream_replaces_the_older(node: AgentServerNode, target: str) -> None:
    issued = node.credentials.issue("sb").directory
    async with dialled(target, issued) as old, dialled(target, issued) as new:
        await old.write(hello("sb"))
        first = await node.channel("sb")
        await new.write(hello("sb"))
        await until(lambda: node.links.channel("sb") is not first)
        second = await node.channel("sb")
        assert "a newer stream replaced it" in first.ended
        assert (await refusal(old))[0] is grpc.StatusCode.UNAVAILABLE
        reported, _ = await asyncio.gather(
            second.state(), complete_request(new, RulesetState(1, DIGEST, False))
        )
        assert reported.digest == DIGEST
    assert node.attached == [first, second]
    await until(lambda: len(node.detached) == 2)
    assert node.detached == [first, second]
