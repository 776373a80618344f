# SPDX-License-Identifier: Apache-2.0
"""How much each tenant has in the super cluster: objects by kind, and the bytes of their JSON.

Kept with each change, so that asking costs nothing, however much a tenant has.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from daemonkit.kube.byte_budget import OBJECT_BYTES


class Totals(msgspec.Struct):
    """`counts` by kind, `objects` in all. `stored_bytes` is of the JSON without `managedFields`.

    `unreadable_bytes` is an upper bound for objects that cannot be read; their bodies are not cached.
    `event_bytes` is what is held of Events, which end by themselves and are in no quota, and
    `copied_event_bytes` what is left of those that have been copied to the tenant.
    """

    stored_bytes: int = 0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    event_bytes: int = 0
    objects: int = 0
    copied_event_bytes: int = 0
    unreadable_bytes: int = 0

    @property
    def memory_bytes(self) -> int:
        """What a cache of them takes, at most."""
        events = self.event_bytes + self.copied_event_bytes
        return self.stored_bytes + OBJECT_BYTES * self.objects + events

    @property
    def is_nothing(self) -> bool:
        held = self.stored_bytes or self.event_bytes or self.copied_event_bytes
        return not (held or self.unreadable_bytes or self.counts)

    def add_events(self, held_bytes: int, copied_bytes: int) -> None:
        """Add so much of Events; less than none is taken away."""
        self.event_bytes += held_bytes
        self.copied_event_bytes += copied_bytes

    def add_unreadable(self, kind: str, count: int, size_bytes: int) -> None:
        """As `add`, of objects that cannot be read."""
        self.unreadable_bytes += size_bytes
        self.add(kind, count, 0)

    def add(self, kind: str, count: int, size_bytes: int) -> None:
        """Add so many objects of a kind; fewer than none are taken away."""
        self.stored_bytes += size_bytes
        if count:
            self.objects += count
            self.counts[kind] += count
            if not self.counts[kind]:
                del self.counts[kind]

    def add_all(self, other: "Totals", sign: int) -> None:
        """Add another's, or take them away with a `sign` of -1."""
        self.add("", 0, sign * other.stored_bytes)
        self.add_events(sign * other.event_bytes, sign * other.copied_event_bytes)
        self.unreadable_bytes += sign * other.unreadable_bytes
        for kind, count in other.counts.items():
            self.add(kind, sign * count, 0)


NOTHING = Totals()
"""Not to be changed."""


class StoredTotals:
    """Totals of super namespaces, and of the tenants that own them."""

    def __init__(self) -> None:
        self._of_namespace: dict[str, Totals] = {}
        self._of_key: dict[str, Totals] = {}
        self._owners: dict[str, str] = {}
        self.all = Totals()
        """Of all super namespaces, of all owners. Read only."""

    def of(self, key: str) -> Totals:
        """What the tenant of a cluster key has. Read only."""
        return self._of_key.get(key, NOTHING)

    def add(self, super_namespace: str, kind: str, count: int, size_bytes: int) -> None:
        """Objects of a super namespace came, or went."""
        if count or size_bytes:
            self._change(super_namespace, lambda found: found.add(kind, count, size_bytes))

    def add_unreadable(self, super_namespace: str, kind: str, count: int, size_bytes: int) -> None:
        """Objects of a super namespace cannot be read, or can again, or went."""
        if count or size_bytes:
            self._change(super_namespace, lambda found: found.add_unreadable(kind, count, size_bytes))

    def add_events(self, super_namespace: str, held_bytes: int, copied_bytes: int = 0) -> None:
        """So much more is held of the Events of a super namespace, or less."""
        if held_bytes or copied_bytes:
            self._change(super_namespace, lambda found: found.add_events(held_bytes, copied_bytes))

    def _change(self, super_namespace: str, change: Callable[[Totals], None]) -> None:
        change(self.all)
        places = [(self._of_namespace, super_namespace)]
        if (key := self._owners.get(super_namespace)) is not None:
            places.append((self._of_key, key))
        for where, name in places:
            if (found := where.get(name)) is None:
                found = where[name] = Totals()
            change(found)
            if found.is_nothing:
                del where[name]

    def own(self, super_namespace: str, key: str | None) -> None:
        """A super namespace has another owner, or none any more."""
        before = self._owners.pop(super_namespace, None)
        totals = self._of_namespace.get(super_namespace, NOTHING)
        if before is not None:
            self._add_all(before, totals, -1)
        if key is not None:
            self._owners[super_namespace] = key
            self._add_all(key, totals, 1)

    def _add_all(self, key: str, more: Totals, sign: int) -> None:
        found = self._of_key.setdefault(key, Totals())
        found.add_all(more, sign)
        if found.is_nothing:
            del self._of_key[key]
