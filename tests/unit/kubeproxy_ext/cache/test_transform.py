# SPDX-License-Identifier: Apache-2.0
import msgspec

from kubeproxy_ext.cache import transform
from kubeproxy_ext.compute.objects import EndpointSliceObject, NamespaceObject, NodeObject, ServiceObject
from kubeproxy_ext.compute.packed_slices import endpoints_of
from kubeproxy_ext.compute.parse import parse_namespace, parse_service, parse_slice, parse_zone

META = {"name": "web", "namespace": "a-default", "uid": "u1", "resourceVersion": "7"}
SERVICE = {
    "metadata": META
    | {
        "labels": {"app": "web", "arktos.futurewei.com/network": "blue"},
        "annotations": {"tenancy.x-k8s.io/clusterIP": "172.20.0.1", "kubectl.kubernetes.io/x": "{}"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "p", "port": 80}]},
}
SLICE = {
    "metadata": META
    | {
        "labels": {"kubernetes.io/service-name": "web", "app": "web"},
        "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z", "x": "y"},
    },
    "addressType": "IPv4",
    "endpoints": [
        {
            "addresses": [f"10.0.0.{number}", "10.9.9.9"],
            "conditions": {"ready": True, "serving": True},
            "nodeName": "n1",
            "hints": {"forZones": [{"name": "z1"}], "forNodes": [{"name": "n1"}]},
        }
        for number in (1, 2)
    ],
    "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}],
}


def test_transformed_service_parses_as_before() -> None:
    whole = msgspec.convert(SERVICE, ServiceObject)
    kept = transform.service(whole)
    assert parse_service(kept) == parse_service(whole)
    assert kept.metadata.labels == {"arktos.futurewei.com/network": "blue"}
    assert kept.metadata.annotations == {"tenancy.x-k8s.io/clusterIP": "172.20.0.1"}
    assert (kept.metadata.uid, kept.metadata.resource_version) == ("u1", "7")


def test_transformed_slice_parses_as_before() -> None:
    whole = msgspec.convert(SLICE, EndpointSliceObject)
    kept = transform.endpoint_slice(whole)
    assert parse_slice(kept) == parse_slice(whole)
    assert kept.metadata.labels == {"kubernetes.io/service-name": "web"}
    assert list(kept.metadata.annotations) == ["endpoints.kubernetes.io/last-change-trigger-time"]
    assert kept.endpoints is None
    assert [each.addresses for each in endpoints_of(kept)] == [["10.0.0.1"], ["10.0.0.2"]]
    empty = transform.endpoint_slice(EndpointSliceObject())
    assert (empty.endpoints, empty.ports) == (None, None)


def test_transform_keeps_the_labels_of_other_proxies() -> None:
    for label in ("service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"):
        labelled = SLICE | {"metadata": META | {"labels": {label: "", "kubernetes.io/service-name": "web"}}}
        assert parse_slice(transform.endpoint_slice(msgspec.convert(labelled, EndpointSliceObject))) is None


def test_transformed_namespace_and_node_parse_as_before() -> None:
    annotations = {"tenancy.x-k8s.io/cluster": "a", "tenancy.x-k8s.io/namespace": "default", "x": "y"}
    namespace = msgspec.convert({"metadata": META | {"annotations": annotations}}, NamespaceObject)
    kept = transform.namespace(namespace)
    assert parse_namespace(kept) == parse_namespace(namespace)
    assert "x" not in kept.metadata.annotations
    labels = {"topology.kubernetes.io/zone": "z1", "x": "y"}
    node = msgspec.convert({"metadata": {"name": "n1", "labels": labels}}, NodeObject)
    assert parse_zone(transform.node(node)) == "z1"
    assert transform.node(node).metadata.labels == {"topology.kubernetes.io/zone": "z1"}
