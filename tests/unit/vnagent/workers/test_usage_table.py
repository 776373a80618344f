# SPDX-License-Identifier: Apache-2.0
"""What workers count for tenants in shared memory. Two tables of one descriptor stand for two workers."""

import os
from collections.abc import Iterator

import pytest

from daemonkit.fairness.lease import Lease
from daemonkit.token_bucket import TokenBucket
from vnagent.core.limits import Limits, RateVerdict, TenantUsage, admit_request, can_hold, has_memory
from vnagent.workers import usage_table
from vnagent.workers.usage_table import UsageTable

WORKERS = 2


@pytest.fixture
def tables() -> Iterator[tuple[UsageTable, UsageTable]]:
    descriptor = usage_table.create(WORKERS)
    try:
        yield UsageTable(descriptor, WORKERS), UsageTable(descriptor, WORKERS)
    finally:
        os.close(descriptor)


Usages = tuple[TenantUsage, TenantUsage]


@pytest.fixture
def usages(tables: tuple[UsageTable, UsageTable]) -> Usages:
    """One tenant's, in each worker."""
    return usages_of(tables, row=7)


def usages_of(tables: tuple[UsageTable, UsageTable], row: int, limit: int = 0) -> Usages:
    one, other = (
        TenantUsage(max_unsent_bytes=limit, peers=table.peers(row, own)) for own, table in enumerate(tables)
    )
    return one, other


def released(lease: Lease | None) -> None:
    assert lease is not None
    lease.release()


@pytest.mark.parametrize("kind", ["connections", "tunnels", "log_follows", "lookups"])
def test_a_limit_holds_over_all_workers(usages: Usages, kind: str) -> None:
    one, other = usages
    leases = [each.lease(getattr(each, kind), 3) for each in (one, other, one, other, one)]
    assert [each is not None for each in leases] == [True, True, True, False, False]
    released(leases[0])
    assert other.lease(getattr(other, kind), 3)
    assert one.lease(getattr(one, kind), 3) is None


def test_rows_of_tenants_are_apart(tables: tuple[UsageTable, UsageTable]) -> None:
    one, _ = usages_of(tables, row=1)
    _, neighbour = usages_of(tables, row=2)
    assert one.lease(one.tunnels, 1)
    assert neighbour.lease(neighbour.tunnels, 1)
    assert neighbour.tunnels.peer_count == 0


def test_unread_bytes_are_summed(tables: tuple[UsageTable, UsageTable]) -> None:
    one, other = usages_of(tables, row=1, limit=100)
    one.unsent_bytes = 60
    one.exchange()
    other.unsent_bytes = 40
    other.exchange()
    assert has_memory(other)
    assert not can_hold(other, 1)
    other.unsent_bytes = 41
    other.exchange()
    one.exchange()
    assert not has_memory(other)
    assert not has_memory(one)


def test_a_rate_is_one_rate_for_all_workers(usages: Usages) -> None:
    """One that was idle does not pay later for what the other has taken meanwhile."""
    limits = Limits(connections=0, tunnels=0, requests_per_second=10)
    one, other = usages
    served = [admit_request(each, limits, 100.0) is RateVerdict.SERVE for each in (one, other) * 10]
    assert served == [True] * 10 + [False] * 10
    for second in range(101, 160):
        assert sum(admit_request(one, limits, second) is RateVerdict.SERVE for _ in range(20)) == 10
    assert admit_request(other, limits, 160.5) is RateVerdict.SERVE


def test_a_shared_bucket_fills_as_its_own_does(tables: tuple[UsageTable, UsageTable]) -> None:
    shared = tables[0].peers(3, 0).request_bucket(5.0, 10.0, 50.0)
    own = TokenBucket(10.0, 5.0, 10.0, 50.0)
    for now_s, cost in ((50.0, 1.0), (50.1, 8.0), (50.2, 4.0), (50.3, 1.0), (52.0, 3.0), (90.0, 10.0)):
        assert shared.available(now_s) == pytest.approx(own.available(now_s))
        assert shared.try_acquire(now_s, cost) is own.try_acquire(now_s, cost)


def test_an_ended_worker_counts_nothing(tables: tuple[UsageTable, UsageTable], usages: Usages) -> None:
    one, other = usages
    assert one.lease(one.tunnels, 1)
    tables[0].publish_load(0, 5, 9)
    assert tables[1].load(0) == (5, 9)
    tables[1].clear_worker(0, 8)
    assert tables[1].load(0) == (0, 0)
    assert other.lease(other.tunnels, 1)


def test_an_unused_row_is_new_once_it_was_cleared(
    tables: tuple[UsageTable, UsageTable], usages: Usages
) -> None:
    limits = Limits(connections=0, tunnels=0, requests_per_second=1)
    one, _ = usages
    assert admit_request(one, limits, 1000.0) is RateVerdict.SERVE
    lease = one.lease(one.connections, 1)
    assert not tables[0].is_unused(7)
    released(lease)
    assert tables[0].is_unused(7)
    tables[0].clear_row(7)
    again, _ = usages_of(tables, row=7)
    assert admit_request(again, limits, 1000.0) is RateVerdict.SERVE


def test_the_last_row_is_inside(tables: tuple[UsageTable, UsageTable]) -> None:
    one, other = usages_of(tables, row=usage_table.MAX_ROWS - 1)
    assert one.lease(one.lookups, 1)
    assert other.lease(other.lookups, 1) is None
    assert admit_request(one, Limits(0, 0, 1), 1.0) is RateVerdict.SERVE
