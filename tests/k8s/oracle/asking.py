# SPDX-License-Identifier: Apache-2.0
"""Asks one side all there is to ask, with packets, until chance explains nothing any more.

What the model says is only how often to ask: an end that one side has and the other not would hardly
be missed in the first round, and where the ends are others than the model's, more rounds follow. What
both sides said is compared elsewhere, never what the model says.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ruleset.model import Endpoint
from ruletrace.packet import Outcome, PacketVerdict, format_outcomes
from tests.k8s.oracle.volley import AskedFlow, FlowOutcomes, Volleys

# That an end which nobody expects shows in the first round: there are thousands of questions, and a
# fault shows in more than one.
_SHOWN = 0.98
# That an end which is there shows at last: else sound rules would fail one run in many.
_SURE = 1 - 1e-9
_ROUNDS = 3
# Conntrack has room for 262 144 flows, and entries stay for a while.
_MOST_FLOWS = 60_000


@dataclass(frozen=True, slots=True)
class PacketAnswer:
    """Where packets ended, and the senders' addresses that were seen there."""

    ends: frozenset[Outcome]
    sources: frozenset[str]

    def __str__(self) -> str:
        return format_outcomes(self.ends)


@dataclass(frozen=True, slots=True)
class Hint:
    """What an answer may be: `ends` None, nobody knows and it need not be asked again; `is_sticky`, one
    of the ends, the same each time."""

    ends: frozenset[Outcome] | None
    is_sticky: bool = False

    def explains(self, ends: frozenset[Outcome]) -> bool:
        if self.ends is None or ends == self.ends:
            return True
        return self.is_sticky and len(ends) == 1 and ends <= self.ends


def ask_all(
    volleys: Volleys, flows: Sequence[AskedFlow], hint: Callable[[AskedFlow], Hint], *, may_forget: bool
) -> dict[AskedFlow, PacketAnswer]:
    """The answers of one side. `may_forget`: nobody needs the flows that are under way there."""
    found: dict[AskedFlow, FlowOutcomes] = {flow: FlowOutcomes() for flow in flows}
    left, certainty = list(flows), _SHOWN
    for _ in range(1 + _ROUNDS):
        for part in _parts(left, hint, certainty):
            if may_forget:
                volleys.side.forget_flows()
            for (flow, _), seen in zip(part, volleys.ask(part), strict=True):
                if PacketVerdict.DROP not in seen.outcomes:
                    # What was lost in a storm of packets is not lost in a calm.
                    found[flow].outcomes.pop(PacketVerdict.DROP, None)
                found[flow].add(seen)
        left, certainty = [flow for flow in left if not hint(flow).explains(found[flow].ends)], _SURE
    return {flow: PacketAnswer(seen.ends, frozenset(seen.sources)) for flow, seen in found.items()}


def times(ends: Iterable[Outcome], certainty: float) -> int:
    """How often to ask for ends of which each is as likely as any, or as one more that is not expected."""
    possible = max(2, sum(isinstance(one, Endpoint) for one in ends) + 1)
    return math.ceil(math.log(possible / (1 - certainty)) / -math.log(1 - 1 / possible))


def _parts(
    flows: Sequence[AskedFlow], hint: Callable[[AskedFlow], Hint], certainty: float
) -> Iterable[list[tuple[AskedFlow, int]]]:
    part: list[tuple[AskedFlow, int]] = []
    count = 0
    for flow in flows:
        hinted = hint(flow)
        often = 3 if hinted.is_sticky or hinted.ends is None else times(hinted.ends, certainty)
        if count + often > _MOST_FLOWS:
            yield part
            part, count = [], 0
        part.append((flow, often))
        count += often
    if part:
        yield part
