# SPDX-License-Identifier: Apache-2.0
"""What a tenant makes and deletes, again and again, is not remembered."""

# ruff: noqa: SLF001 - what is remembered has no reader outside

import asyncio

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, PODS
from daemonkit.kube.store import UndecodableDeleted
from syncer.core.plan import Side
from syncer.tenant import owned_namespaces
from syncer.tenant.memory import QUEUED_BYTES
from syncer.tenant.session import TenantSession
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import World, running, synced_tenant

pytestmark = pytest.mark.asyncio


def _session(world: World) -> TenantSession:
    assert world.service is not None
    return world.service._attachments.sessions["red"]


# They look for their Namespace, and wait for another policy.
_REFUSED_PODS = [objects.pod(f"p{number}", nodeSelector={"disk": "fast"}) for number in range(20)]


async def test_what_waited_and_is_gone_is_waited_for_no_longer() -> None:
    async with synced_tenant(*_REFUSED_PODS) as (world, plane):
        session = _session(world)
        assert len(session.waits) == 20
        for number in range(20):
            plane.storage.delete(PODS, "web", f"p{number}")
        await asyncio.sleep(10)
        assert (len(session.waits), session.waits.lookups, session.waits._waiters) == (0, 0, {})


async def test_what_a_list_lacks_is_suspected_until_it_is_gone() -> None:
    """Objects without a super object: no event of one ever ends the suspicion."""
    async with synced_tenant(*_REFUSED_PODS) as (world, plane):
        session = _session(world)
        for number in range(20):
            plane.storage.delete(PODS, "web", f"p{number}")
        session.caches.reflectors["Pod"]._is_relisting = True
        await asyncio.sleep(10)
        session.caches.reflectors["Pod"]._is_relisting = False
        assert session.caches.reflectors["Pod"].objects == {}
        items = [("Pod", "web", f"p{number}") for number in range(20)]
        assert [each for each in items if session.deletions.is_suspected(Side.SUPER, each)] == []


async def test_the_conflict_of_what_is_gone_is_over() -> None:
    """What stands in the way has no label of ours, so that no cache has it."""
    async with synced_tenant() as (world, plane):
        world.super.cluster.create(CONFIG_MAPS, {"metadata": {"namespace": "red-web", "name": "c"}})
        plane.cluster.create(CONFIG_MAPS, {"metadata": {"namespace": "web", "name": "c"}})
        await asyncio.sleep(5)
        assert world.service is not None
        engine, session = world.service._engine, _session(world)
        assert engine.conflict(session, ("ConfigMap", "web", "c"))
        assert engine.conflict_count() == 1
        plane.storage.delete(CONFIG_MAPS, "web", "c")
        await asyncio.sleep(70)
        assert engine.conflict_count() == 0
        assert ("red-web", "c") in world.super.objects(CONFIG_MAPS)


async def test_names_of_namespaces_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_namespaces, "MAX_NAMES", 10)
    world = World({"one": "red"})
    async with running(world):
        await asyncio.sleep(20)
        session = _session(world)
        assert {session.namespaces.super_name(f"n{number}") for number in range(100)} == {
            f"red-n{number}" for number in range(100)
        }
        assert len(session.namespaces._super_names) <= 10


async def test_what_comes_and_goes_is_counted_while_it_waits() -> None:
    """A watch can bring and take away names faster than they are looked at: nothing else of them is held."""
    async with synced_tenant() as (world, _):
        session = _session(world)
        await asyncio.sleep(5)
        before = session.memory.budget.held_bytes
        session.objects_changed("ConfigMap", [UndecodableDeleted(("web", f"c-{n}")) for n in range(50)])
        assert session.memory.budget.held_bytes == before + 50 * QUEUED_BYTES
        await asyncio.sleep(10)
        assert session.memory.budget.held_bytes == before


async def test_what_is_held_is_what_the_budget_has() -> None:
    """Also of pods that are compressed once both sides agree, and change, and go."""
    async with synced_tenant(*(objects.pod(f"p{number}") for number in range(10))) as (world, plane):
        session = _session(world)
        for number in range(6):
            pod = plane.storage.get(PODS, "web", f"p{number}")
            pod["metadata"].setdefault("annotations", {})["mark"] = "x" * 5_000
            plane.storage.put(PODS, pod)
        await asyncio.sleep(10)
        plane.cluster.delete(PODS, "web", "p0")
        await asyncio.sleep(60)
        reflectors = (*session.caches.reflectors.values(), session.caches.nodes)
        values = [each for reflector in reflectors for each in reflector.objects.values()]
        assert sum(each._is_compressed for each in values) == 9
        budget = session.memory.budget
        assert budget.held_bytes == sum(map(budget.size_of, values))
