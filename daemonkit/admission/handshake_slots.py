# SPDX-License-Identifier: Apache-2.0
"""Bounds how many TLS handshakes run at once, and chooses the next one. Pure.

Waiting connections are served by what their client addresses have cost (`daemonkit.admission.fair_queue`):
an address that holds slots and does nothing with them waits behind all others next time. A slot is taken back
when another connection waits and the client is silent, or takes too long altogether. So a newcomer waits at
most `stalled_s` for each `capacity` addresses before it that have had no slot yet, and `stalled_s` once if
all had. kata-bridge serves a connection's origin instead.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from daemonkit.admission.fair_queue import FairQueue

T = TypeVar("T", bound=Hashable)

# What a slot is held for by an honest client, in seconds: charged when it begins, so that one address is
# not given all slots before it is known how long it keeps them.
_TYPICAL_S = 0.03


@dataclass(frozen=True, slots=True)
class SlotStep(Generic[T]):
    """One of: `ended` lost its slot, `begun` got one, or nothing changes for `again_s`."""

    ended: T | None = None
    begun: T | None = None
    again_s: float | None = None


@dataclass(slots=True)
class _Slot:
    client_address: str
    begun_s: float
    progressed_s: float


class HandshakeSlots(Generic[T]):
    """At most `capacity` at once. Where another waits, a slot ends when its client was silent for
    `stalled_s`, or after `longest_s`."""

    def __init__(self, capacity: int, stalled_s: float, longest_s: float) -> None:
        self._capacity = capacity
        self._stalled_s = stalled_s
        self._longest_s = longest_s
        self._queue: FairQueue[T] = FairQueue()
        self._client_address: dict[T, str] = {}  # of those that wait
        self._slots: dict[T, _Slot] = {}
        self._by_client_address: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many slots are taken."""
        return len(self._slots)

    def wait(self, one: T, client_address: str) -> None:
        """Queue `one` for a slot."""
        self._client_address[one] = client_address
        self._queue.add(one, client_address)

    def progressed(self, one: T, now_s: float) -> None:
        """The client of `one` has sent something."""
        slot = self._slots.get(one)
        if slot is not None:
            slot.progressed_s = now_s

    def over(self, one: T, now_s: float) -> None:
        """`one` has ended its handshake, or waits no longer. Unknown ones are ignored."""
        self._client_address.pop(one, None)
        self._queue.discard(one)
        slot = self._slots.pop(one, None)
        if slot is not None:
            self._by_client_address[slot.client_address] -= 1
            if not self._by_client_address[slot.client_address]:
                del self._by_client_address[slot.client_address]
            self._queue.charge(slot.client_address, max(0.0, now_s - slot.begun_s - _TYPICAL_S))

    def next(self, now_s: float) -> SlotStep[T]:
        """Take back or hand out one slot. Call it again until it returns neither `ended` nor `begun`."""
        if not len(self._queue):
            return SlotStep()
        if len(self._slots) >= self._capacity:
            again_s = min(map(self._end_s, self._slots.values())) - now_s
            if again_s > 0:
                return SlotStep(again_s=again_s)
            late = [one for one, slot in self._slots.items() if self._end_s(slot) <= now_s]
            ended = max(late, key=lambda one: self._by_client_address[self._slots[one].client_address])
            self.over(ended, now_s)
            return SlotStep(ended=ended)
        one = self._queue.pop()
        if one is None:
            raise AssertionError("the queue is not empty")
        client_address = self._client_address.pop(one)
        self._slots[one] = _Slot(client_address, now_s, now_s)
        self._by_client_address[client_address] += 1
        self._queue.charge(client_address, _TYPICAL_S)
        return SlotStep(begun=one)

    def _end_s(self, slot: _Slot) -> float:
        """From when on the slot may be taken back."""
        return min(slot.progressed_s + self._stalled_s, slot.begun_s + self._longest_s)
