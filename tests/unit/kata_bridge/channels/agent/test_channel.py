# SPDX-License-Identifier: Apache-2.0
"""One attached agent as a channel; the test plays the agent."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from bridge_api.messages import Capabilities, Flow, Part
from bridge_api.rulesets import to_message
from daemonkit.protobuf import decode
from guest_agent.api.messages import (
    AgentHello,
    AgentMessage,
    AgentResult,
    AgentResultCode,
    ApplyRuleset,
    CheckDrift,
    FlushConntrack,
    InstalledParts,
    NodeRequest,
    ReadBack,
    RulesetState,
    WriteResolvConf,
)
from kata_bridge.channels.agent.channel import AgentChannel, guest_state
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, NotInjectable, Unreachable
from ruleset.document import Document, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend

DIGEST = "ab" * 32
CAN = Capabilities("x", ("nft",), True, True, True, True, "other")
RULES = make_ruleset(3, [Document(Family.IPV4, Backend.IPTABLES, {"nat/VCN-A": ()})])


def attached(hello: AgentHello | None = None) -> AgentChannel:
    return AgentChannel("sb", hello or AgentHello("sb", "1", "boot", CAN), "unix", to_message)


async def complete_next(channel: AgentChannel, agent_message: AgentMessage) -> NodeRequest:
    """Act as the agent once: complete its next request, and return the request."""
    request = decode(NodeRequest, await channel.outbox.get())
    channel.complete_request(
        AgentMessage(request.id, result=agent_message.result, installed=agent_message.installed)
    )
    return request


async def answering_all(channel: AgentChannel, calls: int) -> None:
    """Play the agent for some requests, in order."""
    for _ in range(calls):
        await complete_next(channel, done())


async def outcome_of(
    channel: AgentChannel, call: Awaitable[object], agent_message: AgentMessage
) -> tuple[object, NodeRequest]:
    result, request = await asyncio.gather(call, complete_next(channel, agent_message))
    return result, request


def done(
    code: AgentResultCode = AgentResultCode.DONE, message: str = "", state: RulesetState | None = None
) -> AgentMessage:
    return AgentMessage(result=AgentResult(code, message, state))


@pytest.mark.asyncio
async def test_capabilities_are_those_of_the_hello() -> None:
    assert await attached().probe() == Capabilities("agent", ("nft",), True, True, True, True, "1")


@pytest.mark.asyncio
async def test_texts_of_a_hello_are_cut_and_filtered() -> None:
    claimed = Capabilities("shim", ("x" * 99, "iptables", "nft", "nft"), False, True, False, False, "v")
    channel = attached(AgentHello("sb", "1.2\n\x1b[31m" + "9" * 9_999, "b" * 9_999, claimed))
    kept = await channel.probe()
    assert kept == Capabilities("agent", ("iptables", "nft"), False, True, False, False, kept.version)

    assert kept.version == "1.231m" + "9" * 55


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("has_ipv6", "claimed", "kept"),
    [
        (False, "the guest's kernel has no IPv6", "the guest's kernel has no IPv6"),
        (False, "a\x1b[2J\nb\u202e", "a[2Jb"),
        (False, "x" * 10_000, "x" * 300),
        (True, "nothing is wrong", ""),
    ],
)
async def test_ipv6_message_is_one_printable_sentence(has_ipv6: bool, claimed: str, kept: str) -> None:
    capabilities = Capabilities(backends=("iptables",), ipv6=has_ipv6, ipv6_message=claimed)
    assert (await attached(AgentHello("sb", "1", "boot", capabilities)).probe()).ipv6_message == kept


@pytest.mark.asyncio
async def test_guest_without_a_packet_filter_is_not_injectable() -> None:
    channel = attached(AgentHello("sb", "1", "boot", Capabilities()))
    with pytest.raises(
        NotInjectable, match="that works: no iptables-restore, and no nft; add what one of them lacks"
    ):
        await outcome_of(
            channel, channel.probe(), done(AgentResultCode.FAILED, "no iptables-restore, and no nft")
        )


@pytest.mark.asyncio
async def test_each_call_sends_one_request() -> None:
    channel = attached()
    state = RulesetState(3, DIGEST, True)
    here = GuestState(3, DIGEST, True)
    flow = Flow("udp", "10.0.0.1", 53)
    cases: list[tuple[Callable[[], Awaitable[object]], AgentMessage, object, NodeRequest]] = [
        (channel.state, done(state=state), here, NodeRequest(1, check_drift=CheckDrift())),
        (
            lambda: channel.apply(RULES, [flow]),
            done(state=state),
            here,
            NodeRequest(2, apply=ApplyRuleset(to_message(RULES), (flow,))),
        ),
        (
            channel.read_back,
            AgentMessage(installed=InstalledParts(to_message(RULES).parts)),
            RULES.documents,
            NodeRequest(3, read_back=ReadBack()),
        ),
        (
            lambda: channel.flush_conntrack([flow]),
            done(),
            None,
            NodeRequest(4, flush_conntrack=FlushConntrack((flow,))),
        ),
        (
            lambda: channel.set_resolv_conf("x"),
            done(AgentResultCode.UNCHANGED),
            None,
            NodeRequest(5, write_resolv_conf=WriteResolvConf("x")),
        ),
    ]
    for call, agent_message, expected, request in cases:
        assert await outcome_of(channel, call(), agent_message) == (expected, request)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (AgentResultCode.NEEDS_FULL, NeedsFull),
        (AgentResultCode.REFUSED, GuestRefused),
        (AgentResultCode.FAILED, Unreachable),
        (AgentResultCode.CODE_UNSPECIFIED, Unreachable),
        (AgentResultCode(99), Unreachable),
    ],
)
async def test_failed_result_raises_its_outcome_with_the_message(
    code: AgentResultCode, expected: type[Exception]
) -> None:
    channel = attached()
    with pytest.raises(expected, match="line 7"):
        await outcome_of(channel, channel.apply(RULES, []), done(code, "line 7"))


@pytest.mark.asyncio
async def test_message_of_a_result_is_cut() -> None:
    channel = attached()
    with pytest.raises(GuestRefused) as caught:
        await outcome_of(channel, channel.state(), done(AgentResultCode.REFUSED, "x" * 100_000))
    assert len(str(caught.value)) == 2_000


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("agent_message", "why"),
    [
        (AgentMessage(), None),
        (AgentMessage(installed=InstalledParts((Part("ipv4", "iptables", b"rubbish"),))), None),
        (AgentMessage(installed=InstalledParts((Part("ipv4", "iptables", b"x", 1 << 50),))), "larger than"),
        (AgentMessage(installed=InstalledParts((Part("ipv4", "iptables"),) * 5)), None),
    ],
)
async def test_invalid_read_back_is_unreachable(agent_message: AgentMessage, why: str | None) -> None:
    channel = attached()
    with pytest.raises(Unreachable, match=why):
        await outcome_of(channel, channel.read_back(), agent_message)


@pytest.mark.asyncio
async def test_result_of_another_request_is_dropped() -> None:
    channel = attached()

    async def guest() -> None:
        request = decode(NodeRequest, await channel.outbox.get())
        channel.complete_request(AgentMessage(request.id + 1, result=AgentResult(AgentResultCode.REFUSED)))
        channel.complete_request(AgentMessage(request.id - 1, result=AgentResult(AgentResultCode.REFUSED)))
        channel.complete_request(AgentMessage(request.id, result=AgentResult(AgentResultCode.DONE)))
        channel.complete_request(AgentMessage(request.id, result=AgentResult(AgentResultCode.REFUSED)))

    state, _ = await asyncio.gather(channel.state(), guest())
    assert state == GuestState(0, "", False)


async def abandoned(call: Coroutine[Any, Any, object]) -> None:
    """Start a call and cancel it before the agent has answered."""
    task = asyncio.ensure_future(call)  # noqa: TID251 - cancelled at once, as a caller may
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_result_of_an_abandoned_call_is_dropped() -> None:
    """The agent cannot know that its caller has left. Only a reply without any call is its fault."""
    channel = attached()
    await abandoned(channel.read_back())
    await abandoned(channel.state())
    had_pending = channel.has_pending_requests  # a separate name, or mypy narrows the later value
    assert had_pending
    assert not channel.complete_request(AgentMessage(3, result=AgentResult(AgentResultCode.DONE)))

    assert channel.complete_request(AgentMessage(1, installed=InstalledParts(())))
    assert channel.complete_request(AgentMessage(2, result=AgentResult(AgentResultCode.DONE)))
    assert not channel.has_pending_requests
    for again in (1, 2):
        assert not channel.complete_request(AgentMessage(again, result=AgentResult(AgentResultCode.DONE)))


@pytest.mark.asyncio
async def test_next_call_ignores_the_result_of_an_abandoned_one() -> None:
    channel = attached()
    await abandoned(channel.read_back())

    async def guest() -> None:
        abandoned_call = decode(NodeRequest, await channel.outbox.get())
        request = decode(NodeRequest, await channel.outbox.get())
        channel.complete_request(AgentMessage(abandoned_call.id, result=AgentResult(AgentResultCode.REFUSED)))
        channel.complete_request(AgentMessage(request.id, result=AgentResult(AgentResultCode.DONE)))

    state, _ = await asyncio.gather(channel.state(), guest())
    assert state == GuestState(0, "", False)


@pytest.mark.asyncio
async def test_abandoned_read_back_keeps_its_slot() -> None:
    """Its reply may be as long as the rules. The whole node receives such replies one at a time."""
    long: list[bool] = []
    slot = asyncio.Semaphore(1)
    channel = AgentChannel(
        "sb",
        AgentHello("sb", "1", "boot", CAN),
        "unix",
        to_message,
        expect_long_result=long.append,
        read_back_slot=slot,
    )
    await abandoned(channel.read_back())
    assert (channel.is_reading_back, slot.locked()) == (True, True)

    state, _ = await asyncio.gather(channel.state(), answering_all(channel, 2))
    assert state == GuestState(0, "", False)
    assert (channel.is_reading_back, slot.locked()) == (False, False)
    assert long == [True, False]

    # The cancelled call's deadline ended with its reply.
    await asyncio.sleep(100)
    assert channel.ended == ""
    documents, _ = await outcome_of(channel, channel.read_back(), AgentMessage(installed=InstalledParts(())))
    assert documents == ()
    assert long == [True, False, True, False]
    assert not slot.locked()


@pytest.mark.asyncio
async def test_abandoned_read_back_keeps_its_deadline() -> None:
    """A silent guest delays the others' read-back for no longer than that."""
    slot = asyncio.Semaphore(1)
    channel = AgentChannel("sb", AgentHello("sb", "1", "boot", CAN), "unix", to_message, read_back_slot=slot)
    await abandoned(channel.read_back())
    await asyncio.wait_for(channel.wait_ended(), 10.1)
    assert channel.ended.endswith("no answer within 10 s")
    assert slot.locked() is False
    with pytest.raises(Unreachable):
        await channel.read_back()
    assert slot.locked() is False


