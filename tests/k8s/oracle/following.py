# SPDX-License-Identifier: Apache-2.0
"""Flows and clients that stay while Services change under them.

A flow is one source port, of which a packet is sent after each change; a client of a Service with
affinity opens a new connection each time. What may become of them follows from where they were and
from the rules that hold now (service-proxy.md 1.5, 2.7).
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
from tests.k8s.oracle.laboratory import Laboratory, Pair
from tests.k8s.oracle.ours import choices
from tests.k8s.oracle.questions import DestinationKind, Question
from tests.k8s.oracle.volley import Volleys

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
    """Services (`namespace/name`): edited, made or deleted; with other slices; changed how often."""

    edited: frozenset[str]
    resliced: frozenset[str]
    often: Counter[str]


class Followers:
    """The flows and clients of one node, on both sides.

    Where both sides do not answer alike, which the list of differences lets pass, kube-proxy's side is
    not held to anything.
    """

    def __init__(self, laboratory: Laboratory, pair: Pair, asked: Sequence[Question]) -> None:
        """Open the flows; `asked` are the questions to choose from."""
        self._laboratory = laboratory
        candidates = [one for one in asked if one.kind in _KINDS]
        flows = [one for one in candidates if one.flow.protocol in _PROTOCOLS]
        clients = [one for one in candidates if pair.guest.has_affinity(one.flow)]
        choose = laboratory.chooser(f"followers of {pair.place.node}")
        flows = choose.sample(flows, min(_MOST, len(flows)))
        clients = choose.sample(clients, min(_MOST, len(clients)))
        for side in pair.sides:
            side.forget_flows()
        self._sides = tuple(
            _FollowedSide(laboratory, volleys, pair, flows, clients, is_theirs=volleys is pair.theirs)
            for volleys in (pair.theirs, pair.ours)
        )
        self._count = len(flows) + len(clients)

    def __len__(self) -> int:
        return self._count

    def follow(self, changes: Sequence[ObjectChange]) -> list[str]:
        """After these changes: send again; what is wrong with where the packets came to."""
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


class _FollowedSide:
    """One side's flows and clients, and what they came to last."""

    def __init__(
        self,
        laboratory: Laboratory,
        volleys: Volleys,
        pair: Pair,
        flows: Sequence[Question],
        clients: Sequence[Question],
        *,
        is_theirs: bool,
    ) -> None:
        self._laboratory = laboratory
        self._volleys = volleys
        self._pair = pair
        self._is_theirs = is_theirs
        self._flows = self._send(flows)
        # Where conntrack has each flow going, if it has it: what was refused leaves its entry as it was.
        self._entries = {one: end for one, end in self._flows.items() if end not in _REFUSALS}
        self._clients = self._connect(clients)
        self._choices = self._all_choices()
        self._served = self._all_served()
        self.left_behind = 0
        """How many entries kube-proxy was seen to leave in the last round."""

    def __str__(self) -> str:
        return self._volleys.side.name

    def follow(self, happened: _Happened) -> Iterator[str]:
        """Send again; what is wrong, a text each."""
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
            time.sleep(_POLL_S)
            self._flows |= self._send(wrong)
        self.left_behind = sum(one in self._pair.agreed for one in excused)
        for one in wrong:
            yield (
                f"a {one.flow.protocol.value} flow to {one} went to {format_outcomes([before[one]])}, now to "
                f"{format_outcomes([self._flows[one]])}, not to {format_outcomes(allowed[one])}"
            )
        self._remember()

    def _may_go(self, one: Question, before: Outcome) -> frozenset[Outcome]:
        """Where the next packet of a flow may go that went to `before`."""
        guest, flow, entry = self._pair.guest, one.flow, self._entries.get(one)
        now = guest.expected(flow)
        if not isinstance(entry, Endpoint):
            return now  # what was refused has no entry, and what passed untranslated is to be repaired
        if flow.protocol is Protocol.UDP and before in _REFUSALS:
            return now | {entry}  # the entry went meanwhile, or it did not
        if flow.protocol is Protocol.TCP or entry in guest.serves(flow):
            # Nobody has answered these flows, so they are still new; and in mode nftables kube-proxy
            # looks at what is new before it looks whether it was translated.
            is_refused = self._looks_first and now <= _REFUSALS
            return now | {entry} if is_refused else frozenset({entry})
        # An endpoint may be ready and not serve: what is sent to it is no news when it is not chosen
        # any more.
        return now if self._served[one] else now | {entry}

    @property
    def _looks_first(self) -> bool:
        """Whether new packets are refused here before anybody looks whether they have an entry."""
        return self._is_theirs and self._pair.mode == NFTABLES

    def _is_excused(self, one: Question, happened: _Happened) -> bool:
        """Whether kube-proxy is known to leave such an entry (`differences.LEFT_BEHIND`), or
        is known to answer otherwise."""
        if not self._is_theirs:
            return False
        if one not in self._pair.agreed:
            return True
        entry = self._entries.get(one)
        left = {entry}
        if entry is PacketVerdict.PASS and self._refuses_untranslated(one):
            left |= _REFUSALS
        if self._flows[one] not in left:
            return False
        if one.flow.protocol is not Protocol.UDP:
            return entry is PacketVerdict.PASS
        return one.service not in happened.resliced or not self._pair.guest.serves(one.flow)

    def _refuses_untranslated(self, one: Question) -> bool:
        """Whether kube-proxy drops a flow that its NAT rules did not translate: one to an external address
        for the want of a local endpoint, as if it came from outside the cluster, and in mode iptables one
        to a load balancer address of a Service with source ranges, as if it were not admitted."""
        service = self._laboratory.service(one.service)
        if has_local_policy(service) and one.kind in (
            DestinationKind.EXTERNAL_IP,
            DestinationKind.BALANCER_IP,
        ):
            return True
        is_filtered = self._pair.mode == IPTABLES and one.kind is DestinationKind.BALANCER_IP
        return is_filtered and has_source_ranges(service, one.flow.destination)

    def _remember(self) -> None:
        for one, end in self._flows.items():
            if end not in _REFUSALS:
                self._entries[one] = end
            elif (
                not (self._is_theirs and self._entries.get(one) is PacketVerdict.PASS)
                and not self._looks_first
            ):
                self._entries.pop(one, None)

    def _follow_clients(self, happened: _Happened) -> Iterator[str]:
        before, self._clients = self._clients, self._connect(list(self._clients))
        past, self._choices = self._choices, self._all_choices()
        of_ports = self._choices_of_ports()
        for one, now in self._clients.items():
            was, allowed = before[one], self._choices[one]
            # Where endpoints came back, one of them may remember the client too, and be asked first. The
            # same where another of the Service's addresses leads to others, as what is remembered
            # belongs to the Service's port and each address is asked from the same pod.
            is_alike = allowed <= past[one] and of_ports.get(self._port(one)) == {allowed}
            has_none_more = is_alike and not (self._is_theirs and self._has_others_at_node_ports(one))
            is_untouched = one.service not in happened.edited and happened.often[one.service] < 2
            has_affinity = self._pair.guest.has_affinity(one.flow)
            if was in allowed and has_none_more and is_untouched and has_affinity:
                allowed = frozenset({was})
            if not self._is_in(now, allowed) and (one in self._pair.agreed or not self._is_theirs):
                wanted, seen = format_outcomes(allowed), (format_outcomes([was]), format_outcomes([now]))
                yield f"a client of {one} was at {seen[0]}, now at {seen[1]}, not at {wanted}"

    def _is_in(self, now: Outcome, allowed: frozenset[Outcome]) -> bool:
        """With which kind of refusal kube-proxy answers is asked elsewhere."""
        return now in allowed or (self._is_theirs and now in _REFUSALS and bool(_REFUSALS & allowed))

    def _all_choices(self) -> dict[Question, frozenset[Outcome]]:
        """Where new connections of each client may go, whatever is remembered."""
        return {one: self._pair.guest.expected(one.flow) for one in self._clients}

    def _choices_of_ports(self) -> dict[_Port | None, set[frozenset[Outcome]]]:
        """Where new connections to the addresses of each Service's port may go. Not the addresses that refuse
        all: nobody is remembered there."""
        found = defaultdict[_Port | None, set[frozenset[Outcome]]](set)
        for frontend in self._pair.guest.frontends.values():
            ends = choices(frontend)
            if not ends <= _REFUSALS:
                found[_port_of(frontend)].add(ends)
        return found

    def _port(self, one: Question) -> _Port | None:
        frontend = self._pair.guest.frontend(one.flow)
        return None if frontend is None else _port_of(frontend)

    def _has_others_at_node_ports(self, one: Question) -> bool:
        """Whether the Service has node ports, which a guest has not, that lead a pod to the endpoints of
        all nodes where its cluster IP leads to those of this one."""
        spec = (self._laboratory.service(one.service) or {"spec": {}})["spec"]
        has_node_ports = any(port.get("nodePort") for port in spec.get("ports") or ())
        return has_node_ports and spec.get("internalTrafficPolicy") == "Local"

    def _all_served(self) -> dict[Question, bool]:
        """Whether each flow's endpoint serves, as our model has it."""
        return {one: end in self._pair.guest.serves(one.flow) for one, end in self._entries.items()}

    def _send(self, asked: Sequence[Question]) -> dict[Question, Outcome]:
        seen = self._volleys.ask_from([(one.flow, _SOURCE_PORT) for one in asked])
        return {one: next(iter(of.ends)) for one, of in zip(asked, seen, strict=True)}

    def _connect(self, asked: Sequence[Question]) -> dict[Question, Outcome]:
        seen = self._volleys.ask([(one.flow, 1) for one in asked])
        return {one: next(iter(of.ends)) for one, of in zip(asked, seen, strict=True)}


def _reference(change: ObjectChange) -> str:
    return f"{change.after.name}/{change.service}"


def _port_of(frontend: Frontend) -> _Port:
    return frontend.service_port, frontend.protocol, ":" in frontend.ip
