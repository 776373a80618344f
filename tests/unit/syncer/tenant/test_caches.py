# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, NODES
from syncer.core.plan import SIDES, Side
from syncer.kinds import persistent_volume
from syncer.tenant.caches import TenantCaches
from syncer.tenant.deletions import SyncKey
from tenancy import keys
from tests.pump import steps
from tests.steps import finish
from tests.unit.syncer import objects
from tests.unit.syncer.planes import TOO_MANY_LABELS
from tests.unit.syncer.worlds import EVENTS, World, furnish, running, sessions_of, synced_tenant

pytestmark = pytest.mark.asyncio


def _super_pods(caches: TenantCaches) -> list[str]:
    return [each[1].metadata.uid for each in caches.super_objects("Pod") if each is not None]


def _unverified(caches: TenantCaches, most: int = 1_000) -> dict[SyncKey, bool]:
    return {item: is_whole for items in caches.unverified(most) for item, is_whole in items}


def _looked_at(caches: TenantCaches) -> int:
    """At how many objects and namespaces a patrol looks."""
    return len(list(caches.unverified(1))) - 1


async def test_both_sides_of_an_object_by_the_name_that_the_tenant_has() -> None:
    async with synced_tenant(objects.pod("p")) as (world, plane):
        caches = sessions_of(world)["red"].caches
        pod = ("Pod", "web", "p")
        own, found = caches.of_tenant(pod), caches.of_super(pod)
        assert own is not None
        assert found is not None
        assert (own.metadata.namespace, found.metadata.namespace) == ("web", "red-web")
        assert _super_pods(caches) == [found.metadata.uid]
        assert finish(caches.known(Side.SUPER))["Pod"] == 1
        assert caches.contents(("Namespace", "", "web"))["Pod"] == 1
        assert pod not in _unverified(caches)
        sessions_of(world)["red"].forget_verified()
        assert _unverified(caches)[pod]
        # The namespace becomes somebody else's: what is in it is the tenant's no longer.
        stored = world.super.objects(NAMESPACES)["", "red-web"]
        stored["metadata"]["annotations"] |= {keys.CLUSTER: "blue"}
        world.super.storage.put(NAMESPACES, stored)
        await asyncio.sleep(0.5)
        assert caches.of_super(pod) is None
        assert _super_pods(caches) == []
        assert _unverified(caches)[pod] is False
        assert plane.storage is not None


async def test_what_is_there_and_cannot_be_read_is_named_with_its_side() -> None:
    async with synced_tenant() as (world, plane):
        caches = sessions_of(world)["red"].caches
        broken = {"metadata": {"namespace": "web", "name": "c"}, "data": {"a": {"b": "no text"}}}
        plane.storage.put(CONFIG_MAPS, broken)
        await asyncio.sleep(5)
        item = ("ConfigMap", "web", "c")
        unreadable = caches.unreadable(item)
        assert unreadable is not None
        assert unreadable[0] is Side.TENANT
        assert (caches.of_tenant(item), list(caches.unreadable_items())) == (None, [item])


async def test_events_and_nodes_of_a_tenants_own_are_not_read() -> None:
    async with synced_tenant() as (world, plane):
        caches = sessions_of(world)["red"].caches
        plane.storage.put(NODES, {"metadata": {"name": "own"}})
        plane.storage.put(EVENTS, {"metadata": {"namespace": "web", "name": "e"}, "reason": "Own"})
        await asyncio.sleep(5)
        assert ("", "own") in caches.nodes.objects
        assert caches.vnode("own") is None
        assert caches.of_tenant(("Event", "web", "e")) is None


async def test_items_are_all_that_is_looked_at() -> None:
    """Each object once; what its reader counts has those of both sides twice."""
    async with synced_tenant(objects.pod("p")) as (world, plane):
        caches = sessions_of(world)["red"].caches
        sessions_of(world)["red"].forget_verified()
        found = [item for items in caches.unverified(1) for item, _ in items]
        assert len(found) == len(set(found))
        both = [item for item in found if caches.pair(item).is_whole and item[0] != "Event"]
        before = _looked_at(caches)
        assert before > len(found) + len(both)
        plane.storage.put(NAMESPACES, {"metadata": {"name": "empty"}})
        await asyncio.sleep(10)
        # Thousands of namespaces without an object take their time as well: each is counted for each kind.
        assert _looked_at(caches) - before > 10


