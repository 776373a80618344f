# SPDX-License-Identifier: Apache-2.0
"""What cannot be read in the super cluster leads to nobody else, and holds up no drain."""

import asyncio

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import ENDPOINT_SLICES, NODES, PODS, Resource
from devkit.kube.storage import Object
from tenancy import keys
from tests.unit.syncer import objects
from tests.unit.syncer.planes import grow
from tests.unit.syncer.worlds import BUDGETS, ENDPOINTS, World, furnish, running

pytestmark = pytest.mark.asyncio

_BELOW = ("red-web", "s")


def _made(resource: Resource, address: str) -> Object:
    meta: Object = {"namespace": "web", "name": "s"}
    if resource is BUDGETS:
        return {"metadata": meta, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}
    if resource is ENDPOINTS:
        return {"metadata": meta, "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]}
    meta["labels"] = {"kubernetes.io/service-name": "s"}
    return {"metadata": meta, "addressType": "IPv4", "endpoints": [{"addresses": [address]}]}


def _drain(world: World) -> None:
    """The wall clock of these worlds begins at 22:13:20; the node is cordoned for more than an hour."""
    node = world.super.storage.get(
        NODES, "", world.super.storage.get(PODS, "red-web", "p")["spec"]["nodeName"]
    )
    taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": "2023-11-14T21:12:20Z"}
    world.super.storage.put(NODES, node | {"spec": {"unschedulable": True, "taints": [taint]}})


@pytest.mark.parametrize("has_plans", [True, False], ids=["plans", "no-plans"])
@pytest.mark.parametrize("resource", [ENDPOINTS, ENDPOINT_SLICES, BUDGETS], ids=lambda each: each.plural)
async def test_what_cannot_be_read_does_no_harm(resource: Resource, *, has_plans: bool) -> None:
    """An unreadable object becomes one that can be read as soon as its plan makes it anew."""
    world = World({"one": "red"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, objects.pod("p"), objects.service("s"))
        await asyncio.sleep(20)
        address = str(world.super.storage.get(PODS, "red-web", "p")["status"]["podIP"])
        plane.cluster.create(resource, _made(resource, address))
        await asyncio.sleep(10)
        before = world.super.storage.get(resource, *_BELOW)
        if not has_plans:
            await world.kill_syncer()
            plane.failures.extend([UnreachableError("connect")] * 100_000)
            world.start_syncer()
        grow(world.super.storage, resource, *_BELOW)
        await asyncio.sleep(40)
        if resource is BUDGETS:
            assert world.super.storage.get(resource, *_BELOW)["metadata"]["uid"] == before["metadata"]["uid"]
            _drain(world)
            await asyncio.sleep(70)
        now = world.super.objects(resource).get(_BELOW)
        if has_plans and resource is not BUDGETS:
            assert now is not None
            assert now["metadata"]["labels"] == before["metadata"]["labels"]
        else:
            assert now is None
        assert world.problems == []


@pytest.mark.parametrize("resource", [ENDPOINTS, ENDPOINT_SLICES, BUDGETS], ids=lambda each: each.plural)
async def test_what_cannot_be_read_and_is_no_tenants_stays(resource: Resource) -> None:
    world = World({"one": "red"})
    async with running(world):
        furnish(world.tenants["one"], objects.pod("p"))
        await asyncio.sleep(20)
        made = _made(resource, "10.244.0.1")
        made["metadata"] |= {"namespace": "red-web", "labels": {keys.VC_NAME: "one"}}
        made["metadata"]["annotations"] = {keys.UID: "u", keys.CLUSTER: "blue"}
        world.super.cluster.create(resource, made)
        grow(world.super.storage, resource, *_BELOW)
        _drain(world)
        await asyncio.sleep(100)
        assert world.super.objects(resource).get(_BELOW) is not None
