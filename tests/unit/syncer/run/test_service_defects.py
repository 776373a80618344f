# SPDX-License-Identifier: Apache-2.0
"""Defects of the Go syncer that only a whole syncer can have: docs/spec/syncer-defects.md has them all."""

import asyncio

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, SECRETS, SERVICES
from devkit.kube.storage import Object
from syncer.kinds.persistent_volume import KIND as VOLUME
from tenancy import keys
from tests.unit.syncer import objects
from tests.unit.syncer.planes import annotations_of
from tests.unit.syncer.worlds import CLAIMS, World, furnish, running, synced_tenant

pytestmark = pytest.mark.asyncio

TENANTS = {"one": "red", "two": "green"}


async def test_a_recreated_tenant_is_another_tenant() -> None:
    """Nothing is written into its former namespaces: they go, and the new one gets its own."""
    async with synced_tenant(objects.config_map("c", "former")) as (world, _):
        former = world.super.storage.get(NAMESPACES, "", "red-web")["metadata"]["uid"]
        plane = world.make_tenant("one")
        furnish(plane, objects.config_map("c", plane.name))
        await asyncio.sleep(200)
        found = world.super.storage.get(NAMESPACES, "", "red-web")
        assert found["metadata"]["uid"] != former
        assert annotations_of(found)[keys.VC_UID] == world.uids["one"]
        assert world.super.storage.get(CONFIG_MAPS, "red-web", "c")["data"] == {"text": plane.name}
        assert world.problems == []


async def test_a_lost_answer_of_a_creation_is_adopted() -> None:
    """The object is found in the way, read, and recognised: nothing is tried for ever."""
    async with synced_tenant() as (world, plane):
        world.super.flows.clear()
        world.super.lost = 1
        plane.cluster.create(CONFIG_MAPS, objects.config_map("later"))
        await asyncio.sleep(5)
        assert world.status()["one"]["queue"] == {"ready": 0, "delayed": 0, "inFlight": 0}
        written = world.super.storage.written(CONFIG_MAPS)
        world.super.flows.set()
        await asyncio.sleep(20)
        assert world.super.storage.written(CONFIG_MAPS) == written
        assert world.super.storage.get(CONFIG_MAPS, "red-web", "later")["data"] == {"text": "x"}


async def test_a_deletion_that_a_watch_missed_is_carried_out() -> None:
    """Only a list shows it: of a tenant's object, and of a node of the super cluster."""
    made = [objects.config_map(name) for name in ("c", "c-0", "c-1", "c-2", "c-3")]
    async with synced_tenant(*made) as (world, plane):
        for each in (plane, world.super):
            each.flows.clear()
        plane.cluster.delete(CONFIG_MAPS, "web", "c")
        plane.cluster.create(CONFIG_MAPS, objects.config_map("last"))
        world.super.cluster.delete(NODES, "", "node-1")
        for each in (plane, world.super):
            each.storage.bump(100)
            each.storage.compact()
            each.flows.set()
        await asyncio.sleep(200)
        assert ("red-web", "c") not in world.super.objects(CONFIG_MAPS)
        assert ("red-web", "last") in world.super.objects(CONFIG_MAPS)
        assert world.status()["one"]["queue"] == {"ready": 0, "delayed": 0, "inFlight": 0}


async def test_a_pod_costs_no_list() -> None:
    async with synced_tenant() as (world, plane):
        world.reads.clear()
        for number in range(5):
            plane.cluster.create(PODS, objects.pod(f"p-{number}"))
        await asyncio.sleep(5)
        assert len(world.super.objects(PODS)) == 5
        lists = ("/pods", "/secrets", "/nodes", "/configmaps", "/serviceaccounts")
        assert [path for path in world.reads if path.endswith(lists)] == []


