# SPDX-License-Identifier: Apache-2.0
"""A tenant that is attached: what it has is looked at in steps, in each of which it may change or end."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from daemonkit.kube.resources import SECRETS
from syncer.caches.cached_object import CachedObject
from syncer.tenant.caches import TenantCaches
from syncer.tenant.deletions import SyncKey
from syncer.tenant.session import TenantSession
from syncer.tokens.controller import TokenIssuer
from tenancy import keys
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import sessions_of, synced_tenant

pytestmark = pytest.mark.asyncio

MANY = 2_000


class _ManyPods:
    """Each super pod is there many times over, between which a step may end.."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked = 0
        found = TenantCaches.super_objects

        def many(caches: TenantCaches, kind: str) -> Iterator[tuple[SyncKey, CachedObject] | None]:
            for each in found(caches, kind):
                for _ in range(MANY if kind == "Pod" and each is not None else 1):
                    self.looked += kind == "Pod"
                    yield each

        monkeypatch.setattr(TenantCaches, "super_objects", many)

    async def most_in_an_iteration(self, count: int) -> int:
        """How many are looked at in an iteration of the loop, until so many were."""
        most = 0
        while self.looked < count:
            before = self.looked
            await asyncio.sleep(0)  # pace: iterations are counted
            most = max(most, self.looked - before)
        return most


async def test_a_tenant_is_attached_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """vNodes and the quota of 10 000 pods took 0.2 s in one step."""
    async with synced_tenant(objects.pod("p")) as (world, _):
        await world.kill_syncer()
        pods = _ManyPods(monkeypatch)
        world.start_syncer()
        assert await pods.most_in_an_iteration(MANY) <= 1_000  # a slice of the loop may have two steps
        await asyncio.sleep(20)
        assert sessions_of(world)["red"].is_attached
        assert world.problems == []


async def test_a_tenant_that_ends_while_it_is_attached_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with synced_tenant(objects.pod("p")) as (world, _):
        await world.kill_syncer()
        pods = _ManyPods(monkeypatch)
        world.start_syncer()
        await pods.most_in_an_iteration(1)
        session = sessions_of(world)["red"]
        assert [session.is_attached] == [False]
        # Its task is cancelled a moment later.
        cast("dict[str, TenantSession]", sessions_of(world)).pop("red")
        await asyncio.sleep(1)
        assert not session.is_attached


def _token_secret(name: str, uid: str) -> Mapping[str, Any]:
    lifetimes = '{"pod": "p", "serviceAccount": "default", "tokens": []}'
    notes = {keys.CLUSTER: "red", keys.NAMESPACE: "web", keys.POD_TOKEN_LIFETIMES: lifetimes}
    labels = {keys.VC_NAME: "one", keys.POD_TOKENS: uid}
    return {"metadata": {"namespace": "red-web", "name": name, "labels": labels, "annotations": notes}}


async def test_tokens_of_a_tenant_are_taken_over_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async with synced_tenant(objects.pod("p")) as (world, _):
        await world.kill_syncer()
        for number in range(1_500):
            world.super.storage.put(SECRETS, dict(_token_secret(f"t{number}", f"u{number}")))
        seen = [0]
        monkeypatch.setattr(TokenIssuer, "secret_seen", lambda *_: seen.append(0))
        world.start_syncer()
        most = 0
        while len(seen) <= 1_500:
            before = len(seen)
            await asyncio.sleep(0)  # pace: iterations are counted
            most = max(most, len(seen) - before)
        assert most <= 1_000
