# SPDX-License-Identifier: Apache-2.0
"""Objects that a whole syncer cannot decode, or cannot report: unknown is not deleted."""

import asyncio

import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    VIRTUAL_CLUSTERS,
    Key,
    Resource,
    Status,
)
from tests.unit.syncer import objects
from tests.unit.syncer.planes import TOO_LARGE, TOO_MANY_LABELS, Plane
from tests.unit.syncer.worlds import EVENTS, World, furnish, reports_of, running, synced_tenant

pytestmark = pytest.mark.asyncio


def _label(plane: Plane, resource: Resource, where: Key, labels: dict[str, str]) -> None:
    value = plane.storage.get(resource, *where)
    value["metadata"]["labels"] = labels
    plane.storage.replace(resource, value)


def _uid(plane: Plane, resource: Resource, where: Key) -> str:
    return str(plane.storage.get(resource, *where)["metadata"]["uid"])


@pytest.mark.parametrize(
    ("resource", "where", "super_where"),
    [(PODS, ("web", "app"), ("red-web", "app")), (NAMESPACES, ("", "web"), ("", "red-web"))],
    ids=["pod", "namespace"],
)
async def test_an_object_that_grows_too_large_stays(resource: Resource, where: Key, super_where: Key) -> None:
    world = World({"one": "red", "two": "green"})
    async with running(world):
        plane, other = world.tenants.values()
        for each in (plane, other):
            furnish(each, objects.pod("app"))
        await asyncio.sleep(20)
        uid = _uid(world.super, resource, super_where)
        _label(plane, resource, where, TOO_MANY_LABELS)
        # Also a list, and a restart, show it so.
        await asyncio.sleep(70)
        await world.kill_syncer()
        world.start_syncer()
        await asyncio.sleep(120)
        assert _uid(world.super, resource, super_where) == uid
        assert _uid(world.super, PODS, ("red-web", "app")) == uid or resource == NAMESPACES
        assert ("SyncRefused", f"object: {TOO_LARGE}") in reports_of(plane, where[1])
        assert "deletionTimestamp" not in plane.storage.get(resource, *where)["metadata"]
        other.cluster.create(PODS, objects.pod("later"))
        await asyncio.sleep(5)
        assert ("green-web", "later") in world.super.objects(PODS)
        # It becomes small again: what it has then goes down.
        _label(plane, resource, where, {"team": "blue"})
        await asyncio.sleep(20)
        assert _uid(world.super, resource, super_where) == uid
        assert "blue" in str(world.super.storage.get(resource, *super_where)["metadata"]["labels"])
        assert world.status()["one"]["notSynced"] == []


async def test_the_end_of_what_was_too_large_goes_down() -> None:
    async with synced_tenant(objects.pod("app")) as (world, plane):
        _label(plane, PODS, ("web", "app"), TOO_MANY_LABELS)
        await asyncio.sleep(20)
        plane.storage.delete(PODS, "web", "app")
        await asyncio.sleep(5)
        assert ("red-web", "app") not in world.super.objects(PODS)
        assert world.status()["one"]["notSynced"] == []


async def test_what_is_created_too_large_is_reported() -> None:
    world = World({"one": "red"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane)
        plane.cluster.create(PODS, objects.pod("large"))
        _label(plane, PODS, ("web", "large"), TOO_MANY_LABELS)
        await asyncio.sleep(20)
        assert ("SyncRefused", f"object: {TOO_LARGE}") in reports_of(plane, "large")


@pytest.mark.parametrize(
    ("resource", "where", "super_where"),
    [(PODS, ("web", "app"), ("red-web", "app")), (NAMESPACES, ("", "web"), ("", "red-web"))],
    ids=["pod", "namespace"],
)
async def test_a_super_object_that_is_too_large_is_kept(
    resource: Resource, where: Key, super_where: Key
) -> None:
    """Somebody's webhook adds to it; the tenant's object must not go for that."""
    async with synced_tenant(objects.pod("app")) as (world, plane):
        uids = _uid(plane, resource, where), _uid(world.super, resource, super_where)
        labels = world.super.storage.get(resource, *super_where)["metadata"].get("labels") or {}
        _label(world.super, resource, super_where, labels | TOO_MANY_LABELS)
        await asyncio.sleep(120)
        assert (_uid(plane, resource, where), _uid(world.super, resource, super_where)) == uids
        assert _uid(plane, PODS, ("web", "app"))
        assert [each for each, _ in reports_of(plane, where[1])] == ["SyncWaiting"]
        _label(world.super, resource, super_where, labels)
        await asyncio.sleep(20)
        assert (_uid(plane, resource, where), _uid(world.super, resource, super_where)) == uids
        assert world.status()["one"]["notSynced"] == []


async def test_a_report_that_was_not_written_is_tried_again() -> None:
    """The condition of the first try is refused: the next try writes it, and the Event."""
    async with synced_tenant() as (world, plane):
        pod = objects.pod("refused", hostNetwork=True)
        failed: list[str] = []

        def fail_once(path: str) -> None:
            if path.endswith("/refused/status") and not failed:
                failed.append(path)
                raise ApiError(Status(message="an error on demand", code=500))

        world.on_write = fail_once
        plane.cluster.create(PODS, pod)
        await asyncio.sleep(20)
        assert failed
        assert [each for each, _ in reports_of(plane, "refused")] == ["SyncRefused"]
        conditions = plane.storage.get(PODS, "web", "refused")["status"]["conditions"]
        assert [(each["type"], each["status"]) for each in conditions] == [("vcnode.io/Synced", "False")]


@pytest.mark.parametrize(
    ("code", "message", "is_reported"),
    [
        (413, "Request entity too large: limit is 3145728", True),
        (500, "etcdserver: request is too large", True),
        (
            500,
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)",
            True,
        ),
        (500, "etcdserver: request timed out", False),
        (503, "etcdserver: request is too large", False),
    ],
)
async def test_a_refusal_for_the_size_is_reported(code: int, message: str, *, is_reported: bool) -> None:
    """etcd's refusal comes with 500, as do errors that pass."""
    async with synced_tenant() as (world, plane):

        def refuse(path: str) -> None:
            if path == "/api/v1/namespaces/red-web/configmaps":
                raise ApiError(Status(message=message, code=code))

        world.on_write = refuse
        plane.cluster.create(CONFIG_MAPS, objects.config_map("large"))
        await asyncio.sleep(20)
        assert reports_of(plane, "large") == ({("FailedCreate", message)} if is_reported else set())


