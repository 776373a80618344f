# SPDX-License-Identifier: Apache-2.0
"""Requests that API servers have served, from their own metrics. Pure.

The metric has no user agent. What the bench's own loader and node ask for is known, and subtracted.
"""

import re
from collections import Counter
from collections.abc import Mapping

# Of these the syncer makes requests about pods; an API server asks itself about others.
_RESOURCES = frozenset({"pods", "nodes", "events", "secrets", "serviceaccounts", "services"})
_STANDING = frozenset({"WATCH", "LIST"})
_LINE = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')

# The tenant's loader, and the fake node's binding and status.
HARNESS = {"tenant POST pods": 1, "super POST pods/binding": 1, "super PATCH pods/status": 1}


def parse(page: str, side: str) -> Counter[str]:
    """Requests by `side VERB resource/subresource`, without lists and watches."""
    found: Counter[str] = Counter()
    for labels, value in _LINE.findall(page):
        fields = dict(_LABEL.findall(labels))
        if fields["resource"] not in _RESOURCES or fields["verb"] in _STANDING:
            continue
        subresource = fields.get("subresource", "")
        where = fields["resource"] + (f"/{subresource}" if subresource else "")
        found[f"{side} {fields['verb']} {where}"] += int(float(value))
    return found


def of_syncer(before: Counter[str], after: Counter[str], pods: int) -> Mapping[str, float]:
    """Requests a pod that are not the bench's own, the most frequent first."""
    made = {name: (after[name] - before[name]) / pods - HARNESS.get(name, 0) for name in after}
    ordered = sorted(made.items(), key=lambda each: -each[1])
    return {name: count for name, count in ordered if count >= 0.01}
