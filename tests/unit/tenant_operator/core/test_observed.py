# SPDX-License-Identifier: Apache-2.0
"""Objects of others with a tenant's label change neither its plan nor its end."""

import pytest

from tenant_operator.edge.caches import OWNED_KINDS
from tenant_operator.model import names
from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

NAMES = ["backup-x", "encryption-config-backup-x", "cluster-ca", "defaults-inventory", "x", "data-etcd-9"]
PLACES = ["attacker", "aaa", "zzz", "tenants", "kube-system"]
EVERY = [
    Ref(kind, "" if kind == "Namespace" else place, place if kind == "Namespace" else name)
    for kind in OWNED_KINDS
    for place in PLACES
    for name in NAMES
    if kind != "Namespace" or name == "x"
]


def labelled(ref: Ref, uid: str) -> Object:
    metadata = {
        "name": ref.name,
        "namespace": ref.namespace,
        "uid": f"uid of {ref}",
        "resourceVersion": "3",
        "generation": 1,
        "labels": names.labels(uid),
    }
    return {"apiVersion": "v1", "kind": ref.kind, "metadata": metadata, "spec": {"replicas": 0}}


@pytest.fixture(scope="module")
def settled() -> FakeWorld:
    world = FakeWorld(virtual_cluster())
    world.run()
    return world


@pytest.mark.parametrize("ref", EVERY, ids=str)
def test_objects_elsewhere_are_not_the_tenants(settled: FakeWorld, ref: Ref) -> None:
    settled.objects[ref] = labelled(ref, settled.cluster["metadata"]["uid"])
    try:
        assert settled.plan().steps == ()
    finally:
        del settled.objects[ref]


def test_objects_elsewhere_do_not_stop_the_end() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    foreign = {ref: labelled(ref, world.cluster["metadata"]["uid"]) for ref in EVERY}
    world.objects.update(foreign)
    world.cluster["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"
    world.run()
    assert world.cluster["metadata"]["finalizers"] == []
    assert world.objects.keys() == foreign.keys()
