# SPDX-License-Identifier: Apache-2.0
"""Handles the node's requests. Everything that a request can cause starts here."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bridge_api import rulesets
from bridge_api.messages import Capabilities, Flow
from daemonkit.version import VERSION
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
from guest_agent.core.packet_filter import (
    FilterUnavailableError,
    PacketFilter,
    RulesRefusedError,
    supported_backends,
    unsupported_family_message,
)
from guest_agent.kernel.netfilter_socket import NetfilterError
from guest_agent.netlink.conntrack import flows_to
from guest_agent.reconciler import AppliedRuleset, RulesetReconciler
from ruleset.delta import BaseMismatch
from ruleset.model import Family

# The release, as in pyproject.toml. The node shows it, and tries refused rules again when it changes.

FlushFlows = Callable[[Iterable[Flow]], int]
"""Deletes conntrack entries: `NetfilterSocket.delete_flows`."""


class RequestHandler:
    """The agent's side of the protocol, over any number of streams. Not thread-safe."""

    def __init__(
        self,
        reconciler: RulesetReconciler,
        flush_flows: FlushFlows | None,
        state_path: Path,
        resolv_confs: Sequence[Path],
    ) -> None:
        """`flush_flows` is None where conntrack cannot be reached."""
        self._reconciler = reconciler
        self._flush_flows = flush_flows
        self._state_path = state_path
        self._resolv_confs = resolv_confs
        self._last_reported = self.state()
        if reconciler.digest and not reconciler.has_drifted:
            # A restarted container has lost the file, and its startup probe looks for it.
            self._save_state()

    def capabilities(self, packet_filter: PacketFilter) -> Capabilities:
        """What this guest can do, with these packet filters."""
        ipv6_message = unsupported_family_message(packet_filter, Family.IPV6)
        return Capabilities(
            channel="agent",
            backends=supported_backends(packet_filter),
            ipv6=not ipv6_message,
            deltas=True,
            conntrack=self._flush_flows is not None,
            resolv_conf=bool(self._resolv_confs),
            version=VERSION,
            ipv6_message=ipv6_message,
        )

    def state(self) -> RulesetState:
        return RulesetState(
            self._reconciler.generation, self._reconciler.digest, self._reconciler.has_drifted
        )

    def take_report(self) -> AgentMessage | None:
        """The message to send unsolicited: a change of `has_drifted` that was not reported yet."""
        state = self.state()
        if state.has_drifted == self._last_reported.has_drifted:
            return None
        self._last_reported = state
        return AgentMessage(state=state)

    def handle(self, request: NodeRequest) -> AgentMessage:
        """Execute a request and return the response."""
        try:
            documents = self._reconciler.read_back() if request.read_back is not None else None
            result = self._execute(request) if documents is None else None
        except FilterUnavailableError as error:
            result = self._result(AgentResultCode.FAILED, str(error))
        if result is not None:
            self._last_reported = result.state or self._last_reported
            return AgentMessage(request_id=request.id, result=result)
        parts = tuple(rulesets.to_part(document) for document in documents or ())
        return AgentMessage(request_id=request.id, installed=InstalledParts(parts))

    def _execute(self, request: NodeRequest) -> AgentResult:
        if request.apply is not None:
            return self._apply(request.apply)
        if request.check_drift is not None:
            self._reconciler.check_drift()
            return self._result(AgentResultCode.DONE)
        if request.flush_conntrack is not None:
            return self._flush(request.flush_conntrack.flows)
        if request.write_resolv_conf is not None:
            return self._write_resolv_confs(request.write_resolv_conf.text)
        return self._result(
            AgentResultCode.FAILED, "unknown request: this agent may be older than kata-bridge on the node"
        )

    def _apply(self, apply: ApplyRuleset) -> AgentResult:
        if apply.ruleset is None:
            return self._result(AgentResultCode.FAILED, "the request has no ruleset")
        try:
            ruleset = rulesets.from_message(apply.ruleset)
            ended = self._reconciler.ended_frontends(ruleset)
            is_changed = self._reconciler.apply(ruleset)
        except BaseMismatch as error:
            return self._result(AgentResultCode.NEEDS_FULL, str(error))
        except RulesRefusedError as error:
            return self._result(AgentResultCode.REFUSED, str(error))
        except rulesets.BadRuleset as error:
            return self._result(AgentResultCode.REFUSED, f"the ruleset cannot be decoded: {error}")
        save_error = self._save_state()
        if not is_changed:
            return self._result(AgentResultCode.UNCHANGED)
        flushed = self._flush((*apply.flush, *flows_to(ended)))
        if flushed.code is not AgentResultCode.DONE:
            # The rules are installed. A stale entry is worth a message, not a second push.
            return self._result(AgentResultCode.DONE, flushed.message)
        return self._result(AgentResultCode.DONE, save_error)

    def _save_state(self) -> str:
        """Returns the error, or ""."""
        try:
            state_file.write(
                self._state_path, AppliedRuleset(self._reconciler.generation, self._reconciler.digest)
            )
        except OSError as error:
            # Only a restarted agent needs the file, and it finds the rules by their marker.
            return f"{self._state_path}: {error.strerror}"
        return ""

    def _flush(self, flows: Sequence[Flow]) -> AgentResult:
        if not flows:
            return self._result(AgentResultCode.DONE)
        if self._flush_flows is None:
            return self._result(AgentResultCode.FAILED, "conntrack cannot be reached: no netlink")
        try:
            self._flush_flows(flows)
        except NetfilterError as error:
            return self._result(AgentResultCode.FAILED, f"conntrack: {error}")
        except ValueError as error:
            return self._result(AgentResultCode.REFUSED, f"conntrack: {error}")
        return self._result(AgentResultCode.DONE)

    def _write_resolv_confs(self, text: str) -> AgentResult:
        is_changed = False
        for path in self._resolv_confs:
            try:
                # Follows a link of the image, such as systemd-resolved's.
                is_changed = resolv_conf.write(path.resolve(), text) or is_changed
            except ValueError as error:
                return self._result(AgentResultCode.REFUSED, str(error))
            except OSError as error:
                return self._result(AgentResultCode.FAILED, f"{path}: {error.strerror}")
            except RuntimeError:  # of `resolve`, for a circle of links (OSError since Python 3.13)
                return self._result(AgentResultCode.FAILED, f"{path}: too many links")
        return self._result(AgentResultCode.DONE if is_changed else AgentResultCode.UNCHANGED)

    def _result(self, code: AgentResultCode, message: str = "") -> AgentResult:
        return AgentResult(code, message, self.state())
