# SPDX-License-Identifier: Apache-2.0
"""A tenant that ends: all forget it in a moment, however much it has, and what it had is given back in steps.

What is held until the last reference to its session goes, ends in one step: so all parts of a session are
searched for what holds much.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from daemonkit.fairness import emptying
from daemonkit.kube.resources import CONFIG_MAPS, PODS
from devkit.kube.storage import Object
from syncer.caches.super_cluster import SuperCaches
from syncer.core.plan import Conflict, Direction, Side
from syncer.run.service import SyncerService
from syncer.tenant.session import TenantSession
from tests.pump import steps
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import World, sessions_of, synced_tenant

pytestmark = pytest.mark.asyncio

MANY = 60


def _pod(name: str, **spec: Any) -> Object:
    return objects.pod(name, **spec)


async def _fill(world: World, count: int) -> TenantSession:
    """So many objects of a tenant in each state that is remembered."""
    plane = world.tenants["one"]
    for number in range(count):
        plane.cluster.create(CONFIG_MAPS, {"metadata": {"namespace": "web", "name": f"c{number}"}})
        plane.cluster.create(PODS, objects.pod(f"r{number}", hostNetwork=True))
        plane.cluster.create(PODS, objects.pod(f"w{number}", serviceAccountName=f"none-{number}"))
    await asyncio.sleep(60)
    session = sessions_of(world)["red"]
    assert world.service is not None
    engine = world.service._engine  # noqa: SLF001
    for number in range(count):
        item = ("ConfigMap", "web", f"c{number}")
        session.deletions.suspect(Side.SUPER, item)
        session.deletions.propose(Side.SUPER, item)
        session.verified.note(item, "1", "2", session.caches.pair(("ConfigMap", "web", "none")))
        session.write_wait_s(item, 1 << 30)
        session.quota._usage.reserve(item, {"pods": 1})  # noqa: SLF001 - as writes that are not seen yet
        engine._note_conflict(session, item, Conflict("x"))  # noqa: SLF001 - as plans that found one
        world.service._queue.retry(session, item, Direction.DOWN, 1e6)  # noqa: SLF001 - as failures
    return session


def _held(session: TenantSession) -> dict[str, int]:
    """What holds much of a session's parts."""
    parts = "caches", "verified", "waits", "deletions", "deletion_judge", "quota", "write_rate", "_unused"
    seen = {id(session), *map(id, session.kinds.values())}
    return dict(each for part in parts for each in _below(part, getattr(session, part), seen))


def _below(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, int]]:
    if id(value) in seen or isinstance(value, SuperCaches | type):
        return
    seen.add(id(value))
    if isinstance(value, dict | list | set | frozenset | tuple | deque):
        if len(value) >= MANY:
            yield path, len(value)
        for each in list(value.values() if isinstance(value, dict) else value):
            yield from _below(f"{path}[]", each, seen)
    elif type(value).__module__.startswith(("syncer.", "daemonkit.")):
        names = [*getattr(type(value), "__slots__", ()), *getattr(value, "__dict__", ())]
        for name in names:
            yield from _below(f"{path}.{name}", getattr(value, name, None), seen)


async def test_nothing_much_is_left_of_a_tenant_for_its_last_moment() -> None:
    async with synced_tenant() as (world, _):
        session = await _fill(world, MANY)
        filled = {each.partition(".")[0] for each in _held(session)}
        assert filled == {"caches", "verified", "waits", "deletions", "quota", "write_rate"}
        world.end_tenant("one")
        await asyncio.sleep(10)
        assert sessions_of(world) == {}
        assert _held(session) == {}


async def test_a_tenant_is_forgotten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 000 objects took 10 to 16 ms in the queue alone."""
    assert await _steps_of_detaching(monkeypatch, 20) == await _steps_of_detaching(monkeypatch, 40)


async def _steps_of_detaching(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    counted, detached = [], SyncerService.detached

    def count_steps(
        service: SyncerService, session: TenantSession
    ) -> tuple[Generator[None, None, None], ...]:
        found: list[tuple[Generator[None, None, None], ...]] = []
        counted.append(steps(lambda: found.append(detached(service, session))))
        return found[0]

    async with synced_tenant() as (world, _):
        await _fill(world, count)
        with monkeypatch.context() as patch:
            patch.setattr(SyncerService, "detached", count_steps)
            world.end_tenant("one")
            await asyncio.sleep(10)
    return counted[0]


async def test_what_a_tenant_had_is_given_back_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 000 cached objects took 5 to 12 ms."""
    monkeypatch.setattr(emptying, "AT_ONCE", 10)
    async with synced_tenant() as (world, _):
        session = await _fill(world, MANY)
        world.end_tenant("one")
        left = [_count(session)]
        while left[-1]:
            await asyncio.sleep(0)  # pace: iterations are counted
            left.append(_count(session))
        # A slice of the loop may have several steps of one account.
        assert len(set(left)) > 3 * MANY / 10 / 4


def _count(session: TenantSession) -> int:
    return sum(len(each.objects) for each in session.caches.reflectors.values())
