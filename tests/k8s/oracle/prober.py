# SPDX-License-Identifier: Apache-2.0
"""Sends many real packets through real rules, and reports the outcome of each.

A packet without any reaction counts as dropped. A slow or lost packet looks the same; but other packets of
its flow arrive, and the mixed outcomes show it.
"""

import itertools
import select
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ruleset.model import Endpoint, Protocol
from ruletrace.packet import Outcome, PacketVerdict
from tests.k8s.oracle.packets import Arrived, PacketRefused, Template, read, template
from tests.k8s.oracle.sides import OracleSide

# A veth link delivers a packet within the call that sends it, or at the same processor's next softirq.
# After so long without an arrival, no more follow.
_QUIET_S = 0.05
_LONGEST_S = 5.0
# A fraction of what the taps' buffers hold.
_BURST = 256
_FIRST_PORT, _PORTS = 2048, 60_000

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ProbedFlow:
    """A flow whose first packet is sent."""

    protocol: Protocol
    destination: str
    port: int

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.destination, self.port)


@dataclass(slots=True)
class FlowOutcomes:
    """The outcomes of one flow's packets, counted, and the source addresses that receivers saw."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    sources: set[str] = field(default_factory=set)

    @property
    def ends(self) -> frozenset[Outcome]:
        return frozenset(self.outcomes)

    def add(self, other: "FlowOutcomes") -> None:
        self.outcomes += other.outcomes
        self.sources |= other.sources


class Prober:
    """Sends to one side. Each packet is a flow of its own: it has a new source port for its destination."""

    def __init__(self, side: OracleSide) -> None:
        self.side = side
        self.sent = 0
        self._templates: dict[ProbedFlow, Template] = {}
        self._ports: Counter[ProbedFlow] = Counter()

    def probe(self, flows: Sequence[tuple[ProbedFlow, int]]) -> list[FlowOutcomes]:
        """Send so many packets of each flow; their outcomes, in the same order."""
        return self._send_burst(
            [(flow, self._next_port(flow)) for flow, times in flows for _ in range(times)],
            [index for index, (_, times) in enumerate(flows) for _ in range(times)],
            len(flows),
        )

    def probe_from(self, flows: Sequence[tuple[ProbedFlow, int]]) -> list[FlowOutcomes]:
        """Send one packet of each flow from the given source port, which may be one of an earlier packet."""
        return self._send_burst(list(flows), list(range(len(flows))), len(flows))

    def _send_burst(
        self, packets: list[tuple[ProbedFlow, int]], indexes: list[int], count: int
    ) -> list[FlowOutcomes]:
        self._drain({})
        in_flight: dict[int, tuple[ProbedFlow, int]] = {}
        results: dict[int, Arrived | PacketRefused] = {}
        for at, (flow, source_port) in enumerate(packets):
            number = next(_numbers) & 0xFFFFFFFF
            in_flight[number] = (flow, indexes[at])
            self._send(flow, source_port, number)
            if at % _BURST == _BURST - 1:
                self._drain(results)
        self.sent += len(packets)
        self._wait(results, len(in_flight))
        seen = [FlowOutcomes() for _ in range(count)]
        for number, (flow, index) in in_flight.items():
            _record_outcome(seen[index], flow, results.get(number))
        return seen

    def _send(self, flow: ProbedFlow, source_port: int, number: int) -> None:
        made = self._templates.get(flow)
        if made is None:
            version = 6 if ":" in flow.destination else 4
            source = self.side.node.pod_ips[version == 6]
            made = self._templates[flow] = template(source, flow.protocol, flow.destination, flow.port)
        sender = self.side.senders[6 if ":" in flow.destination else 4]
        try:
            sender.sendto(made.packet(source_port, number), (flow.destination, 0))
        except PermissionError:
            return  # refused or dropped in OUTPUT; the taps show which

    def _next_port(self, flow: ProbedFlow) -> int:
        self._ports[flow] += 1
        return _FIRST_PORT + self._ports[flow] % _PORTS

    def _wait(self, results: dict[int, Arrived | PacketRefused], expected: int) -> None:
        """Until every packet has a result, or no more arrive."""
        poll = select.poll()
        for tap in self.side.taps:
            poll.register(tap, select.POLLIN)
        deadline = time.monotonic() + _LONGEST_S
        self._drain(results)
        while len(results) < expected and time.monotonic() < deadline and poll.poll(_QUIET_S * 1000):
            self._drain(results)

    def _drain(self, results: dict[int, Arrived | PacketRefused]) -> None:
        for tap in self.side.taps:
            while True:
                try:
                    packet = tap.recv(2048)
                except BlockingIOError:
                    break
                report = read(packet)
                if report is None:
                    continue
                # An arrival counts, whatever error followed it.
                if isinstance(report, Arrived) or report.number not in results:
                    results[report.number] = report


def _record_outcome(seen: FlowOutcomes, flow: ProbedFlow, report: Arrived | PacketRefused | None) -> None:
    match report:
        case None:
            seen.outcomes[PacketVerdict.DROP] += 1
        case PacketRefused(is_port=is_port):
            seen.outcomes[PacketVerdict.REJECT if is_port else PacketVerdict.UNKNOWN] += 1
        case Arrived(endpoint=endpoint, source=source):
            seen.outcomes[PacketVerdict.PASS if endpoint == flow.endpoint else endpoint] += 1
            seen.sources.add(source)
