# SPDX-License-Identifier: Apache-2.0
"""Who takes turns, and what each turn showed."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

from . import ways
from .ours import Said, VcnodeDaemons
from .starting import Starter

K = TypeVar("K")

WITHOUT = "without us"
POLICIES = ("off", "warn", "enforce")
WARM = "warm"
# Of plugins that know by themselves when a pod may start: how late that is.
LATE_S = (0.0, 0.3)


@dataclass(frozen=True, slots=True)
class Amounts:
    rounds: int
    singles: int
    """Pods one after the other, in each turn."""
    at_once: int


# Short turns, so that a minute in which the machine has something else to do is everybody's.
FULL = Amounts(8, 6, 10)
QUICK = Amounts(2, 5, 10)


@dataclass(frozen=True, slots=True)
class Way:
    """One way of starting pods; `place` is its own namespace of the tenant."""

    name: str
    place: str
    demands: bool = False
    has_agent: bool = False


@dataclass(frozen=True, slots=True)
class MethodGroup:
    """Ways that are tried while the same programs run."""

    around: Callable[[], AbstractContextManager[None]]
    ways: Sequence[Way]
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One way in one round. `cpu_ms` is of each daemon, for each pod."""

    single_ms: Sequence[float]
    burst_ms: Sequence[float]
    opened: Mapping[float, float] = field(default_factory=dict)
    nudges: Mapping[str, float] = field(default_factory=dict)
    cpu_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Results:
    """By the names of ways; `refused` and `warned` count pods."""

    amounts: Amounts
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    warned: dict[str, int] = field(default_factory=dict)

    @property
    def pods(self) -> int:
        """Of each way."""
        return self.amounts.rounds * (self.amounts.singles + self.amounts.at_once)


OURS = tuple(Way(policy, f"bench-{policy}", demands=policy == "enforce") for policy in POLICIES)


def groups(starter: Starter, ours: VcnodeDaemons, *, has_ways: bool, has_agent: bool) -> list[MethodGroup]:
    """Who takes turns; with the two ways of waiting if `has_ways`. `has_agent`: our guests are reached by
    their agents. Pods without us have none: what it costs a pod to start one is ours."""
    chosen = [replace(way, has_agent=has_agent) for way in OURS]
    found = [
        MethodGroup(nullcontext, (Way(WITHOUT, "bench-without"),)),
        MethodGroup(ours.running, chosen, is_ours=True),
    ]
    for late_s in LATE_S if has_ways else ():
        when = f"rules after {late_s * 1e3:g} ms"
        found += [
            MethodGroup(_bound(ways.nudged, starter, late_s), (Way(f"refused, {when}", "bench-ways"),)),
            MethodGroup(_bound(ways.hooked, starter, late_s), (Way(f"hook, {when}", "bench-ways"),)),
        ]
    return found


def run(
    starter: Starter,
    ours: VcnodeDaemons,
    groups: Sequence[MethodGroup],
    amounts: Amounts,
    say: Callable[[str], None],
) -> Results:
    """Take turns in shuffled order in each round: what disturbs the machine then disturbs all."""
    luck = random.Random(5)  # noqa: S311 - the order of turns
    results = Results(amounts)
    for number in range(amounts.rounds):
        say(f"round {number + 1} of {amounts.rounds}")
        for group in luck.sample(groups, len(groups)):
            with group.around():
                # Somebody's first pod finds what nobody has read yet.
                starter.at_once(WARM, 2, has_agent=group.ways[0].has_agent)
                for way in luck.sample(list(group.ways), len(group.ways)):
                    turn = _turn(starter, ours if group.is_ours else None, way, amounts, luck)
                    results.turns.setdefault(way.name, []).append(turn)
    for counted, into in ((ours.refused(), results.refused), (ours.warned(), results.warned)):
        into |= {way.name: counted[starter.tenant.super_namespace(way.place)] for way in OURS}
    return results


def _turn(
    starter: Starter, ours: VcnodeDaemons | None, way: Way, amounts: Amounts, luck: random.Random
) -> Turn:
    nothing = Said({}, {}, {})
    before, began = (ours.said() if ours else nothing), starter.cpu_s()
    single_ms = starter.one_by_one(
        way.place, amounts.singles, luck, demands=way.demands, has_agent=way.has_agent
    )
    burst_ms = starter.at_once(way.place, amounts.at_once, demands=way.demands, has_agent=way.has_agent)
    after, ended = (ours.said() if ours else nothing), starter.cpu_s()
    pods = len(single_ms) + len(burst_ms)
    spent_s = _growth(before.cpu_s, after.cpu_s) | _growth(began, ended)
    return Turn(
        single_ms,
        burst_ms,
        _growth(before.opened, after.opened),
        _growth(before.nudges, after.nudges),
        {name: 1e3 * each_s / pods for name, each_s in spent_s.items()},
    )


def _growth(before: Mapping[K, float], after: Mapping[K, float]) -> dict[K, float]:
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def _bound(
    around: Callable[..., AbstractContextManager[None]], starter: Starter, late_s: float
) -> Callable[[], AbstractContextManager[None]]:
    return lambda: around(starter.ring, late_s)


def total(parts: Sequence[Mapping[str, float]]) -> Counter[str]:
    """The sum of counters."""
    found: Counter[str] = Counter()
    for part in parts:
        found.update({name: int(count) for name, count in part.items()})
    return found
