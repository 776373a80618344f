# SPDX-License-Identifier: Apache-2.0
"""A pod's network and its server: each way to become another tenant's DNS server is a case."""

from dataclasses import replace
from typing import Any

import pytest

from dnsconfig.cluster.state import Absence, ClusterState, ResolverSettings
from dnsconfig.resolve.network import (
    ClusterDomain,
    ClusterIps,
    NetworkServer,
    PodNetwork,
    cluster_ips_of,
    domain_of,
    network_of,
    server_of,
)
from dnsconfig.resolve.waiting import PodWaiting, WaitReason
from tenancy import keys
from tests.cluster_states import cluster_state_of
from tests.unit.dnsconfig.objects import Json, namespace, network, service, tenant, virtual_cluster

LABEL = keys.ARKTOS_NETWORK


# ---- the label


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, PodNetwork("default", f"label {LABEL} is not set")),
        ({"app": "web"}, PodNetwork("default", f"label {LABEL} is not set")),
        ({LABEL: ""}, PodNetwork("default", f"label {LABEL} is empty")),
        ({LABEL: "blue"}, PodNetwork("blue", f"label {LABEL}")),
        ({LABEL: "default"}, PodNetwork("default", f"label {LABEL}")),
        ({LABEL: "a" * 54}, PodNetwork("a" * 54, f"label {LABEL}")),
    ],
)
def test_a_label_names_a_network(labels: dict[str, str], expected: PodNetwork) -> None:
    assert network_of(labels) == expected


@pytest.mark.parametrize(
    "value",
    [
        *("Blue", "blue_1", "blue.red", "-blue", "blue-", " blue", "blue ", "\N{CYRILLIC SMALL LETTER A}"),
        *("a/../b", "../kube-system/kube-dns", "x\nnameserver 6.6.6.6", "%62lue", "a" * 55, "*", "blue,red"),
    ],
)
def test_an_invalid_network_label_waits(value: str) -> None:
    found = network_of({LABEL: value})
    assert isinstance(found, PodWaiting)
    assert found.reason is WaitReason.INVALID_NETWORK_NAME
    assert found.message == (
        f"label {LABEL} is {value[:80]!r}, which is not a valid network name: "
        "use lower-case letters, digits and hyphens, 54 at most"
    )


# ---- the server


def cluster(*items: Json) -> ClusterState:
    return cluster_state_of([*tenant("a", blue="10.0.0.1"), *items])


def without(kind: str, *items: Json) -> ClusterState:
    return cluster_state_of(
        [item for item in tenant("a", blue="10.0.0.1") if item["kind"] != kind] + list(items)
    )


SERVED = NetworkServer(("10.0.0.1",), "network blue: Service kube-system/kube-dns-blue", is_cluster_ip=True)


def test_server_is_the_networks_service() -> None:
    assert server_of(cluster(), "a", "blue") == SERVED


def test_dual_stack_addresses_are_as_go_prints_them() -> None:
    here = without(
        "Service", service("a", "blue", "fd00:0:0::0a", "::ffff:10.0.0.1", "None", "x", "fe80::1%e")
    )
    found = server_of(here, "a", "blue")
    assert isinstance(found, NetworkServer)
    assert found.addresses == ("fd00::a", "10.0.0.1")


def test_single_stack_service_has_one_address() -> None:
    item = service("a", "blue", "10.0.0.1")
    del item["spec"]["clusterIPs"]
    assert server_of(without("Service", item), "a", "blue") == SERVED


