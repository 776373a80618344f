# SPDX-License-Identifier: Apache-2.0
"""A tenant is made step by step, from wherever an operator before left it."""

from __future__ import annotations

import copy
import json

import msgspec
import pytest

from tenancy import keys
from tenant_operator.core.conditions import ConditionType
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.steps import Apply, GenerateKeys, PatchCluster
from tenant_operator.edge.caches import OWNED_KINDS
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import VERSION, FakeWorld, virtual_cluster

WORKLOADS = ("Deployment", "StatefulSet")


def made() -> FakeWorld:
    world = FakeWorld(virtual_cluster())
    world.run()
    return world


def condition(world: FakeWorld, type_: ConditionType) -> tuple[str, str]:
    found = {each["type"]: each for each in world.cluster["status"]["conditions"]}
    return found[type_]["status"], found[type_]["reason"]


def test_tenant_becomes_ready() -> None:
    world = made()
    assert world.cluster["status"]["phase"] == "Running"
    assert condition(world, ConditionType.READY) == ("True", "TenantReady")
    assert world.cluster["status"]["endpoint"] == "https://10.96.0.9:6443"


def test_settled_tenant_is_not_written() -> None:
    world = made()
    before = world.writes
    for _ in range(1_000 // 50):
        assert world.plan().steps == ()
    assert world.writes == before


def test_restart_writes_no_status() -> None:
    """What another process has to ask again is as it was until then."""
    world = made()
    before, writes = json.dumps(world.cluster), world.writes
    world.now_s += 1.0
    world.probes.clear()
    assert {each.name for each in world.plan().probes} == {"syncer", "nodes", "served"}
    world.run()
    assert (json.dumps(world.cluster), world.writes) == (before, writes)


def test_silent_nodes_are_seen_after_a_restart() -> None:
    world = made()
    world.probes["nodes"] = ProbeResult(is_ok=False, at=world.now_s, detail="no answer")
    world.finish(msgspec.structs.replace(world.plan(), probes=()))
    before = json.dumps(world.cluster)
    assert condition(world, ConditionType.NODES_SERVING) == ("False", "NodesRefuse")
    assert condition(world, ConditionType.READY) == ("False", "NodesRefuse")
    world.probes.clear()
    world.finish(msgspec.structs.replace(world.plan(), probes=()))
    assert json.dumps(world.cluster) == before


def test_idle_tenant_is_asked_about_every_90_minutes() -> None:
    """All that is asked of a tenant in a day that is well. Credentials of a day are renewed meanwhile."""
    world, asked = made(), []
    end_s = world.now_s + 12 * 3600.0
    while world.now_s < end_s:
        plan = world.plan()
        asked += [each.name for each in plan.probes]
        world.finish(plan)
        assert plan.check_again_s is not None
        world.now_s += max(plan.check_again_s, 1.0)
    assert (asked.count("nodes"), asked.count("syncer")) == (7, 1)


def test_all_objects_have_their_owner() -> None:
    world = made()
    uid = world.cluster["metadata"]["uid"]
    for ref, value in world.objects.items():
        assert value["metadata"]["labels"]["tenancy.x-k8s.io/vcuid"] == uid, ref
        assert ref.namespace in ("", "tenants", world.cluster["status"]["clusterNamespace"]), ref


def _steps() -> int:
    return FakeWorld(virtual_cluster()).run()


@pytest.mark.parametrize("most", range(_steps()))
def test_operator_killed_after_each_step(most: int) -> None:
    """What a process knows is lost after `most` steps; another one makes the same tenant."""
    world = FakeWorld(virtual_cluster())
    world.run_killed(most)
    assert world.objects.keys() == made().objects.keys()
    assert condition(world, ConditionType.READY) == ("True", "TenantReady")


def test_unknown_version_is_a_condition() -> None:
    world = FakeWorld(virtual_cluster(clusterVersionName="v9"))
    world.run()
    assert world.objects == {}
    assert condition(world, ConditionType.READY) == ("False", "ClusterVersionUnknown")


# What they signed or encrypted would be refused: a person decides.
IRREPLACEABLE = ("service-account-keys", "encryption-config")


def test_deleted_object_is_made_again() -> None:
    for ref in list(made().objects):
        if ref.kind == "Namespace" or ref.name.endswith("-ca") or ref.name in IRREPLACEABLE:
            continue
        world = made()
        del world.objects[ref]
        world.run()
        assert ref in world.objects


@pytest.mark.parametrize(
    "name",
    [
        *("cluster-ca", "front-proxy-ca", "etcd-ca", "kubelet-client-ca", "service-account-keys"),
        "encryption-config",
    ],
)
def test_deleted_key_is_a_condition(name: str) -> None:
    world = made()
    key = world.cluster["status"]["clusterNamespace"]
    before = world.writes
    del world.objects[Ref("Secret", key, name)]
    world.run()
    reason = "KeysMissing" if name in IRREPLACEABLE else "AuthorityMissing"
    assert condition(world, ConditionType.CERTIFICATES_VALID) == ("False", reason)
    assert f"Secret {key}/{name}" in world.cluster["status"]["message"]
    assert world.writes == before
    assert world.cluster["status"]["phase"] == "Running"


def test_all_works_400_days_later() -> None:
    """What is due is issued again, once; nothing is rolled out for it."""
    world = made()
    templates = {
        ref: value["spec"]["template"] for ref, value in world.objects.items() if ref.kind in WORKLOADS
    }
    world.now_s += 400 * 86_400
    before = world.writes
    world.run()
    leaves = [ref for ref, value in world.objects.items() if "vcnode.io/spec-digest" in annotations_of(value)]
    assert len(leaves) == 10
    assert world.writes - before == len(leaves) + 1  # and what vn-agents read
    assert condition(world, ConditionType.READY) == ("True", "TenantReady")
    assert templates == {
        ref: value["spec"]["template"] for ref, value in world.objects.items() if ref.kind in WORKLOADS
    }
    before = world.writes
    assert world.run() == 0
    assert world.writes == before


def test_edited_certificate_is_issued_again() -> None:
    world = made()
    key = world.cluster["status"]["clusterNamespace"]
    secret = world.objects[Ref("Secret", key, "apiserver-serving")]
    secret["data"]["tls.key"] = "ZWRpdGVk"
    world.run()
    assert world.objects[Ref("Secret", key, "apiserver-serving")]["data"]["tls.key"] != "ZWRpdGVk"


def annotations_of(value: Object) -> Object:
    found: Object = value["metadata"].get("annotations", {})
    return found


def test_tenant_of_another_provisioner_is_left_alone() -> None:
    cluster = virtual_cluster()
    cluster["status"] = {"phase": "Running", "clusterNamespace": "tenants-70b001-acme"}
    world = FakeWorld(cluster)
    assert world.run() == 0
    assert world.cluster["status"] == {"phase": "Running", "clusterNamespace": "tenants-70b001-acme"}


def test_key_of_root_namespace_is_its_name() -> None:
    world = made()
    key = world.cluster["status"]["clusterNamespace"]
    assert world.objects[Ref("Namespace", "", key)]["metadata"]["annotations"] == {
        "tenancy.x-k8s.io/vcname": "acme",
        "tenancy.x-k8s.io/vcnamespace": "tenants",
        "tenancy.x-k8s.io/vcuid": "3c6ef372-0000-4000-8000-000000000001",
        "tenancy.x-k8s.io/vcrootns": "true",
        "vcnode.io/service-cidrs": "10.32.0.0/24",
    }


def test_sleeping_tenant_has_no_pod_and_wakes() -> None:
    world = made()
    annotations = world.cluster["metadata"].setdefault("annotations", {})
    annotations["vcnode.io/sleep-requested-at"] = "2027-01-15T07:00:00Z"
    world.run()
    replicas = [value["spec"]["replicas"] for ref, value in world.objects.items() if ref.kind in WORKLOADS]
    assert replicas == [0, 0, 0]
    assert condition(world, ConditionType.SLEEPING) == ("True", "Asleep")
    assert condition(world, ConditionType.READY) == ("False", "Asleep")
    # Its nodes and vc-syncer go on.
    assert world.cluster["status"]["phase"] == "Running"
    assert world.cluster["status"]["sleep"] == {"since": "2027-01-15T07:00:00Z", "why": "request"}
    annotations["vcnode.io/wake-requested-at"] = "2027-01-15T07:30:00Z"
    made_plan = world.plan()
    # Before it is scaled up nothing of it serves.
    first = {each.type: each.status for each in made_plan.findings}
    assert (first[ConditionType.READY], first[ConditionType.CONTROL_PLANE_AVAILABLE]) == ("False", "False")
    world.run()
    assert condition(world, ConditionType.READY) == ("True", "TenantReady")
    assert condition(world, ConditionType.SLEEPING) == ("False", "Awake")
    assert "sleep" not in world.cluster["status"] or not world.cluster["status"]["sleep"]


def test_sleep_is_reached_when_no_pod_is_left() -> None:
    world = made()
    world.cluster["metadata"].setdefault("annotations", {})["vcnode.io/sleep-requested-at"] = (
        "2027-01-15T07:00:00Z"
    )
    seen = set()
    for _ in range(20):
        parts = [value for ref, value in world.objects.items() if ref.kind in WORKLOADS]
        left = sum(each["status"]["replicas"] for each in parts)
        found = next(each for each in world.plan().findings if each.type == ConditionType.SLEEPING)
        seen.add((found.status, found.reason, left))
        for step in world.plan().steps:
            world.carry_out(step)
        world.finish(world.plan())
    assert {left for status, _, left in seen if status == "True"} == {0}
    assert ("False", "FallingAsleep", 3) in seen


def test_store_sleeps_after_the_last_server() -> None:
    """A Deployment counts no pod that is ending, which writes to the store until it has ended."""
    world = made()
    world.cluster["metadata"].setdefault("annotations", {})["vcnode.io/sleep-requested-at"] = (
        "2027-01-15T07:00:00Z"
    )
    world.server_pods = "apiserver-1"
    world.run()
    key = world.cluster["status"]["clusterNamespace"]
    store = Ref("StatefulSet", key, "etcd")
    assert world.objects[Ref("Deployment", key, "apiserver")]["spec"]["replicas"] == 0
    assert world.objects[store]["spec"]["replicas"] == 1
    assert world.plan().waits_for == f"end of Pod {key}/apiserver-1"
    world.server_pods = ""
    world.run()
    assert world.objects[store]["spec"]["replicas"] == 0


def _deleted(*, volumes: str = "Delete") -> FakeWorld:
    world = FakeWorld(virtual_cluster(volumes=volumes))
    world.run()
    key = world.cluster["status"]["clusterNamespace"]
    world.super_namespaces = {f"{key}-default": "ns-1", f"{key}-shop": "ns-2"}
    world.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    return world


def test_deletion_leaves_nothing() -> None:
    world = _deleted()
    world.run()
    assert world.objects == {}
    assert world.super_namespaces == {}
    assert world.cluster["metadata"]["finalizers"] == []


def test_deletion_before_anything_was_made_ends() -> None:
    world = FakeWorld(virtual_cluster())
    world.cluster["metadata"] |= {
        "deletionTimestamp": "2027-01-15T08:00:00Z",
        "finalizers": ["vcnode.io/vc-operator"],
    }
    world.run()
    assert world.cluster["metadata"]["finalizers"] == []


def test_deletion_names_the_namespace_that_is_left() -> None:
    """Something keeps it, and after its time the rest goes on; the finalizer waits."""
    world = _deleted()
    key = world.cluster["status"]["clusterNamespace"]
    world.super_namespaces = {f"{key}-shop": ""}
    world.now_s += 1_000.0
    for _ in range(5):
        plan = world.plan()
        for step in plan.steps:
            world.carry_out(step)
        world.finish(plan)
    assert world.objects == {}
    assert world.cluster["metadata"]["finalizers"] == ["vcnode.io/vc-operator"]
    assert f"Namespace {key}-shop" in world.cluster["status"]["message"]


@pytest.mark.parametrize("most", range(6))
def test_deletion_killed_after_each_step(most: int) -> None:
    world = _deleted()
    taken = 0
    while taken < most:
        plan = world.plan()
        for step in plan.steps[: most - taken]:
            world.carry_out(step)
        if not plan.steps and taken:
            break
        taken += max(len(plan.steps), 1)
        world.finish(plan)
    world.probes.clear()
    world.run()
    assert world.objects == {}
    assert world.cluster["metadata"]["finalizers"] == []


REGISTRATIONS = {"root-ca", "apiserver-ca", "vn-agent-clients"}


@pytest.mark.parametrize("volumes", ["Delete", "Retain"])
def test_delete_leaves_no_registration_and_no_lease(volumes: str) -> None:
    """vn-agents forget a tenant with its registration, which is not made again while the tenant ends."""
    world = FakeWorld(virtual_cluster(volumes=volumes), version=_with_metrics_server())
    world.run()
    key = world.cluster["status"]["clusterNamespace"]
    assert {ref.name for ref in world.objects} >= REGISTRATIONS
    claim = Ref("PersistentVolumeClaim", key, "data-etcd-0")
    labels = world.objects[Ref("StatefulSet", key, "etcd")]["metadata"]["labels"]
    metadata = {"name": claim.name, "namespace": key, "labels": labels}
    world.carry_out(Apply({"apiVersion": "v1", "kind": claim.kind, "metadata": metadata}))
    world.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    had_registration = True
    for _ in range(60):
        plan = world.plan()
        for step in plan.steps:
            world.carry_out(step)
        has_registration = any(ref.name in REGISTRATIONS for ref in world.objects)
        assert had_registration or not has_registration
        had_registration = has_registration
        world.finish(plan)
    assert world.cluster["metadata"]["finalizers"] == []
    kept = {Ref("Namespace", "", key), claim, Ref("Secret", key, "encryption-config")}
    assert world.objects.keys() == (kept if volumes == "Retain" else set())
    # Those of the tenant's own programs are in its own store. Of a kind that nobody watches nothing is made.
    assert "Lease" not in OWNED_KINDS


def _with_metrics_server() -> Object:
    version: Object = copy.deepcopy(VERSION)
    version["spec"]["images"]["metricsServer"] = "m:1"
    return version


def test_kept_volumes_keep_what_opens_them() -> None:
    world = _deleted(volumes="Retain")
    key = world.cluster["status"]["clusterNamespace"]
    claim = Ref("PersistentVolumeClaim", key, "data-etcd-0")
    labels = world.objects[Ref("StatefulSet", key, "etcd")]["metadata"]["labels"]
    metadata = {"name": claim.name, "namespace": key, "labels": labels}
    world.carry_out(Apply({"apiVersion": "v1", "kind": claim.kind, "metadata": metadata}))
    world.run()
    assert world.objects.keys() == {
        Ref("Namespace", "", key),
        claim,
        Ref("Secret", key, "encryption-config"),
    }
    kept = world.objects[Ref("Namespace", "", key)]["metadata"]
    assert kept["annotations"][keys.RETAINED] == "true"
    assert {keys.VC_UID, keys.VC_ROOT_NAMESPACE, keys.SERVICE_CIDRS} < kept["annotations"].keys()
    assert kept["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_a_store_goes_once_no_claim_belongs_to_it() -> None:
    """`kubectl vc delete --keep-volumes` changes the volumes' policy and deletes at once."""
    world = _deleted()
    world.cluster["spec"]["volumes"] = "Retain"
    key = world.cluster["status"]["clusterNamespace"]
    store, claim = Ref("StatefulSet", key, "etcd"), Ref("PersistentVolumeClaim", key, "data-etcd-0")
    live = world.objects[store]
    owner = {"kind": "StatefulSet", "name": "etcd", "uid": live["metadata"]["uid"]}
    metadata = {"name": claim.name, "namespace": key, "labels": live["metadata"]["labels"]}
    made = {"apiVersion": "v1", "kind": claim.kind, "metadata": metadata | {"ownerReferences": [owner]}}
    world.carry_out(Apply(made))
    for _ in range(10):
        plan = world.plan()
        for step in plan.steps:
            world.carry_out(step)
        world.finish(plan)
    assert world.objects[store]["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    # What its controller does then.
    del world.objects[claim]["metadata"]["ownerReferences"]
    world.run()
    assert store not in world.objects
    assert claim in world.objects


def test_a_namespace_is_kept_before_its_tenant_is_gone() -> None:
    """vc-syncer collects a root namespace whose VirtualCluster it does not see."""
    world = _deleted(volumes="Retain")
    key = world.cluster["status"]["clusterNamespace"]
    labels = world.objects[Ref("StatefulSet", key, "etcd")]["metadata"]["labels"]
    metadata = {"name": "data-etcd-0", "namespace": key, "labels": labels}
    world.carry_out(Apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}))
    while not (steps := world.plan().steps) or not isinstance(steps[-1], PatchCluster):
        plan = world.plan()
        for step in plan.steps:
            world.carry_out(step)
        world.finish(plan)
        world.now_s += plan.check_again_s or 0.0
    assert world.objects[Ref("Namespace", "", key)]["metadata"]["annotations"][keys.RETAINED] == "true"


@pytest.mark.parametrize("ids", [None, "", ",old"])
@pytest.mark.parametrize("name", ["encryption-config", "service-account-keys"])
def test_keys_without_their_ids_are_not_replaced(name: str, ids: str | None) -> None:
    """Another key of encryption would make all Secrets of the tenant unreadable."""
    world = made()
    secret = world.objects[Ref("Secret", world.cluster["status"]["clusterNamespace"], name)]
    del secret["metadata"]["annotations"][keys.KEY_IDS], world.cluster["status"]["keys"]
    if ids is not None:
        secret["metadata"]["annotations"][keys.KEY_IDS] = ids
    before = copy.deepcopy(secret["data"])
    plan = world.plan()
    assert not [each for each in plan.steps if isinstance(each, GenerateKeys)]
    found = next(each for each in plan.findings if each.type == "CertificatesValid")
    assert (found.status, found.reason) == ("False", "KeysChanged")
    world.run()
    assert secret["data"] == before
