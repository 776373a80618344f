# SPDX-License-Identifier: Apache-2.0
"""The quota of a tenant in a whole syncer: what goes down, is refused, and makes room."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    SERVICES,
    VIRTUAL_CLUSTERS,
    Resource,
    Status,
)
from devkit.kube.storage import Object
from syncer.kinds import persistent_volume
from syncer.policy.sync_policy import SyncPolicy
from syncer.sources.policies import SYNC_POLICIES
from tenancy import keys
from tests.unit.syncer import objects
from tests.unit.syncer.planes import Plane, annotations_of, grow
from tests.unit.syncer.worlds import DOWN, EVENTS, World, furnish, reports_of, running, sessions_of

pytestmark = pytest.mark.asyncio

# A patrol comes every 30 s; what makes room is seen at once.
SOON_S = 5.0


def _set_quota(world: World, **hard: object) -> None:
    policy: Object = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "SyncPolicy",
        "metadata": {"namespace": "tenants", "name": "default"},
        "spec": {"quota": {"hard": {name.replace("__", "."): value for name, value in hard.items()}}},
    }
    world.super.storage.put(SYNC_POLICIES, policy)


@contextlib.asynccontextmanager
async def _limited(*made: Object, **hard: object) -> AsyncIterator[tuple[World, Plane]]:
    """A running world whose tenant `red` has this quota, and these objects from the first."""
    world = World({"one": "red"})
    _set_quota(world, **hard)
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, *made)
        await asyncio.sleep(20)
        yield world, plane


def _is_refused(plane: Plane, name: str, what: str) -> bool:
    reported = reports_of(plane, name)
    return any(reason == "SyncRefused" and re.search(what, message) for reason, message in reported)


async def _goes_down(world: World, plane: Plane, name: str) -> bool:
    """Create a ConfigMap of 20 000 bytes; whether the super cluster has it soon."""
    plane.cluster.create(CONFIG_MAPS, objects.config_map(name, "x" * 20_000))
    await asyncio.sleep(SOON_S)
    return name in _below(world, CONFIG_MAPS)


def _pod(name: str, cpu: str | None = None, *, count: int = 1) -> Object:
    resources: dict[str, Any] = {} if cpu is None else {"resources": {"requests": {"cpu": cpu}}}
    containers = [{"name": f"c{number}", "image": "i", **resources} for number in range(count)]
    return objects.pod(name, containers=containers)


@pytest.mark.parametrize("resource", [CONFIG_MAPS, PODS, SERVICES], ids=str)
async def test_what_cannot_be_read_counts(resource: Resource) -> None:
    """A controller of the super cluster has given it so many labels; it counts until it is gone there."""
    async with _limited(
        objects.pod("o"), objects.service("o"), objects.config_map("o"), **{"vcnode.io/stored-bytes": "96Ki"}
    ) as (world, plane):
        assert await _goes_down(world, plane, "first")
        grow(world.super.storage, resource, "red-web", "o")
        await asyncio.sleep(SOON_S)
        assert not await _goes_down(world, plane, "second")
        assert _is_refused(plane, "second", "stored-bytes")
        plane.storage.delete(resource, "web", "o")
        world.super.storage.delete(resource, "red-web", "o")
        await asyncio.sleep(SOON_S)
        assert "second" in _below(world, CONFIG_MAPS)


async def test_volumes_that_cannot_be_read_count() -> None:
    """A controller of the super cluster has given it so many labels; it is the tenant's by its claim."""
    async with _limited(**{"vcnode.io/stored-bytes": "96Ki"}) as (world, plane):
        volumes, claim = persistent_volume.KIND.resource, {"namespace": "red-web", "name": "c"}
        world.super.storage.put(volumes, {"metadata": {"name": "v"}, "spec": {"claimRef": claim}})
        assert await _goes_down(world, plane, "first")
        grow(world.super.storage, volumes, "", "v")
        await asyncio.sleep(SOON_S)
        assert not await _goes_down(world, plane, "second")
        assert _is_refused(plane, "second", "stored-bytes")
        world.super.storage.delete(volumes, "", "v")
        await asyncio.sleep(SOON_S)
        assert "second" in _below(world, CONFIG_MAPS)


