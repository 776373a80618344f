# SPDX-License-Identifier: Apache-2.0
"""vc-syncer starts while a tenant's SyncPolicy cannot be read: what is below was judged by another."""

import asyncio
from collections.abc import Mapping

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, ENDPOINT_SLICES, NODES, PODS, SERVICES, Resource
from devkit.kube.storage import Object
from tests.unit.syncer import objects
from tests.unit.syncer.planes import Plane
from tests.unit.syncer.worlds import CLAIMS, DOWN, ENDPOINTS, INGRESSES, World, furnish, running, set_policy

pytestmark = pytest.mark.asyncio

_OPENED = "10.9.0.3"
_KEY = "example.k8s.io/opened"
_POLICY: Object = {
    "endpoints": {"allowedCIDRs": ["10.9.0.0/16"]},
    "services": {"types": ["ClusterIP", "ExternalName"]},
    "claims": {"storageClasses": ["fast"]},
    "ingresses": {"classes": ["nginx"], "hosts": ["*.one.example"]},
    "metadata": {"allowedAnnotations": [_KEY]},
    "pods": {"volumeTypes": ["emptyDir", "nfs"]},
    "quota": {"hard": {"pods": 5000}},
}


def _break_policy(world: World) -> None:
    set_policy(world, _POLICY | {"endpoints": {"allowedCIDRs": ["no network"]}})


def _meta(name: str, **more: object) -> Object:
    return {"namespace": "web", "name": name, "annotations": {_KEY: "v"}, **more}


def _endpoints(name: str, *addresses: str) -> Object:
    subsets = [{"addresses": [{"ip": each} for each in addresses]}] if addresses else []
    return {"kind": "Endpoints", "metadata": _meta(name), "subsets": subsets}


def _slice(name: str, address_type: str, *addresses: str) -> Object:
    return {
        "kind": "EndpointSlice",
        "metadata": _meta(name, labels={"kubernetes.io/service-name": name}),
        "addressType": address_type,
        "endpoints": [{"addresses": [each]} for each in addresses],
    }


_OPENED_OBJECTS: tuple[tuple[Resource, Object], ...] = (
    (ENDPOINTS, _endpoints("opened", _OPENED, "10.9.0.4")),
    (ENDPOINT_SLICES, _slice("slice", "IPv4", _OPENED, "10.9.0.4")),
    (ENDPOINT_SLICES, _slice("names", "FQDN", "a.example.com")),
    (
        SERVICES,
        {
            "kind": "Service",
            "metadata": _meta("name"),
            "spec": {"type": "ExternalName", "externalName": "a.example.com"},
        },
    ),
    (CONFIG_MAPS, {"kind": "ConfigMap", "metadata": _meta("map"), "data": {"a": "1"}}),
    (
        CLAIMS,
        {"kind": "PersistentVolumeClaim", "metadata": _meta("claim"), "spec": {"storageClassName": "fast"}},
    ),
    (
        INGRESSES,
        {
            "kind": "Ingress",
            "metadata": _meta("in"),
            "spec": {"ingressClassName": "nginx", "rules": [{"host": "a.one.example"}]},
        },
    ),
)


def _below(world: World) -> Mapping[str, Object]:
    return {
        f"{kind} {where[1]}": each
        for kind, resource in DOWN.items()
        for where, each in world.super.objects(resource).items()
        if where[0] == "red-web"
    }


async def _prepare(world: World) -> None:
    set_policy(world, _POLICY)
    plane = world.tenants["one"]
    furnish(plane, objects.pod("p"))
    furnish(world.tenants["two"], objects.pod("other"))
    await asyncio.sleep(20)
    for resource, value in _OPENED_OBJECTS:
        plane.cluster.create(resource, value)
    await asyncio.sleep(30)
    names = {value["metadata"]["name"] for _, value in _OPENED_OBJECTS}
    assert names <= {name.split()[1] for name in _below(world)}
    await world.kill_syncer()


