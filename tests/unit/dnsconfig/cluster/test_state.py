# SPDX-License-Identifier: Apache-2.0
import pytest

from dnsconfig.cluster.state import ClusterState, NamespaceOwner
from tests.cluster_states import ObjectDecodeError, cluster_state_of
from tests.unit.dnsconfig.objects import namespace, network, pod, service, tenant, virtual_cluster


def test_objects_are_grouped_by_kind() -> None:
    cluster = cluster_state_of([*tenant("a", blue="10.0.0.1"), {"apiVersion": "v1", "kind": "Secret"}])
    assert sorted(cluster.namespaces) == ["a-kube-system", "a-shop"]
    assert list(cluster.services) == [("a-kube-system", "kube-dns-blue")]
    assert list(cluster.networks) == [("a-kube-system", "blue")]
    assert cluster.synced_namespaces == {"a-kube-system", "a-shop"}


def test_an_undecodable_object_is_an_error() -> None:
    item = service("a", "blue", "10.0.0.1") | {"spec": {"clusterIP": 7}}
    with pytest.raises(
        ObjectDecodeError, match=r"Service: Expected `str`, got `int` - at `\$.spec.clusterIP`"
    ):
        cluster_state_of([item])


def test_owner_is_read_from_annotations_only() -> None:
    cluster = cluster_state_of(
        [
            namespace("a", "b-c"),
            namespace("a-b", "c", called="elsewhere"),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a-shop"}},
        ]
    )
    assert cluster.owner("a-b-c") == NamespaceOwner("a", "b-c")
    assert cluster.owner("elsewhere") == NamespaceOwner("a-b", "c")
    assert cluster.owner("a-shop") is None
    assert cluster.owner("unknown") is None


def test_dns_namespaces_are_all_that_are_annotated_so() -> None:
    cluster = cluster_state_of([*tenant("a"), namespace("a", "kube-system", called="z"), *tenant("b")])
    assert cluster.dns_namespaces("a") == ("a-kube-system", "z")
    assert cluster.dns_namespaces("b") == ("b-kube-system",)
    assert cluster.dns_namespaces("c") == ()


def test_virtual_clusters_are_found_by_key() -> None:
    own = virtual_cluster("", "own.local", name="vc", uid="7374a172-c35d-45b1-9c8e-bf5c5b614937")
    cluster = cluster_state_of(
        [virtual_cluster("a", "a.local"), own | {"metadata": own["metadata"] | {"name": "test"}}]
    )
    assert [each.spec.cluster_domain for each in cluster.virtual_clusters_of("a")] == ["a.local"]
    assert [each.spec.cluster_domain for each in cluster.virtual_clusters_of("tenants-70b001-test")] == [
        "own.local"
    ]
    assert cluster.virtual_clusters_of("b") == ()


def test_the_order_of_objects_does_not_matter() -> None:
    items = [*tenant("a", blue="10.0.0.1", red="10.0.0.2"), network("a", "x"), pod("a")]
    assert cluster_state_of(items) == cluster_state_of(items[::-1])
    assert cluster_state_of(items) != ClusterState()