def _below(world: World, resource: Resource, prefix: str = "red-web") -> set[str]:
    return {name for namespace, name in world.super.objects(resource) if namespace == prefix}


def _resize(plane: Plane, name: str, container: int, cpu: str) -> None:
    value = plane.storage.get(PODS, "web", name)
    value["spec"]["containers"][container]["resources"] = {"requests": {"cpu": cpu}}
    plane.storage.put(PODS, value)


def _requested(world: World, name: str) -> list[str]:
    containers = world.super.storage.get(PODS, "red-web", name)["spec"]["containers"]
    return [each["resources"]["requests"]["cpu"] for each in containers]


@pytest.mark.parametrize("kind", ["Endpoints", "EndpointSlice"])
async def test_a_full_quota_keeps_no_address(kind: str) -> None:
    """The address of a pod that ends is another tenant's next, whatever grows beside it."""
    resource = DOWN[kind]
    async with _limited(
        objects.pod("p"), objects.pod("q"), objects.service("s"), **{"vcnode.io/stored-bytes": "48Ki"}
    ) as (world, plane):
        ours, ends = (
            world.super.storage.get(PODS, "red-web", each)["status"]["podIP"] for each in ("p", "q")
        )
        plane.cluster.create(resource, _endpoints(kind, ours, ends))
        assert await _goes_down(world, plane, "first")
        value = plane.storage.get(resource, "web", "s")
        changed = _endpoints(kind, ours)
        changed["metadata"] = value["metadata"] | {"annotations": {"more": "x" * 60_000}}
        plane.storage.put(resource, value | changed)
        await asyncio.sleep(SOON_S)
        text = str(world.super.objects(resource)["red-web", "s"])
        assert (ours in text, ends in text) == (True, False)
        assert _is_refused(plane, "s", "stored-bytes")
        assert world.problems == []


def _endpoints(kind: str, *found: str) -> Object:
    meta: Object = {"namespace": "web", "name": "s", "labels": {"kubernetes.io/service-name": "s"}}
    if kind == "Endpoints":
        return {"kind": kind, "metadata": meta, "subsets": [{"addresses": [{"ip": each} for each in found]}]}
    endpoints = [{"addresses": [each]} for each in found]
    return {"kind": kind, "metadata": meta, "addressType": "IPv4", "endpoints": endpoints}


async def test_a_pod_states_what_a_quota_limits() -> None:
    async with _limited(_pod("bare"), _pod("stated", "1"), requests__cpu="4") as (world, plane):
        assert _below(world, PODS) == {"stated"}
        assert _is_refused(plane, "bare", r"containers\[0\]\.resources\.requests\.cpu: must be specified")


async def test_resizes_one_by_one_stay_within_the_quota() -> None:
    async with _limited(_pod("app", "100m", count=10), requests__cpu="4") as (world, plane):
        for number in range(10):
            _resize(plane, "app", number, "3900m")
            await asyncio.sleep(SOON_S)
        # The others of the pod have 900m: there is room for 3100m.
        assert _requested(world, "app") == ["100m"] * 10
        assert _is_refused(plane, "app", r"requests\.cpu .* of 4 ")
        for number in range(10):
            _resize(plane, "app", number, "400m")
        await asyncio.sleep(SOON_S)
        assert _requested(world, "app") == ["400m"] * 10


async def test_a_resize_that_gives_back_makes_room_for_itself() -> None:
    """What the kubelet still has counts: so the growth of one container waits for the other's to be less."""
    async with _limited(_pod("app", "100m", count=3), requests__cpu="1") as (world, plane):
        _resize(plane, "app", 0, "600m")
        await asyncio.sleep(SOON_S)
        _report_allocated(world, "app", ["600m", "100m", "100m"])
        value = plane.storage.get(PODS, "web", "app")
        for number, cpu in enumerate(("100m", "600m")):
            value["spec"]["containers"][number]["resources"] = {"requests": {"cpu": cpu}}
        plane.storage.put(PODS, value)
        await asyncio.sleep(SOON_S)
        assert _requested(world, "app") == ["100m", "100m", "100m"]
        _report_allocated(world, "app", ["100m", "100m", "100m"])
        await asyncio.sleep(SOON_S)
        assert _requested(world, "app") == ["100m", "600m", "100m"]


