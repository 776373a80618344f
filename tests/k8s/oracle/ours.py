# SPDX-License-Identifier: Apache-2.0
"""Our side: kubeproxy-ext and a guest agent, connected by function calls.

The API server's objects go into a ServiceState. The daemon's own `Rulesets` and `RulesetDelivery` make
rulesets, deltas and stale flows; the agent's own `RulesetReconciler` writes them into a guest's namespace.
"""

import ipaddress
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from bridge_api.messages import Capabilities, Flow, Guest, GuestResult, ResultCode
from guest_agent.kernel.kernel_packet_filter import KernelPacketFilter
from guest_agent.kernel.netfilter_socket import NetfilterSocket
from guest_agent.reconciler import CheckLevel, RulesetReconciler
from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.compute.stale_flows import StaleFlow
from kubeproxy_ext.delivery.queue import DesiredRuleset, RulesetDelivery, RulesetPush
from kubeproxy_ext.delivery.rulesets import Generations, GuestSpec, Rulesets, guest_spec
from ruleset.delta import RulesetDelta
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, Protocol
from ruleset.names import Backend
from ruletrace.packet import Outcome, PacketVerdict
from tests.k8s.oracle.changes import SERVICES
from tests.k8s.oracle.draw import Json
from tests.k8s.oracle.prober import ProbedFlow
from tests.k8s.oracle.sides import OracleSide
from tests.k8s.oracle.store import TENANT

_FrontendAddress = tuple[str, int, Protocol]


@dataclass(slots=True)
class OurGuest:
    """One guest, its desired rules, and the reconciler that applies them."""

    side: OracleSide
    guest: Guest
    spec: GuestSpec
    service_ranges: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    reconciler: RulesetReconciler
    netfilter: NetfilterSocket
    filter: KernelPacketFilter
    desired: DesiredRuleset | None = None
    frontends: dict[_FrontendAddress, Frontend] = field(default_factory=dict)
    serving: dict[tuple[str, Protocol, Family], frozenset[Endpoint]] = field(default_factory=dict)

    def frontend(self, flow: ProbedFlow) -> Frontend | None:
        """The model's frontend of a flow's destination."""
        return self.frontends.get((flow.destination, flow.port, flow.protocol))

    def expected(self, flow: ProbedFlow) -> frozenset[Outcome]:
        """The model's outcomes of a flow."""
        frontend = self.frontend(flow)
        if frontend is None:
            return frozenset(
                {PacketVerdict.REJECT if self._is_in_ranges(flow.destination) else PacketVerdict.PASS}
            )
        return choices(frontend)

    def serves(self, flow: ProbedFlow) -> frozenset[Endpoint]:
        """The endpoints that may still serve a UDP flow."""
        frontend = self.frontend(flow)
        if frontend is None:
            return frozenset()
        family = Family.IPV6 if ":" in flow.destination else Family.IPV4
        return self.serving.get((frontend.service_port, frontend.protocol, family), frozenset())

    def _is_in_ranges(self, ip: str) -> bool:
        address = ipaddress.ip_address(ip)
        return any(address in one for one in self.service_ranges)

    def has_affinity(self, flow: ProbedFlow) -> bool:
        frontend = self.frontend(flow)
        return (
            frontend is not None
            and isinstance(frontend.to, EndpointSet)
            and frontend.to.affinity_s is not None
        )


