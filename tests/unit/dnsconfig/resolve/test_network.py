# SPDX-License-Identifier: Apache-2.0
"""Which network, which server: each way in which somebody could become another's resolver is a case."""

from dataclasses import replace
from typing import Any

import pytest

from dnsconfig.cluster.state import Absence, World, world_of
from dnsconfig.resolve.network import (
    ClusterIps,
    Domain,
    Membership,
    Server,
    cluster_ips_of,
    domain_of,
    network_of,
    server_of,
)
from dnsconfig.resolve.waiting import Cause, Waits
from tenancy import keys
from tests.unit.dnsconfig.objects import Json, namespace, network, service, tenant, virtual_cluster

LABEL = keys.ARKTOS_NETWORK


# ---- the label


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, Membership("default", f"label {LABEL} is not set")),
        ({"app": "web"}, Membership("default", f"label {LABEL} is not set")),
        ({LABEL: ""}, Membership("default", f"label {LABEL} is empty")),
        ({LABEL: "blue"}, Membership("blue", f"label {LABEL}")),
        ({LABEL: "default"}, Membership("default", f"label {LABEL}")),
        ({LABEL: "a" * 54}, Membership("a" * 54, f"label {LABEL}")),
    ],
)
def test_a_label_names_a_network(labels: dict[str, str], expected: Membership) -> None:
    assert network_of(labels) == expected


@pytest.mark.parametrize(
    "value",
    [
        *("Blue", "blue_1", "blue.red", "-blue", "blue-", " blue", "blue ", "\N{CYRILLIC SMALL LETTER A}"),
        *("a/../b", "../kube-system/kube-dns", "x\nnameserver 6.6.6.6", "%62lue", "a" * 55, "*", "blue,red"),
    ],
)
def test_a_label_that_can_name_none_waits(value: str) -> None:
    found = network_of({LABEL: value})
    assert isinstance(found, Waits)
    assert found.cause is Cause.NAME
    assert found.reason == (
        f"label {LABEL} is {value[:80]!r}, which can be no network's name: "
        "lower-case letters, digits and hyphens, 54 at most"
    )


# ---- the server


def world(*items: Json) -> World:
    return world_of([*tenant("a", blue="10.0.0.1"), *items])


def without(kind: str, *items: Json) -> World:
    return world_of([item for item in tenant("a", blue="10.0.0.1") if item["kind"] != kind] + list(items))


SERVED = Server(("10.0.0.1",), "network blue: Service kube-system/kube-dns-blue", is_cluster_ip=True)


def test_the_server_of_a_network_is_its_service() -> None:
    assert server_of(world(), "a", "blue") == SERVED


def test_both_addresses_of_a_service_count_as_go_prints_them() -> None:
    here = without(
        "Service", service("a", "blue", "fd00:0:0::0a", "::ffff:10.0.0.1", "None", "x", "fe80::1%e")
    )
    found = server_of(here, "a", "blue")
    assert isinstance(found, Server)
    assert found.addresses == ("fd00::a", "10.0.0.1")


def test_a_service_from_before_dual_stack_has_one_address() -> None:
    item = service("a", "blue", "10.0.0.1")
    del item["spec"]["clusterIPs"]
    assert server_of(without("Service", item), "a", "blue") == SERVED


