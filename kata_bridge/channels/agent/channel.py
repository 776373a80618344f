# SPDX-License-Identifier: Apache-2.0
"""One attached agent, as a channel: questions, answers, and how long one waits for them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from bridge_api import messages, rulesets
from bridge_api.messages import Capabilities, Flow
from daemonkit.protobuf import encode
from guest_agent.api.messages import (
    AgentMessage,
    AgentResult,
    AgentResultCode,
    ApplyRuleset,
    CheckDrift,
    FlushConntrack,
    Hello,
    NodeRequest,
    ReadBack,
    RulesetState,
    WriteResolvConf,
)
from kata_bridge import off_loop
from kata_bridge.channels.guest_text import MAX_TEXT_CHARACTERS, sentence, word
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, NotInjectable, Unreachable
from ruleset.delta import RulesetDelta
from ruleset.document import Document, Ruleset
from ruleset.names import Backend

# The largest ruleset is 48 MiB of text, which deflates to some 5 MiB.
MAX_TO_GUEST_BYTES = 16 << 20
# A question is a few milliseconds of work. A ruleset of 5 000 Services takes iptables-nft 12 s.
ANSWER_S, APPLY_S = 10.0, 60.0
# Of all documents that a guest says it holds; each is a hundred bytes here, however short. A guest is
# given 100 000 rules at most, and no more chains than rules.
MAX_LINES = 400_000
# A caller has one call at a time; more means that answers were given up on and nothing was read.
MAX_UNSENT = 4


class AgentChannel:
    """One attached agent, as a `Channel`. When its stream has ended, every call is `Unreachable`."""

    def __init__(
        self,
        sandbox: str,
        hello: Hello,
        transport: str,
        carry: Callable[[Ruleset | RulesetDelta], messages.Ruleset],
        *,
        expect: Callable[[bool], None] = lambda _: None,
        reading_back: asyncio.Semaphore | None = None,
    ) -> None:
        """`expect` says whether an answer as long as rules is waited for; `reading_back` is all guests'."""
        self.sandbox = sandbox
        self.boot_id = word(hello.boot_id)
        self.transport = transport
        """How it came: tcp, unix, hybrid-vsock or vsock."""
        self.hello_state = guest_state(hello.state)
        """What the guest held when it attached."""
        self.ended = ""
        """Empty, or why the stream is over."""
        self.outbox: asyncio.Queue[bytes] = asyncio.Queue(MAX_UNSENT)
        self._capabilities = _capabilities(hello)
        self._carry = carry
        self._expect = expect
        self._reading_back = asyncio.Semaphore() if reading_back is None else reading_back
        # An agent answers in the order of the calls, each once. So the calls whose answers are still to
        # come are those after `_answered_id`, up to `_last_id`, also where their callers have given up.
        self._last_id = self._answered_id = 0
        self._read_back_id = 0
        """The call whose answer may be as long as rules are, until it has come; 0: there is none."""
        self._abandoned: asyncio.TimerHandle | None = None
        """The deadline of a read-back whose caller has given up."""
        self._asked: asyncio.Future[AgentMessage] | None = None
        self._is_over = asyncio.Event()

    async def probe(self) -> Capabilities:
        """Return what the agent said when it attached; it says it anew at each attach."""
        if self.ended:
            raise Unreachable(self.ended)
        if not self._capabilities.backends:
            answer = await self._ask(NodeRequest(read_back=ReadBack()), ANSWER_S)
            why = answer.result.message[:MAX_TEXT_CHARACTERS] if answer.result is not None else ""
            raise NotInjectable(
                f"the guest has no packet filter that works: {why or 'neither iptables nor nft'}"
            )
        return self._capabilities

    async def state(self) -> GuestState:
        return guest_state(
            self._outcome(await self._ask(NodeRequest(check_drift=CheckDrift()), ANSWER_S)).state
        )

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        question = NodeRequest(apply=ApplyRuleset(self._carry(ruleset), tuple(flush)))
        return guest_state(self._outcome(await self._ask(question, APPLY_S)).state)

    async def read_back(self) -> tuple[Document, ...]:
        """Return the documents that the guest has.

        A caller may give up, but the agent answers all the same. That answer keeps its place: it may
        be as long as rules are, and no other guest reads back until it has come or is late.
        """
        await self._reading_back.acquire()
        due_s = asyncio.get_running_loop().time() + ANSWER_S
        try:
            return await self._read_back()
        finally:
            if self._read_back_id:
                late = f"no answer within {ANSWER_S:g} s"
                self._abandoned = asyncio.get_running_loop().call_at(due_s, self.end, late)
            else:
                self._reading_back.release()

    async def _read_back(self) -> tuple[Document, ...]:
        if self.ended:
            raise Unreachable(self.ended)
        self._read_back_id = self._last_id + 1
        self._expect(True)
        answer = await self._ask(NodeRequest(read_back=ReadBack()), ANSWER_S)
        if answer.installed is None:
            self._outcome(answer)
            raise Unreachable("the guest's agent answered something else than what was asked")
        parts = answer.installed.parts
        size = sum(max(len(part.text), part.deflated_from) for part in parts)
        if len(parts) > rulesets.MAX_PARTS or size > rulesets.MAX_TEXT_BYTES:
            raise Unreachable("the guest's agent says more than there can be: larger than a ruleset")
        try:
            return await off_loop.run(size, _documents, parts)
        except rulesets.BadRuleset as error:
            raise Unreachable(f"what the guest holds is not what we write: {error}") from None

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None:
        self._outcome(await self._ask(NodeRequest(flush_conntrack=FlushConntrack(tuple(flows))), ANSWER_S))

    async def set_resolv_conf(self, text: str) -> None:
        self._outcome(await self._ask(NodeRequest(write_resolv_conf=WriteResolvConf(text)), ANSWER_S))

    async def close(self) -> None:
        """End the stream. The agent comes back by itself, unless its sandbox is revoked."""
        self.end("closed by the node")

    def end(self, why: str) -> None:
        """Note that the stream is over, and wake whoever waits for an answer."""
        if self.ended:
            return
        self.ended = f"the guest's agent is not attached: {why}"
        self._is_over.set()
        self._finish_read_back()
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(Unreachable(self.ended))

    async def over(self) -> None:
        """Wait until the stream is over."""
        await self._is_over.wait()

    @property
    def is_reading_back(self) -> bool:
        """Whether an answer is still to come that may be as long as rules are."""
        return self._read_back_id != 0

    @property
    def is_asked(self) -> bool:
        """Whether an answer is still to come, also where its caller has given up."""
        return self._answered_id < self._last_id

    def answered(self, message: AgentMessage) -> bool:
        """Take an answer of the guest; False if it answers no call, or one that was answered.

        The answer to a call that was given up is dropped: the agent could not know of that.
        """
        if not self._answered_id < message.request_id <= self._last_id:
            return False
        self._answered_id = message.request_id
        if self._answered_id >= self._read_back_id:
            self._finish_read_back()
        if message.request_id == self._last_id and self._asked is not None and not self._asked.done():
            self._asked.set_result(message)
        return True

    def _finish_read_back(self) -> None:
        """The answer that may be as long as rules are has come, or comes no more."""
        if not self._read_back_id:
            return
        self._read_back_id = 0
        self._expect(False)
        if self._abandoned is not None:
            self._abandoned.cancel()
            self._abandoned = None
            self._reading_back.release()

    async def _ask(self, question: NodeRequest, timeout_s: float) -> AgentMessage:
        if self.ended:
            raise Unreachable(self.ended)
        data = encode(replace(question, id=self._last_id + 1))
        if len(data) > MAX_TO_GUEST_BYTES:
            raise GuestRefused(
                f"the ruleset is {len(data)} bytes, a message to a guest has {MAX_TO_GUEST_BYTES} at most"
            )
        self._last_id += 1
        self._asked = asyncio.get_running_loop().create_future()
        try:
            self.outbox.put_nowait(data)
        except asyncio.QueueFull:
            self.end("it does not read")
            raise Unreachable(self.ended) from None
        try:
            async with asyncio.timeout(timeout_s):
                return await self._asked
        except TimeoutError:
            # Whatever it is busy with, it says anew what it holds when it attaches again.
            self.end(f"no answer within {timeout_s:g} s")
            raise Unreachable(self.ended) from None
        finally:
            self._asked = None

    def _outcome(self, answer: AgentMessage) -> AgentResult:
        """What came of it, if it was good; otherwise raises what it was."""
        outcome = answer.result
        if outcome is None:
            raise Unreachable("the guest's agent answered something else than what was asked")
        text = outcome.message[:MAX_TEXT_CHARACTERS]
        if outcome.code in (AgentResultCode.DONE, AgentResultCode.UNCHANGED):
            return outcome
        if outcome.code is AgentResultCode.NEEDS_FULL:
            raise NeedsFull(text)
        if outcome.code is AgentResultCode.REFUSED:
            raise GuestRefused(text)
        raise Unreachable(f"in the guest: {text or 'failed without a reason'}")


def _documents(parts: Sequence[messages.Part]) -> tuple[Document, ...]:
    left, documents = MAX_LINES, list[Document]()
    for part in parts:
        documents.append(rulesets.from_part(part, left))
        left -= sum(1 + len(lines) for lines in documents[-1].objects.values())
    return tuple(documents)


def _capabilities(hello: Hello) -> Capabilities:
    """What a guest says it can do, in our own words: it is kept, and told to other daemons."""
    said = hello.capabilities or Capabilities()
    ours = {each.value for each in Backend}
    backends = tuple(dict.fromkeys(name for name in said.backends if name in ours))
    return replace(
        said,
        channel="agent",
        backends=backends,
        version=word(hello.version),
        ipv6_message="" if said.ipv6 else sentence(said.ipv6_message),
    )


def guest_state(state: RulesetState | None) -> GuestState:
    """What a guest says of itself, with a digest that is one or empty: it becomes a key and a log field."""
    if state is None:
        return GuestState(0, "", False)
    is_digest = len(state.digest) == 64 and set(state.digest) <= set("0123456789abcdef")
    return GuestState(state.generation, state.digest if is_digest else "", state.has_drifted)