class OracleGuests:
    """All our guests; `sync` applies changes."""

    def __init__(self) -> None:
        self._state = ServiceState()
        self._rulesets = Rulesets(self._state, Generations(time.time))
        self._delivery = RulesetDelivery()
        self.guests: list[OurGuest] = []
        self.wholes = 0
        self.deltas = 0
        self.flushed = 0

    def add_guest(
        self, side: OracleSide, backend: Backend, service_cidrs: tuple[str, ...], stack: ExitStack
    ) -> OurGuest:
        """A guest that has no rules yet."""
        guest = Guest(
            id=side.node.name,
            tenant=TENANT,
            ips=side.node.pod_ips,
            capabilities=Capabilities(
                channel="agent", backends=(backend.value,), ipv6=True, deltas=True, conntrack=True
            ),
        )
        rules = guest_spec(guest, side.node.name, service_cidrs)
        assert isinstance(rules, GuestSpec)
        netfilter, kernel = side.ruled.call(_opened)
        stack.callback(side.ruled.call, netfilter.close)
        stack.callback(side.ruled.call, kernel.close)
        reconciler = side.ruled.call(RulesetReconciler, kernel, None)
        ranges = tuple(ipaddress.ip_network(cidr) for cidr in service_cidrs)
        made = OurGuest(side, guest, rules, ranges, reconciler, netfilter, kernel)
        self.guests.append(made)
        self._delivery.on_guest(guest, time.monotonic())
        return made

    def on_update(self, item: Json) -> None:
        """Take a new or changed object."""
        match objects.read(item):
            case objects.ServiceObject() as service:
                self._state.put_service(service)
            case objects.EndpointSliceObject() as one:
                self._state.put_slice(one)
            case objects.NamespaceObject() as namespace:
                self._state.put_namespace(namespace)
            case objects.NodeObject() as node:
                self._state.put_node(node)
            case None:
                raise ValueError(f"not an object that is read: {item.get('kind')}")

    def on_delete(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted object."""
        if kind == SERVICES:
            self._state.remove_service((namespace, name))
        else:
            self._state.remove_slice((namespace, name))

    def problems(self) -> tuple[str, ...]:
        return tuple(f"{one.namespace}/{one.service}: {one.text}" for one in self._state.problems())

    def sync(self) -> None:
        """Bring all guests to the desired rules."""
        self._state.take_changed_groups()
        now = time.monotonic()
        desired = self._rulesets.desired_for({one.guest.id: one.spec for one in self.guests})
        for guest_id, each in desired.items():
            self._delivery.set_desired(guest_id, each, now)
        for push in self._delivery.take_due(now):
            for guest_id in push.guests:
                self._deliver(push, guest_id)
        for one in self.guests:
            _record_outcome(one, desired[one.guest.id])

    def _deliver(self, push: RulesetPush, guest_id: str) -> None:
        one = next(each for each in self.guests if each.guest.id == guest_id)
        result = GuestResult(guest=guest_id, code=ResultCode.UNCHANGED)
        if push.ruleset is not None:
            self.deltas += isinstance(push.ruleset, RulesetDelta)
            self.wholes += not isinstance(push.ruleset, RulesetDelta)
            one.side.ruled.call(one.reconciler.apply, push.ruleset)
            assert one.reconciler.digest == push.digest
            result = GuestResult(
                guest=guest_id,
                code=ResultCode.APPLIED,
                generation=one.reconciler.generation,
                digest=one.reconciler.digest,
            )
        flows = tuple(_flow(stale) for stale in push.flush)
        self.flushed += one.side.ruled.call(one.netfilter.delete_flows, flows)
        self._delivery.on_result(push, result, time.monotonic())


def choices(frontend: Frontend) -> frozenset[Outcome]:
    """Where a new connection to an address may go, affinity aside."""
    if isinstance(frontend.to, EndpointSet):
        return frozenset(frontend.to.endpoints)
    return frozenset({PacketVerdict(frontend.to.value)})


def verify_installed_rules(one: OurGuest) -> bool:
    """Whether the guest's kernel prints the rendered rules, line by line."""
    one.side.ruled.call(lambda: one.reconciler.check_drift(CheckLevel.VERIFY))
    return not one.reconciler.has_drifted


def _opened() -> tuple[NetfilterSocket, KernelPacketFilter]:
    netfilter = NetfilterSocket()
    return netfilter, KernelPacketFilter(netfilter)


def _record_outcome(one: OurGuest, desired: DesiredRuleset) -> None:
    if one.desired is desired:
        return
    one.desired = desired
    one.frontends = {
        (frontend.ip, frontend.port, frontend.protocol): frontend
        for outcome in desired.results
        for frontend in outcome.rules.frontends()
    }
    one.serving = {
        (each.service_port, each.protocol, outcome.rules.family): frozenset(each.endpoints)
        for outcome in desired.results
        for each in outcome.serving
    }


def _flow(stale: StaleFlow) -> Flow:
    """As `kubeproxy_ext.bridge` puts it on the wire."""
    return Flow(
        protocol=stale.protocol.value,
        destination=stale.destination,
        port=stale.port,
        reply_source=stale.reply_source,
        reply_port=stale.reply_port,
        never_translated=stale.never_translated,
        keep_replies_from=stale.keep_replies_from,
    )
