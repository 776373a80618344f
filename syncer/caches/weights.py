# SPDX-License-Identifier: Apache-2.0
"""What an object weighs in a plan: its number of values, where some entries count as several.

A plan takes up to 1 us for most values, and several times that for a label, whose key is judged, or for an
address, which is looked for in ranges. A plan is not interrupted, so what may go down is bounded by its
weight before it is planned at all.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from syncer.core.objects import Object

MAX_WEIGHT = 20_000
"""Of an object that goes down, in values: its plan takes 20 ms at most (docs/decisions/0058-*.md)."""

# Smaller ones have no room for so much: an entry of a map takes 6 bytes at least.
FREE_BYTES = 16 << 10

_METADATA = {"metadata.labels": 4, "metadata.annotations": 4}
# By kind and field: what each entry counts for, beside its own value. A test holds the work of plans to it.
_ENTRIES: Mapping[str, Mapping[str, int]] = {
    "Pod": {"metadata.annotations": 6, "spec.readinessGates": 1, "spec.tolerations": 2},
    "Service": {"spec.selector": 3, "spec.externalIPs": 6, "spec.loadBalancerSourceRanges": 2},
    # A thousand of a controller's are within the limit, with pod and node.
    "Endpoints": {"subsets[].addresses": 10, "subsets[].notReadyAddresses": 10},
    "EndpointSlice": {"endpoints[].addresses": 5},
    "PersistentVolumeClaim": {
        "status.allocatedResourceStatuses": 1,
        "status.allocatedResources": 1,
        "status.capacity": 1,
    },
    "NetworkPolicy": {
        "spec.podSelector.matchLabels": 3,
        "spec.ingress[].from": 6,
        "spec.ingress[].from[].podSelector.matchLabels": 3,
        "spec.ingress[].from[].namespaceSelector.matchLabels": 3,
        "spec.egress[].to": 6,
        "spec.egress[].to[].podSelector.matchLabels": 3,
        "spec.egress[].to[].namespaceSelector.matchLabels": 3,
    },
    "PodDisruptionBudget": {"spec.selector.matchLabels": 3},
}
_PATHS: Mapping[str, tuple[tuple[tuple[str, ...], int], ...]] = {
    kind: tuple((tuple(path.split(".")), count) for path, count in (_METADATA | dict(entries)).items())
    for kind, entries in (("", {}), *_ENTRIES.items())
}


def excess(kind: str, value: Object) -> str | None:
    """Why an object of a kind is not planned; None if it may be."""
    if weight(kind, value) <= MAX_WEIGHT:
        return None
    heavy = [f"{entries} of {'.'.join(path)}" for path, entries, _ in _heavy_entries(kind, value)]
    what = f" ({', '.join(heavy)})" if heavy else ""
    return f"an object that takes too long to plan{what}: it counts as more than {MAX_WEIGHT} values"


def weight(kind: str, value: Object) -> int:
    """What an object weighs; beyond MAX_WEIGHT some of it is not counted."""
    return _values_in(value, MAX_WEIGHT) + sum(
        entries * count for _, entries, count in _heavy_entries(kind, value)
    )


def _heavy_entries(kind: str, value: Object) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """The fields whose entries count as several values: path, number, and for how many each counts."""
    for path, count in _PATHS.get(kind, _PATHS[""]):
        entries = sum(len(each) for each in _at(value, path))
        if entries:
            yield path, entries, count


def _values_in(value: Any, most: int) -> int:
    """How many values there are, itself among them; it ends some above `most`."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        each = waiting.pop()
        count += 1
        if type(each) is dict:
            waiting.extend(each.values())
        elif type(each) is list:
            waiting.extend(each)
    return count


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The lists and maps at a path."""
    if not path:
        if type(value) in (dict, list):
            yield value
        return
    name = path[0].removesuffix("[]")
    below = value.get(name) if type(value) is dict else None
    if name == path[0]:
        yield from _at(below, path[1:])
    elif type(below) is list:
        for each in below:
            yield from _at(each, path[1:])