@pytest.mark.asyncio
async def test_missing_result_ends_the_stream() -> None:
    channel = attached()
    with pytest.raises(Unreachable, match="no answer within 10 s"):
        await channel.state()
    assert channel.ended
    with pytest.raises(Unreachable, match="no answer within 10 s"):
        await channel.apply(RULES, [])


@pytest.mark.asyncio
async def test_end_of_the_stream_fails_the_pending_call() -> None:
    channel = attached()

    async def leave() -> None:
        await channel.outbox.get()
        channel.end("the agent closed the stream")
        channel.end("again")

    with pytest.raises(Unreachable, match="not attached: the agent closed the stream"):
        await asyncio.gather(channel.state(), leave())
    await asyncio.wait_for(channel.wait_ended(), 1)
    for call in (channel.probe(), channel.read_back()):
        with pytest.raises(Unreachable):
            await call


@pytest.mark.asyncio
async def test_full_outbox_ends_the_stream() -> None:
    channel = attached()
    for _ in range(4):
        await abandoned(channel.state())
    with pytest.raises(Unreachable, match="does not read"):
        await channel.state()


@pytest.mark.parametrize("digest", ["", "x" * 64, "AB" * 32, "ab" * 31, "ab" * 32 + "\n", "../../etc"])
def test_invalid_digest_is_dropped(digest: str) -> None:
    assert guest_state(RulesetState(1, digest, False)) == GuestState(1, "", False)
