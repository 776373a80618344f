# SPDX-License-Identifier: Apache-2.0
"""One attached agent as a channel, with a guest that answers what the test says."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from bridge_api.messages import Capabilities, Flow, Part
from bridge_api.rulesets import to_message
from daemonkit.protobuf import decode
from guest_agent.api.messages import (
    AgentMessage,
    AgentResult,
    AgentResultCode,
    ApplyRuleset,
    CheckDrift,
    FlushConntrack,
    Hello,
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


def attached(hello: Hello | None = None) -> AgentChannel:
    return AgentChannel("sb", hello or Hello("sb", "1", "boot", CAN), "unix", to_message)


async def answering(channel: AgentChannel, answer: AgentMessage) -> NodeRequest:
    """Play the guest once: take the question and answer it; return what was asked."""
    question = decode(NodeRequest, await channel.outbox.get())
    channel.answered(AgentMessage(question.id, result=answer.result, installed=answer.installed))
    return question


async def answering_all(channel: AgentChannel, calls: int) -> None:
    """Play the guest for some calls, in their order, as an agent does."""
    for _ in range(calls):
        await answering(channel, done())


async def outcome_of(
    channel: AgentChannel, call: Awaitable[object], answer: AgentMessage
) -> tuple[object, NodeRequest]:
    result, question = await asyncio.gather(call, answering(channel, answer))
    return result, question


def done(
    code: AgentResultCode = AgentResultCode.DONE, message: str = "", state: RulesetState | None = None
) -> AgentMessage:
    return AgentMessage(result=AgentResult(code, message, state))


@pytest.mark.asyncio
async def test_what_the_guest_can_do_is_what_it_said_but_for_how_it_came() -> None:
    assert await attached().probe() == Capabilities("agent", ("nft",), True, True, True, True, "1")


@pytest.mark.asyncio
async def test_what_is_kept_of_a_guests_words_is_short_and_plain() -> None:
    said = Capabilities("shim", ("x" * 99, "iptables", "nft", "nft"), False, True, False, False, "v")
    channel = attached(Hello("sb", "1.2\n\x1b[31m" + "9" * 9_999, "b" * 9_999, said))
    kept = await channel.probe()
    assert kept == Capabilities("agent", ("iptables", "nft"), False, True, False, False, kept.version)

    assert kept.version == "1.231m" + "9" * 55
    assert channel.boot_id == "b" * 64


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("has_ipv6", "said", "kept"),
    [
        (False, "the guest's kernel has no IPv6", "the guest's kernel has no IPv6"),
        (False, "a\x1b[2J\nb\u202e", "a[2Jb"),
        (False, "x" * 10_000, "x" * 300),
        (True, "nothing is wrong", ""),
    ],
)
async def test_why_there_is_no_ipv6_is_a_sentence_whatever_was_sent(
    has_ipv6: bool, said: str, kept: str
) -> None:
    capabilities = Capabilities(backends=("iptables",), ipv6=has_ipv6, ipv6_message=said)
    assert (await attached(Hello("sb", "1", "boot", capabilities)).probe()).ipv6_message == kept


@pytest.mark.asyncio
async def test_a_guest_without_a_packet_filter_is_asked_why() -> None:
    channel = attached(Hello("sb", "1", "boot", Capabilities()))
    with pytest.raises(NotInjectable, match="works: no iptables-restore, and no nft"):
        await outcome_of(
            channel, channel.probe(), done(AgentResultCode.FAILED, "no iptables-restore, and no nft")
        )


@pytest.mark.asyncio
async def test_every_call_is_one_question() -> None:
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
    for call, answer, expected, question in cases:
        assert await outcome_of(channel, call(), answer) == (expected, question)


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
async def test_a_bad_outcome_is_its_exception_with_the_guests_words(
    code: AgentResultCode, expected: type[Exception]
) -> None:
    channel = attached()
    with pytest.raises(expected, match="line 7"):
        await outcome_of(channel, channel.apply(RULES, []), done(code, "line 7"))


@pytest.mark.asyncio
async def test_words_of_a_guest_are_cut() -> None:
    channel = attached()
    with pytest.raises(GuestRefused) as caught:
        await outcome_of(channel, channel.state(), done(AgentResultCode.REFUSED, "x" * 100_000))
    assert len(str(caught.value)) == 2_000


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        AgentMessage(),
        AgentMessage(installed=InstalledParts((Part("ipv4", "iptables", b"rubbish"),))),
        AgentMessage(installed=InstalledParts((Part("ipv4", "iptables", b"x", 1 << 50),))),
        AgentMessage(installed=InstalledParts((Part("ipv4", "iptables"),) * 5)),
    ],
)
async def test_an_answer_that_is_none_is_no_answer(answer: AgentMessage) -> None:
    channel = attached()
    with pytest.raises(Unreachable):
        await outcome_of(channel, channel.read_back(), answer)


@pytest.mark.asyncio
async def test_an_answer_to_another_question_is_dropped() -> None:
    channel = attached()

    async def guest() -> None:
        question = decode(NodeRequest, await channel.outbox.get())
        channel.answered(AgentMessage(question.id + 1, result=AgentResult(AgentResultCode.REFUSED)))
        channel.answered(AgentMessage(question.id - 1, result=AgentResult(AgentResultCode.REFUSED)))
        channel.answered(AgentMessage(question.id, result=AgentResult(AgentResultCode.DONE)))
        channel.answered(AgentMessage(question.id, result=AgentResult(AgentResultCode.REFUSED)))

    state, _ = await asyncio.gather(channel.state(), guest())
    assert state == GuestState(0, "", False)


async def abandoned(call: Coroutine[Any, Any, object]) -> None:
    """Begin a call and give it up before the guest has answered, as a client that is cancelled does."""
    task = asyncio.ensure_future(call)  # noqa: TID251 - given up at once, as a caller may
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_the_answer_to_an_abandoned_call_is_dropped() -> None:
    """The agent cannot know that its caller has left; only an answer to no call at all is its fault."""
    channel = attached()
    await abandoned(channel.read_back())
    await abandoned(channel.state())
    was_asked = channel.is_asked  # a name of its own, or mypy takes the later answer for this one
    assert was_asked
    assert not channel.answered(AgentMessage(3, result=AgentResult(AgentResultCode.DONE)))

    assert channel.answered(AgentMessage(1, installed=InstalledParts(())))
    assert channel.answered(AgentMessage(2, result=AgentResult(AgentResultCode.DONE)))
    assert not channel.is_asked
    for again in (1, 2):
        assert not channel.answered(AgentMessage(again, result=AgentResult(AgentResultCode.DONE)))


@pytest.mark.asyncio
async def test_the_next_call_does_not_take_an_abandoned_ones_answer() -> None:
    channel = attached()
    await abandoned(channel.read_back())

    async def guest() -> None:
        abandoned_call = decode(NodeRequest, await channel.outbox.get())
        question = decode(NodeRequest, await channel.outbox.get())
        channel.answered(AgentMessage(abandoned_call.id, result=AgentResult(AgentResultCode.REFUSED)))
        channel.answered(AgentMessage(question.id, result=AgentResult(AgentResultCode.DONE)))

    state, _ = await asyncio.gather(channel.state(), guest())
    assert state == GuestState(0, "", False)


@pytest.mark.asyncio
async def test_an_abandoned_read_back_keeps_its_place() -> None:
    """Its answer may be as long as rules are, and such answers come one at a time on the whole node."""
    long: list[bool] = []
    reading_back = asyncio.Semaphore(1)
    channel = AgentChannel(
        "sb", Hello("sb", "1", "boot", CAN), "unix", to_message, expect=long.append, reading_back=reading_back
    )
    await abandoned(channel.read_back())
    assert (channel.is_reading_back, reading_back.locked()) == (True, True)

    state, _ = await asyncio.gather(channel.state(), answering_all(channel, 2))
    assert state == GuestState(0, "", False)
    assert (channel.is_reading_back, reading_back.locked()) == (False, False)
    assert long == [True, False]

    # The deadline of the call that was given up went with its answer.
    await asyncio.sleep(100)
    assert channel.ended == ""
    documents, _ = await outcome_of(channel, channel.read_back(), AgentMessage(installed=InstalledParts(())))
    assert documents == ()
    assert long == [True, False, True, False]
    assert not reading_back.locked()


@pytest.mark.asyncio
async def test_an_abandoned_read_back_has_the_deadline_of_any_other() -> None:
    """A guest that does not answer keeps the others from being read back for no longer than that."""
    reading_back = asyncio.Semaphore(1)
    channel = AgentChannel("sb", Hello("sb", "1", "boot", CAN), "unix", to_message, reading_back=reading_back)
    await abandoned(channel.read_back())
    await asyncio.wait_for(channel.over(), 10.1)
    assert channel.ended.endswith("no answer within 10 s")
    assert reading_back.locked() is False
    with pytest.raises(Unreachable):
        await channel.read_back()
    assert reading_back.locked() is False


@pytest.mark.asyncio
async def test_silence_ends_the_stream() -> None:
    channel = attached()
    with pytest.raises(Unreachable, match="no answer within 10 s"):
        await channel.state()
    assert channel.ended
    with pytest.raises(Unreachable, match="no answer within 10 s"):
        await channel.apply(RULES, [])


@pytest.mark.asyncio
async def test_the_end_of_the_stream_wakes_whoever_waits() -> None:
    channel = attached()

    async def leave() -> None:
        await channel.outbox.get()
        channel.end("it hung up")
        channel.end("again")

    with pytest.raises(Unreachable, match="not attached: it hung up"):
        await asyncio.gather(channel.state(), leave())
    await asyncio.wait_for(channel.over(), 1)
    for call in (channel.probe(), channel.read_back()):
        with pytest.raises(Unreachable):
            await call


@pytest.mark.asyncio
async def test_a_guest_that_does_not_read_is_given_up_when_its_queue_is_full() -> None:
    channel = attached()
    for _ in range(4):
        await abandoned(channel.state())
    with pytest.raises(Unreachable, match="does not read"):
        await channel.state()


@pytest.mark.parametrize("digest", ["", "x" * 64, "AB" * 32, "ab" * 31, "ab" * 32 + "\n", "../../etc"])
def test_a_digest_that_is_none_is_empty(digest: str) -> None:
    assert guest_state(RulesetState(1, digest, False)) == GuestState(1, "", False)
