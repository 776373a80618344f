# SPDX-License-Identifier: Apache-2.0
"""Sends many packets and tells what came of each: real ones, through real rules.

A packet that nobody answers for was dropped on its way. One that was merely slow or lost would look
the same; but then others of its kind do not, and whoever asks sees an answer that is no clean one.
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
from tests.k8s.oracle.sides import Side

# A veth link hands a packet over within the call that sends it, or to the same processor's next
# turn. Nothing arrives for so long: nothing more will.
_QUIET_S = 0.05
_LONGEST_S = 5.0
# As many as the taps have room for several times over.
_BURST = 256
_FIRST_PORT, _PORTS = 2048, 60_000

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class AskedFlow:
    """What is asked: the first packet of a flow to there."""

    protocol: Protocol
    destination: str
    port: int

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.destination, self.port)


@dataclass(slots=True)
class FlowOutcomes:
    """What became of the packets of one flow's kind: how many, and who the receivers thought sent them."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    sources: set[str] = field(default_factory=set)

    @property
    def ends(self) -> frozenset[Outcome]:
        return frozenset(self.outcomes)

    def add(self, other: "FlowOutcomes") -> None:
        self.outcomes += other.outcomes
        self.sources |= other.sources


class Volleys:
    """Asks one side. Each packet is a flow of its own: its source port was not used before for there."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.sent = 0
        self._templates: dict[AskedFlow, Template] = {}
        self._ports: Counter[AskedFlow] = Counter()

    def ask(self, asked: Sequence[tuple[AskedFlow, int]]) -> list[FlowOutcomes]:
        """Send so many packets of each flow; what came of them, in the same order."""
        return self._fire(
            [(flow, self._next_port(flow)) for flow, times in asked for _ in range(times)],
            [index for index, (_, times) in enumerate(asked) for _ in range(times)],
            len(asked),
        )

    def ask_from(self, asked: Sequence[tuple[AskedFlow, int]]) -> list[FlowOutcomes]:
        """Send one packet of each flow, from a source port: a flow may be one that there was before."""
        return self._fire(list(asked), list(range(len(asked))), len(asked))

    def _fire(self, packets: list[tuple[AskedFlow, int]], whose: list[int], count: int) -> list[FlowOutcomes]:
        self._drain({})
        under_way: dict[int, tuple[AskedFlow, int]] = {}
        came: dict[int, Arrived | PacketRefused] = {}
        for at, (flow, source_port) in enumerate(packets):
            number = next(_numbers) & 0xFFFFFFFF
            under_way[number] = (flow, whose[at])
            self._send(flow, source_port, number)
            if at % _BURST == _BURST - 1:
                self._drain(came)
        self.sent += len(packets)
        self._wait(came, len(under_way))
        seen = [FlowOutcomes() for _ in range(count)]
        for number, (flow, index) in under_way.items():
            _note(seen[index], flow, came.get(number))
        return seen

    def _send(self, flow: AskedFlow, source_port: int, number: int) -> None:
        made = self._templates.get(flow)
        if made is None:
            version = 6 if ":" in flow.destination else 4
            source = self.side.place.pod_ips[version == 6]
            made = self._templates[flow] = template(source, flow.protocol, flow.destination, flow.port)
        sender = self.side.senders[6 if ":" in flow.destination else 4]
        try:
            sender.sendto(made.packet(source_port, number), (flow.destination, 0))
        except PermissionError:
            return  # refused or dropped in OUTPUT: which of them, the taps tell

    def _next_port(self, flow: AskedFlow) -> int:
        self._ports[flow] += 1
        return _FIRST_PORT + self._ports[flow] % _PORTS

    def _wait(self, came: dict[int, Arrived | PacketRefused], wanted: int) -> None:
        """Until all are answered for, or nothing more comes."""
        poll = select.poll()
        for tap in self.side.taps:
            poll.register(tap, select.POLLIN)
        deadline = time.monotonic() + _LONGEST_S
        self._drain(came)
        while len(came) < wanted and time.monotonic() < deadline and poll.poll(_QUIET_S * 1000):
            self._drain(came)

    def _drain(self, came: dict[int, Arrived | PacketRefused]) -> None:
        for tap in self.side.taps:
            while True:
                try:
                    packet = tap.recv(2048)
                except BlockingIOError:
                    break
                told = read(packet)
                if told is None:
                    continue
                # Where a packet came to counts, whatever was said of it there.
                if isinstance(told, Arrived) or told.number not in came:
                    came[told.number] = told


def _note(seen: FlowOutcomes, flow: AskedFlow, told: Arrived | PacketRefused | None) -> None:
    match told:
        case None:
            seen.outcomes[PacketVerdict.DROP] += 1
        case PacketRefused(is_port=is_port):
            seen.outcomes[PacketVerdict.REJECT if is_port else PacketVerdict.UNKNOWN] += 1
        case Arrived(endpoint=endpoint, source=source):
            seen.outcomes[PacketVerdict.PASS if endpoint == flow.endpoint else endpoint] += 1
            seen.sources.add(source)
