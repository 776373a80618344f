# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections import Counter

import pytest

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
