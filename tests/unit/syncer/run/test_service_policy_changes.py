# SPDX-License-Identifier: Apache-2.0
"""A policy or another tenant's pod changes while a plan is under way, or watches lag behind each other."""

import asyncio

import pytest

from daemonkit.kube.resources import NAMESPACES, PODS
from syncer.core.objects import Object
from tests.unit.syncer import objects
from tests.unit.syncer.planes import PacedWatches, Plane, grow
from tests.unit.syncer.worlds import ENDPOINTS, World, furnish, reports_of, running, sessions_of, set_policy

pytestmark = pytest.mark.asyncio

_OPEN: Object = {"endpoints": {"allowedCIDRs": ["10.9.0.0/16"]}}
_OUTSIDE = "203.0.113.5"


def _endpoints(address: str) -> Object:
    metadata = {"namespace": "web", "name": "s"}
    return {"kind": "Endpoints", "metadata": metadata, "subsets": [{"addresses": [{"ip": address}]}]}


async def test_what_a_policy_opens_during_its_report_goes_down() -> None:
    world = World({"one": "red"})
    async with running(world):
        one = world.tenants["one"]
        set_policy(world, {"quota": {"hard": {"pods": 5000}}})
        furnish(one, objects.service("s"))
        await asyncio.sleep(20)
        reported = list[str]()

        async def opened(path: str) -> None:
            if "events" in path and not reported:
                reported.append(path)
                set_policy(world, _OPEN)
                await asyncio.sleep(3)

        world.before_answer = opened
        one.cluster.create(ENDPOINTS, _endpoints("10.9.0.3"))
        await asyncio.sleep(300)
        assert reported
        assert ("red-web", "s") in world.super.objects(ENDPOINTS)


async def test_what_a_policy_closes_while_it_is_written_goes() -> None:
    world = World({"one": "red"})
    paced = world.super.paced[ENDPOINTS] = PacedWatches()
    async with running(world):
        one = world.tenants["one"]
        set_policy(world, _OPEN)
        furnish(one, objects.service("s"))
        await asyncio.sleep(20)
        written = list[str]()

        async def closed(path: str) -> None:
            if path.endswith("/endpoints") and "red-web" in path and not written:
                written.append(path)
                set_policy(world, {})
                await asyncio.sleep(1)

        world.before_answer = closed
        paced.hold(world.super.storage.revision)
        one.cluster.create(ENDPOINTS, _endpoints("10.9.0.3"))
        await asyncio.sleep(2)
        paced.flow()
        await asyncio.sleep(300)
        assert written
        assert ("red-web", "s") not in world.super.objects(ENDPOINTS)


@pytest.mark.parametrize("is_namespace_first", [False, True])
async def test_the_end_of_a_pod_frees_its_address_whatever_ends_first(is_namespace_first: bool) -> None:
    world = World({"one": "red", "two": "blue"})
    paced = world.super.paced[PODS] = PacedWatches()
    async with running(world):
        one = await _refused_for_a_pod(world)
        if is_namespace_first:
            paced.hold(world.super.storage.revision)
        world.end_tenant("two")
        await asyncio.sleep(30)
        assert ("", "blue-web") not in world.super.objects(NAMESPACES)
        if is_namespace_first:
            assert not world.super.objects(ENDPOINTS), "its pod may run"
        paced.flow()
        await asyncio.sleep(100)
        assert ("red-web", "s") in world.super.objects(ENDPOINTS), reports_of(one, "s")


async def test_a_pod_that_cannot_be_read_keeps_its_address() -> None:
    world = World({"one": "red", "two": "blue"})
    async with running(world):
        await _refused_for_a_pod(world)
        grow(world.super.storage, PODS, "blue-web", "p")
        await asyncio.sleep(100)
        assert ("blue-web", "p") in world.super.objects(PODS)
        assert not world.super.objects(ENDPOINTS)


async def test_what_waits_for_a_policy_names_its_last_problem() -> None:
    world = World({"one": "red"})
    set_policy(world, {"endpoints": {"allowedCIDRs": ["no network"]}})
    async with running(world):
        one = world.tenants["one"]
        furnish(one, objects.service("s"))
        await asyncio.sleep(20)
        set_policy(world, {"quota": {"hard": {"limits.cpu": "nonsense"}}})
        await asyncio.sleep(20)
        one.cluster.create(NAMESPACES, {"metadata": {"name": "later"}})
        await asyncio.sleep(60)
        assert sessions_of(world)["red"].is_attached
        messages = [message for _, message in reports_of(one, "later")]
        assert messages
        assert all("spec.quota.hard[limits.cpu]" in each for each in messages)


async def _refused_for_a_pod(world: World) -> Plane:
    """Endpoints of red's with the address of a pod of blue's."""
    one, two = world.tenants["one"], world.tenants["two"]
    furnish(one, objects.service("s"))
    furnish(two, objects.pod("p"))
    await asyncio.sleep(20)
    pod = world.super.storage.get(PODS, "blue-web", "p")
    assert pod is not None
    pod["status"] |= {"podIP": _OUTSIDE, "podIPs": [{"ip": _OUTSIDE}]}
    world.super.storage.put(PODS, pod)
    await asyncio.sleep(5)
    one.cluster.create(ENDPOINTS, _endpoints(_OUTSIDE))
    await asyncio.sleep(5)
    assert not world.super.objects(ENDPOINTS)
    return one
