# SPDX-License-Identifier: Apache-2.0
"""What belongs together, and which changes touch what."""

from kubeproxy_ext.compute.guest_view import EVERY_NETWORK, ServiceGroup
from kubeproxy_ext.compute.parse import NamespaceOwner, ServiceInfo, SliceInfo, parse_service, parse_slice
from kubeproxy_ext.compute.service_index import ServiceIndex
from tests.unit.kubeproxy_ext.compute import builders

KEY = ("a", "s")


def parsed(reference: str, ip: str, *, network: str | None = None) -> ServiceInfo:
    found = parse_service(builders.service(reference, ip, network=network))
    assert found is not None
    return found


def slice_of(reference: str, *ips: str, number: int = 1) -> SliceInfo:
    found = parse_slice(builders.endpoint_slice(reference, *ips, number=number))
    assert found is not None
    return found


def test_group_is_namespace_tenant_and_label_network() -> None:
    cluster = ServiceIndex()
    service = parsed("a/s", "172.30.0.1", network="blue")
    assert cluster.group(service) is None
    cluster.put_namespace("a", NamespaceOwner("t", "web"))
    assert cluster.group(service) == ServiceGroup("t", "blue")
    assert cluster.group(parsed("a/s", "172.30.0.1")) == ServiceGroup("t", "default")


def test_unknown_namespace_may_mean_super_cluster() -> None:
    cluster = ServiceIndex(has_all_namespaces=True)
    assert cluster.group(parsed("a/s", "172.30.0.1")) == ServiceGroup(None, "default")


def test_tenant_apiserver_is_in_every_network() -> None:
    cluster = ServiceIndex()
    cluster.put_namespace("t-default", NamespaceOwner("t", "default"))
    cluster.put_namespace("t-web", NamespaceOwner("t", "web"))
    assert cluster.group(parsed("t-default/kubernetes", "172.30.0.1")) == ServiceGroup("t", EVERY_NETWORK)
    assert cluster.group(parsed("t-default/other", "172.30.0.1")) == ServiceGroup("t", "default")
    assert cluster.group(parsed("t-web/kubernetes", "172.30.0.1")) == ServiceGroup("t", "default")
    labelled = parsed("t-default/kubernetes", "172.30.0.1", network="blue")
    assert cluster.group(labelled) == ServiceGroup("t", "blue")


def test_services_change_group_with_their_namespace() -> None:
    cluster = ServiceIndex()
    cluster.put_service(KEY, parsed("a/s", "172.30.0.1"))
    assert list(cluster.groups) == []
    assert cluster.put_namespace("a", NamespaceOwner("t", "a")) == {KEY}
    assert cluster.put_namespace("a", NamespaceOwner("t", "a")) == frozenset()
    assert (set(cluster.groups), set(cluster.members(ServiceGroup("t", "default")))) == (
        {ServiceGroup("t", "default")},
        {KEY},
    )
    assert cluster.put_namespace("a", NamespaceOwner("u", "a")) == {KEY}
    assert cluster.groups_in("a") == {ServiceGroup("u", "default")}
    assert cluster.put_namespace("a", None) == {KEY}
    assert (list(cluster.groups), cluster.groups_in("a")) == ([], frozenset())


def test_equal_service_is_not_a_change() -> None:
    cluster = ServiceIndex()
    assert cluster.put_service(KEY, parsed("a/s", "172.30.0.1"))
    assert not cluster.put_service(KEY, parsed("a/s", "172.30.0.1"))
    assert cluster.put_service(KEY, parsed("a/s", "172.30.0.2"))
    assert cluster.put_service(KEY, None)
    assert not cluster.put_service(KEY, None)
    assert not cluster.remove_service(KEY)


def test_slice_affects_its_service() -> None:
    cluster = ServiceIndex()
    assert cluster.put_slice(("a", "s-1"), slice_of("a/s", "10.0.0.1")) == {KEY}
    assert cluster.put_slice(("a", "s-1"), slice_of("a/s", "10.0.0.1")) == frozenset()
    assert cluster.put_slice(("a", "s-1"), slice_of("a/s", "10.0.0.2")) == {KEY}
    assert len(cluster.slices(KEY)) == 1
    assert cluster.remove_slice(("a", "s-1")) == {KEY}
    assert cluster.remove_slice(("a", "s-1")) == frozenset()
    assert list(cluster.all_slices()) == []


def test_slice_that_changes_service_affects_both() -> None:
    cluster = ServiceIndex()
    first = slice_of("a/s", "10.0.0.1")
    moved = SliceInfo("a", first.name, "t", first.family, first.ports, first.endpoints, ())
    cluster.put_slice(("a", "s-1"), first)
    assert cluster.put_slice(("a", "s-1"), moved) == {KEY, ("a", "t")}
    assert (list(cluster.slices(KEY)), list(cluster.slices(("a", "t")))) == ([], [moved])
    assert cluster.put_slice(("a", "s-1"), None) == {("a", "t")}
