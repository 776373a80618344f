# SPDX-License-Identifier: Apache-2.0
"""Which tenant's object is reconciled next. Pure.

To the engine this is client-go's workqueue, with a FIFO for each tenant. Tenants that have items ready take
turns by weight. So a tenant with many items, or with failing ones, or with an API server that hangs, delays
its own items alone.

What a patrol finds has a low priority, as client-go's informers mark what an initial list brings: a tenant's
changes pass it, and few of it are in flight. So a change that comes in a restart does not wait for a
comparison of all that is there.

An item is *ready* in its tenant's FIFO, *delayed* until its time, or *in flight*. It is *dirty* from `add`
to `get`: an item that is added in flight becomes ready again after `done`. That the tenant's FIFO is gone by
then must not matter: what is dirty, in flight or delayed keeps the tenant's state alive, and state ends only
when nothing of that is left.

Times are of one clock that never goes back.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

import msgspec

from daemonkit.fairness.emptying import Holder
from daemonkit.fairness.weighted_round_robin import WeightedRoundRobin
from syncer.core.pruned_heap import PrunedHeap
from syncer.core.retry_backoff import RetryBackoff, RetrySettings

T = TypeVar("T", bound=Hashable)

# Delayed items that become ready at once, of 2 us each: a server may have asked for the same time for all.
MAX_DUE = 500
# After so many of a tenant's items in a row, one of low priority is next: without end they must not wait.
MAX_PASSED = 10


class FairQueueSettings(msgspec.Struct, frozen=True):
    """`max_in_flight` is for one tenant. It is as many requests as a hanging API server can keep open.

    `max_low_in_flight` of these may be of low priority: each change waits behind what its tenant has in
    flight. Those of `begin_writes` do not count.
    """

    max_in_flight: int = 10
    retry: RetrySettings = msgspec.field(default_factory=RetrySettings)
    max_low_in_flight: int = 2


class Delivery(NamedTuple, Generic[T]):
    """An item that is now in flight, until `done`. It waited since `added_s`.

    Not a dataclass, which takes three times as long to make: one is made for each event.
    """

    tenant: str
    item: T
    added_s: float


class Depths(NamedTuple):
    """How many items a tenant has; since when its oldest one waits that is ready or was added in flight."""

    ready: int = 0
    delayed: int = 0
    in_flight: int = 0
    oldest_s: float | None = None


class _SubQueue(Generic[T]):
    """A tenant's items."""

    __slots__ = (
        "delayed",
        "dirty",
        "in_flight",
        "is_waiting",
        "low_in_flight",
        "low_priority",
        "max_low_in_flight",
        "name",
        "passed",
        "ready",
    )

    def __init__(self, name: str, max_low_in_flight: int) -> None:
        self.name = name
        self.max_low_in_flight = max_low_in_flight
        self.ready: deque[T] = deque()
        self.low_priority: OrderedDict[T, None] = OrderedDict()  # ready too, in their own order
        self.passed = 0  # how many of `ready` were delivered in a row while some of `low_priority` waited
        self.dirty: dict[T, float] = {}  # when it was added, oldest first
        self.in_flight: set[T] = set()
        self.low_in_flight: set[T] = set()  # of these
        self.delayed: dict[T, _Delayed[T]] = {}
        self.is_waiting = False  # for a turn: `has_next`, and room in flight

    def has_next(self) -> bool:
        return bool(self.ready) or self._has_next_low()

    def _has_next_low(self) -> bool:
        return bool(self.low_priority) and len(self.low_in_flight) < self.max_low_in_flight

    def take(self) -> T:
        """The next one of what is ready, which is in flight then."""
        if self._has_next_low() and (not self.ready or self.passed >= MAX_PASSED):
            self.passed = 0
            item = self.low_priority.popitem(last=False)[0]
            self.low_in_flight.add(item)
        else:
            self.passed = self.passed + 1 if self.low_priority else 0
            item = self.ready.popleft()
        self.in_flight.add(item)
        return item

    def end(self, item: T) -> None:
        """An item is in flight no longer."""
        self.in_flight.remove(item)
        self.low_in_flight.discard(item)

    def take_all(self) -> tuple[Holder, ...]:
        """What holds all items but those in flight; these are left."""
        held: tuple[Holder, ...] = self.ready, self.low_priority, self.dirty, self.delayed
        self.ready, self.low_priority, self.dirty, self.delayed = deque(), OrderedDict(), {}, {}
        self.is_waiting = False
        return held

    def is_at_rest(self) -> bool:
        return not (self.dirty or self.in_flight or self.delayed)


