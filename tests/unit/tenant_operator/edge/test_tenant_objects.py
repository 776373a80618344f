# SPDX-License-Identifier: Apache-2.0
"""Objects of tenants are found by tenant, whatever is packed of them; those of others are not kept."""

from __future__ import annotations

import random

import msgspec
import pytest

from daemonkit.kube.watch import Put
from tenant_operator.core.live import LiveMeta, LiveObject
from tenant_operator.edge import tenant_objects
from tenant_operator.edge.caches import OWNED_KINDS
from tenant_operator.edge.tenant_objects import KindStore, TenantObjects
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import VirtualCluster


def cluster(name: str, uid: str) -> VirtualCluster:
    return msgspec.convert({"metadata": {"name": name, "namespace": "tenants", "uid": uid}}, VirtualCluster)


ACME, ADMIN = cluster("acme", "uid-acme"), cluster("admin", "uid-admin")
ROOT = str(ACME.key)
KUBECONFIG = Ref("Secret", "tenants", "acme-kubeconfig")
SECRETS = OWNED_KINDS.index("Secret")


def live(ref: Ref, uid: str, version: str = "1") -> LiveObject:
    return LiveObject(LiveMeta(ref.name, ref.namespace, f"of {ref}", version, labels=names.labels(uid)))


def objects(*known: VirtualCluster) -> TenantObjects:
    return TenantObjects(OWNED_KINDS, {each.metadata.uid: each for each in known}.get)


def listed(store: KindStore, version: str, *found: LiveObject) -> list[object]:
    store.begin_list(version)
    changes: list[object] = [each for one in found for each in store.take_page([Put(one)])]
    steps = store.comparing([], version)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            store.take(version, end.value.changes)
            return [*changes, *end.value.changes]


@pytest.mark.parametrize(
    "ref",
    [
        Ref("Namespace", "", ROOT),
        Ref("Secret", ROOT, "cluster-ca"),
        Ref("Secret", ROOT, names.SYNCER_CLIENT),
        Ref("Job", ROOT, "backup-x"),
        KUBECONFIG,
    ],
    ids=str,
)
def test_own_objects_are_found_packed_and_unpacked(ref: Ref) -> None:
    found, value = objects(ACME), live(ref, "uid-acme")
    assert found.put(ref, value) is None
    for _ in range(2):
        assert (found.of(ACME), found.get(ref)) == ({ref: value}, value)
        found.pack(ACME)
    assert found.pop(ref) == value
    found.pack(ACME)
    assert (found.of(ACME), found.get(ref), found.pop(ref), sum(found.counts)) == ({}, None, None, 0)


def test_kubeconfig_of_a_tenant_named_admin_is_found() -> None:
    found, ref = objects(ADMIN), Ref("Secret", "tenants", "admin-kubeconfig")
    found.put(ref, live(ref, "uid-admin"))
    found.pack(ADMIN)
    assert list(found.of(ADMIN)) == [ref]


@pytest.mark.parametrize(
    "ref",
    [
        Ref("Namespace", "", "tenants"),
        Ref("Secret", "tenants", "other-kubeconfig"),
        Ref("Secret", "tenants", "cluster-ca"),
        Ref("ConfigMap", "attacker", "x"),
    ],
    ids=str,
)
def test_objects_elsewhere_with_its_label_are_not_kept(ref: Ref) -> None:
    found = objects(ACME)
    found.put(ref, live(ref, "uid-acme"))
    assert (found.get(ref), found.of(ACME), sum(found.counts)) == (None, {}, 0)


def test_an_object_that_gets_the_label_of_another_is_given_up() -> None:
    found, ref = objects(ACME, ADMIN), Ref("Secret", ROOT, "cluster-ca")
    found.put(ref, live(ref, "uid-acme"))
    assert found.put(ref, live(ref, "uid-admin")) == live(ref, "uid-acme")
    assert found.get(ref) is None
    found.put(ref, live(ref, ""))
    assert found.get(ref) is None


def test_what_came_before_its_virtual_cluster_is_kept() -> None:
    known: dict[str, VirtualCluster] = {}
    found, ref = TenantObjects(OWNED_KINDS, known.get), Ref("Secret", ROOT, "cluster-ca")
    found.put(ref, live(ref, "uid-acme"))
    assert list(found.left_of("uid-acme")) == [ref]
    known["uid-acme"] = ACME
    found.claim(ACME)
    assert list(found.of(ACME)) == [ref]
    del known["uid-acme"]
    found.release(ACME)
    assert list(found.left_of("uid-acme")) == [ref]


def test_of_unknown_virtual_clusters_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_objects, "MAX_ORPHANS", 3)
    found, own = objects(ACME), Ref("Secret", ROOT, "cluster-ca")
    found.put(own, live(own, "uid-acme"))
    for at in range(50):
        ref = Ref("Secret", f"other-{at}", "cluster-ca")
        found.put(ref, live(ref, f"uid-{at}"))
    assert [at for at in range(50) if found.left_of(f"uid-{at}")] == [47, 48, 49]
    assert (found.counts[SECRETS], list(found.of(ACME))) == (4, [own])


def test_a_list_deletes_what_it_lacks_of_each_tenant() -> None:
    found = objects(ACME, ADMIN)
    store = KindStore(found, "Secret", SECRETS)
    refs = [Ref("Secret", str(each.key), name) for each in (ACME, ADMIN) for name in ("a", "b")]
    values = [live(ref, "uid-acme" if ref.namespace == ROOT else "uid-admin") for ref in refs]
    assert len(listed(store, "5", *values)) == 4
    found.pack(ACME)
    assert listed(store, "6", values[0], values[2], values[3]) != []
    assert sorted((*found.of(ACME), *found.of(ADMIN))) == sorted([refs[0], refs[2], refs[3]])
    assert (len(store.objects), sorted(store.objects)) == (
        3,
        sorted((ref.namespace, ref.name) for ref in (refs[0], refs[2], refs[3])),
    )
    assert listed(store, "7", values[0], values[2], values[3]) == []


@pytest.mark.parametrize("seed", range(10))
def test_random_changes_end_as_in_a_dictionary(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_objects, "MAX_UNPACKED", 3)
    chance = random.Random(seed)  # noqa: S311 - a repeatable one
    clusters = [cluster(f"t{at}", f"uid-{at}") for at in range(5)]
    found, expected = objects(*clusters), dict[Ref, LiveObject]()
    for version in range(600):
        owner = chance.choice(clusters)
        ref = Ref(chance.choice(["Secret", "Job", "Service"]), str(owner.key), chance.choice("abcd"))
        if chance.random() < 0.6:
            value = live(ref, owner.metadata.uid, str(version))
            assert found.put(ref, value) == expected.get(ref)
            expected[ref] = value
        else:
            assert found.pop(ref) == expected.pop(ref, None)
        if chance.random() < 0.1:
            found.pack(owner)
    held = {ref: value for each in clusters for ref, value in found.of(each).items()}
    assert (held, sum(found.counts)) == (expected, len(expected))
