# SPDX-License-Identifier: Apache-2.0
"""Which fields of JSON objects are decoded, and the errors for objects that do not decode."""

import msgspec
import pytest

from kubeproxy_ext.compute import objects


def test_service_decodes_by_api_field_names() -> None:
    assert objects.read(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "namespace": "ns1",
                "name": "svc1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"a": "b"},
                "managedFields": [{"manager": "x"}],
            },
            "spec": {
                "type": "LoadBalancer",
                "clusterIP": "172.30.0.41",
                "clusterIPs": ["172.30.0.41"],
                "ipFamilies": ["IPv4"],
                "externalIPs": ["192.168.99.11"],
                "loadBalancerSourceRanges": ["203.0.113.0/25"],
                "internalTrafficPolicy": "Local",
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "ports": [
                    {"name": "p80", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 3001}
                ],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "Proxy"}]}},
        }
    ) == objects.ServiceObject(
        metadata=objects.Meta(
            namespace="ns1", name="svc1", creation_timestamp="2026-01-01T00:00:00Z", labels={"a": "b"}
        ),
        spec=objects.ServiceSpec(
            type="LoadBalancer",
            cluster_ip="172.30.0.41",
            cluster_ips=["172.30.0.41"],
            ip_families=["IPv4"],
            external_ips=["192.168.99.11"],
            load_balancer_source_ranges=["203.0.113.0/25"],
            internal_traffic_policy="Local",
            session_affinity="ClientIP",
            session_affinity_config=objects.AffinityConfig(
                client_ip=objects.ClientIpConfig(timeout_seconds=60)
            ),
            ports=[objects.ServicePort(name="p80", protocol="TCP", port=80)],
        ),
        status=objects.ServiceStatus(
            load_balancer=objects.LoadBalancer(ingress=[objects.Ingress(ip="1.2.3.4", ip_mode="Proxy")])
        ),
    )


def test_slice_endpoints_may_be_null() -> None:
    item = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": "ns1", "name": "svc1-x"},
        "addressType": "IPv4",
        "endpoints": None,
        "ports": None,
    }
    assert objects.read(item) == objects.EndpointSliceObject(
        metadata=objects.Meta(namespace="ns1", name="svc1-x"), address_type="IPv4"
    )


def test_unset_conditions_differ_from_false() -> None:
    raw = b'{"addresses":["10.0.0.1"],"conditions":{"ready":null,"serving":false},"nodeName":"n1"}'
    assert msgspec.json.decode(raw, type=objects.SliceEndpoint) == objects.SliceEndpoint(
        addresses=["10.0.0.1"],
        conditions=objects.Conditions(ready=None, serving=False, terminating=None),
        node_name="n1",
    )


def test_other_kinds_are_skipped() -> None:
    assert objects.read({"apiVersion": "v1", "kind": "Pod"}) is None
    assert objects.read({"apiVersion": "serving.knative.dev/v1", "kind": "Service"}) is None
    assert objects.read({}) is None


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            {"metadata": {"namespace": "a", "name": "b"}, "spec": {"ports": [{"port": "x"}]}},
            "Service a/b: Expected `int`, got `str` - at `$.spec.ports[0].port`",
        ),
        ({"metadata": 7}, "Service ?: Expected `object`, got `int` - at `$.metadata`"),
    ],
)
def test_undecodable_object_is_named_in_the_error(item: dict[str, object], message: str) -> None:
    with pytest.raises(objects.UnreadableError) as caught:
        objects.read({"apiVersion": "v1", "kind": "Service"} | item)
    assert str(caught.value) == message
