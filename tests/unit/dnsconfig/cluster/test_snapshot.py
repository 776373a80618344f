# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import Any

from dnsconfig.cluster.snapshot import NamespaceSnapshot, Snapshot, dns_namespaces, tenants_of
from dnsconfig.cluster.state import ResolverSettings
from tests.cluster_states import cluster_state_of
from tests.unit.dnsconfig.objects import namespace, pod, tenant
from tests.unit.dnsconfig.reading import read_all

ITEMS = [*tenant("a", blue="10.0.0.1"), namespace("b", "kube-system"), pod("a"), pod("", "host")]


def snapshot(**fields: Any) -> Snapshot:
    found = read_all(ITEMS)
    places = {
        "a-kube-system": NamespaceSnapshot(
            {name: value for (_, name), value in found["Service"].items()},
            {name: value for (_, name), value in found["Network"].items()},
        )
    }
    namespaces = {name: value for (_, name), value in found["Namespace"].items()}
    return replace(Snapshot(namespaces, found["Pod"], {}, places), **fields)


def test_cluster_state_has_the_snapshots_objects() -> None:
    cluster = snapshot().cluster_state(ResolverSettings())
    expected = cluster_state_of(ITEMS)
    assert (cluster.namespaces, cluster.services, cluster.networks) == (
        expected.namespaces,
        expected.services,
        expected.networks,
    )
    assert cluster.synced_namespaces == {"a-kube-system"}
    unsynced = Snapshot().cluster_state(ResolverSettings())
    assert (unsynced.has_namespaces, unsynced.has_virtual_clusters, unsynced.synced_namespaces) == (
        False,
        False,
        frozenset(),
    )


def test_unsynced_parts_are_completed_from_saved_state() -> None:
    saved = snapshot()
    assert Snapshot().completed_from(saved) == saved
    synced = snapshot(pods={}, contents={"a-kube-system": NamespaceSnapshot()})
    assert synced.completed_from(saved) == synced
    partly = Snapshot(pods={}, contents={"b-kube-system": NamespaceSnapshot()}).completed_from(saved)
    assert partly.pods == {}
    assert partly.namespaces == saved.namespaces
    assert sorted(partly.contents) == ["a-kube-system", "b-kube-system"]


def test_has_synced_needs_every_kind() -> None:
    assert snapshot().has_synced
    for name in ("namespaces", "pods", "virtual_clusters"):
        assert not snapshot(**{name: None}).has_synced


def test_terminated_pods_are_not_live() -> None:
    over = read_all([pod("a", "done") | {"status": {"phase": "Succeeded"}}, pod("a", "runs")])["Pod"]
    assert [key[1] for key in snapshot(pods=over).live_pods()] == ["runs"]
    assert Snapshot().live_pods() == {}


def test_tenants_and_dns_namespaces_of_pods() -> None:
    found = snapshot()
    assert tenants_of(found.pods or {}) == {"a"}
    assert dns_namespaces(found.namespaces or {}, {"a"}) == {"a-kube-system"}
    assert dns_namespaces(found.namespaces or {}, {"a", "b", "c"}) == {"a-kube-system", "b-kube-system"}