# When it is due, a number in the order of adding, the sub-queue, and the item.
_Delayed = tuple[float, int, _SubQueue[T], T]


class FairQueue(Generic[T]):
    """`add` items, `get` the next one, and call `done` when it was worked on.

    Before `done`, tell the outcome: `retry` after a failure, `forget` otherwise. To look at an object again
    later without a failure, use `add_after`.
    """

    def __init__(self, settings: FairQueueSettings) -> None:
        self._max_in_flight = settings.max_in_flight
        self._max_low_in_flight = settings.max_low_in_flight
        self._retries: RetryBackoff[tuple[T, Hashable]] = RetryBackoff(settings.retry)
        self._turns: WeightedRoundRobin[str] = WeightedRoundRobin()
        self._sub_queues: dict[str, _SubQueue[T]] = {}
        self._delayed: PrunedHeap[_Delayed[T]] = PrunedHeap(_is_replaced)
        self._delayed_count = 0  # of its entries that count
        self._count = 0
        self._in_flight = 0
        self._is_shut_down = False

    def __len__(self) -> int:
        """How many items are ready."""
        return sum(len(each.ready) + len(each.low_priority) for each in self._sub_queues.values())

    @property
    def has_ready(self) -> bool:
        """Whether `get` has an item at once, whatever the time is."""
        return len(self._turns) > 0

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def has_drained(self) -> bool:
        """Whether the queue was shut down, and nothing is in flight any longer."""
        return self._is_shut_down and not self._in_flight

    def tenants(self) -> Iterator[str]:
        """Those that have items."""
        return iter(self._sub_queues)

    def depths(self, tenant: str) -> Depths:
        found = self._sub_queues.get(tenant)
        if found is None:
            return Depths()
        oldest_s = next(iter(found.dirty.values()), None)
        ready = len(found.ready) + len(found.low_priority)
        return Depths(ready, len(found.delayed), len(found.in_flight), oldest_s)

    def failures(self, tenant: str, item: T, part: Hashable = None) -> int:
        """How often in a row an item, or a part of it, was to be retried."""
        return self._retries.failures(tenant, (item, part))

    def set_weight(self, tenant: str, weight: int) -> None:
        """A tenant's share of turns, from 1 to 100; 1 unless set. It stays until the tenant is removed."""
        self._turns.set_weight(tenant, weight)

    def add(self, tenant: str, item: T, now_s: float, *, is_low_priority: bool = False) -> None:
        """Have an item worked on; once more if it is in flight, and then at its usual priority.

        One of low priority that is added again without comes behind those that are ready.
        """
        if self._is_shut_down:
            return
        found = self._sub_queues.get(tenant)
        if found is None:
            found = self._sub_queues[tenant] = _SubQueue(tenant, self._max_low_in_flight)
        self._add(found, item, now_s, is_low_priority=is_low_priority)

    def add_after(self, tenant: str, item: T, delay_s: float, now_s: float) -> None:
        """Add an item later. If it is delayed already, the earlier time counts."""
        if delay_s <= 0:
            self.add(tenant, item, now_s)
            return
        if self._is_shut_down:
            return
        found = self._sub_queues.get(tenant)
        if found is None:
            found = self._sub_queues[tenant] = _SubQueue(tenant, self._max_low_in_flight)
        self._delay(found, item, now_s + delay_s)

    def retry(
        self,
        tenant: str,
        item: T,
        now_s: float,
        jitter: float = 1.0,
        *,
        at_least_s: float = 0.0,
        part: Hashable = None,
    ) -> float:
        """Add an item that failed after its backoff, and when the tenant's rate of retries allows it.

        Returns when its backoff ends. Each `part` of an item has one of its own: the item may come earlier.
        `jitter` is drawn from 0 to 1. `at_least_s` is what the server asked for: one that refuses thousands
        of items, each for a second, would else get them all again each second. An item that is delayed
        already takes no token: one that fails at each of its many changes must not use up what the tenant's
        other items need.
        """
        if self._is_shut_down:
            return now_s
        delay_s = max(at_least_s, self._retries.on_failure(tenant, (item, part), now_s, jitter))
        found = self._sub_queues.get(tenant)
        delayed = found.delayed.get(item) if found is not None else None
        if delayed is None or delayed[0] > now_s + delay_s:
            self.add_after(tenant, item, max(delay_s, self._retries.reserve_s(tenant, now_s)), now_s)
        return now_s + delay_s

    def forget(self, tenant: str, item: T, part: Hashable = None) -> None:
        """An item, or a part of it, did not fail: its next backoff is the first. What is delayed stays so."""
        self._retries.forget(tenant, (item, part))

    def get(self, now_s: float) -> Delivery[T] | None:
        """The next item, which is in flight then; None if there is none until something changes.

        Something is an `add`, a `done`, or the time `next_due_s`.
        """
        if self._delayed_count:
            self._add_due(now_s)
        tenant = self._turns.first()
        if tenant is None:
            return None
        found = self._sub_queues[tenant]
        item = found.take()
        self._in_flight += 1
        found.is_waiting = found.has_next() and len(found.in_flight) < self._max_in_flight
        self._turns.take_turn(found.is_waiting)
        return Delivery(tenant, item, found.dirty.pop(item))

    def next_due_s(self) -> float | None:
        """When to call `get` again, at the latest: the next delayed item becomes ready. None if none does."""
        if not self._delayed_count:
            return None
        entry = self._delayed.first()
        return None if entry is None else entry[0]

    def begin_writes(self, tenant: str, item: T) -> None:
        """An item in flight has something to write: it has its usual priority from now on.

        What waits for an API server, which may be far away, keeps nothing else of low priority.
        """
        found = self._sub_queues.get(tenant)
        if found is not None and item in found.low_in_flight:
            found.low_in_flight.remove(item)
            self._have_turn(found)

    def done(self, tenant: str, item: T) -> None:
        """An item is in flight no longer. It is ready again if it was added meanwhile.

        Nothing happens if it was not in flight, so that a second call does no harm.
        """
        found = self._sub_queues.get(tenant)
        if found is None or item not in found.in_flight:
            return
        found.end(item)
        self._in_flight -= 1
        if item in found.dirty:
            found.ready.append(item)
        if found.is_at_rest():
            self._drop(found)
        else:
            self._have_turn(found)

    def remove_tenant(self, tenant: str) -> tuple[Holder, ...]:
        """Forget what a tenant has, and its weight. Returns what held it, to be emptied in steps.

        What is in flight stays known until it is done: a tenant that comes back must not have two workers at
        one item.
        """
        self._turns.remove(tenant)
        retries = self._retries.remove_tenant(tenant)
        found = self._sub_queues.get(tenant)
        if found is None:
            return (retries,)
        held = self._clear(found)
        if not self._delayed_count:
            held += self._delayed.take_all()
        return (*held, retries)

    def shut_down(self) -> None:
        """No item is added or delivered any longer. What is in flight ends: see `has_drained`."""
        self._is_shut_down = True
        for found in list(self._sub_queues.values()):
            self._clear(found)
        self._turns = WeightedRoundRobin()
        self._delayed.take_all()

    def _add(self, found: _SubQueue[T], item: T, now_s: float, *, is_low_priority: bool = False) -> None:
        if item in found.dirty:
            if is_low_priority or item not in found.low_priority:
                return
            del found.low_priority[item]
        else:
            found.dirty[item] = now_s
            if item in found.in_flight:
                return
        if is_low_priority:
            found.low_priority[item] = None
        else:
            found.ready.append(item)
        self._have_turn(found)

    def _have_turn(self, found: _SubQueue[T]) -> None:
        """Let a tenant wait for its turn if one of its items may be in flight."""
        if not found.is_waiting and found.has_next() and len(found.in_flight) < self._max_in_flight:
            found.is_waiting = True
            self._turns.add(found.name)

    def _delay(self, found: _SubQueue[T], item: T, due_s: float) -> None:
        delayed = found.delayed.get(item)
        if delayed is None:
            self._delayed_count += 1
        elif delayed[0] <= due_s:
            return
        self._count += 1
        entry = found.delayed[item] = (due_s, self._count, found, item)
        self._delayed.push(entry, self._delayed_count)

    def _add_due(self, now_s: float) -> None:
        for _ in range(MAX_DUE):
            entry = self._delayed.first()
            if entry is None or entry[0] > now_s:
                break
            self._delayed.pop()
            if not _is_replaced(entry):
                _, _, found, item = entry
                del found.delayed[item]
                self._delayed_count -= 1
                self._add(found, item, now_s)
        self._delayed.prune(self._delayed_count)

    def _clear(self, found: _SubQueue[T]) -> tuple[Holder, ...]:
        """Forget a tenant's items but those in flight; returns what held them."""
        self._delayed_count -= len(found.delayed)
        held = found.take_all()
        if not found.in_flight:
            self._drop(found)
        return held

    def _drop(self, found: _SubQueue[T]) -> None:
        del self._sub_queues[found.name]
        self._turns.forget_place(found.name)


def _is_replaced(entry: _Delayed[T]) -> bool:
    """Whether an entry counts no more: its item has another one by now, or none."""
    return entry[2].delayed.get(entry[3]) is not entry
