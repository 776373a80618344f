# SPDX-License-Identifier: Apache-2.0
"""A native control plane of each datastore, from the first plan to a tenant that is served."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from tenancy import keys
from tenant_operator.core.conditions import ConditionType
from tenant_operator.core.steps import Apply
from tenant_operator.datastores import etcd
from tenant_operator.model.objects import Object, Ref, ref_of
from tests.unit.tenant_operator.core.worlds import SETTINGS, VERSION, FakeWorld, virtual_cluster


def world_of(kind: str = "etcd", **spec: Any) -> FakeWorld:
    version: Object = copy.deepcopy(VERSION)
    version["spec"]["images"]["kine"] = "k:1"
    version["spec"] |= {
        "datastore": {"type": kind, "secretName": "administrator"},
        "classes": {"small": {}, "large": {"etcd": {"replicas": 3}}},
    }
    return FakeWorld(virtual_cluster(**spec), version=version)


def is_ready(world: FakeWorld) -> bool:
    conditions = {each["type"]: each["status"] for each in world.cluster["status"]["conditions"]}
    return bool(conditions[ConditionType.READY] == "True")


def ready(world: FakeWorld) -> tuple[str, str]:
    """Why it is not."""
    found = {each["type"]: each for each in world.cluster["status"]["conditions"]}[ConditionType.READY]
    assert found["status"] == "False"
    return found["reason"], found["message"]


def key_of(world: FakeWorld) -> str:
    (name,) = (ref.name for ref in world.objects if ref.kind == "Namespace")
    return name


def template(world: FakeWorld, kind: str, name: str) -> Object:
    found: Object = world.objects[Ref(kind, key_of(world), name)]["spec"]["template"]
    return found


@pytest.mark.parametrize("kind", ["etcd", "kine-sqlite"])
def test_stores_in_pods_are_made(kind: str) -> None:
    world = world_of(kind)
    world.run()
    assert is_ready(world)
    (container,) = template(world, "StatefulSet", "etcd")["spec"]["containers"]
    assert container["name"] == kind.partition("-")[0]
    mounted = {ref.name for ref in world.objects if ref.kind == "Secret"}
    assert {"etcd-server", "apiserver-etcd-client"} <= mounted


@pytest.mark.parametrize("kind", ["etcd", "kine-sqlite"])
def test_no_pod_starts_twice(kind: str) -> None:
    """A workload that is applied again with another template would restart at once."""
    world = world_of(kind)
    seen: dict[Ref, list[Object]] = {}
    for _ in range(20):
        made = world.plan()
        for step in made.steps:
            world.carry_out(step)
            if isinstance(step, Apply) and step.manifest["kind"] in ("Deployment", "StatefulSet"):
                templates = seen.setdefault(ref_of(step.manifest), [])
                if step.manifest["spec"]["template"] not in templates:
                    templates.append(step.manifest["spec"]["template"])
        world.finish(made)
    assert is_ready(world)
    assert {ref.name: len(templates) for ref, templates in seen.items()} == {
        "etcd": 1,
        "apiserver": 1,
        "controller-manager": 1,
    }


def test_a_shared_etcd_waits_for_its_credential() -> None:
    world = world_of("shared-etcd")
    world.run()
    assert ready(world)[0] == "DatastoreUnusable"
    assert "sharedEtcd.endpoints" in ready(world)[1]
    world.settings = msgspec.structs.replace(
        SETTINGS, store_cidrs=("198.51.100.0/28",), store_endpoints=("https://etcd.example:2379",)
    )
    world.run()
    key, uid = key_of(world), world.cluster["metadata"]["uid"]
    message = (
        f"waiting for Secret {key}/store-credentials with labels tenancy.x-k8s.io/vcuid={uid},"
        "vcnode.io/managed-by=vc-operator; tenant_operator/datastores/README.md has its keys"
    )
    assert (world.plan().waits_for, ready(world)) == (message, ("CredentialMissing", message))
    labels = {"tenancy.x-k8s.io/vcuid": uid, "vcnode.io/managed-by": "vc-operator"}
    world.objects[Ref("Secret", key, "store-credentials")] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": key,
            "name": "store-credentials",
            "labels": labels,
            "uid": "by-hand",
            "resourceVersion": "1",
        },
        "data": {},
    }
    world.run()
    assert is_ready(world)
    assert Ref("StatefulSet", key, "etcd") not in world.objects


@pytest.mark.parametrize(("before", "after", "members"), [("small", "large", 1), ("large", "small", 3)])
def test_another_class_keeps_the_members(before: str, after: str, members: int) -> None:
    world = world_of(**{"class": before})
    world.run()
    world.cluster["spec"]["class"] = after
    world.cluster["metadata"]["generation"] = 2
    world.run()
    stateful_set = world.objects[Ref("StatefulSet", key_of(world), "etcd")]
    assert stateful_set["spec"]["replicas"] == members


@pytest.mark.parametrize("edited", [None, "1", "3", "many"])
@pytest.mark.parametrize(("before", "after", "members"), [("small", "large", 1), ("large", "small", 3)])
@pytest.mark.parametrize("is_asleep", [False, True])
def test_a_lost_or_edited_config_keeps_the_members(
    before: str, after: str, members: int, edited: str | None, *, is_asleep: bool
) -> None:
    world = world_of(**{"class": before})
    world.run()
    if is_asleep:
        annotations = world.cluster["metadata"].setdefault("annotations", {})
        annotations[keys.SLEEP_REQUESTED_AT] = "2027-01-15T07:00:00Z"
        world.run()
    key = key_of(world)
    config, store = Ref("ConfigMap", key, "etcd-config"), Ref("StatefulSet", key, "etcd")
    if edited is None:
        del world.objects[config]
    else:
        world.objects[config]["data"]["members"] = edited
    world.cluster["spec"]["class"] = after
    world.cluster["metadata"]["generation"] = 2
    world.run()
    assert world.objects[store]["spec"]["replicas"] == (0 if is_asleep else members)
    assert etcd.members_of(world.objects[store]) == members
    assert world.objects[config]["data"]["members"] == str(members)


def test_a_store_that_started_never_starts_empty() -> None:
    world = world_of()
    world.run()
    config = world.objects[Ref("ConfigMap", key_of(world), "etcd-config")]
    assert config["data"] == {"initial-cluster-state": "existing", "members": "1"}


@pytest.mark.parametrize("size", ["8Gi", "1Gi"])
def test_templates_of_claims_never_change(size: str) -> None:
    """The API server refuses it, and each step that follows would wait for it."""
    world = world_of()
    world.run()
    store = Ref("StatefulSet", key_of(world), "etcd")
    before = copy.deepcopy(world.objects[store]["spec"]["volumeClaimTemplates"])
    world.version["spec"]["datastore"]["size"] = size
    world.version["spec"]["datastore"]["storageClassName"] = "other"
    world.run()
    assert world.objects[store]["spec"]["volumeClaimTemplates"] == before


def test_a_controller_manager_follows_the_service() -> None:
    """It reads the server's address once."""
    world = world_of()
    world.run()
    before = template(world, "Deployment", "controller-manager")
    service = world.objects[Ref("Service", key_of(world), "apiserver-svc")]
    service["spec"] |= {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}
    world.run()
    assert template(world, "Deployment", "controller-manager")["metadata"] != before["metadata"]


