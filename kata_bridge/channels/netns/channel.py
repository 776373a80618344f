# SPDX-License-Identifier: Apache-2.0
"""The channel into a network namespace of this node: pods of runc, and Kata with l3forwarding.

The reconciler of the guest's agent (`guest_agent.reconciler`) runs here in the pod's namespace, with the
node's own iptables or nft. The pod's processes have no access to these programs.
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
from guest_agent.netlink.conntrack import flows_to
from guest_agent.reconciler import AppliedRuleset, RulesetReconciler
from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, NotInjectable, Unreachable
from kata_bridge.sandboxes.core.sandbox import Sandbox
from ruleset.delta import BaseMismatch, RulesetDelta
from ruleset.document import BadDocument, Document, Ruleset
from ruleset.model import Family

T = TypeVar("T")

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _NamespaceObjects:
    """Objects that were made in the namespace, and work only there."""

    netfilter: NetfilterSocket | None
    filter: KernelPacketFilter
    reconciler: RulesetReconciler

    def close(self) -> None:
        self.filter.close()
        if self.netfilter is not None:
            self.netfilter.close()


class NetnsChannel:
    """The rules of one sandbox's network namespace, as a `port.Channel`.

    `state_path` is where digest and generation are saved across restarts; None: nowhere. Without it the rules
    are still found, by their marker.
    """

    def __init__(
        self, sandbox: Sandbox, executor: NetnsExecutor, state_path: Path | None, state_errors: Counter
    ) -> None:
        """Raises `NotInjectable` for a sandbox whose namespace is unknown."""
        if not sandbox.netns:
            raise NotInjectable("neither NRI nor the CRI reports the path of its network namespace")
        self._path = sandbox.netns
        self._executor = executor
        self._state_path = state_path
        self._state_errors = state_errors
        self._objects: _NamespaceObjects | None = None
        self._in_flight: asyncio.Future[Any] | None = None
        self._is_failure_logged = False

    async def probe(self) -> Capabilities:
        return await self._run(self._probe)

    def _probe(self) -> Capabilities:
        objects = self._open()
        if not objects.filter.supported:
            why = packet_filter.unsupported_family_message(objects.filter, Family.IPV4)
            objects.close()
            self._objects = None  # the next probe opens them again
            raise NotInjectable(f"the node has no packet filter that works: {why}")
        ipv6_message = packet_filter.unsupported_family_message(objects.filter, Family.IPV6)
        return Capabilities(
            channel="netns",
            backends=packet_filter.supported_backends(objects.filter),
            ipv6=not ipv6_message,
            ipv6_message=ipv6_message,
            deltas=True,
            conntrack=objects.netfilter is not None,
            resolv_conf=False,
        )

    async def state(self) -> GuestState:
        return await self._run(self._state)

    def _state(self) -> GuestState:
        reconciler = self._open().reconciler
        reconciler.check_drift()
        return GuestState(reconciler.generation, reconciler.digest, reconciler.has_drifted)

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        return await self._run(lambda: self._apply(ruleset, flush))

    def _apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        reconciler = self._open().reconciler
        ended = reconciler.ended_frontends(ruleset)
        is_new = reconciler.apply(ruleset)
        self._save_state(AppliedRuleset(reconciler.generation, reconciler.digest))
        if is_new:
            self._flush_if_possible((*flush, *flows_to(ended)))
        return GuestState(reconciler.generation, reconciler.digest, reconciler.has_drifted)

    async def read_back(self) -> tuple[Document, ...]:
        return await self._run(self._read_back)

    def _read_back(self) -> tuple[Document, ...]:
        return self._open().reconciler.read_back()

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None:
        await self._run(lambda: self._flush(flows))

    async def set_resolv_conf(self, text: str) -> None:
        raise NotInjectable("resolv.conf is a file of the pod's containers, outside of its network namespace")

    async def close(self) -> None:
        """Release the namespace, which lives as long as a socket in it; remove the saved state."""
        await self._wait_in_flight()
        objects, self._objects = self._objects, None
        if objects is not None:
            objects.close()
        if self._state_path is not None:
            self._state_path.unlink(missing_ok=True)

    # ----

    async def _run(self, work: Callable[[], T]) -> T:
        """Do `work` in the namespace, after the work of a caller that was cancelled."""
        await self._wait_in_flight()
        in_flight = self._executor.submit(self._path, work)
        self._in_flight = in_flight
        try:
            return await asyncio.shield(in_flight)
        except BaseMismatch as error:
            raise NeedsFull(str(error)) from None
        except packet_filter.RulesRefusedError as error:
            raise GuestRefused(str(error)) from None
        except (BadDocument, ValueError) as error:
            raise GuestRefused(f"the ruleset cannot be read: {error}") from None
        except packet_filter.FilterUnavailableError as error:
            raise Unreachable(str(error)) from None
        except NetfilterError as error:
            raise Unreachable(f"conntrack: {error}") from None

    async def _wait_in_flight(self) -> None:
        if self._in_flight is not None:
            # Its outcome was for the caller that was cancelled.
            await asyncio.wait((self._in_flight,))
            if not self._in_flight.cancelled():
                self._in_flight.exception()

    def _open(self) -> _NamespaceObjects:
        if self._objects is None:
            try:
                netfilter = NetfilterSocket()
            except NetfilterError as error:
                _log.warning("namespace has neither conntrack nor nft", path=self._path, reason=error)
                netfilter = None
            kernel = KernelPacketFilter(netfilter, host="the node")
            _log.info("packet filters of a namespace probed", path=self._path, programs=kernel.description)
            applied = state_file.read(self._state_path) if self._state_path is not None else None
            self._objects = _NamespaceObjects(netfilter, kernel, RulesetReconciler(kernel, applied))
        return self._objects

    def _flush_if_possible(self, flows: Sequence[Flow]) -> None:
        """After the rules are applied: a stale entry is logged, and does not cause a second push."""
        try:
            self._flush(flows)
        except (NetfilterError, ValueError) as error:
            _log.warning("conntrack entries are not deleted", path=self._path, reason=error)

    def _flush(self, flows: Sequence[Flow]) -> None:
        netfilter = self._open().netfilter
        if flows and netfilter is not None:
            netfilter.delete_flows(flows)

    def _save_state(self, applied: AppliedRuleset) -> None:
        if self._state_path is None:
            return
        try:
            state_file.write(self._state_path, applied)
        except OSError as error:
            # The marker still identifies the rules; only the generation is lost.
            self._state_errors.inc()
            if not self._is_failure_logged:
                self._is_failure_logged = True
                _log.warning("applied ruleset is not saved", file=self._state_path, reason=error)
        else:
            self._is_failure_logged = False
