# SPDX-License-Identifier: Apache-2.0
"""Long-lived flows and clients, while Services change.

A flow is one source port, which sends a packet after each change; a client of a Service with affinity opens
a new connection each time. Their allowed ends follow from their earlier ends and from the current rules
(service-proxy.md 1.5, 2.7).
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ruleset.model import Endpoint, Frontend, Protocol
from ruletrace.packet import Outcome, PacketVerdict, format_outcomes
from tests.k8s.oracle.changes import SERVICES, ObjectChange
from tests.k8s.oracle.differences import (
    IPTABLES,
    LEFT_BEHIND,
    NFTABLES,
    has_local_policy,
    has_source_ranges,
)
from tests.k8s.oracle.laboratory import Laboratory, NodeComparison
from tests.k8s.oracle.ours import choices
from tests.k8s.oracle.prober import Prober
from tests.k8s.oracle.probes import DestinationKind, FlowProbe

_SOURCE_PORT = 1024
_KINDS = (DestinationKind.CLUSTER_IP, DestinationKind.EXTERNAL_IP, DestinationKind.BALANCER_IP)
# SCTP's entries of an INIT are gone after three seconds.
_PROTOCOLS = (Protocol.TCP, Protocol.UDP)
_REFUSALS = frozenset[Outcome]({PacketVerdict.REJECT, PacketVerdict.DROP})
_MOST = 400
# kube-proxy deletes entries after it has written its rules.
_DELETED_S = 5.0
_POLL_S = 0.05
# A Service's port (`namespace/name:port`), in one family: whether that is IPv6.
_Port = tuple[str, Protocol, bool]


@dataclass(frozen=True, slots=True)
class _Happened:
    """Services (`namespace/name`): edited, created or deleted; with changed slices; the number of changes."""

    edited: frozenset[str]
    resliced: frozenset[str]
    count: Counter[str]


class LongLivedFlows:
    """The flows and clients of one node, on both sides.

    Where the sides have an accepted difference, kube-proxy's side is not checked.
    """

    def __init__(
        self, laboratory: Laboratory, comparison: NodeComparison, probes: Sequence[FlowProbe]
    ) -> None:
        """Open the flows; `probes` are the candidates."""
        self._laboratory = laboratory
        candidates = [one for one in probes if one.kind in _KINDS]
        flows = [one for one in candidates if one.flow.protocol in _PROTOCOLS]
        clients = [one for one in candidates if comparison.guest.has_affinity(one.flow)]
        rng = laboratory.rng_for(f"followers of {comparison.node.name}")
        flows = rng.sample(flows, min(_MOST, len(flows)))
        clients = rng.sample(clients, min(_MOST, len(clients)))
        for side in comparison.sides:
            side.forget_flows()
        self._sides = tuple(
            _SideFlows(laboratory, prober, comparison, flows, clients, is_theirs=prober is comparison.theirs)
            for prober in (comparison.theirs, comparison.ours)
        )
        self._count = len(flows) + len(clients)

    def __len__(self) -> int:
        return self._count

    def follow(self, changes: Sequence[ObjectChange]) -> list[str]:
        """After these changes: send again; a message for each wrong end."""
        happened = _Happened(
            frozenset(_reference(one) for one in changes if one.kind == SERVICES),
            frozenset(_reference(one) for one in changes if one.kind != SERVICES),
            Counter(_reference(one) for one in changes),
        )
        problems = []
        for side in self._sides:
            problems += [f"{side}: {problem}" for problem in side.follow(happened)]
            self._laboratory.figures.accepted[LEFT_BEHIND] += side.left_behind
        return problems


class _SideFlows:
    """One side's flows and clients, and their last ends."""

    def __init__(
        self,
        laboratory: Laboratory,
        prober: Prober,
        comparison: NodeComparison,
        flows: Sequence[FlowProbe],
        clients: Sequence[FlowProbe],
        *,
        is_theirs: bool,
    ) -> None:
        self._laboratory = laboratory
        self._prober = prober
        self._comparison = comparison
        self._is_theirs = is_theirs
        self._flows = self._send(flows)
        # The end in each flow's conntrack entry; a refused packet leaves the entry unchanged.
        self._entries = {one: end for one, end in self._flows.items() if end not in _REFUSALS}
        self._clients = self._connect(clients)
        self._choices = self._all_choices()
        self._served = self._all_served()
        self.left_behind = 0
        """How many stale entries kube-proxy left in the last round."""

    def __str__(self) -> str:
        return self._prober.side.name

    def follow(self, happened: _Happened) -> Iterator[str]:
        """Send again; a message for each wrong end."""
        yield from self._follow_flows(happened)
        yield from self._follow_clients(happened)
        self._served = self._all_served()

    def _follow_flows(self, happened: _Happened) -> Iterator[str]:
        before, self.left_behind = dict(self._flows), 0
        allowed = {one: self._may_go(one, end) for one, end in before.items()}
        deadline = time.monotonic() + (_DELETED_S if self._is_theirs else 0.0)
        self._flows |= self._send(list(before))
        while True:
            wrong = [one for one in before if not self._is_in(self._flows[one], allowed[one])]
            excused = {one for one in wrong if self._is_excused(one, happened)}
            wrong = [one for one in wrong if one not in excused]
            if not wrong or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)  # pace: the message has the last ends
            self._flows |= self._send(wrong)
        self.left_behind = sum(one in self._comparison.agreed for one in excused)
        for one in wrong:
            yield (
                f"a {one.flow.protocol.value} flow to {one} went to {format_outcomes([before[one]])}, now to "
                f"{format_outcomes([self._flows[one]])}, not to {format_outcomes(allowed[one])}"
            )
        self._remember()

    def _may_go(self, one: FlowProbe, before: Outcome) -> frozenset[Outcome]:
        """The allowed ends of a flow's next packet; the last one went to `before`."""
        guest, flow, entry = self._comparison.guest, one.flow, self._entries.get(one)
        now = guest.expected(flow)
        if not isinstance(entry, Endpoint):
            return now  # a refused flow has no entry, and an untranslated one must be repaired
        if flow.protocol is Protocol.UDP and before in _REFUSALS:
            return now | {entry}  # the entry may be deleted by now
        if flow.protocol is Protocol.TCP or entry in guest.serves(flow):
            # These flows have no reply, so they are still new; and in mode nftables kube-proxy filters new
            # packets before it checks whether they were translated.
            is_refused = self._filters_before_conntrack and now <= _REFUSALS
            return now | {entry} if is_refused else frozenset({entry})
        # An endpoint may be ready and not serving: its entries are not stale when it is removed.
        return now if self._served[one] else now | {entry}

    @property
    def _filters_before_conntrack(self) -> bool:
        """Whether new packets are refused here before conntrack entries count."""
        return self._is_theirs and self._comparison.mode == NFTABLES

    def _is_excused(self, one: FlowProbe, happened: _Happened) -> bool:
        """Whether kube-proxy leaves such an entry (`differences.LEFT_BEHIND`), or the flow has another
        accepted difference."""
        if not self._is_theirs:
            return False
        if one not in self._comparison.agreed:
            return True
        entry = self._entries.get(one)
        left = {entry}
        if entry is PacketVerdict.PASS and self._refuses_untranslated(one):
            left |= _REFUSALS
        if self._flows[one] not in left:
            return False
        if one.flow.protocol is not Protocol.UDP:
            return entry is PacketVerdict.PASS
        return one.service not in happened.resliced or not self._comparison.guest.serves(one.flow)

    def _refuses_untranslated(self, one: FlowProbe) -> bool:
        """Whether kube-proxy drops a flow that its NAT rules did not translate. It treats one to an external
        address with Local policy as external traffic; in mode iptables, one to a load balancer address of a
        Service with source ranges as outside these ranges."""
        service = self._laboratory.service(one.service)
        if has_local_policy(service) and one.kind in (
            DestinationKind.EXTERNAL_IP,
            DestinationKind.BALANCER_IP,
        ):
            return True
        is_filtered = self._comparison.mode == IPTABLES and one.kind is DestinationKind.BALANCER_IP
        return is_filtered and has_source_ranges(service, one.flow.destination)

    def _remember(self) -> None:
        for one, end in self._flows.items():
            if end not in _REFUSALS:
                self._entries[one] = end
            elif (
                not (self._is_theirs and self._entries.get(one) is PacketVerdict.PASS)
                and not self._filters_before_conntrack
            ):
                self._entries.pop(one, None)

    def _follow_clients(self, happened: _Happened) -> Iterator[str]:
        before, self._clients = self._clients, self._connect(list(self._clients))
        past, self._choices = self._choices, self._all_choices()
        of_ports = self._choices_of_ports()
        for one, now in self._clients.items():
            was, allowed = before[one], self._choices[one]
            # An endpoint that came back may remember the client too, and match first. The same holds where
            # another of the Service's addresses has other endpoints: affinity belongs to the Service's
            # port, and each address is probed from the same pod.
            is_alike = allowed <= past[one] and of_ports.get(self._port(one)) == {allowed}
            has_none_more = is_alike and not (self._is_theirs and self._has_others_at_node_ports(one))
            is_untouched = one.service not in happened.edited and happened.count[one.service] < 2
            has_affinity = self._comparison.guest.has_affinity(one.flow)
            if was in allowed and has_none_more and is_untouched and has_affinity:
                allowed = frozenset({was})
            if not self._is_in(now, allowed) and (one in self._comparison.agreed or not self._is_theirs):
                expected, seen = format_outcomes(allowed), (format_outcomes([was]), format_outcomes([now]))
                yield f"a client of {one} was at {seen[0]}, now at {seen[1]}, not at {expected}"

    def _is_in(self, now: Outcome, allowed: frozenset[Outcome]) -> bool:
        """Any refusal of kube-proxy's counts as the allowed one; `comparing` checks its kind."""
        return now in allowed or (self._is_theirs and now in _REFUSALS and bool(_REFUSALS & allowed))

    def _all_choices(self) -> dict[FlowProbe, frozenset[Outcome]]:
        """Where new connections of each client may go, affinity aside."""
        return {one: self._comparison.guest.expected(one.flow) for one in self._clients}

    def _choices_of_ports(self) -> dict[_Port | None, set[frozenset[Outcome]]]:
        """Where new connections to the addresses of each Service's port may go. Addresses that refuse all are
        left out: they remember no client."""
        found = defaultdict[_Port | None, set[frozenset[Outcome]]](set)
        for frontend in self._comparison.guest.frontends.values():
            ends = choices(frontend)
            if not ends <= _REFUSALS:
                found[_port_of(frontend)].add(ends)
        return found

    def _port(self, one: FlowProbe) -> _Port | None:
        frontend = self._comparison.guest.frontend(one.flow)
        return None if frontend is None else _port_of(frontend)

    def _has_others_at_node_ports(self, one: FlowProbe) -> bool:
        """Whether the Service has node ports, with the endpoints of all nodes, while its cluster IP has only
        those of this node. Guests have no node ports."""
        spec = (self._laboratory.service(one.service) or {"spec": {}})["spec"]
        has_node_ports = any(port.get("nodePort") for port in spec.get("ports") or ())
        return has_node_ports and spec.get("internalTrafficPolicy") == "Local"

    def _all_served(self) -> dict[FlowProbe, bool]:
        """Whether each flow's endpoint serves, by our model."""
        return {one: end in self._comparison.guest.serves(one.flow) for one, end in self._entries.items()}

    def _send(self, probes: Sequence[FlowProbe]) -> dict[FlowProbe, Outcome]:
        seen = self._prober.probe_from([(one.flow, _SOURCE_PORT) for one in probes])
        return {one: next(iter(of.ends)) for one, of in zip(probes, seen, strict=True)}

    def _connect(self, probes: Sequence[FlowProbe]) -> dict[FlowProbe, Outcome]:
        seen = self._prober.probe([(one.flow, 1) for one in probes])
        return {one: next(iter(of.ends)) for one, of in zip(probes, seen, strict=True)}


def _reference(change: ObjectChange) -> str:
    return f"{change.after.name}/{change.service}"


def _port_of(frontend: Frontend) -> _Port:
    return frontend.service_port, frontend.protocol, ":" in frontend.ip
