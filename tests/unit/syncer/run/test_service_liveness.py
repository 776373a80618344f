# SPDX-License-Identifier: Apache-2.0
"""What fails for long is tried ever more seldom, and a tenant whose API server hangs holds up no other."""

import asyncio
from collections.abc import Callable

import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    VIRTUAL_CLUSTERS,
    Resource,
    Status,
)
from syncer.tenant.session import TenantSession
from syncer.work.patrol import Patrol
from tests.unit.syncer import objects
from tests.unit.syncer.planes import Plane
from tests.unit.syncer.worlds import World, furnish, running, synced_tenant

pytestmark = pytest.mark.asyncio

# `_add_refused_pods` for as many tenants takes all places of the engine.
HANGING = ("a", "b", "c", "d")


def _make_too_large(plane: Plane, resource: Resource, namespace: str, name: str) -> None:
    found = plane.storage.get(resource, namespace, name)
    too_many = {f"label-{number}": "x" for number in range(1_200)}
    found["metadata"]["labels"] = {**found["metadata"].get("labels", {}), **too_many}
    plane.storage.put(resource, found)


def _count(path: str, found: list[str]) -> Callable[[str], None]:
    def note(written: str) -> None:
        if written.endswith(path):
            found.append(written)

    return note


def _conditions(plane: Plane) -> list[tuple[str, str, str]]:
    pod = plane.storage.get(PODS, "web", "p")
    found = [each for each in pod["status"]["conditions"] if each["type"] == "vcnode.io/Synced"]
    return [(each["status"], each["reason"], each["message"]) for each in found]


@pytest.mark.parametrize("is_changing", [False, True])
async def test_a_refused_pod_is_reported_at_a_bounded_rate(is_changing: bool) -> None:
    """Each report changes the pod, which is planned at once: two reports at each try would never rest."""
    async with synced_tenant() as (world, plane):
        creations: list[str] = []
        reports: list[str] = []

        def refuse(path: str) -> None:
            _count("/pods/p/status", reports)(path)
            if path.endswith("/red-web/pods"):
                creations.append(path)
                text = f"denied, request {len(creations)}" if is_changing else "exceeded quota"
                raise ApiError(Status(code=403, reason="Forbidden", message=text))

        world.on_write = refuse
        plane.cluster.create(PODS, objects.pod("p"))
        await asyncio.sleep(100)
        assert len(creations) < 25
        assert len(reports) == (3 if is_changing else 1)
        [(status, reason, _)] = _conditions(plane)
        assert (status, reason) == ("False", "FailedCreate")
        world.on_write = lambda _: None
        await asyncio.sleep(40)
        assert _conditions(plane) == [("True", "Synced", "")]


