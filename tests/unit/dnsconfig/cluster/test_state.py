# SPDX-License-Identifier: Apache-2.0
import pytest

from dnsconfig.cluster.objects import ObjectDecodeError
from dnsconfig.cluster.state import ClusterState, NamespaceOwner, cluster_state_of
from tests.unit.dnsconfig.objects import namespace, network, pod, service, tenant, virtual_cluster


def test_objects_are_sorted_by_kind_and_the_rest_is_left_out() -> None:
    world = cluster_state_of([*tenant("a", blue="10.0.0.1"), {"apiVersion": "v1", "kind": "Secret"}])
    assert sorted(world.namespaces) == ["a-kube-system", "a-shop"]
    assert list(world.services) == [("a-kube-system", "kube-dns-blue")]
    assert list(world.networks) == [("a-kube-system", "blue")]
    assert world.synced_namespaces == {"a-kube-system", "a-shop"}


def test_an_object_of_another_shape_is_an_error() -> None:
    item = service("a", "blue", "10.0.0.1") | {"spec": {"clusterIP": 7}}
    with pytest.raises(
        ObjectDecodeError, match=r"Service: Expected `str`, got `int` - at `\$.spec.clusterIP`"
    ):
        cluster_state_of([item])


def test_owners_are_read_and_never_guessed_from_a_name() -> None:
    world = cluster_state_of(
        [
            namespace("a", "b-c"),
            namespace("a-b", "c", called="elsewhere"),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a-shop"}},
        ]
    )
    assert world.owner("a-b-c") == NamespaceOwner("a", "b-c")
    assert world.owner("elsewhere") == NamespaceOwner("a-b", "c")
    assert world.owner("a-shop") is None
    assert world.owner("unheard-of") is None


def test_the_dns_namespaces_of_a_tenant_are_all_that_say_so() -> None:
    world = cluster_state_of([*tenant("a"), namespace("a", "kube-system", called="z"), *tenant("b")])
    assert world.dns_namespaces("a") == ("a-kube-system", "z")
    assert world.dns_namespaces("b") == ("b-kube-system",)
    assert world.dns_namespaces("c") == ()


def test_clusters_by_the_key_that_they_have() -> None:
    own = virtual_cluster("", "own.local", name="vc", uid="7374a172-c35d-45b1-9c8e-bf5c5b614937")
    world = cluster_state_of(
        [virtual_cluster("a", "a.local"), own | {"metadata": own["metadata"] | {"name": "test"}}]
    )
    assert [each.spec.cluster_domain for each in world.clusters_of("a")] == ["a.local"]
    assert [each.spec.cluster_domain for each in world.clusters_of("tenants-70b001-test")] == ["own.local"]
    assert world.clusters_of("b") == ()


def test_two_worlds_of_the_same_objects_are_equal_in_any_order() -> None:
    items = [*tenant("a", blue="10.0.0.1", red="10.0.0.2"), network("a", "x"), pod("a")]
    assert cluster_state_of(items) == cluster_state_of(items[::-1])
    assert cluster_state_of(items) != ClusterState()