@pytest.mark.parametrize(
    ("here", "cause", "reason"),
    [
        (without("Network"), Cause.MISSING, "network blue does not exist"),
        (
            without("Network", network("b", "blue"), namespace("b", "kube-system")),
            Cause.MISSING,
            "network blue does not exist",
        ),
        (
            without("Network", network("a", "blue", where="a-shop")),
            Cause.MISSING,
            "network blue does not exist",
        ),
        (
            without("Network", network("a", "blue", annotations={keys.CLUSTER: "b"})),
            Cause.FOREIGN,
            "Network blue says to be another tenant's",
        ),
        (
            without("Network", network("a", "blue", "Unknown")),
            Cause.NOT_READY,
            "network blue is not ready, phase Unknown",
        ),
        (
            without("Network", network("a", "blue", "Failed", message="no CIDR left")),
            Cause.NOT_READY,
            "network blue is not ready, phase Failed: no CIDR left",
        ),
        (
            without("Network", network("a", "blue", "")),
            Cause.NOT_READY,
            "network blue is not ready, no phase yet",
        ),
        (
            without("Network", {**network("a", "blue"), "status": None}),
            Cause.NOT_READY,
            "network blue is not ready, no phase yet",
        ),
        (
            without("Network", network("a", "blue", deletionTimestamp="2026-11-20T00:00:00Z")),
            Cause.NOT_READY,
            "network blue is being removed",
        ),
        (
            without("Service"),
            Cause.NO_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist",
        ),
        (
            without("Service", service("a", "blue")),
            Cause.NO_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue has no cluster IP",
        ),
        # Somebody else's Service of that name, in each place where it could stand.
        (
            without("Service", service("a", "blue", "6.6.6.6", where="a-shop")),
            Cause.NO_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist",
        ),
        (
            without("Service", service("b", "blue", "6.6.6.6"), namespace("b", "kube-system")),
            Cause.NO_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist",
        ),
        (
            without("Service", service("", "blue", "6.6.6.6", where="kube-system")),
            Cause.NO_ADDRESS,
            "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist",
        ),
        (
            without("Service", service("a", "blue", "6.6.6.6", annotations={keys.CLUSTER: "b"})),
            Cause.FOREIGN,
            "Service kube-system/kube-dns-blue says to be another tenant's",
        ),
        (
            without("Service", service("a", "blue", "6.6.6.6", labels={LABEL: "red"})),
            Cause.FOREIGN,
            f"Service kube-system/kube-dns-blue is of network red, not blue (label {LABEL})",
        ),
        (
            without("Service", service("a", "blue", "6.6.6.6", labels={})),
            Cause.FOREIGN,
            f"Service kube-system/kube-dns-blue is of network default, not blue (label {LABEL})",
        ),
        (
            world_of([namespace("a", "shop")]),
            Cause.MISSING,
            "namespace kube-system is not in the super cluster (yet)",
        ),
        (
            replace(world_of([]), has_namespaces=False),
            Cause.UNHEARD,
            "namespace kube-system is not in the super cluster (yet)",
        ),
        (
            replace(world(), heard=frozenset({"a-shop"})),
            Cause.UNHEARD,
            "the API server has not told of this tenant's networks yet",
        ),
        (
            world(namespace("a", "kube-system", called="b-kube-system")),
            Cause.OWNER,
            "more than one namespace of the super cluster says to be kube-system",
        ),
        (
            replace(world(), unreadable={("Network", ("a-kube-system", "blue")): "bad"}),
            Cause.UNREADABLE,
            "Network blue cannot be read: bad",
        ),
        (
            replace(world(), unreadable={("Service", ("a-kube-system", "kube-dns-blue")): "bad"}),
            Cause.UNREADABLE,
            "Service kube-system/kube-dns-blue cannot be read: bad",
        ),
    ],
)
def test_what_a_pod_waits_for(here: World, cause: Cause, reason: str) -> None:
    assert server_of(here, "a", "blue") == Waits(cause, reason)


def test_a_tenant_whose_key_begins_like_anothers_gets_its_own() -> None:
    here = world_of([*tenant("a", blue="10.0.0.1"), *tenant("a-b", blue="10.0.0.2")])
    assert server_of(here, "a-b", "blue") == replace(SERVED, addresses=("10.0.0.2",))
    assert server_of(here, "a", "blue") == SERVED


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        # Only where the provider runs the network may its word be the address ...
        ([network("a", "blue", ipam="External", told_ip="172.31.0.2")], "172.31.0.2"),
        (
            [network("a", "blue", ipam="External", told_ip="172.31.0.2"), service("a", "blue")],
            "172.31.0.2",
        ),
        # ... and a Service with an address goes before it.
        (
            [network("a", "blue", ipam="External", told_ip="172.31.0.2"), service("a", "blue", "10.0.0.9")],
            "10.0.0.9",
        ),
        ([network("a", "blue", ipam="External", told_ip="no address")], None),
        ([network("a", "blue", ipam="Kubernetes", told_ip="172.31.0.2")], None),
        ([network("a", "blue", ipam="", told_ip="172.31.0.2")], None),
    ],
)
def test_the_word_of_a_networks_status(items: list[Json], expected: str | None) -> None:
    here = world_of([namespace("a", "kube-system"), *items])
    found = server_of(here, "a", "blue")
    assert (found.addresses if isinstance(found, Server) else None) == (expected and (expected,))
    assert not isinstance(found, Server) or found.is_cluster_ip == (expected == "10.0.0.9")


# ---- the addresses that its Service holds

UNREADABLE_SERVICE = {("Service", ("a-kube-system", "kube-dns-blue")): "bad"}
EXTERNAL_NAME = service("a", "blue", "10.0.0.1") | {
    "spec": {"type": "ExternalName", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}
}


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        (world(), ClusterIps(("10.0.0.1",))),
        # An address that it holds is its tenant's, whatever else is wrong.
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
            replace(without("Service"), absences={"a-kube-system": Absence.DOUBTED}),
            ClusterIps(is_doubted=True),
        ),
        # What is there leaves no doubt.
        (replace(world(), absences={"a-kube-system": Absence.DOUBTED}), ClusterIps(("10.0.0.1",))),
        # Unknown is not no.
        (replace(without("Service"), absences={"a-kube-system": Absence.UNKNOWN}), None),
        (replace(without("Service"), absences={}), None),
        (replace(without("Service"), heard=frozenset()), None),
        (replace(without("Service"), unreadable=UNREADABLE_SERVICE), None),
        (world_of([namespace("a", "shop")]), None),
        (world(namespace("a", "kube-system", called="other")), None),
    ],
)
def test_the_addresses_that_a_service_holds(here: World, expected: ClusterIps | None) -> None:
    assert cluster_ips_of(here, "a", "blue") == expected


