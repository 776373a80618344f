# SPDX-License-Identifier: Apache-2.0
"""Answers what the node asks. Everything that a message of the node can cause stands here."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bridge_api import rulesets
from bridge_api.messages import Capabilities, Flow
from guest_agent import resolv_conf, state_file
from guest_agent.api.messages import (
    AgentMessage,
    AgentResult,
    AgentResultCode,
    ApplyRuleset,
    InstalledParts,
    NodeRequest,
    RulesetState,
)
from guest_agent.core.packet_filter import Broken, Place, Refused
from guest_agent.kernel.netfilter_socket import NetfilterError
from guest_agent.reconciler import Keeper, Remembered
from ruleset.delta import BaseMismatch
from ruleset.model import Family

# Said in `Hello`; the node shows it and decides nothing by it.
VERSION = "1"

Flush = Callable[[Iterable[Flow]], int]
"""Deletes conntrack entries: `Netfilter.delete_flows`."""


class Answers:
    """The agent's end of a conversation, over any number of streams. Not for several threads."""

    def __init__(
        self, keeper: Keeper, flush: Flush | None, state_path: Path, resolv_confs: Sequence[Path]
    ) -> None:
        """`flush` is None where conntrack cannot be reached."""
        self._keeper = keeper
        self._flush = flush
        self._state_path = state_path
        self._resolv_confs = resolv_confs
        self._reported = self.state()
        if keeper.digest and not keeper.is_drifted:
            # The file may be gone with a container that was started again, and a startup probe looks for it.
            self._remember()

    def capabilities(self, places: Sequence[Place]) -> Capabilities:
        """What to say of this guest, its places being those that its packet filter has."""
        backends = dict.fromkeys(backend.value for _, backend in places)
        return Capabilities(
            channel="agent",
            backends=tuple(backends),
            ipv6=any(family is Family.IPV6 for family, _ in places),
            deltas=True,
            conntrack=self._flush is not None,
            resolv_conf=bool(self._resolv_confs),
            version=VERSION,
        )

    def state(self) -> RulesetState:
        """What the guest holds."""
        return RulesetState(self._keeper.generation, self._keeper.digest, self._keeper.is_drifted)

    def to_report(self) -> AgentMessage | None:
        """What to tell the node of our own accord: a state that it was not told yet."""
        state = self.state()
        if state.has_drifted == self._reported.has_drifted:
            return None
        self._reported = state
        return AgentMessage(state=state)

    def answer(self, question: NodeRequest) -> AgentMessage:
        """Do what is asked and say what came of it."""
        try:
            held = self._keeper.read_back() if question.read_back is not None else None
            outcome = self._outcome(question) if held is None else None
        except Broken as error:
            outcome = self._made(AgentResultCode.FAILED, str(error))
        if outcome is not None:
            self._reported = outcome.state or self._reported
            return AgentMessage(request_id=question.id, result=outcome)
        parts = tuple(rulesets.to_part(document) for document in held or ())
        return AgentMessage(request_id=question.id, installed=InstalledParts(parts))

    def _outcome(self, question: NodeRequest) -> AgentResult:
        if question.apply is not None:
            return self._applied(question.apply)
        if question.check_drift is not None:
            self._keeper.check()
            return self._made(AgentResultCode.DONE)
        if question.flush_conntrack is not None:
            return self._flushed(question.flush_conntrack.flows)
        if question.write_resolv_conf is not None:
            return self._written(question.write_resolv_conf.text)
        return self._made(
            AgentResultCode.FAILED, "this agent does not know what is asked; it may be older than the node"
        )

    def _applied(self, apply: ApplyRuleset) -> AgentResult:
        if apply.ruleset is None:
            return self._made(AgentResultCode.FAILED, "nothing to apply")
        try:
            is_new = self._keeper.apply(rulesets.from_message(apply.ruleset))
        except BaseMismatch as error:
            return self._made(AgentResultCode.NEEDS_FULL, str(error))
        except Refused as error:
            return self._made(AgentResultCode.REFUSED, str(error))
        except rulesets.BadRuleset as error:
            return self._made(AgentResultCode.REFUSED, f"not read: {error}")
        remembered = self._remember()
        if not is_new:
            return self._made(AgentResultCode.UNCHANGED)
        flushed = self._flushed(apply.flush)
        if flushed.code is not AgentResultCode.DONE:
            # The rules are in: an entry that stays is worth a word, not a second push.
            return self._made(AgentResultCode.DONE, flushed.message)
        return self._made(AgentResultCode.DONE, remembered)

    def _remember(self) -> str:
        try:
            state_file.write(self._state_path, Remembered(self._keeper.generation, self._keeper.digest))
        except OSError as error:
            # Only a restart of the agent would miss it, and finds the rules by their marker.
            return f"{self._state_path}: {error.strerror}"
        return ""

    def _flushed(self, flows: Sequence[Flow]) -> AgentResult:
        if not flows:
            return self._made(AgentResultCode.DONE)
        if self._flush is None:
            return self._made(AgentResultCode.FAILED, "conntrack cannot be reached: no netlink")
        try:
            self._flush(flows)
        except NetfilterError as error:
            return self._made(AgentResultCode.FAILED, f"conntrack: {error}")
        except ValueError as error:
            return self._made(AgentResultCode.REFUSED, f"conntrack: {error}")
        return self._made(AgentResultCode.DONE)

    def _written(self, text: str) -> AgentResult:
        is_new = False
        for path in self._resolv_confs:
            try:
                # A link of the image's (systemd-resolved's) leads to what is meant.
                is_new = resolv_conf.write(path.resolve(), text) or is_new
            except ValueError as error:
                return self._made(AgentResultCode.REFUSED, str(error))
            except OSError as error:
                return self._made(AgentResultCode.FAILED, f"{path}: {error.strerror}")
            except RuntimeError:  # of `resolve`, where links lead in a circle (OSError since Python 3.13)
                return self._made(AgentResultCode.FAILED, f"{path}: too many links")
        return self._made(AgentResultCode.DONE if is_new else AgentResultCode.UNCHANGED)

    def _made(self, code: AgentResultCode, message: str = "") -> AgentResult:
        return AgentResult(code, message, self.state())