async def test_what_was_refused_and_is_deleted_is_forgotten() -> None:
    async with synced_tenant(objects.pod("refused", hostNetwork=True)) as (world, plane):
        assert len(world.status()["one"]["notSynced"]) == 1
        plane.storage.delete(PODS, "web", "refused")
        await asyncio.sleep(5)
        assert world.status()["one"]["notSynced"] == []


@pytest.mark.parametrize("labels", [{}, TOO_MANY_LABELS], ids=["readable", "unreadable"])
async def test_the_super_cluster_is_no_tenant(labels: dict[str, str]) -> None:
    """Nothing is written for one whose kubeconfig leads there by another address."""
    world = World({"one": "red", "two": "green"})
    plane = world.tenants["one"]
    plane.cluster = world.super.cluster
    _label(world.super, NAMESPACES, ("", "kube-system"), labels)
    async with running(world):
        furnish(world.tenants["two"], objects.pod("app"))
        await asyncio.sleep(3)
        page = world.status()["one"]
        assert (page["phase"], page["problem"]["reason"]) == ("Unusable", "CredentialsUnusable")
        assert [each for _, each in world.super.objects(NAMESPACES) if each.startswith("red-")] == []
        assert ("green-web", "app") in world.super.objects(PODS)
        found = world.super.storage.get(VIRTUAL_CLUSTERS, "tenants", "one")["status"]["conditions"]
        assert [(each["reason"], each["status"]) for each in found] == [("CredentialsUnusable", "True")]


async def test_an_unreadable_super_service_stops_no_pod() -> None:
    """Pods have Services as variables. One that cannot be read is left out, and does not outlast its end."""
    spec = {"selector": {"app": "s"}, "ports": [{"port": 80, "protocol": "TCP"}]}
    async with synced_tenant(objects.service("s", **spec)) as (world, plane):
        labels = world.super.storage.get(SERVICES, "red-web", "s")["metadata"]["labels"]
        _label(world.super, SERVICES, ("red-web", "s"), labels | TOO_MANY_LABELS)
        await asyncio.sleep(5)
        plane.cluster.create(PODS, objects.pod("later"))
        await asyncio.sleep(5)
        assert ("red-web", "later") in world.super.objects(PODS)
        plane.storage.delete(SERVICES, "web", "s")
        world.super.storage.delete(SERVICES, "red-web", "s")
        await asyncio.sleep(5)
        plane.cluster.create(PODS, objects.pod("last"))
        await asyncio.sleep(5)
        assert ("red-web", "last") in world.super.objects(PODS)


async def test_the_vnode_of_what_was_unreadable_goes() -> None:
    """What counts pods hears of the end of one that could not be read."""
    async with synced_tenant(objects.pod("app")) as (world, plane):
        assert len(plane.objects(NODES)) == 1
        labels = world.super.storage.get(PODS, "red-web", "app")["metadata"]["labels"]
        _label(world.super, PODS, ("red-web", "app"), labels | TOO_MANY_LABELS)
        await asyncio.sleep(20)
        world.super.storage.delete(PODS, "red-web", "app")
        await asyncio.sleep(1_000)
        assert ("web", "app") not in plane.objects(PODS)
        assert plane.objects(NODES) == {}


async def test_an_object_of_a_wrong_shape_is_reported_with_the_field() -> None:
    """Once, without a traceback. Others go on, and so does this one once it is mended."""
    async with synced_tenant() as (world, plane):
        value = {"metadata": {"namespace": "web", "name": "c"}, "data": {"k": 1}}
        plane.storage.create(CONFIG_MAPS, value)
        await asyncio.sleep(100)
        events = [each for each in plane.objects(EVENTS).values() if each["involvedObject"]["name"] == "c"]
        assert [(each["reason"], each["message"]) for each in events] == [
            ("SyncRefused", "data[...]: Expected `str`, got `int`")
        ]
        assert world.service is not None
        failures = world.service._metrics.failures  # noqa: SLF001 - no page has them by cause
        assert failures.labels("unexpected").value == 0
        plane.storage.put(CONFIG_MAPS, plane.storage.get(CONFIG_MAPS, "web", "c") | {"data": {"k": "v"}})
        await asyncio.sleep(5)
        assert world.super.storage.get(CONFIG_MAPS, "red-web", "c")["data"] == {"k": "v"}
