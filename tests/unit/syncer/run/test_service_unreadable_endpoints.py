# SPDX-License-Identifier: Apache-2.0
"""A tenant's Endpoints, its slice, or their Namespace cannot be read: what is below still loses addresses."""

import asyncio
import itertools

import pytest

from daemonkit.kube.resources import ENDPOINT_SLICES, NAMESPACES, PODS, Resource
from devkit.kube.storage import Object
from tests.unit.syncer import objects
from tests.unit.syncer.planes import grow
from tests.unit.syncer.worlds import ENDPOINTS, World, furnish, running

pytestmark = pytest.mark.asyncio

_BELOW = ("red-web", "s")


def _leading_to(resource: Resource, address: str) -> Object:
    meta: Object = {"namespace": "web", "name": "s"}
    if resource is ENDPOINTS:
        return {"metadata": meta, "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]}
    meta["labels"] = {"kubernetes.io/service-name": "s"}
    return {"metadata": meta, "addressType": "IPv4", "endpoints": [{"addresses": [address]}]}


def _give_to_another(world: World, address: str) -> None:
    """The tenant's pod ends, and the other tenant's has its address."""
    world.tenants["one"].storage.delete(PODS, "web", "p")
    world.super.storage.delete(PODS, "red-web", "p")
    other = world.super.storage.get(PODS, "blue-web", "other")
    other["status"] |= {"podIP": address, "podIPs": [{"ip": address}]}
    world.super.storage.put(PODS, other)


# What is too large, what the tenant has of the object by then, and whether vc-syncer sees it happen.
_SITUATIONS = [
    each
    for each in itertools.product(
        (ENDPOINTS, ENDPOINT_SLICES), ("object", "namespace"), ("there", "gone", "made again"), (True, False)
    )
    if each[1:3] != ("object", "gone")
]


@pytest.mark.parametrize(
    ("resource", "unreadable", "own", "sees"),
    _SITUATIONS,
    ids=[f"{r.plural}-{u}-{o.replace(' ', '-')}-{'seen' if s else 'restart'}" for r, u, o, s in _SITUATIONS],
)
async def test_no_address_of_what_cannot_be_read_outlives_its_pod(
    resource: Resource, unreadable: str, own: str, *, sees: bool
) -> None:
    world = World({"one": "red", "two": "blue"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, objects.pod("p"), objects.service("s"))
        furnish(world.tenants["two"], objects.pod("other"))
        await asyncio.sleep(20)
        address = str(world.super.storage.get(PODS, "red-web", "p")["status"]["podIP"])
        plane.cluster.create(resource, _leading_to(resource, address))
        await asyncio.sleep(5)
        before = world.super.storage.get(resource, *_BELOW)
        assert address in str(before)
        if unreadable == "object":
            grow(plane.storage, resource, "web", "s")
        else:
            grow(plane.storage, NAMESPACES, "", "web")
        await asyncio.sleep(20)
        plane.cluster.create(PODS, objects.pod("q"))  # it is judged, and is to be judged again
        await asyncio.sleep(40)
        assert world.super.storage.get(resource, *_BELOW) == before  # it is the tenant's still
        if not sees:
            await world.kill_syncer()
        if own != "there":
            plane.storage.delete(resource, "web", "s")
        if own == "made again":
            plane.cluster.create(resource, _leading_to(resource, address))
            if unreadable == "object":
                grow(plane.storage, resource, "web", "s")
        _give_to_another(world, address)
        if not sees:
            world.start_syncer()
        await asyncio.sleep(5 if sees else 60)  # it does not take a patrol
        left = {where: str(each) for where, each in world.super.objects(resource).items()}
        assert not [where for where, text in left.items() if where[0] == "red-web" and address in text]
