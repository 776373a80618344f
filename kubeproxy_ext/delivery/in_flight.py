# SPDX-License-Identifier: Apache-2.0
"""Guests that were sent a ruleset together are sent the next one together. Pure.

Guests answer one after the other. Were each sent at once what has changed meanwhile, then after a few
changes in a row every guest would have a base, a delta and a request of its own: with 30 guests,
20 changes a second made 16 requests of each change, which took both processors of the machine. So
who has answered waits for the others of its request, but no longer than `HOLD_S` after the first
answer. A guest that is slow, or paused, costs the others that much once: it is then not with them
any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

# As long as a tenant's next change waits in any case: kubeproxy_ext.compute.sync_rate.
HOLD_S = 0.05


@dataclass(slots=True)
class _InFlight:
    """`missing` have not answered; the first answer came at `first_at`, None before there was one."""

    missing: set[str]
    first_at: float | None = None


class InFlightBatches:
    """Who was sent something with whom. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._of: dict[str, _InFlight] = {}

    def sent(self, guests: Iterable[str]) -> None:
        """These are in one request."""
        convoy = _InFlight(set(guests))
        for guest in convoy.missing:
            self._of[guest] = convoy

    def answered(self, guest: str, now: float) -> None:
        """This one has been answered for, well or badly."""
        convoy = self._of.get(guest)
        if convoy is not None and guest in convoy.missing:
            convoy.missing.discard(guest)
            convoy.first_at = now if convoy.first_at is None else convoy.first_at

    def gone(self, guest: str) -> None:
        """Nobody waits for this one any more."""
        convoy = self._of.pop(guest, None)
        if convoy is not None:
            convoy.missing.discard(guest)

    def clear(self) -> None:
        """Nothing is under way."""
        self._of.clear()

    def until(self, guest: str) -> float | None:
        """Until when this one waits for the others of its request; None if it need not."""
        convoy = self._of.get(guest)
        if convoy is None or not convoy.missing or convoy.first_at is None:
            return None
        return convoy.first_at + HOLD_S