async def test_a_pod_without_its_vnode_is_reported_once() -> None:
    world = World({"one": "red"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane)
        for name in ("node-0", "node-1"):
            plane.cluster.create(NODES, {"metadata": {"name": name}})
        await asyncio.sleep(20)
        reports: list[str] = []
        world.on_write = _count("/pods/p/status", reports)
        plane.cluster.create(PODS, objects.pod("p"))
        await asyncio.sleep(100)
        assert len(reports) == 1
        assert [each[:2] for each in _conditions(plane)] == [("False", "SyncConflict")]


async def test_reports_that_hang_hold_up_no_other_tenant() -> None:
    """The report of a refusal waits for the tenant's API server, as other writes to it do."""
    world = World({name: f"key-{name}" for name in ("one", *HANGING)})
    async with running(world):
        for plane in world.tenants.values():
            furnish(plane)
        await asyncio.sleep(20)
        for name in HANGING:
            plane = world.tenants[name]
            plane.answers.clear()
            for number in range(20):
                plane.cluster.create(PODS, objects.pod(f"p-{number}", hostNetwork=True))
        await asyncio.sleep(1)
        world.tenants["one"].cluster.create(CONFIG_MAPS, objects.config_map("c"))
        await asyncio.sleep(1)
        assert ("key-one-web", "c") in world.super.objects(CONFIG_MAPS)


async def test_an_object_that_grows_too_large_is_not_deleted() -> None:
    """The object exists and does not decode: its super object stays, and an Event has the reason."""
    async with synced_tenant(objects.config_map("c"), objects.pod("p")) as (world, plane):
        before = {each: found["metadata"]["uid"] for each, found in world.super.objects(PODS).items()}
        assert before.keys() == {("red-web", "p")}
        for resource, namespace, name in ((NAMESPACES, "", "web"), (PODS, "web", "p")):
            _make_too_large(plane, resource, namespace, name)
        await asyncio.sleep(100)
        after = {each: found["metadata"]["uid"] for each, found in world.super.objects(PODS).items()}
        assert (before, after) == (after, before)
        assert ("red-web", "c") in world.super.objects(CONFIG_MAPS)
        reports = {
            (each["kind"], each["object"], each["reason"]) for each in world.status()["one"]["notSynced"]
        }
        text = "SyncRefused: object: too large: metadata.labels has more than 1000 entries"
        assert reports == {("Namespace", "web", text), ("Pod", "web/p", text)}
        plane.storage.delete(PODS, "web", "p")
        await asyncio.sleep(60)
        assert world.super.objects(PODS) == {}
        assert world.status()["one"]["notSyncedCount"] == 1
        assert world.status()["one"]["processorSeconds"] > 0


async def test_a_super_object_that_grows_too_large_is_not_lost() -> None:
    """The tenant's pod stays, and so do its tokens, until the super object is gone."""
    async with synced_tenant(objects.pod_with_token("p", 3600)) as (world, plane):
        uid = plane.storage.get(PODS, "web", "p")["metadata"]["uid"]
        secrets = world.super.objects(SECRETS).keys()
        assert [namespace for namespace, _ in secrets] == ["red-web"]
        _make_too_large(world.super, PODS, "red-web", "p")
        await asyncio.sleep(100)
        assert plane.storage.get(PODS, "web", "p")["metadata"]["uid"] == uid
        assert world.super.objects(SECRETS).keys() == secrets
        world.super.storage.delete(PODS, "red-web", "p")
        await asyncio.sleep(60)
        assert plane.objects(PODS) == {}


async def test_a_tenant_with_too_many_objects_is_not_synced() -> None:
    """Its VirtualCluster has the reason, what is there stays, and others go on."""
    world = World({"one": "red", "two": "green"}, max_cache_bytes=1 << 20)
    async with running(world):
        for plane in world.tenants.values():
            furnish(plane)
        plane = world.tenants["one"]
        plane.cluster.create(CONFIG_MAPS, objects.config_map("first", "first"))
        await asyncio.sleep(20)
        for number in range(40):
            too_much = objects.config_map(f"large-{number}", "x" * 100_000)
            plane.cluster.create(CONFIG_MAPS, too_much)
            await asyncio.sleep(1)
        await asyncio.sleep(120)
        world.tenants["two"].cluster.create(CONFIG_MAPS, objects.config_map("later", "later"))
        await asyncio.sleep(20)
        assert world.super.storage.get(CONFIG_MAPS, "green-web", "later")["data"] == {"text": "later"}
        assert world.super.storage.get(CONFIG_MAPS, "red-web", "first")["data"] == {"text": "first"}
        copies = [name for _, name in world.super.objects(CONFIG_MAPS) if name.startswith("large-")]
        assert 5 <= len(copies) <= 12
        found = world.super.storage.get(VIRTUAL_CLUSTERS, "tenants", "one")
        assert "take more than 1 MiB" in str(found["status"]["conditions"])


async def test_a_tenant_whose_task_fails_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"one": "red", "two": "green"})
    check = Patrol.check
    failed: list[TenantSession] = []
    patrolled: list[str] = []

    async def fail_once(self: Patrol, session: TenantSession) -> int:
        if session.tenant.key == "red" and not failed:
            failed.append(session)
            raise ValueError("an object that no code expects")
        patrolled.append(session.tenant.key)
        return await check(self, session)

    monkeypatch.setattr(Patrol, "check", fail_once)
    async with running(world):
        await asyncio.sleep(20)
        assert [each.deletion_judge.has_patrolled for each in failed] == [False]
        assert set(patrolled) == {"green"}
        await asyncio.sleep(40)
        assert set(patrolled) == {"red", "green"}
