# SPDX-License-Identifier: Apache-2.0
"""The channel into a network namespace of this node: pods of runc, and Kata with l3forwarding.

What the guest's agent does in a guest is done here by the same code (`guest_agent.reconciler`) in
the pod's namespace, with the node's own iptables or nft. What the pod's processes see of it is only
the effect: they have no access to the node's programs.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bridge_api.messages import Capabilities, Flow
from daemonkit import logs
from daemonkit.metrics import Counter
from guest_agent import state_file
from guest_agent.core import packet_filter
from guest_agent.kernel.kernel_packet_filter import KernelPacketFilter
from guest_agent.kernel.netfilter_socket import NetfilterError, NetfilterSocket
from guest_agent.reconciler import AppliedRuleset, RulesetReconciler
from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, NotInjectable, Unreachable
from kata_bridge.sandboxes.core.sandbox import Sandbox
from ruleset.delta import BaseMismatch, RulesetDelta
from ruleset.document import BadDocument, Document, Ruleset
from ruleset.model import Family
from ruleset.names import Backend

T = TypeVar("T")

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Inside:
    """What was made in the namespace, and is used there alone."""

    netfilter: NetfilterSocket | None
    filter: KernelPacketFilter
    reconciler: RulesetReconciler

    def close(self) -> None:
        self.filter.close()
        if self.netfilter is not None:
            self.netfilter.close()


class NetnsChannel:
    """The rules of one sandbox's network namespace; implements `channel.Channel`.

    `state_path` is where digest and generation are remembered while kata-bridge does not run: None
    where there is no place for it. The rules are found again without it, by their marker.
    """

    def __init__(
        self, sandbox: Sandbox, namespaces: NetnsExecutor, state_path: Path | None, state_errors: Counter
    ) -> None:
        """Raises `NotInjectable` for a sandbox that has no namespace that is known."""
        if not sandbox.netns:
            raise NotInjectable("neither NRI nor the CRI tells the path of its network namespace")
        self._path = sandbox.netns
        self._namespaces = namespaces
        self._state_path = state_path
        self._state_errors = state_errors
        self._inside: _Inside | None = None
        self._under_way: asyncio.Future[Any] | None = None
        self._has_complained = False

    async def probe(self) -> Capabilities:
        return await self._run(self._probe)

    def _probe(self) -> Capabilities:
        inside = self._entered()
        if not inside.filter.supported:
            why = inside.filter.unsupported_message((Family.IPV4, Backend.IPTABLES))
            inside.close()
            self._inside = None  # the next probe looks anew
            raise NotInjectable(f"{why} (the node itself, for this pod)")
        supported = inside.filter.supported
        has_ipv6 = any(family is Family.IPV6 for family, _ in supported)
        return Capabilities(
            channel="netns",
            backends=tuple(dict.fromkeys(backend.value for _, backend in supported)),
            ipv6=has_ipv6,
            ipv6_message=""
            if has_ipv6
            else inside.filter.unsupported_message((Family.IPV6, Backend.IPTABLES)),
            deltas=True,
            conntrack=inside.netfilter is not None,
            resolv_conf=False,
            version=inside.filter.description,
        )

    async def state(self) -> GuestState:
        return await self._run(self._state)

    def _state(self) -> GuestState:
        reconciler = self._entered().reconciler
        reconciler.check_drift()
        return GuestState(reconciler.generation, reconciler.digest, reconciler.has_drifted)

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        return await self._run(lambda: self._apply(ruleset, flush))

    def _apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        reconciler = self._entered().reconciler
        is_new = reconciler.apply(ruleset)
        self._remember(AppliedRuleset(reconciler.generation, reconciler.digest))
        if is_new:
            self._flush_if_possible(flush)
        return GuestState(reconciler.generation, reconciler.digest, reconciler.has_drifted)

    async def read_back(self) -> tuple[Document, ...]:
        return await self._run(self._read_back)

    def _read_back(self) -> tuple[Document, ...]:
        return self._entered().reconciler.read_back()

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None:
        await self._run(lambda: self._flush(flows))

    async def set_resolv_conf(self, text: str) -> None:
        raise NotInjectable("its resolv.conf is a file of the pod's containers, not of its network")

    async def close(self) -> None:
        """Let go of the namespace, which lives as long as somebody holds something of it; forget it."""
        await self._settled()
        inside, self._inside = self._inside, None
        if inside is not None:
            inside.close()
        if self._state_path is not None:
            self._state_path.unlink(missing_ok=True)

    # ----

    async def _run(self, work: Callable[[], T]) -> T:
        """Do `work` in the namespace; what a caller who was cancelled left under way goes first."""
        await self._settled()
        under_way = self._namespaces.begin(self._path, work)
        self._under_way = under_way
        try:
            return await asyncio.shield(under_way)
        except BaseMismatch as error:
            raise NeedsFull(str(error)) from None
        except packet_filter.RulesRefusedError as error:
            raise GuestRefused(str(error)) from None
        except (BadDocument, ValueError) as error:
            raise GuestRefused(f"not read: {error}") from None
        except packet_filter.FilterUnavailableError as error:
            raise Unreachable(str(error)) from None
        except NetfilterError as error:
            raise Unreachable(f"conntrack: {error}") from None

    async def _settled(self) -> None:
        if self._under_way is not None:
            # How it ended was for whoever began it.
            await asyncio.wait((self._under_way,))
            if not self._under_way.cancelled():
                self._under_way.exception()

    def _entered(self) -> _Inside:
        if self._inside is None:
            try:
                netfilter = NetfilterSocket()
            except NetfilterError as error:
                _log.warning("no conntrack and no nft in a namespace", path=self._path, reason=error)
                netfilter = None
            kernel = KernelPacketFilter(netfilter)
            remembered = state_file.read(self._state_path) if self._state_path is not None else None
            self._inside = _Inside(netfilter, kernel, RulesetReconciler(kernel, remembered))
        return self._inside

    def _flush_if_possible(self, flows: Sequence[Flow]) -> None:
        """After the rules are in: an entry that stays is worth a word, not a second push."""
        try:
            self._flush(flows)
        except (NetfilterError, ValueError) as error:
            _log.warning("conntrack entries stay", path=self._path, reason=error)

    def _flush(self, flows: Sequence[Flow]) -> None:
        netfilter = self._entered().netfilter
        if flows and netfilter is not None:
            netfilter.delete_flows(flows)

    def _remember(self, remembered: AppliedRuleset) -> None:
        if self._state_path is None:
            return
        try:
            state_file.write(self._state_path, remembered)
        except OSError as error:
            # The rules are found again by their marker; only the generation's number is lost.
            self._state_errors.inc()
            if not self._has_complained:
                self._has_complained = True
                _log.warning("what was applied cannot be noted", file=self._state_path, reason=error)
        else:
            self._has_complained = False