def _report_allocated(world: World, name: str, cpus: list[str]) -> None:
    """As the kubelet does that has carried out a resize."""
    value = world.super.storage.get(PODS, "red-web", name)
    value["status"] = {
        **value.get("status", {}),
        "containerStatuses": [
            {
                "name": f"c{number}",
                "resources": {"requests": {"cpu": cpu}},
                "allocatedResources": {"cpu": cpu},
            }
            for number, cpu in enumerate(cpus)
        ],
    }
    world.super.cluster.update(PODS, value, "status")


async def test_changes_at_once_are_judged_together() -> None:
    async with _limited(_pod("app", "1"), requests__cpu="4") as (world, plane):
        value = plane.storage.get(PODS, "web", "app")
        value["spec"]["containers"][0] |= {"image": "other", "resources": {"requests": {"cpu": "400"}}}
        plane.storage.put(PODS, value)
        await asyncio.sleep(40)
        assert _requested(world, "app") == ["1"]
        assert _is_refused(plane, "app", r"requests\.cpu 399 more, used 1 of 4 ")
        # The image is no part of what is refused.
        assert world.super.storage.get(PODS, "red-web", "app")["spec"]["containers"][0]["image"] == "other"
        plane.storage.delete(PODS, "web", "app")
        await asyncio.sleep(10)
        plane.cluster.create(PODS, _pod("next", "4"))
        await asyncio.sleep(SOON_S)
        assert _below(world, PODS) == {"next"}