async def test_volumes_of_one_name_do_not_hide_each_other() -> None:
    """One tenant has a volume of its own of the name of another's, and each keeps its own."""
    world = World(TENANTS)
    async with running(world):
        one, two = world.tenants.values()
        own: Object = {"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "7Gi"}}}
        two.cluster.create(VOLUME.resource, own)
        for plane in (one, two):
            furnish(plane)
        one.cluster.create(CLAIMS, objects.claim("data", volumeName="v"))
        await asyncio.sleep(20)
        found = world.super.storage.get(CLAIMS, "red-web", "data")
        ref = {"namespace": "red-web", "name": "data", "uid": found["metadata"]["uid"]}
        spec = {"capacity": {"storage": "1Gi"}, "claimRef": ref, "hostPath": {"path": "/secret"}}
        made = {"metadata": {"name": "v"}, "spec": spec}
        world.super.cluster.create(VOLUME.resource, made)
        made = world.super.storage.get(VOLUME.resource, "", "v")
        made["status"] = {"phase": "Bound"}
        world.super.storage.put(VOLUME.resource, made)
        await asyncio.sleep(20)
        assert one.storage.get(VOLUME.resource, "", "v")["spec"]["capacity"] == {"storage": "1Gi"}
        assert two.storage.get(VOLUME.resource, "", "v")["spec"] == own["spec"]
        # One that the tenant deletes comes again, whatever the other has.
        one.cluster.delete(VOLUME.resource, "", "v")
        await asyncio.sleep(70)
        assert one.storage.get(VOLUME.resource, "", "v")["spec"]["capacity"] == {"storage": "1Gi"}
        assert "/secret" not in str(one.storage.get(VOLUME.resource, "", "v"))


def _lose_namespace(world: World, path_end: str) -> list[str]:
    """Have `red-web` change hands at the next write to such a path; returns the paths of those after."""
    later: list[str] = []

    def note(path: str) -> None:
        found = world.super.storage.get(NAMESPACES, "", "red-web")
        if not found["metadata"].get("annotations"):
            later.append(path)
        elif path.endswith(path_end):
            found["metadata"]["annotations"] = {}
            world.super.cluster.update(NAMESPACES, found)

    world.on_write = note
    return later


async def test_ownership_is_asked_again_before_each_write() -> None:
    """A super namespace changes hands between a plan's actions: what follows is not sent."""
    async with synced_tenant(objects.config_map("c"), objects.pod("p")) as (world, plane):
        later = _lose_namespace(world, "/red-web/pods/p")
        pod = plane.storage.get(PODS, "web", "p")
        pod["metadata"]["annotations"] = {"first": "this"}
        pod["spec"]["ephemeralContainers"] = [{"name": "then-this", "image": "i"}]
        plane.storage.put(PODS, pod)
        await asyncio.sleep(20)
        found = world.super.storage.get(PODS, "red-web", "p")
        assert found["metadata"]["annotations"]["first"] == "this"
        assert "ephemeralContainers" not in found["spec"]
        assert [path for path in later if "red-web" in path] == []
        assert world.problems == []


async def test_ownership_is_asked_again_before_a_secret_of_tokens() -> None:
    """The same while the tenant binds a pod and issues its token."""
    async with synced_tenant(objects.config_map("c")) as (world, plane):
        later = _lose_namespace(world, "/pods/p/binding")
        plane.cluster.create(PODS, objects.pod_with_token("p", 3600))
        await asyncio.sleep(20)
        assert ("red-web", "p") in world.super.objects(PODS)
        assert [where for where in world.super.objects(SECRETS) if where[0] == "red-web"] == []
        assert [path for path in later if "red-web" in path] == []
        assert world.problems == []


@pytest.mark.parametrize("is_late", [True, False], ids=["events-after-the-answer", "events-before-it"])
async def test_an_edit_just_before_a_patch_is_repaired(is_late: bool) -> None:
    """A patch is answered with what others wrote before it, whenever their events come."""
    made = objects.config_map("c") | {"data": {"text": "first", "other": "own"}}
    async with synced_tenant(made) as (world, plane):

        def write_first(path: str) -> None:
            if path.endswith("/red-web/configmaps/c"):
                world.on_write = lambda _: None
                found = world.super.storage.get(CONFIG_MAPS, "red-web", "c")
                found["data"]["other"] = "x"
                world.super.cluster.update(CONFIG_MAPS, found)
                if is_late:
                    world.super.flows.clear()

        world.on_write = write_first
        later = {"text": "later", "other": "own"}
        plane.cluster.update(CONFIG_MAPS, objects.config_map("c") | {"data": later})
        await asyncio.sleep(5)
        assert world.super.flows.is_set() is not is_late
        world.super.flows.set()
        await asyncio.sleep(20)
        assert world.super.storage.get(CONFIG_MAPS, "red-web", "c")["data"] == later


async def test_what_others_write_into_an_object_stays() -> None:
    """A load balancer's controller below writes labels and its address: no second writer takes them away."""
    service = objects.service("s", ports=[{"port": 80}])
    service["metadata"]["labels"] = {"own": "x", "late": "y"}
    async with synced_tenant(service) as (world, plane):
        found = world.super.storage.get(SERVICES, "red-web", "s")
        found["metadata"]["labels"]["implementation"] = "kube-vip"
        found["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"] = "192.0.2.7"
        found["spec"]["loadBalancerIP"] = "192.0.2.7"
        world.super.cluster.update(SERVICES, found, manager="kube-vip")
        await asyncio.sleep(20)
        mine = plane.storage.get(SERVICES, "web", "s")
        del mine["metadata"]["labels"]["late"]
        plane.cluster.update(SERVICES, mine)
        await asyncio.sleep(20)
        version = world.super.storage.get(SERVICES, "red-web", "s")["metadata"]["resourceVersion"]
        await asyncio.sleep(200)
        found = world.super.storage.get(SERVICES, "red-web", "s")
        assert found["metadata"]["resourceVersion"] == version
        labels = {key: each for key, each in found["metadata"]["labels"].items() if "/" not in key}
        assert labels == {"own": "x", "implementation": "kube-vip"}
        assert found["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"] == "192.0.2.7"
        assert found["spec"]["loadBalancerIP"] == "192.0.2.7"


async def test_a_tenants_write_just_before_a_patch_goes_down() -> None:
    """As above, with the tenant's object and its status."""
    requests = {"storage": "1Gi"}
    made = objects.claim("v", accessModes=["ReadWriteOnce"], resources={"requests": requests})
    async with synced_tenant(made) as (world, plane):

        def write_first(path: str) -> None:
            if path.endswith("/web/persistentvolumeclaims/v/status"):
                world.on_write = lambda _: None
                found = plane.storage.get(CLAIMS, "web", "v")
                found["metadata"]["labels"] = {"own": "x"}
                plane.cluster.update(CLAIMS, found)
                plane.flows.clear()

        world.on_write = write_first
        found = world.super.storage.get(CLAIMS, "red-web", "v")
        status = {"phase": "Pending", "conditions": [{"type": "Resizing", "status": "True"}]}
        world.super.cluster.update(CLAIMS, {**found, "status": status}, "status")
        await asyncio.sleep(5)
        assert not plane.flows.is_set()
        plane.flows.set()
        await asyncio.sleep(20)
        assert plane.storage.get(CLAIMS, "web", "v")["status"] == status
        assert world.super.storage.get(CLAIMS, "red-web", "v")["metadata"]["labels"]["own"] == "x"
