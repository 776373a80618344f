# SPDX-License-Identifier: Apache-2.0
"""How long the way of a change is: from the pod's condition to the answers of the guests. Pure.

The controllers of EndpointSlices note on a slice when the change came that they wrote it for. Which
ruleset carries it is known when a tenant's rules have been computed, and that it is in when kata-bridge
has answered for that ruleset. All of it is bounded: a change that is never answered is forgotten.
"""

from collections.abc import Callable, Collection
from datetime import datetime

from kubeproxy_ext.compute.objects import LAST_CHANGE_TRIGGER_TIME, EndpointSliceObject

MAX_TRIGGERS = 100
MAX_DIGESTS = 256


class ProgrammingLatency:
    """Gives `observe` the seconds between what slices say and `wall`, the clock of the calendar."""

    def __init__(self, wall: Callable[[], float], observe: Callable[[float], None]) -> None:
        self._wall = wall
        self._started_at = wall()
        self._observe = observe
        self._triggers: dict[str, list[float]] = {}
        self._seen: dict[str, frozenset[str]] = {}
        self._under_way: dict[str, list[float]] = {}

    def changed(self, tenant: str, item: EndpointSliceObject) -> None:
        """A slice of a tenant has changed."""
        trigger = trigger_time(item)
        waiting = self._triggers.setdefault(tenant, [])
        # What happened before our start was somebody else's to carry (kube-proxy does likewise).
        if trigger is not None and trigger >= self._started_at and len(waiting) < MAX_TRIGGERS:
            waiting.append(trigger)

    def computed(self, tenant: str, digests: Collection[str]) -> None:
        """A tenant's rules have been computed: its guests are to have rulesets of these digests."""
        triggers = self._triggers.pop(tenant, [])
        new = frozenset(digests) - self._seen.get(tenant, frozenset())
        self._seen[tenant] = frozenset(digests)
        for digest in new:
            if triggers and len(self._under_way) < MAX_DIGESTS:
                self._under_way[digest] = triggers

    def done(self, digest: str) -> None:
        """kata-bridge has answered for a ruleset, for the first time or again."""
        for trigger in self._under_way.pop(digest, ()):
            # Clocks of two machines: a change is not programmed before it happened.
            self._observe(max(0.0, self._wall() - trigger))

    def forget(self, tenant: str) -> None:
        self._triggers.pop(tenant, None)
        for digest in self._seen.pop(tenant, ()):
            self._under_way.pop(digest, None)


def trigger_time(item: EndpointSliceObject) -> float | None:
    """The time that a slice names, in seconds since 1970; None if it names none, or nonsense."""
    text = item.metadata.annotations.get(LAST_CHANGE_TRIGGER_TIME)
    if not text:
        return None
    try:
        trigger = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if trigger.tzinfo is None else trigger.timestamp()
