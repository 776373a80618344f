# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import Generator, Mapping

import pytest

from daemonkit.tasks import Tasks
from syncer.core.plan import Side
from syncer.core.tenant_cluster import TenantCluster
from syncer.tenant.deletion_judge import DeletionJudge
from syncer.tenant.deletions import Deletions, SyncKey
from tests.steps import most_in_a_step

pytestmark = pytest.mark.asyncio

ITEMS: list[SyncKey] = [("ConfigMap", "web", f"c{number}") for number in range(20)]


class _JudgedTenant:
    """A tenant with 20 ConfigMaps below."""

    def __init__(self, held: Mapping[Side, str] | None = None) -> None:
        self.tenant = TenantCluster("red", "tenants", "one", "vc-1")
        self.again: list[SyncKey] = []
        self.changes = 0
        self.is_relisting = False
        self.count = len(ITEMS)
        self.tasks = Tasks("test")
        self.deletions = Deletions("red", lambda: "token", lambda: 0.0, held)
        self.judge = DeletionJudge(self, self.deletions, self, self.tasks, has_reported=bool(held))

    def plan_again(self, item: SyncKey) -> None:
        self.again.append(item)

    def holds_changed(self) -> None:
        self.changes += 1

    def known(self, side: Side) -> Generator[None, None, Mapping[str, int]]:
        yield
        return {"ConfigMap": self.count} if side is Side.SUPER else {}

    def contents(self, _: SyncKey) -> Mapping[str, int]:
        return {}

    def ask(self, *items: SyncKey, is_sure: bool = False) -> list[bool]:
        return [self.judge.may_delete(Side.SUPER, each, is_sure=is_sure) for each in items]


async def test_the_first_patrol_deletes_what_is_sure_alone() -> None:
    tenant = _JudgedTenant()
    assert tenant.ask(ITEMS[0]) == [False]
    assert tenant.ask(ITEMS[1], is_sure=True) == [True]
    await asyncio.sleep(2)
    assert (tenant.again, tenant.ask(ITEMS[0]), tenant.changes) == ([], [False], 0)
    tenant.judge.end_first_patrol()
    await tenant.judge.judge()
    assert (tenant.again, tenant.ask(ITEMS[0])) == ([ITEMS[0]], [True])
    assert tenant.ask(ITEMS[2]) == [True]


async def test_what_lists_lack_is_judged_together() -> None:
    tenant = _JudgedTenant()
    tenant.judge.end_first_patrol()
    for item in ITEMS:
        tenant.deletions.suspect(Side.SUPER, item)
    assert tenant.ask(*ITEMS) == [False] * len(ITEMS)
    assert len(tenant.tasks) == 1
    await asyncio.sleep(2)
    assert (tenant.again, tenant.changes) == ([], 1)
    await tenant.judge.judge()
    assert tenant.changes == 1
    tenant.tenant = TenantCluster("red", "tenants", "one", "vc-1", release="token")
    await tenant.judge.judge()
    assert (sorted(tenant.again), tenant.changes) == (sorted(ITEMS), 2)
    assert all(tenant.ask(*ITEMS))


async def test_restore_holds_one_loss_until_its_token_is_released() -> None:
    tenant = _JudgedTenant()
    tenant.judge.end_first_patrol()
    tenant.tenant = TenantCluster("red", "tenants", "one", "vc-1", restored="abc")
    tenant.deletions.suspect(Side.SUPER, ITEMS[0])
    assert tenant.ask(ITEMS[0]) == [False]
    await asyncio.sleep(2)
    assert (tenant.deletions.holds()[Side.SUPER].token, tenant.ask(ITEMS[0])) == ("abc", [False])
    tenant.tenant = TenantCluster("red", "tenants", "one", "vc-1", release="abc", restored="abc")
    await tenant.judge.judge()
    assert (tenant.deletions.holds(), tenant.ask(ITEMS[0])) == ({}, [True])


async def test_what_a_condition_holds_ends_if_nothing_is_missing() -> None:
    tenant = _JudgedTenant({Side.SUPER: "token"})
    await tenant.judge.judge()
    assert tenant.changes == 0
    tenant.judge.end_first_patrol()
    await tenant.judge.judge()
    assert tenant.changes == 1


async def test_nothing_is_judged_by_a_part_of_a_list() -> None:
    """A list that lacks all comes in parts, and the first of them may seem few."""
    tenant = _JudgedTenant()
    tenant.judge.end_first_patrol()
    tenant.is_relisting = True
    tenant.deletions.suspect(Side.SUPER, ITEMS[0])
    assert tenant.ask(ITEMS[0]) == [False]
    await tenant.judge.judge()
    await asyncio.sleep(2)
    assert (tenant.again, tenant.changes) == ([], 0)
    for item in ITEMS:
        tenant.deletions.suspect(Side.SUPER, item)
    tenant.is_relisting = False
    assert tenant.ask(*ITEMS) == [False] * len(ITEMS)
    await asyncio.sleep(2)
    assert (tenant.again, tenant.changes) == ([], 1)


async def test_a_list_that_begins_meanwhile_puts_off_the_judgement() -> None:
    tenant = _JudgedTenant()
    tenant.judge.end_first_patrol()
    tenant.deletions.suspect(Side.SUPER, ITEMS[0])
    assert tenant.ask(ITEMS[0]) == [False]
    judging = tenant.tasks.spawn(tenant.judge.judge(), "judge")
    await asyncio.sleep(0)
    assert not judging.done()
    tenant.is_relisting = True
    await judging
    assert (tenant.again, tenant.ask(ITEMS[0])) == ([], [False])
    tenant.is_relisting = False
    await asyncio.sleep(2)
    assert tenant.again == [ITEMS[0]]


async def test_what_may_go_is_planned_again_in_steps() -> None:
    tenant = _JudgedTenant()
    tenant.judge.end_first_patrol()
    tenant.count = 5_000
    items: list[SyncKey] = [("ConfigMap", "web", f"d{number}") for number in range(2_000)]
    for item in items:
        tenant.deletions.suspect(Side.SUPER, item)
    assert not any(tenant.ask(*items))
    assert most_in_a_step(tenant.judge.judge(), lambda: len(tenant.again)) <= 500
    assert sorted(tenant.again) == sorted(items)
