# SPDX-License-Identifier: Apache-2.0
"""Who pays for what the process does."""

import asyncio
from collections import Counter

import pytest

from daemonkit.fairness.scheduler import Account
from daemonkit.kube.resources import CONFIG_MAPS
from tests.unit.syncer.worlds import World, furnish, running

pytestmark = pytest.mark.asyncio


async def test_changes_below_are_charged_to_their_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One account watches for all tenants. Nobody paid for it, however often a tenant's objects changed."""
    world = World({"one": "red", "two": "green"})
    async with running(world):
        for plane in world.tenants.values():
            furnish(plane, {"kind": "ConfigMap", "metadata": {"namespace": "web", "name": "a"}})
        await asyncio.sleep(20)
        charged = Counter[str]()
        charge = Account.charge

        def count(account: Account, took_ns: int) -> None:
            charged[account.name] += 1
            charge(account, took_ns)

        monkeypatch.setattr(Account, "charge", count)
        for number in range(10):
            found = world.super.storage.get(CONFIG_MAPS, "red-web", "a")
            found["data"] = {"k": str(number)}
            world.super.storage.put(CONFIG_MAPS, found)
            await asyncio.sleep(0.5)
        assert charged["red"] >= 10
        assert charged.keys() == {"red"}
