# SPDX-License-Identifier: Apache-2.0
"""Objects as values: which are proxied, which addresses count, and the problems of the rest."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from kubeproxy_ext.compute import objects, parse
from kubeproxy_ext.compute.addresses import AddressRange
from kubeproxy_ext.compute.parse import (
    Addresses,
    EndpointInfo,
    NamespaceOwner,
    PortInfo,
    ServiceInfo,
    SliceInfo,
    parse_namespace,
    parse_service,
    parse_slice,
    parse_zone,
)
from ruleset.model import Family, Protocol
from tests.cases.services.case_file import Selection
from tests.cases.services.load import load_shared
from tests.unit.kubeproxy_ext.compute import builders

CASES = load_shared()


def service(spec: dict[str, Any], **metadata: Any) -> ServiceInfo | None:
    whole = {"clusterIP": "172.30.0.41", "clusterIPs": ["172.30.0.41"], "ipFamilies": ["IPv4"]} | spec
    status = whole.pop("status", None)
    item = objects.read(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "a", "name": "s"} | metadata,
            "spec": whole,
            "status": status,
        }
    )
    assert isinstance(item, objects.ServiceObject)
    return parse_service(item)


def proxied(spec: dict[str, Any], **metadata: Any) -> ServiceInfo:
    found = service(spec, **metadata)
    assert found is not None
    return found


def endpoint_slice(raw: dict[str, Any], service_name: str | None = "s", **labels: str) -> SliceInfo | None:
    named = {} if service_name is None else {"kubernetes.io/service-name": service_name}
    item = objects.read(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"namespace": "a", "name": "s-1", "labels": named | labels},
            "addressType": "IPv4",
        }
        | raw
    )
    assert isinstance(item, objects.EndpointSliceObject)
    return parse_slice(item)


@pytest.mark.parametrize("case", CASES.selection, ids=lambda case: case.reason)
def test_which_services_are_proxied(case: Selection) -> None:
    item = objects.read(case.service.object())
    assert isinstance(item, objects.ServiceObject)
    found = parse_service(item)
    assert (found is not None) == case.is_proxied
    if found is None:
        return
    if case.service_ports is not None:
        assert len(found.ports) == case.service_ports
    if case.ipv4 is not None:
        assert found.ipv4 is not None
        assert found.ipv4.cluster == case.ipv4
    if case.ipv6 is not None:
        assert found.ipv6 is not None
        assert found.ipv6.cluster == case.ipv6


def test_service_with_all_fields() -> None:
    found = proxied(
        {
            "type": "LoadBalancer",
            "clusterIPs": ["172.30.0.041", "FD00:172:30::41"],
            "ipFamilies": ["IPv4", "IPv6"],
            "externalIPs": ["192.168.99.22", "fd00:99::22", "192.168.99.11", "192.168.99.011"],
            "loadBalancerSourceRanges": ["203.0.113.0/25", " 10.0.0.0/8"],
            "internalTrafficPolicy": "Local",
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "ports": [{"name": "u", "protocol": "UDP", "port": 53}, {"name": "t", "port": 53}],
            "status": {
                "loadBalancer": {
                    "ingress": [
                        {"ip": "5.6.7.8", "ipMode": "VIP"},
                        {"ip": "1.2.3.4"},
                        {"ip": "9.9.9.9", "ipMode": "Proxy"},
                        {"hostname": "lb.example"},
                    ]
                }
            },
        },
        creationTimestamp="2026-01-01T00:00:00Z",
        labels={"arktos.futurewei.com/network": "blue"},
        annotations={"tenancy.x-k8s.io/clusterIP": "10.96.0.5, fd00:96::5"},
    )
    assert found == ServiceInfo(
        namespace="a",
        name="s",
        network="blue",
        created="2026-01-01T00:00:00Z",
        ports=(PortInfo("t", Protocol.TCP, 53), PortInfo("u", Protocol.UDP, 53)),
        ipv4=Addresses(
            cluster="172.30.0.41",
            tenant_cluster_ips=("10.96.0.5",),
            external=("192.168.99.11", "192.168.99.22"),
            load_balancer=("1.2.3.4", "5.6.7.8"),
            load_balancer_ranges=(
                AddressRange(Family.IPV4, 0x0A000000, 0x0AFFFFFF),
                AddressRange(Family.IPV4, 0xCB007100, 0xCB00717F),
            ),
        ),
        ipv6=Addresses(
            cluster="fd00:172:30::41",
            tenant_cluster_ips=("fd00:96::5",),
            external=("fd00:99::22",),
            load_balancer=(),
            load_balancer_ranges=None,
        ),
        is_internal_local=True,
        affinity_s=60,
        problems=(),
    )


def test_malformed_address_leaves_the_others() -> None:
    found = proxied(
        {
            "externalIPs": ["1.2.3", "192.168.99.11"],
            "ports": [
                {"name": "p", "port": 80},
                {"name": "q", "port": 70000},
                {"name": "r", "protocol": "QUIC", "port": 1},
            ],
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4\n-F"}]}},
        },
        annotations={"tenancy.x-k8s.io/clusterIP": "x"},
    )
    assert found.ipv4 == Addresses("172.30.0.41", (), ("192.168.99.11",), (), None)
    assert found.ports == (PortInfo("p", Protocol.TCP, 80),)
    assert found.problems == (
        "spec.ports: 'TCP/70000' is not a port",
        "spec.ports: 'QUIC/1' is not a port",
        "tenancy.x-k8s.io/clusterIP: 'x' is not an IP address",
        "spec.externalIPs: '1.2.3' is not an IP address",
        "status.loadBalancer.ingress: '1.2.3.4\\n-F' is not an IP address",
    )


def test_malformed_cluster_ip_leaves_the_other_family() -> None:
    found = proxied({"clusterIPs": ["1.2.3", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]})
    assert found.ipv4 is None
    assert found.ipv6 == Addresses("fd00::1", (), (), (), None)
    assert found.problems == ("spec.clusterIPs: '1.2.3' is not an ipv4 address",)


def test_problems_of_an_object_are_limited() -> None:
    found = proxied({"externalIPs": ["x" * 1000] * 100})
    assert len(found.problems) == 9
    assert found.problems[0] == f"spec.externalIPs: '{'x' * 64}' is not an IP address"
    assert found.problems[8] == "and 92 more"


def test_cluster_ip_without_families_has_its_own() -> None:
    found = proxied({"clusterIP": "fd00::1", "clusterIPs": None, "ipFamilies": None})
    assert found.ipv4 is None
    assert found.ipv6 == Addresses("fd00::1", (), (), (), None)


def test_own_address_equal_to_cluster_ip_is_dropped() -> None:
    found = proxied({}, annotations={"tenancy.x-k8s.io/clusterIP": "172.30.0.41"})
    assert found.ipv4 == Addresses("172.30.0.41", (), (), (), None)


@pytest.mark.parametrize("own", ["", "None"])
def test_own_address_may_be_missing(own: str) -> None:
    found = proxied({}, annotations={"tenancy.x-k8s.io/clusterIP": own})
    assert found.ipv4 == Addresses("172.30.0.41", (), (), (), None)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"sessionAffinity": "None"}, None),
        ({"sessionAffinity": "ClientIP"}, 10800),
        (
            {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}},
            },
            1,
        ),
        ({"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}}, None),
    ],
)
def test_session_affinity_timeout(given: dict[str, Any], seconds: int | None) -> None:
    assert proxied(given).affinity_s == seconds


def test_thousands_of_addresses_parse_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    monkeypatch.setattr(parse, "canonical_ip", Counted)
    monkeypatch.setattr(parse, "sys", SimpleNamespace(intern=lambda text: text))
    ips = [f"10.0.{number >> 8}.{number & 255}" for number in range(1_000)]
    found = proxied({"externalIPs": [*ips, *ips]})
    assert found.ipv4 is not None
    assert found.ipv4.external == tuple(sorted(ips))
    # Once for each duplicate, and for texts with equal hashes; not once for each pair.
    assert 1_000 <= compared < 5_000


def test_too_many_own_addresses_are_ignored() -> None:
    annotation = "tenancy.x-k8s.io/clusterIP"
    own = ",".join(f"10.9.0.{number}" for number in range(17))
    found = proxied({}, annotations={annotation: own})
    assert found.ipv4 is not None
    assert found.ipv4.tenant_cluster_ips == ()
    assert found.problems == (f"{annotation}: it has more than 16 addresses, so all are ignored",)


def test_source_ranges_of_the_other_family_do_not_filter() -> None:
    spec = {"clusterIPs": ["172.30.0.41", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]}
    found = proxied(spec | {"loadBalancerSourceRanges": ["fd00::/8"]})
    assert found.ipv4 is not None
    assert found.ipv4.load_balancer_ranges is None


def test_malformed_source_range_admits_no_client() -> None:
    found = proxied({"loadBalancerSourceRanges": ["everyone"]})
    assert found.ipv4 is not None
    assert found.ipv4.load_balancer_ranges == ()
    assert found.problems == ("spec.loadBalancerSourceRanges: 'everyone' is not an address range",)


_PORTS = [{"name": "p", "protocol": "TCP", "port": 80}]
_ONE = EndpointInfo("10.0.0.1", None, True, True, False, (), ())

_SLICE_RULES: dict[str, tuple[SliceInfo | None, SliceInfo | None]] = {
    "no service-name label": (endpoint_slice({}, service_name=None), None),
    "addressType FQDN": (endpoint_slice({"addressType": "FQDN"}), None),
    "port without a name pointer": (
        endpoint_slice(
            {"ports": [{"port": 80, "protocol": "TCP"}, {"name": "", "port": 81, "protocol": "UDP"}]}
        ),
        SliceInfo("a", "s-1", "s", Family.IPV4, (PortInfo("", Protocol.UDP, 81),), (), ()),
    ),
    "port number nil or 0": (
        endpoint_slice({"ports": [{"name": "n"}, {"name": "z", "port": 0}, *_PORTS]}),
        SliceInfo("a", "s-1", "s", Family.IPV4, (PortInfo("p", Protocol.TCP, 80),), (), ()),
    ),
    "endpoint with no address": (
        endpoint_slice({"endpoints": [{}, {"addresses": []}, {"addresses": ["10.0.0.1"]}]}),
        SliceInfo("a", "s-1", "s", Family.IPV4, (), (_ONE,), ()),
    ),
    "endpoint with several addresses": (
        endpoint_slice({"endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}]}),
        SliceInfo("a", "s-1", "s", Family.IPV4, (), (_ONE,), ()),
    ),
    "address of the wrong family for the slice": (
        endpoint_slice({"endpoints": [{"addresses": ["fd00::1"]}, {"addresses": ["10.0.0.1"]}]}),
        SliceInfo(
            *("a", "s-1", "s", Family.IPV4, (), (_ONE,)),
            ("endpoints: 'fd00::1' is not an ipv4 address",),
        ),
    ),
    "ready unset": (
        endpoint_slice({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"serving": True}}]}),
        SliceInfo("a", "s-1", "s", Family.IPV4, (), (_ONE,), ()),
    ),
    "serving unset": (
        endpoint_slice({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]}),
        SliceInfo(
            *("a", "s-1", "s", Family.IPV4, ()),
            (EndpointInfo("10.0.0.1", None, False, True, False, (), ()),),
            (),
        ),
    ),
    "terminating unset": (
        endpoint_slice({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {}}]}),
        SliceInfo("a", "s-1", "s", Family.IPV4, (), (_ONE,), ()),
    ),
}

# Of several slices at once: tests of endpoints.join.
_ELSEWHERE = {"same ip:port in two slices of a service port"}


@pytest.mark.parametrize("why", CASES.slice_rules)
def test_slice_rules_of_the_case_data(why: str) -> None:
    if why in _ELSEWHERE:
        return
    found, expected = _SLICE_RULES[why]
    assert found == expected


@pytest.mark.parametrize(
    "label", ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"]
)
def test_slice_of_another_proxy_is_ignored(label: str) -> None:
    assert endpoint_slice({}, **{label: ""}) is None


def test_endpoint_has_hints_and_node() -> None:
    raw = {
        "addresses": ["10.0.0.1"],
        "nodeName": "n1",
        "zone": "a",
        "conditions": {"ready": False, "serving": True, "terminating": True},
        "hints": {"forZones": [{"name": "a"}, {"name": "b"}], "forNodes": [{"name": "n1"}]},
    }
    found = endpoint_slice({"endpoints": [raw]})
    assert found is not None
    assert found.endpoints == (EndpointInfo("10.0.0.1", "n1", False, True, True, ("a", "b"), ("n1",)),)


@pytest.mark.parametrize(
    ("annotations", "found_owner"),
    [
        ({}, NamespaceOwner(None, "n")),
        ({"tenancy.x-k8s.io/cluster": "t"}, NamespaceOwner("t", "n")),
        (
            {"tenancy.x-k8s.io/cluster": "t", "tenancy.x-k8s.io/namespace": "default"},
            NamespaceOwner("t", "default"),
        ),
        ({"tenancy.x-k8s.io/cluster": ""}, None),
    ],
)
def test_owner_of_a_namespace(annotations: dict[str, str], found_owner: NamespaceOwner | None) -> None:
    item = objects.NamespaceObject(metadata=objects.Meta(name="n", annotations=annotations))
    assert parse_namespace(item) == found_owner


def test_zone_of_a_node() -> None:
    labels = {"topology.kubernetes.io/zone": "a"}
    assert parse_zone(objects.NodeObject(metadata=objects.Meta(name="n", labels=labels))) == "a"
    assert parse_zone(objects.NodeObject(metadata=objects.Meta(name="n"))) == ""


OWN, OWN_IPS = "tenancy.x-k8s.io/clusterIP", "vcnode.io/clusterIPs"


@pytest.mark.parametrize(
    ("annotations", "ipv4", "ipv6"),
    [
        ({OWN: "10.96.0.7"}, ("10.96.0.7",), ()),
        ({OWN: "10.96.0.7", OWN_IPS: "10.96.0.7,fd00:96::7"}, ("10.96.0.7",), ("fd00:96::7",)),
        ({OWN: "fd00:96::7", OWN_IPS: "fd00:96::7, 10.96.0.7"}, ("10.96.0.7",), ("fd00:96::7",)),
        # Another syncer has written the first one since: the list is about an earlier Service.
        ({OWN: "10.96.0.8", OWN_IPS: "10.96.0.7,fd00:96::7"}, ("10.96.0.8",), ()),
        ({OWN_IPS: "10.96.0.7,fd00:96::7"}, (), ()),
        ({OWN: "10.96.0.7", OWN_IPS: "10.96.0.7" + ",fd00:96::7" * 16}, (), ()),
    ],
)
def test_all_addresses_of_the_tenants_own_control_plane(
    annotations: dict[str, str], ipv4: tuple[str, ...], ipv6: tuple[str, ...]
) -> None:
    item = builders.service("a/s", ["172.30.0.1", "fd00:172::1"])
    found = parse_service(
        structs.replace(item, metadata=structs.replace(item.metadata, annotations=annotations))
    )
    assert found is not None
    assert found.ipv4 is not None
    assert found.ipv6 is not None
    assert (found.ipv4.tenant_cluster_ips, found.ipv6.tenant_cluster_ips) == (ipv4, ipv6)


def test_addresses_of_an_absent_family_are_reported() -> None:
    def parsed(*ips: str) -> ServiceInfo | None:
        own, external = "10.96.0.7,fd00:96::7", ["1.2.3.4", "fd00:1::1", "fd00:1::2"]
        return parse_service(
            builders.service("a/s", ips, own_ip=own, external=external, balancer=["fd00:2::1"])
        )

    found, both = parsed("172.30.0.1"), parsed("172.30.0.1", "fd00:172::1")
    assert found is not None
    lacks = "the Service has no ipv6 address in the super cluster"
    assert found.problems == (
        f"clusterIPs of the tenant: fd00:96::7: {lacks}",
        f"spec.externalIPs: fd00:1::1 and 1 more: {lacks}",
        f"status.loadBalancer.ingress: fd00:2::1: {lacks}",
    )
    assert both is not None
    assert both.problems == ()
