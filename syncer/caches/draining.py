# SPDX-License-Identifier: Apache-2.0
"""Which super namespaces have pods on nodes that are being drained, and for how long.

No node says that it is drained: it is cordoned first, with a taint that has the time of it. Where no
controller writes that time, it is when this process first saw the node so.
"""

import datetime as dt
from collections import Counter

import msgspec

from syncer.caches.cached_object import CachedObject

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class _Taint(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    time_added: dt.datetime | None = None


class _NodeTaints(msgspec.Struct, frozen=True):
    unschedulable: bool = False
    taints: list[_Taint] | None = None


class _NodeWithTaints(msgspec.Struct, frozen=True):
    spec: _NodeTaints = _NodeTaints()


_NODE_TAINTS = msgspec.json.Decoder(_NodeWithTaints)


class DrainedNodes:
    """Times are in seconds of the wall clock. What changed is seen at the next `note`."""

    def __init__(self) -> None:
        # Of each cordoned node since when; None until that is noted.
        self._since_s: dict[str, float | None] = {}
        self._nodes_of: dict[str, Counter[str]] = {}
        self._seconds: dict[str, float] = {}

    def node_changed(self, name: str, node: CachedObject | None) -> None:
        """A Node changed, or is gone. Of one of another shape stays what was known."""
        try:
            spec = _NodeTaints() if node is None else _NODE_TAINTS.decode(node.body).spec
        except msgspec.DecodeError:
            return
        if not spec.unschedulable:
            self._since_s.pop(name, None)
            return
        added = [each.time_added for each in spec.taints or () if each.key == _UNSCHEDULABLE]
        times = [each.timestamp() for each in added if each is not None]
        self._since_s[name] = min(times, default=self._since_s.get(name))

    def pod_moved(self, super_namespace: str, before: str, after: str) -> None:
        """A pod for which a budget can hold up a drain is on another node than before; empty: on none."""
        if before == after:
            return
        found = self._nodes_of.get(super_namespace)
        if found is None:
            found = self._nodes_of[super_namespace] = Counter()
        if after:
            found[after] += 1
        if before:
            found[before] -= 1
            if not found[before]:
                del found[before]
        if not found:
            del self._nodes_of[super_namespace]

    def note(self, now_s: float) -> set[str]:
        """Take the time; returns the super namespaces of which `seconds` is another than before."""
        for name, since_s in self._since_s.items():
            if since_s is None:
                self._since_s[name] = now_s
        before, self._seconds = self._seconds, {}
        for namespace, nodes in self._nodes_of.items() if self._since_s else ():
            known = [since for each in nodes if (since := self._since_s.get(each)) is not None]
            if known:
                self._seconds[namespace] = max(0.0, now_s - min(known))
        return {each for each in before | self._seconds if before.get(each) != self._seconds.get(each)}

    def seconds(self, super_namespace: str) -> float:
        """For how long one of the nodes that run its pods has been cordoned; 0 if none is."""
        return self._seconds.get(super_namespace, 0.0)
