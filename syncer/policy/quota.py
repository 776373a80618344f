# SPDX-License-Identifier: Apache-2.0
"""The quota of a whole tenant. Pure.

A ResourceQuota holds for one namespace, and a tenant has any number of them. So the syncer, through which all
goes down, keeps the sum (TenantUsage), and sends down nothing that would exceed it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from daemonkit.fairness.emptying import Holder
from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import limits, quantity
from syncer.policy.limits import STORED_BYTES
from syncer.policy.refusal_list import RefusalList
from syncer.policy.sync_policy import SyncPolicy
from syncer.policy.usage import NOTHING_USED, Usage

# Names that each container must state, since without them it takes what there is. A ResourceQuota demands CPU
# and memory, and lets containers without a limit of ephemeral storage fill the node's disk. Of huge pages
# and extended resources a container that states none gets none.
_STATED = MappingProxyType(
    {
        f"{side}.{name}": (side, name)
        for side in ("requests", "limits")
        for name in ("cpu", "memory", "ephemeral-storage")
    }
)
# `resources` of a pod has no other names.
_OF_POD = frozenset({"cpu", "memory"})


class StoredTotals(Protocol):
    """What a tenant has in the super cluster by now."""

    @property
    def stored_bytes(self) -> int: ...

    def count(self, name: str) -> int:
        """The objects of one name as `count/pods`."""


def unstated(pod: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What each container must state, so that the quota can count it: as with quotas of Kubernetes."""
    stated = [(name, _STATED[name]) for name, _ in policy.quota if name in _STATED]
    if not stated:
        return ()
    found = RefusalList()
    spec = found.fields("spec", pod.get("spec"))
    of_pod = _resources(spec)
    for list_name in ("containers", "initContainers"):
        for index, each in enumerate(found.items(f"spec.{list_name}", spec.get(list_name))):
            path = f"spec.{list_name}[{index}]"
            of_container = _resources(found.fields(path, each))
            for name, (side, resource) in stated:
                is_of_pod = resource in _OF_POD and not _lacks(of_pod, side, resource)
                if not is_of_pod and _lacks(of_container, side, resource):
                    found.must(f"{path}.resources.{side}.{resource}", f"quota.hard[{name}]")
    return found.done()


def _resources(value: Any) -> Object:
    resources = value.get("resources")
    return resources if type(resources) is dict else {}


def _lacks(resources: Object, side: str, name: str) -> bool:
    """Whether a resource is not stated; the API server takes a limit for a request that is left out."""
    sides = ("requests", "limits") if side == "requests" else ("limits",)
    return not any(type(resources.get(each)) is dict and name in resources[each] for each in sides)


class TenantUsage:
    """What one tenant uses: `stored` has the counts and bytes, and the rest is summed here.

    What was allowed and is not in the caches yet is reserved under a key of the caller's.
    """

    def __init__(self, hard: Mapping[str, int], stored: StoredTotals) -> None:
        self._hard = hard
        self._stored = stored
        self._objects: dict[object, Usage] = {}
        self._reserved: dict[object, Usage] = {}
        self._total: dict[str, int] = {}

    def take_all(self) -> tuple[Holder, ...]:
        """What holds all that is counted, to be emptied in steps; nothing is any more."""
        held: tuple[Holder, ...] = self._objects, self._reserved
        self._objects, self._reserved, self._total = {}, {}, {}
        return held

    def excess(self, key: object, more: Usage) -> Refusal | None:
        """The limit that an object would exceed with so much more than it has in the super cluster.

        What was reserved for it does not count: it is judged anew.
        """
        own = self._reserved.get(key, NOTHING_USED)
        for name, amount in more.items():
            limit = limits.limit_of(self._hard, name)
            if limit is None or amount <= 0:
                continue
            used = self.used(name) - own.get(name, 0)
            if used + amount > limit:
                return Refusal(
                    "spec",
                    f"exceeds the tenant's quota: {name} {quantity.text(amount)} more, "
                    f"used {quantity.text(used)} of {quantity.text(limit)} "
                    f"(SyncPolicy field spec.quota.hard[{name}])",
                )
        return None

    def difference(self, key: object, usage: Usage) -> Usage:
        """What an object with this usage has more than it has in the super cluster."""
        before = self._objects.get(key, NOTHING_USED)
        return {name: amount - before.get(name, 0) for name, amount in usage.items()}

    def reserve(self, key: object, more: Usage) -> None:
        """Count what is about to go down, until it is released."""
        self.release(key)
        kept = {name: amount for name, amount in more.items() if amount > 0}
        if kept:
            self._reserved[key] = kept
            self._add(kept, 1)

    @property
    def reserved(self) -> Mapping[object, Usage]:
        """What is about to go down. Read only."""
        return self._reserved

    def release(self, key: object) -> bool:
        """Count what was reserved no more: the caches have it, or it did not come to be."""
        found = self._reserved.pop(key, None)
        if found is None:
            return False
        self._add(found, -1)
        return True

    def count(self, key: object, usage: Usage) -> bool:
        """Count an object that is in the super cluster, whatever the limits; returns whether it uses less."""
        before = self._objects.pop(key, NOTHING_USED)
        self._add(before, -1)
        counted = {name: amount for name, amount in usage.items() if amount}
        if counted:
            self._objects[key] = counted
            self._add(counted, 1)
        return any(counted.get(name, 0) < amount for name, amount in before.items())

    def remove(self, key: object) -> bool:
        """Count an object no more. One that was not counted changes nothing."""
        return self.count(key, NOTHING_USED)

    def used(self, name: str) -> int:
        """In billionths."""
        summed = self._total.get(name, 0)
        if name == STORED_BYTES:
            return summed + self._stored.stored_bytes * quantity.UNIT
        if name.startswith(limits.COUNT_PREFIX):
            return summed + self._stored.count(name) * quantity.UNIT
        return summed

    def total(self) -> Usage:
        """A copy of what is summed here, of what is not zero."""
        return dict(self._total)

    def _add(self, usage: Usage, sign: int) -> None:
        for name, amount in usage.items():
            self._total[name] = self._total.get(name, 0) + sign * amount
            if not self._total[name]:
                del self._total[name]
