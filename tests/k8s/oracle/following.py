# SPDX-License-Identifier: Apache-2.0
"""Flows and clients that stay while Services change under them.

A flow is one source port, of which a packet is sent after each change; a client of a Service with
affinity opens a new connection each time. What may become of them follows from where they were and
from the rules that hold now (service-proxy.md 1.5, 2.7).
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from ruleset.model import Endpoint, Protocol
from ruleset.packet import Fate, Outcome, listed
from tests.k8s.oracle.changes import SERVICES, Change
from tests.k8s.oracle.laboratory import Laboratory, Pair
from tests.k8s.oracle.ours import OurGuest
from tests.k8s.oracle.questions import Kind, Question
from tests.k8s.oracle.volley import Flow, Volleys

LEFT_BEHIND = "conntrack entries left behind"
_SOURCE_PORT = 1024
_KINDS = (Kind.CLUSTER_IP, Kind.EXTERNAL_IP, Kind.BALANCER_IP)
# SCTP's entries of an INIT are gone after three seconds.
_PROTOCOLS = (Protocol.TCP, Protocol.UDP)
_MOST = 400
# kube-proxy deletes entries after it has written its rules.
_DELETED_S = 2.0
_POLL_S = 0.05

Last = dict[Question, Outcome]


class Followers:
    """The flows and clients of one node, on both sides."""

    def __init__(self, laboratory: Laboratory, pair: Pair, asked: Sequence[Question]) -> None:
        """Open the flows; `asked` are the questions to choose from."""
        self._laboratory = laboratory
        self._pair = pair
        candidates = [one for one in asked if one.kind in _KINDS]
        flows = [one for one in candidates if one.flow.protocol in _PROTOCOLS]
        clients = [one for one in candidates if pair.guest.has_affinity(one.flow)]
        choose = laboratory.chooser(f"followers of {pair.place.node}")
        self._flows = choose.sample(flows, min(_MOST, len(flows)))
        self._clients = choose.sample(clients, min(_MOST, len(clients)))
        for side in pair.sides:
            side.forget_flows()
        self._last_flows = [self._send(volleys, self._flows) for volleys in self._both]
        self._last_clients = [self._connect(volleys, self._clients) for volleys in self._both]

    def __len__(self) -> int:
        return len(self._flows) + len(self._clients)

    @property
    def _both(self) -> tuple[Volleys, Volleys]:
        return self._pair.theirs, self._pair.ours

    def follow(self, changes: Sequence[Change]) -> list[str]:
        """After these changes: send again; what is wrong with where the packets came to."""
        edited = {_reference(one) for one in changes if one.kind == SERVICES}
        often = Counter(_reference(one) for one in changes)
        resliced = {_reference(one) for one in changes if one.kind != SERVICES}
        problems = []
        for at, (side, volleys) in enumerate(zip(("kube-proxy", "we"), self._both, strict=True)):
            is_theirs = at == 0
            flows = self._flows_now(volleys, self._last_flows[at], is_patient=is_theirs)
            for one, (before, now, allowed) in flows.items():
                if now in allowed:
                    continue
                if is_theirs and self._is_left_behind(one, before, now, resliced):
                    self._laboratory.figures.accepted[LEFT_BEHIND] += 1
                    continue
                problems.append(
                    f"{side}, {self._pair.place.node}: a {one.flow.protocol.value} flow to {one} went to "
                    f"{listed([before])}, now to {listed([now])}, not to {listed(allowed)}"
                )
            for one, now in self._connect(volleys, self._clients).items():
                before = self._last_clients[at][one]
                may_stay = one.service not in edited and often[one.service] < 2
                allowed = _for_client(before, one.flow, self._pair.guest, may_stay=may_stay)
                self._last_clients[at][one] = now
                if now not in allowed:
                    problems.append(
                        f"{side}, {self._pair.place.node}: a client of {one} was at {listed([before])}, now "
                        f"at {listed([now])}, not at {listed(allowed)}"
                    )
        return problems

    def _flows_now(
        self, volleys: Volleys, last: Last, *, is_patient: bool
    ) -> Mapping[Question, tuple[Outcome, Outcome, frozenset[Outcome]]]:
        """Before, now and what is allowed, of each flow; `last` is brought up to date."""
        guest = self._pair.guest
        before = dict(last)
        allowed = {one: _for_flow(before[one], one.flow, guest) for one in self._flows}
        left = list(self._flows)
        deadline = time.monotonic() + (_DELETED_S if is_patient else 0.0)
        while left:
            last |= self._send(volleys, left)
            left = [one for one in left if last[one] not in allowed[one]]
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S if left else 0)
        return {one: (before[one], last[one], allowed[one]) for one in self._flows}

    def _is_left_behind(self, one: Question, before: Outcome, now: Outcome, resliced: set[str]) -> bool:
        """Whether kube-proxy is known to leave such an entry (`differences.CONNTRACK_LEFT_BEHIND`)."""
        if now != before:
            return False
        capture = self._pair.guest.capture(one.flow)
        if one.flow.protocol is not Protocol.UDP:
            return before is Fate.PASS
        if capture is None or one.service not in resliced:
            return True
        return not self._pair.guest.serving.get((capture.service_port, Protocol.UDP))

    def _send(self, volleys: Volleys, asked: Sequence[Question]) -> Last:
        seen = volleys.ask_from([(one.flow, _SOURCE_PORT) for one in asked])
        return {one: next(iter(of.ends)) for one, of in zip(asked, seen, strict=True)}

    def _connect(self, volleys: Volleys, asked: Sequence[Question]) -> Last:
        seen = volleys.ask([(one.flow, 1) for one in asked])
        return {one: next(iter(of.ends)) for one, of in zip(asked, seen, strict=True)}


def _for_flow(before: Outcome, flow: Flow, guest: OurGuest) -> frozenset[Outcome]:
    """Where the next packet of a flow may go that went to `before`."""
    now, capture = guest.expected(flow), guest.capture(flow)
    if not isinstance(before, Endpoint):
        return now  # what was refused has no entry, and what passed untranslated is to be repaired
    if flow.protocol is Protocol.TCP:
        return frozenset({before})
    if capture is None:
        return now
    serving = guest.serving.get((capture.service_port, flow.protocol), frozenset())
    return frozenset({before}) if before in serving else now


def _for_client(before: Outcome, flow: Flow, guest: OurGuest, *, may_stay: bool) -> frozenset[Outcome]:
    """Where a new connection of a client may go that was at `before`."""
    now = guest.expected(flow)
    return frozenset({before}) if may_stay and before in now and guest.has_affinity(flow) else now


def _reference(change: Change) -> str:
    return f"{change.after.namespace}/{change.service}"