@pytest.mark.parametrize(("given", "canonical"), [("1000m", "1"), ("0.5", "500m"), ("100m", "100m")])
def test_quantities_are_written_as_they_are_kept(given: str, canonical: str) -> None:
    world = world_of()
    size = {"cpu": given, "memory": "1024Mi"}
    world.version["spec"]["classes"]["small"] = {"apiServer": size}
    world.run()
    (container, *_) = template(world, "Deployment", "apiserver")["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": canonical, "memory": "1Gi"}


@pytest.mark.parametrize("field", ["cpu", "memory", "goMemoryLimit"])
@pytest.mark.parametrize("component", ["apiServer", "controllerManager", "etcd"])
@pytest.mark.parametrize("text", ["1e9", "512Mi ", "much", "-1", "0"])
def test_a_quantity_that_is_none_is_a_condition(component: str, field: str, text: str) -> None:
    world = world_of()
    world.version["spec"]["classes"]["small"] = {component: {field: text}}
    (finding,) = world.plan().findings
    assert finding.reason == "QuantityInvalid"
    assert f"ClusterVersion v1.34: spec.classes.small.{component}.{field}" in finding.message


@pytest.mark.parametrize(("before", "after"), [("small", "large"), ("large", "small")])
def test_other_members_than_a_store_has_are_a_condition(before: str, after: str) -> None:
    world = world_of(**{"class": before})
    world.run()
    count = world.objects[Ref("StatefulSet", key_of(world), "etcd")]["spec"]["replicas"]
    world.cluster["spec"]["class"] = after
    world.run()
    assert world.objects[Ref("StatefulSet", key_of(world), "etcd")]["spec"]["replicas"] == count
    found = next(each for each in world.cluster["status"]["conditions"] if each["type"] == "UpToDate")
    assert (found["status"], found["reason"]) == ("False", "StoreMembersKept")
    assert is_ready(world)


@pytest.mark.parametrize("volumes", ["Delete", "Retain"])
def test_a_namespace_is_kept_as_long_as_its_volumes(volumes: str) -> None:
    """Also by vc-syncer, where the VirtualCluster's finalizer was taken away."""
    world = world_of(volumes=volumes)
    world.run()
    annotations = world.objects[Ref("Namespace", "", key_of(world))]["metadata"]["annotations"]
    assert (keys.RETAINED in annotations) == (volumes == "Retain")
