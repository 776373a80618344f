# SPDX-License-Identifier: Apache-2.0
"""What a patrol compares again, and that nothing it would repair is left out."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES
from syncer.caches.cached_object import CachedMetadata, CachedObject
from syncer.core.pair import Pair
from syncer.tenant.caches import TenantCaches
from syncer.tenant.compared_kinds import ALL_EVERY, MAX_REMEMBERED, ComparedKinds
from syncer.tenant.deletions import SyncKey
from tenancy import keys
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import World, sessions_of, synced_tenant

POD: SyncKey = ("Pod", "web", "p")
ITEM: SyncKey = ("ConfigMap", "web", "c")


class _Caches:
    """Pairs of two kinds; `looks` has the kinds that were compared as a whole."""

    kinds = ("Pod", "ConfigMap")

    def __init__(self) -> None:
        self.state = dict.fromkeys(self.kinds, 0)
        self.waiting: list[SyncKey] = []
        self.looks: list[str] = []

    def state_of(self, kind: str) -> object:
        return self.state[kind]

    def pair(self, item: SyncKey) -> Pair[CachedObject]:
        found = CachedObject(CachedMetadata(resource_version="1"), b"{}")
        found.verified_with = None if item in self.waiting else ""
        return Pair(found, None)

    def unverified(self, most: int, kinds: Iterable[str]) -> Iterable[list[tuple[SyncKey, bool]]]:
        for kind in kinds:
            self.looks.append(kind)
            yield [(item, False) for item in self.waiting if item[0] == kind]


def _patrol(compared: ComparedKinds, most: int = 10) -> list[SyncKey]:
    return [item for items in compared.unverified(most) for item, _ in items]


def test_only_what_may_have_changed_is_compared_again() -> None:
    caches = _Caches()
    compared = ComparedKinds(caches)
    assert _patrol(compared) == []
    assert _patrol(compared) == []
    assert caches.looks == ["Pod", "ConfigMap"]
    caches.state["Pod"] += 1
    assert _patrol(compared) == []
    assert caches.looks == ["Pod", "ConfigMap", "Pod"]


def test_what_waits_is_found_by_each_patrol() -> None:
    """Whatever it waits for: of that no cache may tell."""
    caches = _Caches()
    compared = ComparedKinds(caches)
    caches.waiting = [POD, ITEM]
    assert [_patrol(compared, most) for most in (10, 1, 2)] == [[POD, ITEM]] * 3
    caches.waiting = [ITEM]
    assert _patrol(compared) == [ITEM]
    caches.waiting = [POD, ITEM]
    assert _patrol(compared) == [POD, ITEM]
    assert caches.looks == ["Pod", "ConfigMap"]


def test_what_changes_during_a_patrol_is_compared_by_the_next() -> None:
    caches = _Caches()
    compared = ComparedKinds(caches)
    for _ in compared.unverified(10):
        caches.state["Pod"] += 1
    _patrol(compared)
    assert caches.looks == ["Pod", "ConfigMap", "Pod"]


def test_a_patrol_that_was_left_counts_for_nothing() -> None:
    caches = _Caches()
    compared = ComparedKinds(caches)
    next(iter(compared.unverified(10)))
    _patrol(compared)
    assert caches.looks == ["Pod", "Pod", "ConfigMap"]


def test_so_many_patrols_compare_all_pairs_once() -> None:
    caches = _Caches()
    compared = ComparedKinds(caches)
    for _ in range(ALL_EVERY):
        _patrol(compared)
    assert len(caches.looks) == 2
    _patrol(compared)
    assert len(caches.looks) == 4


def test_only_some_that_wait_are_remembered() -> None:
    caches = _Caches()
    compared = ComparedKinds(caches)
    caches.waiting = [("Pod", "web", f"p{number}") for number in range(MAX_REMEMBERED + 1)]
    for _ in range(3):
        assert len(_patrol(compared)) == MAX_REMEMBERED + 1
    assert caches.looks == ["Pod", "ConfigMap", "Pod", "Pod"]


def _patrolled(world: World) -> set[SyncKey]:
    return set(_patrol(sessions_of(world)["red"].compared, 1_000))


@pytest.mark.asyncio
async def test_a_patrol_repairs_what_was_lost_behind_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of either side, and within one interval, as when each patrol compared all pairs."""
    async with synced_tenant(objects.config_map("c")) as (world, plane):
        session = sessions_of(world)["red"]

        def fail(*_: object) -> None:
            raise RuntimeError("lost")

        for cause in ("objects_changed", "super_changed"):
            await asyncio.sleep(100)  # several patrols: all is compared
            monkeypatch.setattr(session, cause, fail)
            place = plane if cause == "objects_changed" else world.super
            where = "web" if place is plane else "red-web"
            value: Any = place.storage.get(CONFIG_MAPS, where, "c")
            value["data"] = {"changed": cause}
            place.storage.put(CONFIG_MAPS, value)
            await asyncio.sleep(1)
            monkeypatch.undo()
            await asyncio.sleep(31)
            below = world.super.storage.get(CONFIG_MAPS, "red-web", "c")
            assert below["data"] == {"changed": "objects_changed"}


@pytest.mark.asyncio
async def test_a_namespace_of_another_has_its_pairs_compared() -> None:
    async with synced_tenant(objects.pod("p")) as (world, _):
        await asyncio.sleep(100)
        assert POD not in _patrolled(world)
        stored = world.super.objects(NAMESPACES)["", "red-web"]
        stored["metadata"]["annotations"] |= {keys.CLUSTER: "blue"}
        world.super.storage.put(NAMESPACES, stored)
        await asyncio.sleep(0.5)
        assert POD in _patrolled(world)


@pytest.mark.asyncio
async def test_another_policy_has_all_pairs_compared() -> None:
    async with synced_tenant(objects.pod("p")) as (world, _):
        await asyncio.sleep(100)
        assert POD not in _patrolled(world)
        sessions_of(world)["red"].forget_verified()
        assert POD in _patrolled(world)


@pytest.mark.asyncio
async def test_a_patrol_at_rest_compares_no_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 000 pods had 10 000 looks a minute while nothing happened."""
    async with synced_tenant(objects.pod("p")):
        await asyncio.sleep(100)
        looks: list[str] = []

        def unverified(_: TenantCaches, most: int, kinds: Iterable[str]) -> Iterable[Any]:
            looks.extend(kinds)
            return ()

        monkeypatch.setattr(TenantCaches, "unverified", unverified)
        await asyncio.sleep(100)
        assert looks == []