@pytest.mark.parametrize(
    ("here", "cause", "reason"),
    [
        (without("Network"), WaitReason.NOT_FOUND, "network blue does not exist"),
        (
            without("Network", network("b", "blue"), namespace("b", "kube-system")),
            WaitReason.NOT_FOUND,
            "network blue does not exist",
        ),
        (
            without("Network", network("a", "blue", where="a-shop")),
            WaitReason.NOT_FOUND,
            "network blue does not exist",
        ),
        (
            without("Network", network("a", "blue", annotations={keys.CLUSTER: "b"})),
            WaitReason.FOREIGN_OBJECT,
            "Network blue is annotated as another tenant's",
        ),
        (
            without("Network", network("a", "blue", "Unknown")),
            WaitReason.NETWORK_NOT_READY,
            "network blue is not ready, phase Unknown",
        ),
        (
            without("Network", network("a", "blue", "Failed", message="no CIDR left")),
            WaitReason.NETWORK_NOT_READY,
            "network blue is not ready, phase Failed: no CIDR left",
        ),
        (
            without("Network", network("a", "blue", "")),
            WaitReason.NETWORK_NOT_READY,
            "network blue is not ready, no phase yet",
        ),
        (
            without("Network", {**network("a", "blue"), "status": None}),
            WaitReason.NETWORK_NOT_READY,
            "network blue is not ready, no phase yet",
        ),
        (
            without("Network", network("a", "blue", deletionTimestamp="2026-11-20T00:00:00Z")),
            WaitReason.NETWORK_NOT_READY,
            "network blue is being deleted",
        ),
        (
            without("Service"),
            WaitReason.NO_SERVER_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist",
        ),
        (
            without("Service", service("a", "blue")),
            WaitReason.NO_SERVER_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue has no cluster IP",
        ),
        # Another owner's Service of that name, in each namespace where it could be.
        (
            without("Service", service("a", "blue", "6.6.6.6", where="a-shop")),
            WaitReason.NO_SERVER_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist",
        ),
        (
            without("Service", service("b", "blue", "6.6.6.6"), namespace("b", "kube-system")),
            WaitReason.NO_SERVER_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist",
        ),
        (
            without("Service", service("", "blue", "6.6.6.6", where="kube-system")),
            WaitReason.NO_SERVER_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist",
        ),
        (
            without("Service", service("a", "blue", "6.6.6.6", annotations={keys.CLUSTER: "b"})),
            WaitReason.FOREIGN_OBJECT,
            "Service kube-system/kube-dns-blue is annotated as another tenant's",
        ),
        (
            without("Service", service("a", "blue", "6.6.6.6", labels={LABEL: "red"})),
            WaitReason.FOREIGN_OBJECT,
            f"Service kube-system/kube-dns-blue is of network red, not blue (label {LABEL})",
        ),
        (
            without("Service", service("a", "blue", "6.6.6.6", labels={})),
            WaitReason.FOREIGN_OBJECT,
            f"Service kube-system/kube-dns-blue is of network default, not blue (label {LABEL})",
        ),
        (
            cluster_state_of([namespace("a", "shop")]),
            WaitReason.NOT_FOUND,
            "namespace kube-system does not exist in the super cluster (yet)",
        ),
        (
            replace(cluster_state_of([]), has_namespaces=False),
            WaitReason.NOT_SYNCED,
            "the super cluster's Namespaces are not synced",
        ),
        (
            replace(cluster(), synced_namespaces=frozenset({"a-shop"})),
            WaitReason.NOT_SYNCED,
            "this tenant's Networks and Services are not synced",
        ),
        (
            cluster(namespace("a", "kube-system", called="b-kube-system")),
            WaitReason.OWNER_UNKNOWN,
            "more than one namespace of the super cluster is annotated as this tenant's kube-system",
        ),
        (
            replace(cluster(), unreadable={("Network", ("a-kube-system", "blue")): "bad"}),
            WaitReason.UNREADABLE,
            "Network blue cannot be read: bad",
        ),
        (
            replace(cluster(), unreadable={("Service", ("a-kube-system", "kube-dns-blue")): "bad"}),
            WaitReason.UNREADABLE,
            "Service kube-system/kube-dns-blue cannot be read: bad",
        ),
    ],
)
def test_server_of_waits_with_a_reason(here: ClusterState, cause: WaitReason, reason: str) -> None:
    assert server_of(here, "a", "blue") == PodWaiting(cause, reason)


def test_keys_with_a_common_prefix_are_distinct() -> None:
    here = cluster_state_of([*tenant("a", blue="10.0.0.1"), *tenant("a-b", blue="10.0.0.2")])
    assert server_of(here, "a-b", "blue") == replace(SERVED, addresses=("10.0.0.2",))
    assert server_of(here, "a", "blue") == SERVED


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        # The provider's status is the address only if the provider runs the network ...
        ([network("a", "blue", ipam="External", dns_service_ip="172.31.0.2")], "172.31.0.2"),
        (
            [network("a", "blue", ipam="External", dns_service_ip="172.31.0.2"), service("a", "blue")],
            "172.31.0.2",
        ),
        # ... and a Service with an address takes precedence.
        (
            [
                network("a", "blue", ipam="External", dns_service_ip="172.31.0.2"),
                service("a", "blue", "10.0.0.9"),
            ],
            "10.0.0.9",
        ),
        ([network("a", "blue", ipam="External", dns_service_ip="no address")], None),
        ([network("a", "blue", ipam="Kubernetes", dns_service_ip="172.31.0.2")], None),
        ([network("a", "blue", ipam="", dns_service_ip="172.31.0.2")], None),
    ],
)
def test_status_address_counts_for_ipam_external_only(items: list[Json], expected: str | None) -> None:
    here = cluster_state_of([namespace("a", "kube-system"), *items])
    found = server_of(here, "a", "blue")
    assert (found.addresses if isinstance(found, NetworkServer) else None) == (expected and (expected,))
    assert not isinstance(found, NetworkServer) or found.is_cluster_ip == (expected == "10.0.0.9")


