# SPDX-License-Identifier: Apache-2.0
"""One attached agent as a channel: requests, their results and their deadlines."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from bridge_api import messages, rulesets
from bridge_api.messages import Capabilities, Flow
from daemonkit.protobuf import encode
from guest_agent.api.messages import (
    AgentHello,
    AgentMessage,
    AgentResult,
    AgentResultCode,
    ApplyRuleset,
    CheckDrift,
    FlushConntrack,
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
# Most requests are a few milliseconds of work. A ruleset of 5 000 Services takes iptables-nft 12 s.
RESULT_S, APPLY_S = 10.0, 60.0
# Of all documents that a guest sends; each line is a hundred bytes here, however short. A guest gets
# 100 000 rules at most, and no more chains than rules.
MAX_LINES = 400_000
# A caller has one request at a time. More means that results were abandoned and nothing was read.
MAX_UNSENT = 4


class AgentChannel:
    """One attached agent, as a `Channel`. When its stream has ended, every call is `Unreachable`.

    `transport` is how the agent connected: tcp, unix, hybrid-vsock or vsock. `hello_state` is the state
    that it reported when it attached. `ended` is why the stream ended; empty while it lasts.
    """

    def __init__(
        self,
        sandbox: str,
        hello: AgentHello,
        transport: str,
        to_message: Callable[[Ruleset | RulesetDelta], messages.Ruleset],
        *,
        expect_long_result: Callable[[bool], None] = lambda _: None,
        read_back_slot: asyncio.Semaphore | None = None,
    ) -> None:
        """`expect_long_result` gets whether a result as long as a ruleset is due.

        `read_back_slot` is shared by all agents of the node.
        """
        self.sandbox = sandbox
        self.transport = transport
        self.hello_state = guest_state(hello.state)
        self.ended = ""
        self.outbox: asyncio.Queue[bytes] = asyncio.Queue(MAX_UNSENT)
        self._capabilities = _capabilities(hello)
        self._to_message = to_message
        self._expect_long_result = expect_long_result
        self._read_back_slot = asyncio.Semaphore() if read_back_slot is None else read_back_slot
        # An agent answers each request once, in order. So the results due are those of the requests after
        # `_answered_id` up to `_last_id`, also where their callers have abandoned them.
        self._last_id = self._answered_id = 0
        self._read_back_id = 0  # the request whose result may be as long as a ruleset; 0: none is due
        self._abandoned: asyncio.TimerHandle | None = None  # the deadline of an abandoned read-back
        self._result: asyncio.Future[AgentMessage] | None = None
        self._has_ended = asyncio.Event()

    async def probe(self) -> Capabilities:
        """Return the capabilities that the agent reported when it attached."""
        if self.ended:
            raise Unreachable(self.ended)
        if not self._capabilities.backends:
            answer = await self._request(NodeRequest(read_back=ReadBack()), RESULT_S)
            message = answer.result.message[:MAX_TEXT_CHARACTERS] if answer.result is not None else ""
            raise NotInjectable(
                f"the guest has no packet filter that works: {message or 'no iptables, and no nft'}; "
                "add what one of them lacks to the guest's image or kernel"
            )
        return self._capabilities

    async def state(self) -> GuestState:
        answer = await self._request(NodeRequest(check_drift=CheckDrift()), RESULT_S)
        return guest_state(self._successful(answer).state)

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        request = NodeRequest(apply=ApplyRuleset(self._to_message(ruleset), tuple(flush)))
        return guest_state(self._successful(await self._request(request, APPLY_S)).state)

    async def read_back(self) -> tuple[Document, ...]:
        """Return the documents that the guest holds.

        A caller may abandon the call, but the agent answers all the same. The result of an abandoned call
        keeps the slot, as it may be long: no other guest reads back until it has come or is late.
        """
        await self._read_back_slot.acquire()
        due_s = asyncio.get_running_loop().time() + RESULT_S
        try:
            return await self._read_back()
        finally:
            if self._read_back_id:
                late = f"no answer within {RESULT_S:g} s"
                self._abandoned = asyncio.get_running_loop().call_at(due_s, self.end, late)
            else:
                self._read_back_slot.release()

    async def _read_back(self) -> tuple[Document, ...]:
        if self.ended:
            raise Unreachable(self.ended)
        self._read_back_id = self._last_id + 1
        self._expect_long_result(True)
        answer = await self._request(NodeRequest(read_back=ReadBack()), RESULT_S)
        if answer.installed is None:
            self._successful(answer)
            raise Unreachable("the guest's agent answered another request than the one sent")
        parts = answer.installed.parts
        size = sum(max(len(part.text), part.deflated_from) for part in parts)
        if len(parts) > rulesets.MAX_PARTS or size > rulesets.MAX_TEXT_BYTES:
            raise Unreachable("the rules that the guest's agent returned are larger than a ruleset may be")
        try:
            return await off_loop.run(size, _documents, parts)
        except rulesets.BadRuleset as error:
            raise Unreachable(f"the rules that the guest's agent returned cannot be read: {error}") from None

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None:
        request = NodeRequest(flush_conntrack=FlushConntrack(tuple(flows)))
        self._successful(await self._request(request, RESULT_S))

    async def set_resolv_conf(self, text: str) -> None:
        request = NodeRequest(write_resolv_conf=WriteResolvConf(text))
        self._successful(await self._request(request, RESULT_S))

    async def close(self) -> None:
        """End the stream. The agent attaches again by itself, unless its certificate is revoked."""
        self.end("kata-bridge closed the stream")

    def end(self, reason: str) -> None:
        """Mark the stream as ended, and fail the call that waits for a result."""
        if self.ended:
            return
        self.ended = f"the guest's agent is not attached: {reason}"
        self._has_ended.set()
        self._finish_read_back()
        if self._result is not None and not self._result.done():
            self._result.set_exception(Unreachable(self.ended))

    async def wait_ended(self) -> None:
        await self._has_ended.wait()

    @property
    def is_reading_back(self) -> bool:
        """Whether a result is due that may be as long as a ruleset."""
        return self._read_back_id != 0

    @property
    def has_pending_requests(self) -> bool:
        """Whether a result is due, also one that its caller has abandoned."""
        return self._answered_id < self._last_id

    def complete_request(self, message: AgentMessage) -> bool:
        """Take a result; False if no request is due that it answers.

        The result of an abandoned request is dropped: the agent cannot know of that.
        """
        if not self._answered_id < message.request_id <= self._last_id:
            return False
        self._answered_id = message.request_id
        if self._answered_id >= self._read_back_id:
            self._finish_read_back()
        if message.request_id == self._last_id and self._result is not None and not self._result.done():
            self._result.set_result(message)
        return True

    def _finish_read_back(self) -> None:
        """The long result has come, or comes no more."""
        if not self._read_back_id:
            return
        self._read_back_id = 0
        self._expect_long_result(False)
        if self._abandoned is not None:
            self._abandoned.cancel()
            self._abandoned = None
            self._read_back_slot.release()

    async def _request(self, request: NodeRequest, timeout_s: float) -> AgentMessage:
        if self.ended:
            raise Unreachable(self.ended)
        data = encode(replace(request, id=self._last_id + 1))
        if len(data) > MAX_TO_GUEST_BYTES:
            raise GuestRefused(
                f"the ruleset has {len(data)} bytes; a message to a guest has at most {MAX_TO_GUEST_BYTES}"
            )
        self._last_id += 1
        self._result = asyncio.get_running_loop().create_future()
        try:
            self.outbox.put_nowait(data)
        except asyncio.QueueFull:
            self.end("the agent does not read")
            raise Unreachable(self.ended) from None
        try:
            async with asyncio.timeout(timeout_s):
                return await self._result
        except TimeoutError:
            # An agent that attaches again reports what it holds by then.
            self.end(f"no answer within {timeout_s:g} s")
            raise Unreachable(self.ended) from None
        finally:
            self._result = None

    def _successful(self, answer: AgentMessage) -> AgentResult:
        """The result of a request that succeeded. Raises the outcome of one that did not."""
        result = answer.result
        if result is None:
            raise Unreachable("the guest's agent answered another request than the one sent")
        message = result.message[:MAX_TEXT_CHARACTERS]
        if result.code in (AgentResultCode.DONE, AgentResultCode.UNCHANGED):
            return result
        if result.code is AgentResultCode.NEEDS_FULL:
            raise NeedsFull(message)
        if result.code is AgentResultCode.REFUSED:
            raise GuestRefused(message)
        raise Unreachable(f"the guest's agent failed: {message or 'it gives no reason'}")


def _documents(parts: Sequence[messages.Part]) -> tuple[Document, ...]:
    left, documents = MAX_LINES, list[Document]()
    for part in parts:
        documents.append(rulesets.from_part(part, left))
        left -= sum(1 + len(lines) for lines in documents[-1].objects.values())
    return tuple(documents)


def _capabilities(hello: AgentHello) -> Capabilities:
    """The capabilities that a guest claims, in bounds: they are kept, and sent to other daemons."""
    claimed = hello.capabilities or Capabilities()
    known = {each.value for each in Backend}
    backends = tuple(dict.fromkeys(name for name in claimed.backends if name in known))
    return replace(
        claimed,
        channel="agent",
        backends=backends,
        version=word(hello.version),
        ipv6_message="" if claimed.ipv6 else sentence(claimed.ipv6_message),
    )


def guest_state(state: RulesetState | None) -> GuestState:
    """The state that a guest reports. Its digest becomes a key and a log field, so it is checked."""
    if state is None:
        return GuestState(0, "", False)
    is_digest = len(state.digest) == 64 and set(state.digest) <= set("0123456789abcdef")
    return GuestState(state.generation, state.digest if is_digest else "", state.has_drifted)
