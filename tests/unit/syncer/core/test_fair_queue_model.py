# SPDX-License-Identifier: Apache-2.0
"""The queue beside a model that is slow and simple, after any order of events."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from syncer.core.fair_queue import MAX_PASSED, Depths, FairQueue, FairQueueSettings
from syncer.core.retry_backoff import RetryBackoff, RetrySettings

MAX_IN_FLIGHT, MAX_LOW_IN_FLIGHT = 2, 1
WEIGHTS = (1, 2, 5)
RETRY = RetrySettings(first_s=1.0, longest_s=8.0, burst=1.0, per_s=0.25)

TENANTS = st.sampled_from(["a", "b", "c"])
ITEMS = st.sampled_from(["one", "two", "three", "four"])
# Steps of a quarter are exact in floats.
SECONDS = st.integers(1, 40).map(lambda quarters: quarters / 4)


class TenantModel:
    """One tenant, who knows nothing of others: whatever they do, this is what it must get."""

    def __init__(self) -> None:
        self.ready: list[str] = []
        self.low_priority: list[str] = []
        self.passed = 0
        self.dirty: dict[str, float] = {}
        self.in_flight: set[str] = set()
        self.low_in_flight: set[str] = set()
        self.delayed: dict[str, tuple[float, int]] = {}
        self.retries: RetryBackoff[str] = RetryBackoff(RETRY)
        # What each other tenant has got since this one has waited for its turn.
        self.passed_by: Counter[str] = Counter()

    @property
    def has_low(self) -> bool:
        return bool(self.low_priority) and len(self.low_in_flight) < MAX_LOW_IN_FLIGHT

    @property
    def is_waiting(self) -> bool:
        return (bool(self.ready) or self.has_low) and len(self.in_flight) < MAX_IN_FLIGHT

    @property
    def depths(self) -> Depths:
        oldest_s = min(self.dirty.values(), default=None)
        return Depths(
            len(self.ready) + len(self.low_priority), len(self.delayed), len(self.in_flight), oldest_s
        )

    def add(self, item: str, now_s: float, *, is_low_priority: bool = False) -> None:
        if item not in self.dirty:
            self.dirty[item] = now_s
            if item not in self.in_flight:
                (self.low_priority if is_low_priority else self.ready).append(item)
        elif item in self.low_priority and not is_low_priority:
            self.low_priority.remove(item)
            self.ready.append(item)

    def next_item(self) -> str:
        """Changes first, but for one in so many."""
        if self.ready and (not self.has_low or self.passed < MAX_PASSED):
            self.passed = self.passed + 1 if self.low_priority else 0
            return self.ready.pop(0)
        self.passed = 0
        self.low_in_flight.add(item := self.low_priority.pop(0))
        return item

    def add_after(self, item: str, due_s: float, number: int) -> None:
        if item not in self.delayed or due_s < self.delayed[item][0]:
            self.delayed[item] = (due_s, number)

    def add_due(self, now_s: float) -> None:
        for item, (due_s, _) in sorted(self.delayed.items(), key=lambda each: each[1]):
            if due_s <= now_s:
                del self.delayed[item]
                self.add(item, now_s)

    def clear(self) -> None:
        self.ready.clear()
        self.low_priority.clear()
        self.passed = 0
        self.dirty.clear()
        self.delayed.clear()
        self.retries = RetryBackoff(RETRY)


class FairQueueMachine(RuleBasedStateMachine):
    """No item is lost, one worker has an item at a time, caps hold, and no tenant starves."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[str] = FairQueue(FairQueueSettings(MAX_IN_FLIGHT, RETRY, MAX_LOW_IN_FLIGHT))
        self.now_s = 0.0
        self.number = 0
        self.tenants = {name: TenantModel() for name in ("a", "b", "c")}

    @rule(tenant=TENANTS, item=ITEMS, is_low_priority=st.booleans())
    def add(self, tenant: str, item: str, is_low_priority: bool) -> None:
        self.queue.add(tenant, item, self.now_s, is_low_priority=is_low_priority)
        self.tenants[tenant].add(item, self.now_s, is_low_priority=is_low_priority)

    @rule(tenant=TENANTS, item=ITEMS, delay_s=SECONDS)
    def add_after(self, tenant: str, item: str, delay_s: float) -> None:
        self.number += 1
        self.queue.add_after(tenant, item, delay_s, self.now_s)
        self.tenants[tenant].add_after(item, self.now_s + delay_s, self.number)

    @rule(tenant=TENANTS, weight=st.sampled_from(WEIGHTS))
    def set_weight(self, tenant: str, weight: int) -> None:
        self.queue.set_weight(tenant, weight)

    @rule(tenant=TENANTS)
    def remove_tenant(self, tenant: str) -> None:
        self.queue.remove_tenant(tenant)
        self.tenants[tenant].clear()

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def get(self) -> None:
        delivery = self.queue.get(self.now_s)
        for each in self.tenants.values():
            each.add_due(self.now_s)
        waiting = {name: each for name, each in self.tenants.items() if each.is_waiting}
        if delivery is None:
            assert not waiting
            return
        assert delivery.tenant in waiting
        taken = waiting.pop(delivery.tenant)
        assert delivery.item not in taken.in_flight
        assert delivery.item == taken.next_item()
        assert delivery.added_s == taken.dirty.pop(delivery.item)
        taken.in_flight.add(delivery.item)
        taken.passed_by.clear()
        for each in waiting.values():
            each.passed_by[delivery.tenant] += 1
            assert each.passed_by[delivery.tenant] <= max(WEIGHTS) + 1

    @precondition(lambda self: self.queue.in_flight)
    @rule(data=st.data(), is_failure=st.booleans(), ends=st.booleans())
    def finish(self, data: st.DataObject, is_failure: bool, ends: bool) -> None:
        flying = [(name, item) for name, each in self.tenants.items() for item in sorted(each.in_flight)]
        tenant, item = data.draw(st.sampled_from(flying))
        self.end(tenant, item, is_failure)
        if ends:
            self.done(tenant, item)

    @rule(tenant=TENANTS, item=ITEMS)
    def done(self, tenant: str, item: str) -> None:
        """Also of what is not in flight."""
        self.queue.done(tenant, item)
        found = self.tenants[tenant]
        if item in found.in_flight:
            found.in_flight.remove(item)
            found.low_in_flight.discard(item)
            if item in found.dirty:
                found.ready.append(item)

    @rule(tenant=TENANTS, item=ITEMS)
    def begin_writes(self, tenant: str, item: str) -> None:
        """Also of what is not in flight."""
        self.queue.begin_writes(tenant, item)
        self.tenants[tenant].low_in_flight.discard(item)

    def end(self, tenant: str, item: str, is_failure: bool) -> None:
        found = self.tenants[tenant]
        if not is_failure:
            self.queue.forget(tenant, item)
            found.retries.forget(tenant, item)
            return
        self.number += 1
        self.queue.retry(tenant, item, self.now_s)
        delay_s = found.retries.on_failure(tenant, item, self.now_s, 1.0)
        if item not in found.delayed or self.now_s + delay_s < found.delayed[item][0]:
            delay_s = max(delay_s, found.retries.reserve_s(tenant, self.now_s))
            found.add_after(item, self.now_s + delay_s, self.number)

    @invariant()
    def state_is_that_of_the_model(self) -> None:
        expected = {name: each.depths for name, each in self.tenants.items() if each.depths != Depths()}
        assert {name: self.queue.depths(name) for name in self.queue.tenants()} == expected
        due = [due_s for each in self.tenants.values() for due_s, _ in each.delayed.values()]
        assert self.queue.next_due_s() == min(due, default=None)
        assert len(self.queue) == sum(each.depths.ready for each in self.tenants.values())
        assert self.queue.has_ready == any(each.is_waiting for each in self.tenants.values())
        assert self.queue.in_flight == sum(len(each.in_flight) for each in self.tenants.values())
        for name, each in self.tenants.items():
            if not each.is_waiting:
                each.passed_by.clear()
            assert len(each.in_flight) <= MAX_IN_FLIGHT
            assert len(each.low_in_flight) <= MAX_LOW_IN_FLIGHT
            for item in ("one", "two", "three", "four"):
                assert self.queue.failures(name, item) == each.retries.failures(name, item)

    def teardown(self) -> None:
        """All that was added is delivered, and nothing is left then."""
        self.now_s += 1_000.0
        for _ in range(100):
            self.get()
            for name, each in self.tenants.items():
                for item in sorted(each.in_flight):
                    self.end(name, item, is_failure=False)
                    self.done(name, item)
            self.state_is_that_of_the_model()
        assert all(each.depths == Depths() for each in self.tenants.values())
        assert list(self.queue.tenants()) == []


TestFairQueueMachine = FairQueueMachine.TestCase
TestFairQueueMachine.settings = settings(max_examples=200, stateful_step_count=40)
