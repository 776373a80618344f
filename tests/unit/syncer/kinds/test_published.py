# SPDX-License-Identifier: Apache-2.0
"""What the super cluster publishes (reference 8: storageclass and priorityclass uws and patrol)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.syncer.fake_view import TENANT
from syncer.core.objects import Object
from syncer.core.plan import Side
from syncer.kinds import (
    custom_resource_definition,
    ingress_class,
    priority_class,
    runtime_class,
    storage_class,
)
from syncer.kinds.port import KindSync
from tests.cases.sync.world import World
from tests.unit.syncer.kinds.objects import brief, created, deleting, patched, plan, tenant_object

PUBLIC = {"tenancy.x-k8s.io/super.public": "true"}
KINDS = [
    pytest.param(storage_class.SYNC, {"provisioner": "a"}, id="StorageClass"),
    pytest.param(priority_class.SYNC, {"value": 5}, id="PriorityClass"),
    pytest.param(runtime_class.SYNC, {"handler": "kata"}, id="RuntimeClass"),
    pytest.param(ingress_class.SYNC, {"spec": {"controller": "a"}}, id="IngressClass"),
    pytest.param(custom_resource_definition.SYNC, {"spec": {"group": "a"}}, id="CustomResourceDefinition"),
]


def there(kind: str, labels: dict[str, str] = PUBLIC, **fields: Any) -> Object:
    return tenant_object(kind, "a", "", uid="s-1", meta={"labels": dict(labels)}, **fields)


def own(kind: str, labels: dict[str, str] = PUBLIC, **fields: Any) -> Object:
    return tenant_object(kind, "a", "", meta={"labels": dict(labels)}, **fields)


@pytest.mark.parametrize(("sync", "fields"), KINDS)
def test_what_is_published_comes_up_whole(sync: KindSync, fields: Object) -> None:
    found = there(sync.kind.kind, **fields, ofANewerVersion=1, status={"a": 1})
    found["metadata"]["annotations"] = {"a": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    assert created(plan(sync, None, found)) == {
        "kind": sync.kind.kind,
        "metadata": {"name": "a", "labels": PUBLIC, "annotations": {"a": "1"}},
        **fields,
        "ofANewerVersion": 1,
    }


@pytest.mark.parametrize(("sync", "fields"), KINDS)
def test_what_is_not_published_is_gone_or_never_there(sync: KindSync, fields: Object) -> None:
    kind = sync.kind.kind
    for labels in ({}, {"tenancy.x-k8s.io/super.public": "false"}):
        private = there(kind, labels, **fields)
        assert brief(plan(sync, None, private)) == []
        assert brief(plan(sync, own(kind, **fields), private)) == ["delete in tenant t-1"]
        assert brief(plan(sync, own(kind, {}, **fields), private)) == []
    assert brief(plan(sync, own(kind, **fields), None)) == ["delete in tenant t-1"]
    assert brief(plan(sync, own(kind, **fields), deleting(there(kind, **fields)))) == ["delete in tenant t-1"]
    assert brief(plan(sync, deleting(own(kind, **fields)), None)) == []
    assert brief(plan(sync, own(kind, {}, **fields), None)) == []


@pytest.mark.parametrize(("sync", "fields"), KINDS)
def test_the_tenants_own_object_of_the_name_is_never_changed(sync: KindSync, fields: Object) -> None:
    kind = sync.kind.kind
    assert brief(plan(sync, own(kind, {}), there(kind, **fields))) == ["conflict"]


@pytest.mark.parametrize(("sync", "fields"), KINDS)
def test_what_differs_is_made_equal_metadata_too(sync: KindSync, fields: Object) -> None:
    kind = sync.kind.kind
    found = there(kind, PUBLIC | {"l": "2"}, **fields, description="new")
    result = plan(sync, own(kind, PUBLIC | {"l": "1", "own": "1"}, **fields), found)
    assert patched(result, Side.TENANT) == {
        "metadata": {"labels": {"l": "2", "own": None}},
        "description": "new",
    }
    assert brief(plan(sync, own(kind, **fields), there(kind, **fields))) == []


@pytest.mark.parametrize(("sync", "fields"), KINDS[:4])
def test_a_change_of_an_immutable_field_takes_a_new_object(sync: KindSync, fields: Object) -> None:
    kind = sync.kind.kind
    other = {"spec": {"controller": "b"}} if "spec" in fields else dict.fromkeys(fields, "b")
    assert brief(plan(sync, own(kind, **other), there(kind, **fields))) == ["delete in tenant t-1"]


def test_no_change_of_a_definition_deletes_its_resources() -> None:
    sync = custom_resource_definition.SYNC
    kind = sync.kind.kind
    changed = there(kind, spec={"group": "b", "versions": [{"name": "v1", "selectableFields": []}]})
    assert brief(plan(sync, own(kind, spec={"group": "a"}, status={"x": 1}), changed)) == [
        "patch object in tenant t-1"
    ]


_OBJECTS = st.none() | st.fixed_dictionaries(
    {"labels": st.sampled_from([{}, PUBLIC, PUBLIC | {"l": "1"}]), "value": st.integers(1, 2)}
)


@given(_OBJECTS, _OBJECTS)
def test_plans_come_to_an_end(tenant: Object | None, found: Object | None) -> None:
    world = World(TENANT)
    for side, given_object in ((Side.TENANT, tenant), (Side.SUPER, found)):
        if given_object is not None:
            meta = {"name": "a", "labels": given_object["labels"]}
            world.create(side, "PriorityClass", {"metadata": meta, "value": given_object["value"]})
    world.reconcile("PriorityClass", "", "a")
    left = world.sides[Side.TENANT].get(("PriorityClass", "", "a"))
    if tenant is not None and not tenant["labels"]:
        assert left is not None
        assert left["value"] == tenant["value"]
    elif found is None or not found["labels"]:
        assert left is None
    else:
        assert left is not None
        assert (left["value"], left["metadata"]["labels"]) == (found["value"], found["labels"])