async def test_what_a_policy_let_down_stays() -> None:
    """For all kinds; it is not changed by the built-in policy either, and says what it waits for."""
    world = World({"one": "red", "two": "blue"})
    async with running(world):
        await _prepare(world)
        before = _below(world)
        _break_policy(world)
        world.start_syncer()
        await asyncio.sleep(100)
        assert _below(world) == before
        assert world.status()["one"]["phase"] == "Synced"
        plane = world.tenants["one"]
        value = plane.storage.get(CONFIG_MAPS, "web", "map")
        plane.storage.put(CONFIG_MAPS, value | {"data": {"a": "2"}})
        plane.cluster.create(CONFIG_MAPS, {"kind": "ConfigMap", "metadata": _meta("new")})
        await asyncio.sleep(60)
        assert _below(world) == before
        set_policy(world, _POLICY)
        await asyncio.sleep(60)
        after = _below(world)
        assert after.keys() == before.keys() | {"ConfigMap new"}
        assert [name for name in before if after[name] != before[name]] == ["ConfigMap map"]
        assert world.problems == []


async def test_what_no_policy_opens_goes() -> None:
    """An address that another tenant's pod has by now; what the tenant takes away goes at once."""
    world = World({"one": "red", "two": "blue"})
    async with running(world):
        await _prepare(world)
        plane = world.tenants["one"]
        _break_policy(world)
        world.start_syncer()
        await asyncio.sleep(20)
        own = plane.storage.get(ENDPOINTS, "web", "opened")
        plane.storage.put(ENDPOINTS, own | {"subsets": _endpoints("opened", _OPENED)["subsets"]})
        await asyncio.sleep(5)
        left = world.super.storage.get(ENDPOINTS, "red-web", "opened")
        assert left["subsets"] == [{"addresses": [{"ip": _OPENED}]}]
        assert left["metadata"]["annotations"][_KEY] == "v"
        other = world.super.storage.get(PODS, "blue-web", "other")
        other["status"] |= {"podIP": _OPENED, "podIPs": [{"ip": _OPENED}]}
        world.super.storage.put(PODS, other)
        await asyncio.sleep(60)
        below = _below(world)
        assert "Endpoints opened" not in below
        assert "EndpointSlice slice" not in below
        assert "EndpointSlice names" in below
        assert world.problems == []


def _shown(plane: Plane) -> list[Object]:
    found = plane.objects(NODES).values()
    return [{"isSchedulable": not each["spec"].get("unschedulable")} for each in found]


async def test_vnodes_wait_for_the_policy() -> None:
    """What they show stays, and a new one is not made by the built-in policy."""
    world = World({"one": "red"})
    async with running(world):
        policy: Object = {"vNodes": {"schedulable": True, "labels": ["kubernetes.io/"]}}
        set_policy(world, policy)
        plane = world.tenants["one"]
        furnish(plane, objects.pod("p"))
        await asyncio.sleep(20)
        (before,) = plane.objects(NODES).values()
        assert not before["spec"].get("unschedulable")
        await world.kill_syncer()
        set_policy(world, {"vNodes": {"no": "field"}})
        world.start_syncer()
        await asyncio.sleep(200)
        (after,) = plane.objects(NODES).values()
        assert (after["metadata"]["labels"], after["spec"]) == (before["metadata"]["labels"], before["spec"])
        plane.storage.delete(NODES, "", after["metadata"]["name"])
        await asyncio.sleep(60)
        assert plane.objects(NODES) == {}
        set_policy(world, policy)
        await asyncio.sleep(20)
        (again,) = plane.objects(NODES).values()
        assert again["spec"] == before["spec"]
        assert world.problems == []


async def test_the_last_policy_counts_while_it_cannot_be_read() -> None:
    """Its quota too, and what vNodes show."""
    world = World({"one": "red"})
    async with running(world):
        spec: Object = {
            "quota": {"hard": {"vcnode.io/stored-bytes": "64Ki"}},
            "vNodes": {"schedulable": True},
        }
        set_policy(world, spec)
        plane = world.tenants["one"]
        furnish(plane, objects.pod("p"))
        plane.cluster.create(CONFIG_MAPS, {"kind": "ConfigMap", "metadata": _meta("map"), "data": {"a": "1"}})
        await asyncio.sleep(20)
        before, shown = _below(world), _shown(plane)
        assert "ConfigMap map" in before
        set_policy(world, {"claims": {"no": "field"}})
        await asyncio.sleep(20)
        value = plane.storage.get(CONFIG_MAPS, "web", "map")
        plane.storage.put(CONFIG_MAPS, value | {"data": {"a": "x" * 100_000}})
        await asyncio.sleep(20)
        assert _below(world)["ConfigMap map"] == before["ConfigMap map"]
        assert _shown(plane) == shown == [{"isSchedulable": True}]
