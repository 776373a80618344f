# SPDX-License-Identifier: Apache-2.0
"""The network programming latency: from a pod's change to the results of the guests. Pure.

The controllers of EndpointSlices annotate a slice with the time of the change that they wrote it for. The
next computed rulesets of the tenant carry that change, and their results end the measurement. All lists
are bounded: a change without a result is dropped.
"""

from collections.abc import Callable, Collection
from datetime import datetime

from kubeproxy_ext.compute.objects import LAST_CHANGE_TRIGGER_TIME, EndpointSliceObject

MAX_TRIGGERS = 100
MAX_DIGESTS = 256


class ProgrammingLatency:
    """Calls `observe` with the seconds between a slice's annotation and the wall clock `wall`."""

    def __init__(self, wall: Callable[[], float], observe: Callable[[float], None]) -> None:
        self._wall = wall
        self._started_at = wall()
        self._observe = observe
        self._triggers: dict[str, list[float]] = {}
        self._seen: dict[str, frozenset[str]] = {}
        self._in_flight: dict[str, list[float]] = {}

    def changed(self, tenant: str, item: EndpointSliceObject) -> None:
        """A slice of a tenant has changed."""
        trigger = trigger_time(item)
        waiting = self._triggers.setdefault(tenant, [])
        # Changes from before our start do not count, as in kube-proxy.
        if trigger is not None and trigger >= self._started_at and len(waiting) < MAX_TRIGGERS:
            waiting.append(trigger)

    def computed(self, tenant: str, digests: Collection[str]) -> None:
        """A tenant's rules were computed: these are the digests of its guests' desired rulesets."""
        triggers = self._triggers.pop(tenant, [])
        new = frozenset(digests) - self._seen.get(tenant, frozenset())
        self._seen[tenant] = frozenset(digests)
        for digest in new:
            if triggers and len(self._in_flight) < MAX_DIGESTS:
                self._in_flight[digest] = triggers

    def done(self, digest: str) -> None:
        """All results of a ruleset are in."""
        for trigger in self._in_flight.pop(digest, ()):
            # These are clocks of two machines: a negative latency counts as zero.
            self._observe(max(0.0, self._wall() - trigger))

    def forget(self, tenant: str) -> None:
        self._triggers.pop(tenant, None)
        for digest in self._seen.pop(tenant, ()):
            self._in_flight.pop(digest, None)


def trigger_time(item: EndpointSliceObject) -> float | None:
    """The time in a slice's annotation, in seconds since 1970; None if missing or malformed."""
    text = item.metadata.annotations.get(LAST_CHANGE_TRIGGER_TIME)
    if not text:
        return None
    try:
        trigger = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if trigger.tzinfo is None else trigger.timestamp()
