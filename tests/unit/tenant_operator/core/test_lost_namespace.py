# SPDX-License-Identifier: Apache-2.0
"""A root namespace that somebody deletes: nobody finds an empty tenant that is Ready."""

from __future__ import annotations

import copy
import functools

import msgspec
import pytest

from tenancy import keys
from tenant_operator.core.lost_namespace import ENDING, LOST
from tenant_operator.core.steps import Apply, GenerateKeys, IssueAuthority, IssueLeaf
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.test_known_keys import lose
from tests.unit.tenant_operator.core.test_rotations import request
from tests.unit.tenant_operator.core.worlds import SETTINGS, VERSION, FakeWorld, virtual_cluster

DATASTORES = ("etcd", "kine-sqlite", "kine-postgresql")
IMAGES = {"apiServer": "a:1", "controllerManager": "c:1", "etcd": "e:1", "kine": "k:1"}


@functools.cache
def _made(datastore: str) -> FakeWorld:
    version: Object = copy.deepcopy(VERSION)
    version["spec"] |= {"images": IMAGES, "datastore": {"type": datastore, "secretName": "store"}}
    settings = msgspec.structs.replace(SETTINGS, store_cidrs=("198.51.100.0/28",))
    world = FakeWorld(virtual_cluster(), version, settings=settings)
    world.run()
    assert ready(world)[:2] == ("True", "TenantReady")
    return world


def made(datastore: str = "etcd") -> FakeWorld:
    return copy.deepcopy(_made(datastore))


def key_of(world: FakeWorld) -> str:
    return str(world.cluster["status"]["clusterNamespace"])


def ready(world: FakeWorld) -> tuple[str, str, str]:
    found = next(each for each in world.cluster["status"]["conditions"] if each["type"] == "Ready")
    return found["status"], found["reason"], found["message"]


def delete_root(world: FakeWorld) -> None:
    key = key_of(world)
    for ref in [each for each in world.objects if key in (each.namespace, each.name)]:
        del world.objects[ref]


def namespace_uid(world: FakeWorld) -> str:
    return str(world.objects[Ref("Namespace", "", key_of(world))]["metadata"]["uid"])


def annotate(world: FakeWorld, uid: str) -> None:
    world.cluster["metadata"].setdefault("annotations", {})[keys.GIVE_UP_DATA] = uid


def issues(world: FakeWorld) -> list[object]:
    """What the next plan makes of keys and certificates."""
    kinds = (IssueAuthority, IssueLeaf, GenerateKeys)
    return [each for each in world.plan().steps if isinstance(each, kinds)]


@pytest.mark.parametrize("datastore", DATASTORES)
def test_a_lost_namespace_is_a_loss_until_given_up(datastore: str) -> None:
    world = made(datastore)
    for _ in range(2):  # the second loss has the annotation of the first
        delete_root(world)
        world.run()
        status, reason, message = ready(world)
        assert (status, reason) == ("False", LOST)
        assert message.startswith(f"Namespace {key_of(world)} was deleted, and with it the ")
        assert message.endswith(f"vcnode.io/give-up-data={namespace_uid(world)}")
        for what in keys.ROTATABLE:
            request(world, what, f"for {what}"[:8].replace(" ", "-"))
        assert issues(world) == []
        annotate(world, "another")
        assert issues(world) == []
        annotate(world, namespace_uid(world))
        world.run()
        assert ready(world)[:2] == ("True", "TenantReady")
        assert world.cluster["status"].get("refusedRequests", []) == []
        # It is no permission for keys that are lost alone.
        lose(world, "encryption-key")
        assert issues(world) == []
        world.run()
        assert ready(world)[1] == "KeysMissing"


@pytest.mark.parametrize("kinds", [("Secret",), ("ConfigMap",), ("Secret", "ConfigMap")])
@pytest.mark.parametrize("datastore", ["etcd", "kine-sqlite"])
def test_no_store_is_made_before_its_volumes_are_restored(datastore: str, kinds: tuple[str, ...]) -> None:
    """It would get new ones: an empty tenant that is Ready."""
    world = made(datastore)
    key = key_of(world)
    before = {ref: copy.deepcopy(each) for ref, each in world.objects.items() if ref.namespace == key}
    delete_root(world)
    world.run()
    for ref, each in before.items():
        if ref.kind in kinds:
            world.objects.setdefault(ref, each)
    world.run()
    assert ready(world)[:2] == ("False", LOST)
    assert Ref("StatefulSet", key, "etcd") not in world.objects
    annotate(world, namespace_uid(world))
    store, config = Ref("StatefulSet", key, "etcd"), Ref("ConfigMap", key, "etcd-config")
    for _ in range(20):
        plan = world.plan()
        for step in plan.steps:
            world.carry_out(step)
            if datastore == "etcd" and store in world.objects:
                # Its members are all new.
                assert world.objects[config]["data"]["initial-cluster-state"] == "new"
        world.finish(plan)
        if store in world.objects:
            break
    world.run()
    assert ready(world)[:2] == ("True", "TenantReady")


@pytest.mark.parametrize("most", range(0, 24, 4))
def test_operator_killed_while_all_is_made_anew(most: int) -> None:
    world = made()
    delete_root(world)
    world.run()
    annotate(world, namespace_uid(world))
    world.run_killed(most)
    assert ready(world)[:2] == ("True", "TenantReady")


def test_volumes_can_be_kept_while_a_namespace_ends() -> None:
    world = made()
    key = key_of(world)
    labels = world.objects[Ref("StatefulSet", key, "etcd")]["metadata"]["labels"]
    for number in range(2):
        metadata = {"name": f"data-etcd-{number}", "namespace": key, "labels": labels}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
        world.carry_out(Apply(claim | {"spec": {"volumeName": f"pv-{number}"}}))
    world.objects[Ref("Namespace", "", key)]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    world.run()
    policy = '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
    assert f" kubectl patch persistentvolume pv-0 pv-1 -p '{policy}'. Copy " in ready(world)[2]


@pytest.mark.parametrize("is_asleep", [False, True])
def test_a_namespace_that_ends_is_named_first(is_asleep: bool) -> None:
    world = made()
    if is_asleep:
        annotations = world.cluster["metadata"].setdefault("annotations", {})
        annotations["vcnode.io/sleep-requested-at"] = "2027-01-15T07:00:00Z"
        world.run()
    key = key_of(world)
    world.objects[Ref("Namespace", "", key)]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    world.run()
    status, reason, message = ready(world)
    assert (status, reason) == ("False", ENDING)
    lost = "the store of VirtualCluster tenants/acme and its keys"
    assert message.startswith(f"Namespace {key} is being deleted, and with it {lost}. ")
    delete_root(world)
    world.run()
    assert ready(world)[:2] == ("False", LOST)


def test_objects_that_are_restored_end_the_loss() -> None:
    """As Velero writes them: what exists it skips, and each object is one request."""
    world = made()
    key = key_of(world)
    before = {ref: copy.deepcopy(each) for ref, each in world.objects.items() if ref.namespace == key}
    delete_root(world)
    world.run()
    for kind in ("Secret", "ConfigMap", "StatefulSet", "Deployment"):
        for ref, each in before.items():
            if ref.kind == kind:
                world.objects.setdefault(ref, each)
        assert issues(world) == []
    world.run()
    assert ready(world)[:2] == ("True", "TenantReady")
    secret = Ref("Secret", key, "encryption-config")
    assert world.objects[secret]["data"] == before[secret]["data"]
