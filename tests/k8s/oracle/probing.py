# SPDX-License-Identifier: Apache-2.0
"""Probes one side with packets, often enough that chance cannot explain a difference.

The model determines only the number of packets. An end that one side alone has is hardly missed in the
first round; where the observed ends differ from the model's, more rounds follow. `comparing` compares the
observations of both sides, never the model's expectations.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ruleset.model import Endpoint
from ruletrace.packet import Outcome, PacketVerdict, format_outcomes
from tests.k8s.oracle.prober import FlowOutcomes, ProbedFlow, Prober

# The probability that an unexpected end shows in the first round: a fault shows in more than one of the
# thousands of probes.
_SHOWN = 0.98
# The probability that an existing end shows in the end: otherwise correct rules would fail some runs.
_SURE = 1 - 1e-9
_ROUNDS = 3
# Conntrack has room for 262 144 flows, and entries stay for a while.
_MOST_FLOWS = 60_000


@dataclass(frozen=True, slots=True)
class ObservedEnds:
    """Where packets ended, and the source addresses that were seen there."""

    ends: frozenset[Outcome]
    sources: frozenset[str]

    def __str__(self) -> str:
        return format_outcomes(self.ends)


@dataclass(frozen=True, slots=True)
class Hint:
    """The expected ends (None: unknown, never probed again). `is_sticky`: the same one of them each time."""

    ends: frozenset[Outcome] | None
    is_sticky: bool = False

    def explains(self, ends: frozenset[Outcome]) -> bool:
        if self.ends is None or ends == self.ends:
            return True
        return self.is_sticky and len(ends) == 1 and ends <= self.ends


def probe_all(
    prober: Prober, flows: Sequence[ProbedFlow], hint: Callable[[ProbedFlow], Hint], *, may_forget: bool
) -> dict[ProbedFlow, ObservedEnds]:
    """The observed ends of one side. `may_forget`: its conntrack entries may be deleted."""
    found: dict[ProbedFlow, FlowOutcomes] = {flow: FlowOutcomes() for flow in flows}
    left, certainty = list(flows), _SHOWN
    for _ in range(1 + _ROUNDS):
        for part in _parts(left, hint, certainty):
            if may_forget:
                prober.side.forget_flows()
            for (flow, _), seen in zip(part, prober.probe(part), strict=True):
                if PacketVerdict.DROP not in seen.outcomes:
                    # A packet that was lost in a large burst arrives in a small one.
                    found[flow].outcomes.pop(PacketVerdict.DROP, None)
                found[flow].add(seen)
        left, certainty = [flow for flow in left if not hint(flow).explains(found[flow].ends)], _SURE
    return {flow: ObservedEnds(seen.ends, frozenset(seen.sources)) for flow, seen in found.items()}


def times(ends: Iterable[Outcome], certainty: float) -> int:
    """How many packets find all of so many equally likely ends, and one unexpected, with this certainty."""
    possible = max(2, sum(isinstance(one, Endpoint) for one in ends) + 1)
    return math.ceil(math.log(possible / (1 - certainty)) / -math.log(1 - 1 / possible))


def _parts(
    flows: Sequence[ProbedFlow], hint: Callable[[ProbedFlow], Hint], certainty: float
) -> Iterable[list[tuple[ProbedFlow, int]]]:
    part: list[tuple[ProbedFlow, int]] = []
    count = 0
    for flow in flows:
        hinted = hint(flow)
        count = 3 if hinted.is_sticky or hinted.ends is None else times(hinted.ends, certainty)
        if count + count > _MOST_FLOWS:
            yield part
            part, count = [], 0
        part.append((flow, count))
        count += count
    if part:
        yield part