# ---- the addresses that its Service holds

UNREADABLE_SERVICE = {("Service", ("a-kube-system", "kube-dns-blue")): "bad"}
EXTERNAL_NAME = service("a", "blue", "10.0.0.1") | {
    "spec": {"type": "ExternalName", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}
}


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        (cluster(), ClusterIps(("10.0.0.1",))),
        # An address of the Service is its tenant's, whatever else is wrong.
        (without("Network"), ClusterIps(("10.0.0.1",))),
        (without("Network", network("a", "blue", "Failed")), ClusterIps(("10.0.0.1",))),
        (
            without("Service", service("a", "blue", "10.0.0.1", labels={LABEL: "red"})),
            ClusterIps(("10.0.0.1",)),
        ),
        (without("Service", service("a", "blue")), ClusterIps()),
        (without("Service", EXTERNAL_NAME), ClusterIps()),
        (without("Service"), ClusterIps()),
        (without("Service", service("a", "blue", "10.0.0.1", where="a-shop")), ClusterIps()),
        (
            replace(without("Service"), absences={"a-kube-system": Absence.UNCONFIRMED}),
            ClusterIps(is_confirmed=False),
        ),
        # An existing Service confirms its addresses.
        (replace(cluster(), absences={"a-kube-system": Absence.UNCONFIRMED}), ClusterIps(("10.0.0.1",))),
        # Unknown is not no.
        (replace(without("Service"), absences={"a-kube-system": Absence.UNKNOWN}), None),
        (replace(without("Service"), absences={}), None),
        (replace(without("Service"), synced_namespaces=frozenset()), None),
        (replace(without("Service"), unreadable=UNREADABLE_SERVICE), None),
        (cluster_state_of([namespace("a", "shop")]), None),
        (cluster(namespace("a", "kube-system", called="other")), None),
        # A deleted Namespace has no Services.
        (ClusterState(dns_namespace_absences={"a": Absence.CONFIRMED}), ClusterIps()),
        (ClusterState(dns_namespace_absences={"a": Absence.UNCONFIRMED}), ClusterIps(is_confirmed=False)),
        (ClusterState(dns_namespace_absences={"b": Absence.CONFIRMED}), None),
    ],
)
def test_cluster_ips_of_a_service_in_each_state(here: ClusterState, expected: ClusterIps | None) -> None:
    assert cluster_ips_of(here, "a", "blue") == expected


# ---- a plain kube-dns


def plain(tenant: str, *ips: str, **fields: Any) -> Json:
    made = service(tenant, "default", *ips, **fields)
    made["metadata"]["name"] = "kube-dns"
    return made


def with_plain(*items: Json, plain_kube_dns: bool = True) -> ClusterState:
    of_a = [namespace("a", "kube-system"), network("a", "default"), network("a", "blue")]
    settings = ResolverSettings(plain_kube_dns=plain_kube_dns)
    return cluster_state_of([*of_a, namespace("b", "kube-system"), *items], settings)


@pytest.mark.parametrize(
    ("here", "servers"),
    [
        (with_plain(plain("a", "10.0.0.7")), ("10.0.0.7",)),
        (with_plain(plain("a", "10.0.0.7"), service("a", "default", "10.0.0.1")), ("10.0.0.1",)),
        (with_plain(plain("a", "10.0.0.7"), plain_kube_dns=False), "does not exist"),
        # The network's own Service takes precedence, also before it has an address.
        (with_plain(plain("a", "10.0.0.7"), service("a", "default")), "has no cluster IP"),
        # Never another tenant's, and never one of another network.
        (with_plain(plain("b", "10.0.0.7")), "does not exist"),
        (with_plain(plain("a", "10.0.0.7", where="a-shop")), "does not exist"),
        (with_plain(plain("a", "10.0.0.7", labels={LABEL: "blue"})), "is of network blue, not default"),
        (
            with_plain(plain("a", "10.0.0.7", annotations={keys.CLUSTER: "b"})),
            "is annotated as another tenant's",
        ),
    ],
)
def test_a_plain_kube_dns_serves_the_default_network(
    here: ClusterState, servers: tuple[str, ...] | str
) -> None:
    found = server_of(here, "a", "default")
    if isinstance(servers, str):
        assert isinstance(found, PodWaiting)
        assert servers in found.message
    else:
        assert isinstance(found, NetworkServer)
        assert found.addresses == servers
    blue = server_of(here, "a", "blue")
    assert isinstance(blue, PodWaiting)
    assert blue.message.endswith("Service kube-system/kube-dns-blue does not exist")


