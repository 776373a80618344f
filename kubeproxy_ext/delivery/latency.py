# SPDX-License-Identifier: Apache-2.0
"""The network programming latency: from a pod's change until a guest has the rules for it. Pure.

The controllers of EndpointSlices annotate a slice with the time of the change that they wrote it for. The
next computed ruleset of each guest carries that change. Any ruleset carries the changes of earlier ones, so
the measurement ends when the guest has it or a later one. All lists are bounded: a guest that does not
answer keeps its oldest changes.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from kubeproxy_ext.compute.objects import LAST_CHANGE_TRIGGER_TIME, EndpointSliceObject

MAX_TRIGGERS = 100


class ProgrammingLatency:
    """Calls `observe` with the seconds between a slice's annotation and the wall clock `wall`."""

    def __init__(self, wall: Callable[[], float], observe: Callable[[float], None]) -> None:
        self._wall = wall
        self._started_at = wall()
        self._observe = observe
        self._triggers: dict[str, list[float]] = {}
        # By guest: the digests of the rulesets that carry changes, oldest first. Without a change of its own
        # a later ruleset has None.
        self._waiting: dict[str, list[tuple[str, float | None]]] = {}

    def changed(self, tenant: str, item: EndpointSliceObject) -> None:
        """A slice of a tenant has changed."""
        trigger = trigger_time(item)
        waiting = self._triggers.setdefault(tenant, [])
        # Changes from before our start do not count, as in kube-proxy.
        if trigger is not None and trigger >= self._started_at and len(waiting) < MAX_TRIGGERS:
            waiting.append(trigger)

    def computed(self, tenant: str, changed: Mapping[str, str]) -> None:
        """A tenant's rules were computed. `changed` has the guests that get other rules, with the digests."""
        triggers = self._triggers.pop(tenant, [])
        for guest, digest in changed.items():
            waiting = self._waiting.get(guest, [])
            if triggers or waiting:
                waiting += [(digest, trigger) for trigger in triggers or (None,)]
                self._waiting[guest] = waiting[:MAX_TRIGGERS]

    def applied(self, guest: str, digest: str, *, is_desired: bool) -> None:
        """A guest was reported to have a ruleset. With `is_desired` no change waits any more."""
        waiting = self._waiting.get(guest, [])
        places = [place for place, (carrier, _) in enumerate(waiting, 1) if carrier == digest]
        count = len(waiting) if is_desired else max(places, default=0)
        for _, trigger in waiting[:count]:
            if trigger is not None:
                # These are clocks of two machines: a negative latency counts as zero.
                self._observe(max(0.0, self._wall() - trigger))
        if count == len(waiting):
            self.forget_guest(guest)
        else:
            del waiting[:count]

    def forget_guest(self, guest: str) -> None:
        """A guest is gone, or its changes were taken back before it got them."""
        self._waiting.pop(guest, None)

    def forget(self, tenant: str) -> None:
        self._triggers.pop(tenant, None)


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
