# SPDX-License-Identifier: Apache-2.0
"""The order of variants, and the measurements of each."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tests.bench.pods import wait_plugins
from tests.bench.pods.starting import Starter
from tests.bench.pods.vcnode_daemons import DaemonCounters, VcnodeDaemons

K = TypeVar("K")

WITHOUT = "without us"
POLICIES = ("off", "warn", "enforce")
WARM = "warm"
# The latency of rules in plugins that simulate it.
LATE_S = (0.0, 0.3)


@dataclass(frozen=True, slots=True)
class Amounts:
    rounds: int
    singles: int
    """Pods one after the other, in each measurement."""
    at_once: int


# Measurements are short, so that a disturbed minute affects all variants.
FULL = Amounts(8, 6, 10)
QUICK = Amounts(2, 5, 10)


@dataclass(frozen=True, slots=True)
class StartVariant:
    """How pods start, and the tenant's namespace that they start in."""

    name: str
    namespace: str
    requires_plugin: bool = False
    has_agent: bool = False


@dataclass(frozen=True, slots=True)
class MethodGroup:
    """Variants that share the same running programs."""

    around: Callable[[], AbstractContextManager[None]]
    variants: Sequence[StartVariant]
    has_daemons: bool = False


@dataclass(frozen=True, slots=True)
class RoundMeasurement:
    """One variant in one round. `cpu_ms` is each daemon's, per pod."""

    single_ms: Sequence[float]
    burst_ms: Sequence[float]
    opened: Mapping[float, float] = field(default_factory=dict)
    nudges: Mapping[str, float] = field(default_factory=dict)
    cpu_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Results:
    """By the names of variants; `refused` and `warned` count pods."""

    amounts: Amounts
    measurements: dict[str, list[RoundMeasurement]] = field(default_factory=dict)
    blocked: dict[str, int] = field(default_factory=dict)
    warned: dict[str, int] = field(default_factory=dict)

    @property
    def pods(self) -> int:
        """Of each variant."""
        return self.amounts.rounds * (self.amounts.singles + self.amounts.at_once)


POLICY_VARIANTS = tuple(
    StartVariant(policy, f"bench-{policy}", requires_plugin=policy == "enforce") for policy in POLICIES
)


def groups(
    starter: Starter, daemons: VcnodeDaemons, *, has_wait_plugins: bool, has_agent: bool
) -> list[MethodGroup]:
    """The groups, with those of `wait_plugins` if requested.

    With `has_agent`, guests are reached through their agents. Pods without vcnode have none, so that an
    agent's start counts as vcnode's cost.
    """
    chosen = [replace(variant, has_agent=has_agent) for variant in POLICY_VARIANTS]
    found = [
        MethodGroup(nullcontext, (StartVariant(WITHOUT, "bench-without"),)),
        MethodGroup(daemons.running, chosen, has_daemons=True),
    ]
    for late_s in LATE_S if has_wait_plugins else ():
        when = f"rules after {late_s * 1e3:g} ms"
        found += [
            MethodGroup(
                _bound(wait_plugins.nudged, starter, late_s),
                (StartVariant(f"denied, {when}", "bench-wait"),),
            ),
            MethodGroup(
                _bound(wait_plugins.hooked, starter, late_s), (StartVariant(f"hook, {when}", "bench-wait"),)
            ),
        ]
    return found


def run(
    starter: Starter,
    daemons: VcnodeDaemons,
    groups: Sequence[MethodGroup],
    amounts: Amounts,
    log: Callable[[str], None],
) -> Results:
    """Shuffle the variants of each round, so that a disturbance affects all variants alike."""
    rng = random.Random(5)  # noqa: S311 - the order of variants
    results = Results(amounts)
    for number in range(amounts.rounds):
        log(f"round {number + 1} of {amounts.rounds}")
        for group in rng.sample(groups, len(groups)):
            with group.around():
                # The first pod of a group fills caches; it is not measured.
                starter.at_once(WARM, 2, has_agent=group.variants[0].has_agent)
                for variant in rng.sample(list(group.variants), len(group.variants)):
                    measured = _measure_variant(
                        starter, daemons if group.has_daemons else None, variant, amounts, rng
                    )
                    results.measurements.setdefault(variant.name, []).append(measured)
    for counted, into in ((daemons.blocked(), results.blocked), (daemons.warned(), results.warned)):
        into |= {
            variant.name: counted[starter.tenant.super_namespace(variant.namespace)]
            for variant in POLICY_VARIANTS
        }
    return results


def _measure_variant(
    starter: Starter,
    daemons: VcnodeDaemons | None,
    variant: StartVariant,
    amounts: Amounts,
    rng: random.Random,
) -> RoundMeasurement:
    nothing = DaemonCounters({}, {}, {})
    before, began = (daemons.counters() if daemons else nothing), starter.cpu_s()
    single_ms = starter.one_by_one(
        variant.namespace,
        amounts.singles,
        rng,
        requires_plugin=variant.requires_plugin,
        has_agent=variant.has_agent,
    )
    burst_ms = starter.at_once(
        variant.namespace,
        amounts.at_once,
        requires_plugin=variant.requires_plugin,
        has_agent=variant.has_agent,
    )
    after, ended = (daemons.counters() if daemons else nothing), starter.cpu_s()
    pods = len(single_ms) + len(burst_ms)
    spent_s = _growth(before.cpu_s, after.cpu_s) | _growth(began, ended)
    return RoundMeasurement(
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
    found: Counter[str] = Counter()
    for part in parts:
        found.update({name: int(count) for name, count in part.items()})
    return found
