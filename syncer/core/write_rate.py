# SPDX-License-Identifier: Apache-2.0
"""When one tenant's next write to the super cluster may go out, by bytes. Pure.

Each write is an object in the history of the super cluster's etcd until that is compacted, also where it
replaces another one. So a tenant may write all that it may have there at once, and then at a rate. A write
that is too early gets a time, and keeps it: whoever comes later is later.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from daemonkit.token_bucket import TokenBucket

T = TypeVar("T", bound=Hashable)

REFILL_S = 128.0
"""In which a tenant may write all anew that it may have. API servers compact etcd's history each 5 minutes
(--etcd-compaction-interval): it has at most six times that much of one tenant."""
# A SyncPolicy may allow next to nothing, and what is there is to be updated all the same.
_LEAST_BYTES = 1 << 20


class WriteRate(Generic[T]):
    """Of one tenant. Times are of one clock that never goes back."""

    __slots__ = ("_bucket", "_due_s")

    def __init__(self, stored_bytes: int, now_s: float) -> None:
        """`stored_bytes` is how much the tenant may have in the super cluster."""
        burst = max(_LEAST_BYTES, stored_bytes)
        self._bucket = TokenBucket(burst, burst / REFILL_S, burst, now_s)
        self._due_s: dict[T, float] = {}

    def set_stored_bytes(self, stored_bytes: int) -> None:
        burst = max(_LEAST_BYTES, stored_bytes)
        self._bucket.burst, self._bucket.per_s = burst, burst / REFILL_S

    @property
    def per_s(self) -> int:
        """Bytes a second."""
        return int(self._bucket.per_s)

    def reserve_s(self, item: T, size_bytes: int, now_s: float) -> float:
        """How long an item's write must wait; 0 if it may go out, which uses up the item's place."""
        due_s = self._due_s.pop(item, None)
        if due_s is None:
            due_s = now_s + self._bucket.reserve(now_s, size_bytes)
        if due_s > now_s:
            self._due_s[item] = due_s
        return max(0.0, due_s - now_s)

    def forget(self, item: T) -> None:
        """An item is not to be written any more."""
        self._due_s.pop(item, None)