@pytest.mark.parametrize(
    ("resource", "name", "make"),
    [
        (CONFIG_MAPS, "count/configmaps", objects.config_map),
        (CONFIG_MAPS, "configmaps", objects.config_map),
        (SERVICES, "count/services", lambda name: objects.service(name, ports=[{"port": 80}])),
        (PODS, "count/pods", _pod),
    ],
    ids=["count/configmaps", "configmaps", "count/services", "count/pods"],
)
async def test_objects_are_counted(resource: Resource, name: str, make: Any) -> None:
    world = World({"one": "red", "two": "blue"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane)
        await asyncio.sleep(20)
        # Kubernetes makes some in each of a tenant's Namespaces.
        found = world.super.objects(resource).values()
        there = sum(annotations_of(each).get(keys.CLUSTER) == "red" for each in found)
        _set_quota(world, **{name: there + 3})
        await asyncio.sleep(5)
        kept = _below(world, resource)
        for number in range(10):
            plane.cluster.create(resource, make(f"o-{number}"))
        await asyncio.sleep(40)
        down = _below(world, resource) - kept
        assert len(down) == 3
        refused = {f"o-{number}" for number in range(10)} - down
        of_count = name if name.startswith("count/") else f"count/{name}"
        assert all(_is_refused(plane, each, f"tenant's quota: {of_count} 1 more") for each in refused)
        plane.storage.delete(resource, "web", min(down))
        await asyncio.sleep(10)
        assert len(_below(world, resource) - kept) == 3


async def test_namespaces_have_a_limit_without_a_policy() -> None:
    world = World({"one": "red"})
    async with running(world):
        plane = world.tenants["one"]
        for number in range(230):
            plane.cluster.create(NAMESPACES, {"metadata": {"name": f"n-{number}"}})
        await asyncio.sleep(60)
        assert sum(name.startswith("red-") for _, name in world.super.objects(NAMESPACES)) == 200
        assert any(
            "count/namespaces 1 more, used 200 of 200" in each["message"]
            for each in plane.objects(EVENTS).values()
        )


async def test_what_a_tenant_has_below_is_limited_in_bytes() -> None:
    async with _limited(
        *(objects.config_map(f"c-{number}", "x" * 30_000) for number in range(5)),
        **{"vcnode.io/stored-bytes": "110k"},
    ) as (world, plane):
        down = {each for each in _below(world, CONFIG_MAPS) if each.startswith("c-")}
        assert len(down) == 3
        refused = {f"c-{number}" for number in range(5)} - down
        assert all(_is_refused(plane, each, r"vcnode\.io/stored-bytes .* of 110000 ") for each in refused)
        # What is there may be written anew, and become smaller.
        for name, text in zip(sorted(down), ("y" * 30_000, "", ""), strict=True):
            value = plane.storage.get(CONFIG_MAPS, "web", name)
            value["data"] = {"text": text}
            plane.storage.put(CONFIG_MAPS, value)
        await asyncio.sleep(40)
        assert {each for each in _below(world, CONFIG_MAPS) if each.startswith("c-")} == down | refused


async def test_what_the_super_cluster_refuses_takes_no_room() -> None:
    async with _limited(requests__cpu="4") as (world, plane):
        denied = ApiError(Status(code=403, reason="Forbidden", message="denied"))

        def deny(path: str) -> None:
            if path.endswith("/pods"):
                raise denied

        world.on_write = deny
        plane.cluster.create(PODS, _pod("denied", "4"))
        await asyncio.sleep(3)
        world.on_write = lambda _: None
        # The denied one is still there, and is not tried again before the next one comes.
        plane.cluster.create(PODS, _pod("next", "4"))
        await asyncio.sleep(40)
        assert _below(world, PODS) == {"next"}


@contextlib.asynccontextmanager
async def _in_backoff() -> AsyncIterator[tuple[World, Plane, list[str]]]:
    """A world whose pod `tried` was perhaps created, for all that is known; and the requests for that."""
    async with _limited() as (world, plane):
        failed, tried = ApiError(Status(code=500, reason="InternalError", message="failed")), list[str]()

        def fail(path: str) -> None:
            if path.endswith("/pods"):
                tried.append(path)
                raise failed

        world.on_write = fail
        plane.cluster.create(PODS, _pod("tried", "1"))
        await asyncio.sleep(60)
        world.on_write = lambda path: tried.append(path) if path.endswith("/pods") else None
        yield world, plane, tried


async def test_a_pod_in_backoff_holds_up_no_others() -> None:
    """What it takes is summed as soon as a policy limits that, and not when it is tried again."""
    async with _in_backoff() as (world, plane, tried):
        count = len(tried)
        _set_quota(world, requests__cpu="4")
        plane.cluster.create(PODS, _pod("next", "3"))
        plane.cluster.create(PODS, _pod("more", "3"))
        await asyncio.sleep(SOON_S)
        assert len(tried) == count + 1, "the failed one still waits"
        (next_name,) = _below(world, PODS)
        await asyncio.sleep(60)
        assert _below(world, PODS) == {next_name, "tried"}


async def test_what_waits_for_a_count_goes_down_after_it() -> None:
    async with _in_backoff() as (world, plane, _):
        session = sessions_of(world)["red"]
        # No patrol comes with it.
        assert session.change_policy(SyncPolicy(quota=(("requests.cpu", 4 * 10**9),)))
        await session.count_quota()
        plane.cluster.create(PODS, _pod("next", "3"))
        await asyncio.sleep(SOON_S)
        assert _below(world, PODS) == set()
        value = plane.storage.get(PODS, "web", "tried")
        value["spec"]["containers"][0]["image"] = "other"
        plane.storage.put(PODS, value)
        await asyncio.sleep(2)
        assert _below(world, PODS) == {"next", "tried"}


async def test_a_tenant_without_memory_reads_so_on_its_virtual_cluster() -> None:
    world = World({"one": "red", "two": "blue"}, max_cache_bytes=1 << 20)
    async with running(world):
        large = [objects.config_map(f"c-{number}", "x" * 300_000) for number in range(6)]
        furnish(world.tenants["one"], *large)
        furnish(world.tenants["two"], objects.config_map("own"))
        await asyncio.sleep(30)
        conditions = {name: _conditions(world, name) for name in ("one", "two")}
        assert conditions["two"] == {}
        assert list(conditions["one"]) == ["OutOfMemory"]
        assert conditions["one"]["OutOfMemory"] == "the objects of this API server take more than 1 MiB"
        for number in range(6):
            world.tenants["one"].storage.delete(CONFIG_MAPS, "web", f"c-{number}")
        await asyncio.sleep(180)
        assert _conditions(world, "one") == {}
        assert world.problems == []


def _conditions(world: World, name: str) -> dict[str, str]:
    cluster = world.super.storage.get(VIRTUAL_CLUSTERS, "tenants", name)
    found = cluster["status"].get("conditions") or ()
    return {each["reason"]: each["message"] for each in found if each["status"] == "True"}
