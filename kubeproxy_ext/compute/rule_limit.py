# SPDX-License-Identifier: Apache-2.0
"""How much one guest's rules may be: what tenants write is multiplied here, and others wait meanwhile.

An object of a megabyte can have ten thousand ports and as many addresses, or endpoints: together a
hundred million rules. So it is counted before anything is made of it.
"""

from collections.abc import Hashable, Mapping
from typing import TypeVar

# 10 000 Services with two addresses and five endpoints are 70 000. So many take about a second.
MAX_RULES = 100_000

K = TypeVar("K", bound=Hashable)


def left_out(rules: Mapping[K, int], most: int = MAX_RULES) -> frozenset[K]:
    """Which have to go so that all others together are within the bound: the largest ones."""
    total = sum(rules.values())
    if total <= most:
        return frozenset()
    gone = set()
    for key in sorted(rules, key=lambda key: (-rules[key], str(key))):
        if total <= most:
            break
        total -= rules[key]
        gone.add(key)
    return frozenset(gone)