async def test_a_patrol_finds_what_does_not_agree() -> None:
    """However many are looked at in a step, and whichever side has changed."""
    async with synced_tenant(*(objects.pod(f"p{number}") for number in range(7))) as (world, _):
        session = sessions_of(world)["red"]
        caches, name = session.caches, ("Pod", "web", "p3")
        before = _unverified(caches)
        for side in SIDES:
            cached = caches.pair(name).of(side)
            assert cached is not None
            known = cached.verified_with, cached.metadata
            if side is Side.TENANT:
                cached.verified_with = "0"
            else:
                cached.metadata = msgspec.structs.replace(cached.metadata, resource_version="0")
            for most in (1, 2, 3, 1_000):
                assert _unverified(caches, most) == before | {name: True}
            cached.verified_with, cached.metadata = known
            assert _unverified(caches) == before


async def test_events_are_nothing_that_a_tenant_lacks() -> None:
    """No deletion follows from them. Each made a list that lacks objects look more complete."""
    async with synced_tenant(objects.pod("p")) as (world, _):
        event = {"involvedObject": {"kind": "Pod", "namespace": "red-web", "name": "p"}, "message": "m"}
        world.super.storage.put(EVENTS, event | {"metadata": {"namespace": "red-web", "name": "e"}})
        await asyncio.sleep(1)
        caches = sessions_of(world)["red"].caches
        assert ("Event", "web", "e") in list(caches.super_items("Event"))
        assert "Event" not in finish(caches.known(Side.SUPER))


async def test_volumes_of_others_take_no_time() -> None:
    """Each tenant looked at those of all, in one step: 10 000 take 10 ms, and 10 000 tenants have them."""
    async with synced_tenant() as (world, _):
        caches = sessions_of(world)["red"].caches
        _put_volume(world, "own", "red-web")

        def looked() -> int:
            return steps(lambda: finish(caches.known(Side.SUPER)))

        await asyncio.sleep(1)
        before = looked()
        for number in range(50):
            _put_volume(world, f"other-{number}", "blue-web")
        await asyncio.sleep(1)
        assert looked() == before
        _put_volume(world, "second", "red-web")
        _put_volume(world, "own", "blue-web")
        await asyncio.sleep(1)
        assert _volumes(caches) == ["second"]
        world.super.storage.delete(persistent_volume.KIND.resource, "", "second")
        await asyncio.sleep(1)
        assert _volumes(caches) == []


async def test_unreadable_volumes_of_others_are_none() -> None:
    """A tenant's own volume of that name would wait for it, and report why another's cannot be read."""
    world = World({"one": "red", "two": "blue"})
    async with running(world):
        for plane in world.tenants.values():
            furnish(plane)
        await asyncio.sleep(10)
        item = ("PersistentVolume", "", "v")
        caches = sessions_of(world)["red"].caches
        _put_volume(world, "v", "blue-web", TOO_MANY_LABELS)
        await asyncio.sleep(1)
        assert caches.unreadable_on(Side.SUPER, item) is None
        assert sessions_of(world)["blue"].caches.unreadable_on(Side.SUPER, item) is not None
        _put_volume(world, "v", "red-web", TOO_MANY_LABELS)
        await asyncio.sleep(1)
        assert caches.unreadable_on(Side.SUPER, item) is not None


def _put_volume(
    world: World, name: str, super_namespace: str, labels: Mapping[str, str] = MappingProxyType({})
) -> None:
    claim = {"namespace": super_namespace, "name": "c"}
    world.super.storage.put(
        persistent_volume.KIND.resource,
        {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"claimRef": claim}},
    )


def _volumes(caches: TenantCaches) -> list[str]:
    return [item[2] for item in caches.super_items("PersistentVolume") if item is not None]
