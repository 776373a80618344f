# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections import Counter

import pytest

from daemonkit.kube.reflector import Reflector
from daemonkit.kube.resources import VIRTUAL_CLUSTERS
from syncer.caches.cached_object import CachedObject
from syncer.run.attachments import look_behind_s
from syncer.tenant.caches import TenantCaches
from syncer.tenant.session import TenantSession
from tests.unit.syncer.worlds import World, running, sessions_of


def test_a_thousand_tenants_are_not_looked_at_in_one_second() -> None:
    found = Counter(look_behind_s(f"tenant-{number}") for number in range(1_000))
    assert found.keys() == {0, 1, 2, 3, 4}
    assert max(found.values()) < 300


@pytest.mark.asyncio
async def test_a_look_that_fails_opens_one_tenant_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when each tenant had a task for it. The others are looked after meanwhile."""
    world = World({"one": "red", "two": "green"})
    looks: list[str] = []

    async with running(world):
        await asyncio.sleep(20)
        red: TenantSession = sessions_of(world)["red"]

        def look(caches: TenantCaches) -> bool:
            if caches is red.caches:
                raise ValueError("an object that no code expects")
            looks.append(next(key for key, each in sessions_of(world).items() if each.caches is caches))
            return False

        monkeypatch.setattr(TenantCaches, "has_regressed", property(look))
        await asyncio.sleep(20)
        assert len(looks) == 4
        assert set(looks) == {"green"}
        await asyncio.sleep(40)
        assert sessions_of(world)["red"] is not red
        assert "red" in looks


@pytest.mark.asyncio
async def test_a_tenant_that_went_back_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"one": "red", "two": "green"})
    async with running(world):
        await asyncio.sleep(20)
        before = dict(sessions_of(world))
        old = before["red"].caches
        monkeypatch.setattr(TenantCaches, "has_regressed", property(lambda caches: caches is old))
        await asyncio.sleep(6)
        assert sessions_of(world)["red"] is not before["red"]
        assert sessions_of(world)["green"] is before["green"]


def _serves(world: World, name: str, status: str, since: str) -> None:
    cluster = world.super.storage.get(VIRTUAL_CLUSTERS, "tenants", name)
    condition = {"type": "ControlPlaneAvailable", "status": status, "lastTransitionTime": since}
    cluster["status"]["conditions"] = [condition]
    world.super.storage.put(VIRTUAL_CLUSTERS, cluster)


@pytest.mark.asyncio
async def test_a_tenant_that_wakes_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed while it slept was tried again after up to half a minute."""
    world = World({"one": "red", "two": "green"})
    async with running(world):
        await asyncio.sleep(20)
        asked: list[str] = []

        def retry_now(caches: TenantCaches) -> None:
            asked.extend(key for key, each in sessions_of(world).items() if each.caches is caches)

        monkeypatch.setattr(TenantCaches, "retry_now", retry_now)
        for status, since in (("True", "1"), ("False", "2"), ("False", "3"), ("True", "4"), ("True", "4")):
            _serves(world, "one", status, since)
            await asyncio.sleep(1)
        assert asked == ["red", "red"]


@pytest.mark.asyncio
async def test_all_kinds_of_a_tenant_that_wakes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"one": "red"})
    async with running(world):
        await asyncio.sleep(20)
        caches = sessions_of(world)["red"].caches
        asked: list[object] = []

        def retry_now(reflector: Reflector[CachedObject]) -> None:
            asked.append(reflector)

        monkeypatch.setattr(Reflector, "retry_now", retry_now)
        _serves(world, "one", "True", "1")
        await asyncio.sleep(1)
        assert set(asked) >= {*caches.reflectors.values(), caches.nodes}