def test_default_network_has_the_ips_of_both_services() -> None:
    both = with_plain(plain("a", "10.0.0.7"), service("a", "default", "10.0.0.1"))
    assert cluster_ips_of(both, "a", "default") == ClusterIps(("10.0.0.1", "10.0.0.7"))
    assert cluster_ips_of(with_plain(plain("a", "10.0.0.7")), "a", "default") == ClusterIps(("10.0.0.7",))
    assert cluster_ips_of(with_plain(plain("a", "10.0.0.7")), "a", "blue") == ClusterIps()
    odd = replace(both, unreadable={("Service", ("a-kube-system", "kube-dns")): "bad"})
    assert cluster_ips_of(odd, "a", "default") is None


# ---- the cluster domain


@pytest.mark.parametrize(
    ("items", "fields", "expected"),
    [
        ([], {}, ClusterDomain("cluster.local", "the default")),
        ([], {"settings": ResolverSettings("k8s")}, ClusterDomain("k8s", "the default")),
        (
            [virtual_cluster("a", "a.local")],
            {},
            ClusterDomain("a.local", "the VirtualCluster's clusterDomain"),
        ),
        ([virtual_cluster("a", "")], {}, ClusterDomain("cluster.local", "the default")),
        ([virtual_cluster("b", "b.local")], {}, ClusterDomain("cluster.local", "the default")),
        (
            [virtual_cluster("a", "a.local")],
            {"settings": ResolverSettings(tenant_domains={"a": "own"})},
            ClusterDomain("own", "configured for this tenant"),
        ),
        (
            [],
            {"settings": ResolverSettings(tenant_domains={"a": "own"}), "has_virtual_clusters": False},
            ClusterDomain("own", "configured for this tenant"),
        ),
        (
            [],
            {"has_virtual_clusters": False},
            PodWaiting(
                WaitReason.NOT_SYNCED, "the cluster domain is unknown: VirtualClusters are not synced"
            ),
        ),
        (
            [virtual_cluster("a", "a.local"), virtual_cluster("a", "other", name="vc2")],
            {},
            PodWaiting(
                WaitReason.CLUSTER_DOMAIN_UNKNOWN,
                "the cluster domain is unknown: two VirtualClusters have this tenant's key",
            ),
        ),
        (
            [virtual_cluster("a", "x\nnameserver 6.6.6.6")],
            {},
            PodWaiting(
                WaitReason.CLUSTER_DOMAIN_UNKNOWN,
                "the VirtualCluster's clusterDomain is not a domain: 'x\\nnameserver 6.6.6.6'",
            ),
        ),
    ],
)
def test_cluster_domain_sources_and_failures(
    items: list[Json], fields: dict[str, Any], expected: ClusterDomain | PodWaiting
) -> None:
    assert domain_of(replace(cluster_state_of(items), **fields), "a") == expected


def test_an_unreadable_virtual_cluster_is_not_missing() -> None:
    """Its key is inside the unreadable object: any tenant without another one may own it."""
    unreadable = {("VirtualCluster", ("tenants", "somebodys")): "Expected `str`, got `int`"}
    cluster = replace(cluster_state_of([virtual_cluster("a", "a.example")]), unreadable=unreadable)
    assert domain_of(cluster, "a") == ClusterDomain("a.example", "the VirtualCluster's clusterDomain")
    expected = "the cluster domain is unknown: a VirtualCluster cannot be read, and no other has this key"
    assert domain_of(cluster, "b") == PodWaiting(WaitReason.UNREADABLE, expected)
    assert domain_of(
        replace(cluster, settings=ResolverSettings(tenant_domains={"b": "own"})), "b"
    ) == ClusterDomain("own", "configured for this tenant")


@pytest.mark.parametrize(
    ("labels", "attached", "network", "is_changed"),
    [
        ({LABEL: "blue"}, (), "blue", False),
        ({LABEL: "blue"}, ("blue",), "blue", False),
        ({}, ("default",), "default", False),
        ({LABEL: "red"}, ("blue",), "blue", True),
        ({LABEL: "Not a name"}, ("blue",), "blue", True),
        ({}, ("blue",), "blue", True),
        ({LABEL: "red"}, ("default",), "default", True),
    ],
)
def test_sandbox_network_precedes_a_changed_label(
    labels: dict[str, str], attached: tuple[str, ...], network: str, is_changed: bool
) -> None:
    found = network_of(labels, attached)
    assert isinstance(found, PodNetwork)
    assert found.network == network
    assert ("changed since" in found.source) is is_changed
