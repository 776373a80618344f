# SPDX-License-Identifier: Apache-2.0
"""What an object depends on is there and cannot be read: it is unknown, and not absent."""

import asyncio
from typing import Any

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, PODS, SECRETS, SERVICES, Resource
from devkit.kube.storage import Object
from syncer.kinds import persistent_volume
from tests.unit.syncer import objects
from tests.unit.syncer.planes import TOO_LARGE, TOO_MANY_LABELS
from tests.unit.syncer.worlds import CLAIMS, DOWN, ENDPOINTS, reports_of, synced_tenant

pytestmark = pytest.mark.asyncio

VOLUMES = persistent_volume.KIND.resource


def _pod(**container: Any) -> Object:
    made = objects.pod("app")
    made["spec"]["containers"][0] |= container
    return made


def _slice(name: str) -> Object:
    meta = {"namespace": "web", "name": name, "labels": {"kubernetes.io/service-name": "s"}}
    return {"metadata": meta, "addressType": "IPv4", "endpoints": []}


SECRET_VOLUME = objects.pod("app", volumes=[{"name": "v", "secret": {"secretName": "x"}}])


@pytest.mark.parametrize(
    ("kind", "dependent", "name", "resource", "known"),
    [
        (
            "Pod",
            _pod(envFrom=[{"configMapRef": {"name": "x"}}]),
            "ConfigMap",
            CONFIG_MAPS,
            {"data": {"A": "b"}},
        ),
        ("Pod", _pod(envFrom=[{"secretRef": {"name": "x"}}]), "Secret", SECRETS, {"data": {}}),
        ("Pod", SECRET_VOLUME, "Secret", SECRETS, {"data": {}}),
        ("EndpointSlice", _slice("app"), "Service", SERVICES, {"spec": {"ports": [{"port": 80}]}}),
    ],
    ids=["envFrom-config-map", "envFrom-secret", "volume-secret", "slice"],
)
async def test_what_depends_on_it_waits_and_says_so(
    kind: str, dependent: Object, name: str, resource: Resource, known: Object
) -> None:
    depends_on = "s" if resource is SERVICES else "x"
    async with synced_tenant() as (world, plane):
        if resource is not SERVICES:
            plane.cluster.create(SERVICES, objects.service("s", ports=[{"port": 80}]))
        value = {"metadata": {"namespace": "web", "name": depends_on, "labels": TOO_MANY_LABELS}, **known}
        plane.storage.create(resource, value)
        await asyncio.sleep(5)
        plane.storage.create(DOWN[kind], dependent)
        await asyncio.sleep(20)
        below = ("red-web", "app")
        assert below not in world.super.objects(DOWN[kind])
        text = f"{name} web/{depends_on} is there and cannot be read: {TOO_LARGE}"
        assert reports_of(plane, "app") == {("SyncWaiting", text)}
        value = plane.storage.get(resource, "web", depends_on)
        value["metadata"]["labels"] = {}
        plane.storage.replace(resource, value)
        await asyncio.sleep(20)
        assert below in world.super.objects(DOWN[kind])
        assert world.status()["one"]["notSynced"] == []


async def test_a_claim_waits_for_the_volume_that_it_names() -> None:
    """It may be one of the tenant's own, for which another would be made."""
    async with synced_tenant() as (world, plane):
        plane.storage.create(VOLUMES, {"metadata": {"name": "own", "labels": TOO_MANY_LABELS}, "spec": {}})
        await asyncio.sleep(5)
        plane.cluster.create(CLAIMS, objects.claim("app", volumeName="own"))
        await asyncio.sleep(20)
        assert ("red-web", "app") not in world.super.objects(CLAIMS)
        text = f"PersistentVolume own is there and cannot be read: {TOO_LARGE}"
        assert reports_of(plane, "app") == {("SyncWaiting", text)}
        plane.storage.delete(VOLUMES, "", "own")
        await asyncio.sleep(20)
        assert ("red-web", "app") in world.super.objects(CLAIMS)


async def test_what_is_below_ends_with_its_object() -> None:
    """A pod is deleted whatever is known of what it mounts, and its tenant sees that it is."""
    async with synced_tenant() as (world, plane):
        plane.cluster.create(SECRETS, {"metadata": {"namespace": "web", "name": "x"}, "data": {}})
        plane.cluster.create(PODS, SECRET_VOLUME)
        await asyncio.sleep(20)
        assert ("red-web", "app") in world.super.objects(PODS)
        value = plane.storage.get(SECRETS, "web", "x")
        value["metadata"]["labels"] = TOO_MANY_LABELS
        plane.storage.replace(SECRETS, value)
        await asyncio.sleep(20)
        assert ("red-web", "app") in world.super.objects(PODS)
        assert ("red-web", "x") in world.super.objects(SECRETS)
        plane.cluster.delete(PODS, "web", "app")
        await asyncio.sleep(60)
        assert ("red-web", "app") not in world.super.objects(PODS)
        assert ("web", "app") not in plane.objects(PODS)


async def test_endpoints_below_lose_addresses_all_the_same() -> None:
    """Whose an address is next nobody knows: only what is made anew waits for the Service."""
    async with synced_tenant(objects.pod("p")) as (world, plane):
        address = world.super.objects(PODS)["red-web", "p"]["status"]["podIP"]
        plane.cluster.create(SERVICES, objects.service("s", ports=[{"port": 80}]))
        subsets = [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]
        plane.cluster.create(ENDPOINTS, {"metadata": {"namespace": "web", "name": "s"}, "subsets": subsets})
        await asyncio.sleep(10)
        assert world.super.objects(ENDPOINTS)["red-web", "s"]["subsets"]
        value = plane.storage.get(SERVICES, "web", "s")
        value["metadata"]["labels"] = TOO_MANY_LABELS
        plane.storage.replace(SERVICES, value)
        await asyncio.sleep(10)
        own = plane.storage.get(ENDPOINTS, "web", "s")
        own["subsets"] = []
        plane.storage.replace(ENDPOINTS, own)
        await asyncio.sleep(10)
        assert not world.super.objects(ENDPOINTS)["red-web", "s"].get("subsets")
