# SPDX-License-Identifier: Apache-2.0
"""When one tenant's next write to the super cluster may go out, by bytes. Pure.

Each write is an object in the history of the super cluster's etcd until that is compacted, also where it
replaces another one. The burst is as large as the tenant's limit of stored bytes, and a session begins with
an eighth of it. A write that must wait reserves its time, and later writes queue behind it. A reservation
that is given back before its write is sent costs nothing, and neither does a write that was refused: nothing
of it is in the history, and how often it is tried again is bounded elsewhere (`syncer.core.retry_backoff`).
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from daemonkit.token_bucket import TokenBucket

T = TypeVar("T", bound=Hashable)

REFILL_S = 128.0
"""In which a tenant may write all anew that it may have. API servers compact etcd's history each 5 minutes
(--etcd-compaction-interval): it has at most eight times that much of one tenant."""
# A SyncPolicy may allow next to nothing, and what is there is to be updated all the same.
_LEAST_BYTES = 1 << 20
# Of what a tenant may have: what may go out besides, because it takes something away or keeps a pod's tokens.
_EXTRA = 1 / 4
# Of the burst: what a session begins with. Earlier writes are not known after a restart or a takeover, and a
# tenant that crashes the process must not get a full burst each time.
_AT_FIRST = 1 / 8


class _Place(NamedTuple):
    """When an item may be written, and what has been charged for it."""

    due_s: float
    size_bytes: int


class Charge(NamedTuple):
    """What was charged for a write that went out without a place."""

    bucket: TokenBucket
    size_bytes: int

    def give_back(self) -> None:
        """The write was refused."""
        self.bucket.debit(-self.size_bytes)


FREE = Charge(TokenBucket(0, 0, 0, 0), 0)
"""Of a write that no rate counts."""


class WriteRate(Generic[T]):
    """Of one tenant. Times are of one clock that never goes back."""

    __slots__ = ("_bucket", "_extra", "_places", "_waiting_bytes")

    def __init__(self, stored_bytes: int, now_s: float) -> None:
        """`stored_bytes` is how much the tenant may have in the super cluster."""
        self._bucket = TokenBucket(0, 0, 0, now_s)
        self._extra = TokenBucket(0, 0, 0, now_s)
        self.set_stored_bytes(stored_bytes)
        self._bucket.tokens = max(_LEAST_BYTES, self._bucket.burst * _AT_FIRST)
        self._extra.tokens = self._extra.burst
        self._places: dict[T, _Place] = {}
        self._waiting_bytes = 0  # of all places

    def set_stored_bytes(self, stored_bytes: int) -> None:
        burst = max(_LEAST_BYTES, stored_bytes)
        self._bucket.burst, self._bucket.per_s = burst, burst / REFILL_S
        self._extra.burst = burst * _EXTRA
        self._extra.per_s = self._extra.burst / REFILL_S

    @property
    def per_s(self) -> int:
        """Bytes a second."""
        return int(self._bucket.per_s)

    def reserve_s(self, item: T, size_bytes: int, now_s: float) -> float:
        """How long an item's write must wait; 0 if it may go out, which uses up the item's place.

        An item that has grown since it got its place pays for that.
        """
        due_s, charged = self._places.pop(item, _Place(now_s, 0))
        self._waiting_bytes -= charged
        if size_bytes > charged:
            due_s = max(due_s, now_s + self._bucket.reserve(now_s, size_bytes - charged))
        else:
            self._bucket.debit(size_bytes - charged)
        if due_s > now_s:
            self._places[item] = _Place(due_s, size_bytes)
            self._waiting_bytes += size_bytes
        return max(0.0, due_s - now_s)

    def give_back(self, size_bytes: int) -> None:
        """A write of so many bytes was refused, after `reserve_s` had let it go out."""
        self._bucket.debit(-size_bytes)

    def try_take_away(self, item: T, size_bytes: int, now_s: float) -> Charge | None:
        """As `try_now`, of an item's write that takes something away: it gets no place."""
        self.forget(item)
        return self.try_now(size_bytes, now_s)

    def try_now(self, size_bytes: int, now_s: float) -> Charge | None:
        """Charge a write that gets no place; None if it may not go out now.

        Where another one would wait, it may go out all the same, up to a rate of its own.
        """
        if self._bucket.available(now_s) >= size_bytes:
            self._bucket.reserve(now_s, size_bytes)
            return Charge(self._bucket, size_bytes)
        return Charge(self._extra, size_bytes) if self._extra.try_acquire(now_s, size_bytes) else None

    def forget_all(self) -> dict[T, _Place]:
        """None of the items that wait is to be written: what has been written counts on.

        Returns what held their places, to be emptied in steps.
        """
        self._bucket.debit(-self._waiting_bytes)
        held, self._places, self._waiting_bytes = self._places, {}, 0
        return held

    def forget(self, item: T) -> None:
        """An item is not to be written any more: what has been charged for its place is given back."""
        place = self._places.pop(item, None)
        if place is not None:
            self._waiting_bytes -= place.size_bytes
            self._bucket.debit(-place.size_bytes)