# ---- a plain kube-dns


def plain(tenant: str, *ips: str, **fields: Any) -> Json:
    made = service(tenant, "default", *ips, **fields)
    made["metadata"]["name"] = "kube-dns"
    return made


def with_plain(*items: Json, has_plain_dns: bool = True) -> World:
    of_a = [namespace("a", "kube-system"), network("a", "default"), network("a", "blue")]
    return replace(world_of([*of_a, namespace("b", "kube-system"), *items]), has_plain_dns=has_plain_dns)


@pytest.mark.parametrize(
    ("here", "servers"),
    [
        (with_plain(plain("a", "10.0.0.7")), ("10.0.0.7",)),
        (with_plain(plain("a", "10.0.0.7"), service("a", "default", "10.0.0.1")), ("10.0.0.1",)),
        (with_plain(plain("a", "10.0.0.7"), has_plain_dns=False), "does not exist"),
        # Whoever has made the network's own says what serves it, also before it has an address.
        (with_plain(plain("a", "10.0.0.7"), service("a", "default")), "has no cluster IP"),
        # Never anybody else's, and never one of another network.
        (with_plain(plain("b", "10.0.0.7")), "does not exist"),
        (with_plain(plain("a", "10.0.0.7", where="a-shop")), "does not exist"),
        (with_plain(plain("a", "10.0.0.7", labels={LABEL: "blue"})), "is of network blue, not default"),
        (with_plain(plain("a", "10.0.0.7", annotations={keys.CLUSTER: "b"})), "says to be another tenant's"),
    ],
)
def test_a_plain_kube_dns_serves_the_default_network(here: World, servers: tuple[str, ...] | str) -> None:
    found = server_of(here, "a", "default")
    if isinstance(servers, str):
        assert isinstance(found, Waits)
        assert servers in found.reason
    else:
        assert isinstance(found, Server)
        assert found.addresses == servers
    blue = server_of(here, "a", "blue")
    assert isinstance(blue, Waits)
    assert blue.reason.endswith("Service kube-system/kube-dns-blue does not exist")


def test_the_addresses_of_both_are_the_default_networks() -> None:
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
        ([], {}, Domain("cluster.local", "the default")),
        ([], {"default_domain": "k8s"}, Domain("k8s", "the default")),
        ([virtual_cluster("a", "a.local")], {}, Domain("a.local", "the VirtualCluster's clusterDomain")),
        ([virtual_cluster("a", "")], {}, Domain("cluster.local", "the default")),
        ([virtual_cluster("b", "b.local")], {}, Domain("cluster.local", "the default")),
        (
            [virtual_cluster("a", "a.local")],
            {"domains": {"a": "told"}},
            Domain("told", "configured for this tenant"),
        ),
        (
            [],
            {"domains": {"a": "told"}, "has_clusters": False},
            Domain("told", "configured for this tenant"),
        ),
        (
            [],
            {"has_clusters": False},
            Waits(Cause.UNHEARD, "the cluster domain is not known yet: no VirtualClusters were listed"),
        ),
        (
            [virtual_cluster("a", "a.local"), virtual_cluster("a", "other", name="vc2")],
            {},
            Waits(Cause.DOMAIN, "the cluster domain is not known: two VirtualClusters have this key"),
        ),
        (
            [virtual_cluster("a", "x\nnameserver 6.6.6.6")],
            {},
            Waits(
                Cause.DOMAIN,
                "the VirtualCluster's clusterDomain is no domain: 'x\\nnameserver 6.6.6.6'",
            ),
        ),
    ],
)
def test_the_cluster_domain(items: list[Json], fields: dict[str, Any], expected: Domain | Waits) -> None:
    assert domain_of(replace(world_of(items), **fields), "a") == expected


def test_a_virtual_cluster_that_cannot_be_read_is_not_a_missing_one() -> None:
    """Whose it is stands in what cannot be read: whoever has none that can may be its tenant."""
    unreadable = {("VirtualCluster", ("tenants", "somebodys")): "Expected `str`, got `int`"}
    world = replace(world_of([virtual_cluster("a", "a.example")]), unreadable=unreadable)
    assert domain_of(world, "a") == Domain("a.example", "the VirtualCluster's clusterDomain")
    expected = "the cluster domain is not known: a VirtualCluster cannot be read, and no other has this key"
    assert domain_of(world, "b") == Waits(Cause.UNREADABLE, expected)
    assert domain_of(replace(world, domains={"b": "told"}), "b") == Domain(
        "told", "configured for this tenant"
    )


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
def test_a_guest_is_in_the_network_that_its_sandbox_was_made_in(
    labels: dict[str, str], attached: tuple[str, ...], network: str, is_changed: bool
) -> None:
    found = network_of(labels, attached)
    assert isinstance(found, Membership)
    assert found.network == network
    assert ("changed since" in found.source) is is_changed
