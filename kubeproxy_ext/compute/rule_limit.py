# SPDX-License-Identifier: Apache-2.0
"""The limit of one guest's rules.

One object of a megabyte can have ten thousand ports and as many addresses or endpoints. These multiply to
a hundred million rules, for which other tenants would wait. So rules are counted before they are made.
"""

from collections.abc import Hashable, Mapping
from typing import TypeVar

# 10 000 Services with two addresses and five endpoints have 70 000 rules, which take about a second.
MAX_RULES = 100_000

K = TypeVar("K", bound=Hashable)


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
