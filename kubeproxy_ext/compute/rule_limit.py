# SPDX-License-Identifier: Apache-2.0
"""The limits of one guest's rules: how many, and of those that cost the kernel more than others.

One object of a megabyte can have ten thousand ports and as many addresses or endpoints. These multiply to
a hundred million rules, for which other tenants would wait. So rules are counted before they are made.

Rules are not alike in the kernel. Each endpoint of a port with client affinity has a set of clients of its
own (a list of `recent` in iptables), and in nft each port with several endpoints has a map. The kernel finds
a set, and a free name for a map, by walking all that are there, so its time grows with their square: 4 000
endpoints with affinity take 0.9 s, 8 000 take 3.6 s; 8 000 maps take 6.3 s. With 30 000 endpoints it was up
to 50 s. After that a guest counts as unreachable, and its other Services have no rules either.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

# 10 000 Services with two addresses and five endpoints have 70 000 rules, which take about a second.
MAX_RULES = 100_000
# The same 10 000 Services have as many maps. Twice as many would take half of the minute that a guest has.
MAX_SETS = 10_000

# With affinity an endpoint has a rule that returns to it, one that chooses it, and one that translates.
_RULES_WITH_AFFINITY = 3

RULES = f"{MAX_RULES} rules"
"""What a Service left out would exceed; the words of its problem."""

_SETS = f"{MAX_SETS} endpoints with client affinity and ports with several endpoints"

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """The most rules that a Service may have in a family, and the most sets and maps that nft or iptables
    makes for them."""

    rules: int
    sets: int


def rule_counts(
    addresses: int,
    ports: int,
    slices: Iterable[tuple[int, int]],
    *,
    has_affinity: bool,
    is_internal_local: bool,
) -> RuleCounts:
    """The counts of a Service with so many claimed addresses (ip and port) and ports, and for each slice so
    many ports and endpoints. No rule is made for it.

    `has_affinity`: it has client affinity. `is_internal_local`: its cluster IP may lead to other endpoints
    than its external addresses.
    """
    policies = 1 + is_internal_local
    pairs = policies * sum(port_count * endpoint_count for port_count, endpoint_count in slices)
    choices = min(policies * ports, pairs)
    if has_affinity:
        return RuleCounts(addresses + _RULES_WITH_AFFINITY * pairs, pairs + choices)
    return RuleCounts(addresses + pairs, min(choices, pairs // 2))


def services_beyond_limits(counts: Mapping[K, RuleCounts]) -> Mapping[K, str]:
    """The Services that are left out so that the others are within both limits, each with the limit that
    it exceeds: those with the most sets first, then those with the most rules."""
    by_sets = services_beyond_limit({key: one.sets for key, one in counts.items()}, MAX_SETS)
    by_rules = services_beyond_limit({key: one.rules for key, one in counts.items() if key not in by_sets})
    return {**dict.fromkeys(by_sets, _SETS), **dict.fromkeys(by_rules, RULES)}


def services_beyond_limit(rules: Mapping[K, int], limit: int = MAX_RULES) -> frozenset[K]:
    """The largest ones, which are left out so that the others are within the limit."""
    total = sum(rules.values())
    if total <= limit:
        return frozenset()
    gone = set()
    for key in sorted(rules, key=lambda key: (-rules[key], str(key))):
        if total <= limit:
            break
        total -= rules[key]
        gone.add(key)
    return frozenset(gone)
