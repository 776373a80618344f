# SPDX-License-Identifier: Apache-2.0
"""One pod's decision as a whole, and two properties of it: isolation, and that order does not matter."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.state import ClusterState, NamespaceOwner
from dnsconfig.resolve.decision import (
    MAX_TEXT_BYTES,
    NodeDns,
    ResolverDecision,
    decide,
    node_dns_of,
    readiness_wait,
)
from dnsconfig.resolve.waiting import PodWaiting, WaitReason
from tenancy import keys
from tests.cases.dns import load as isolation
from tests.cluster_states import cluster_state_of, decode_object
from tests.unit.dnsconfig.objects import Json, namespace, network, pod, service, tenant

HOST = "nameserver 192.0.2.1\nsearch example.org\n"
CLUSTER = cluster_state_of(
    [*tenant("a", default="10.0.0.1", blue="10.0.0.2"), *tenant("b", default="10.0.0.3")]
)


def pod_of(item: Json) -> PodObject:
    value = decode_object(item)
    assert isinstance(value, PodObject)
    return value


def decided(item: Json, cluster: ClusterState = CLUSTER, node: NodeDns | None = None) -> ResolverDecision:
    found = decide(pod_of(item), cluster, node or node_dns_of(HOST))
    assert found is not None
    return found


def test_decision_records_its_sources() -> None:
    found = decided(pod("a", network="blue", hostname="h", subdomain="web"))
    assert found.text == (
        "search shop.svc.cluster.local svc.cluster.local cluster.local example.org\n"
        "nameserver 10.0.0.2\n"
        "options ndots:5\n"
    )
    assert found.owner == NamespaceOwner("a", "shop")
    assert found.network is not None
    assert found.network.network == "blue"
    assert found.server is not None
    assert found.server.addresses == ("10.0.0.2",)
    assert found.domain is not None
    assert found.domain.name == "cluster.local"
    assert found.dns_record == "h.web.shop.svc.cluster.local"
    assert (found.waiting, found.events) == (None, ())


def test_a_record_needs_hostname_and_subdomain() -> None:
    """`podToEndpoint` of the EndpointSlice controller: otherwise the endpoint has no hostname."""
    assert decided(pod("a", subdomain="web")).dns_record == ""
    assert decided(pod("a", "x" * 70, subdomain="web")).dns_record == ""
    assert decided(pod("a", hostname="h")).dns_record == ""


def test_each_network_of_each_tenant_has_its_own_server() -> None:
    servers = [
        line
        for item in (pod("a"), pod("a", network="blue"), pod("b"))
        for line in (decided(item).text or "").splitlines()
        if line.startswith("nameserver")
    ]
    assert servers == ["nameserver 10.0.0.1", "nameserver 10.0.0.2", "nameserver 10.0.0.3"]


def test_pods_of_the_super_cluster_get_no_decision() -> None:
    item = pod("", tenant_namespace="a-shop", network="blue")
    assert decide(pod_of(item), CLUSTER, node_dns_of(HOST)) is None


@pytest.mark.parametrize(
    ("item", "cluster", "expected"),
    [
        (
            pod("a", annotations={keys.UID: ""}),
            CLUSTER,
            PodWaiting(
                WaitReason.OWNER_UNKNOWN,
                "the pod's tenant is unknown: not all of its ownership annotations are set",
            ),
        ),
        # It is annotated as a's, in b's namespace.
        (
            pod("b", annotations={keys.CLUSTER: "a"}),
            CLUSTER,
            PodWaiting(WaitReason.OWNER_UNKNOWN, "its namespace shop is not known to be this tenant's (yet)"),
        ),
        (
            pod("a", annotations={keys.NAMESPACE: "other"}),
            CLUSTER,
            PodWaiting(
                WaitReason.OWNER_UNKNOWN, "its namespace other is not known to be this tenant's (yet)"
            ),
        ),
        (
            pod("a"),
            ClusterState(has_namespaces=False),
            PodWaiting(WaitReason.NOT_SYNCED, "its namespace shop is not known to be this tenant's (yet)"),
        ),
        (pod("a", network="red"), CLUSTER, PodWaiting(WaitReason.NOT_FOUND, "network red does not exist")),
        (pod("b", network="blue"), CLUSTER, PodWaiting(WaitReason.NOT_FOUND, "network blue does not exist")),
    ],
)
def test_cluster_policy_waits_instead_of_using_the_nodes(
    item: Json, cluster: ClusterState, expected: PodWaiting
) -> None:
    found = decided(item, cluster)
    assert (found.waiting, found.text) == (expected, None)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"dnsPolicy": "Default"}, "search example.org\nnameserver 192.0.2.1\n"),
        (
            {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["9.9.9.9"]}},
            "nameserver 9.9.9.9\n",
        ),
        ({"hostNetwork": True}, "search example.org\nnameserver 192.0.2.1\n"),
    ],
)
def test_policies_default_and_none_need_no_network(spec: dict[str, Any], expected: str) -> None:
    # As with the kubelet: the author chooses what such a pod resolves by.
    for label in ("red", "No Network"):
        found = decided(pod("a", network=label, **spec))
        assert (found.waiting, found.text) == (None, expected)


def test_cluster_first_with_host_net_uses_the_network() -> None:
    found = decided(pod("a", network="blue", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"))
    assert found.text is not None
    assert "nameserver 10.0.0.2\n" in found.text


def test_an_invalid_node_file_blocks_every_pod() -> None:
    node = node_dns_of("nameserver\n", path="/etc/resolv.conf")
    expected = PodWaiting(
        WaitReason.NODE_RESOLVER_INVALID,
        "/etc/resolv.conf cannot be used: a line `nameserver` without an address",
    )
    for policy in ("ClusterFirst", "Default", "None"):
        found = decided(pod("a", dnsPolicy=policy), node=node)
        assert (found.waiting, found.text) == (expected, None)


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_text_above_the_limit_waits(letter: str) -> None:
    options = [{"name": letter * (MAX_TEXT_BYTES // len(letter.encode()))}]
    found = decided(pod("a", dnsPolicy="None", dnsConfig={"options": options}))
    assert found.text is None
    assert found.waiting == PodWaiting(
        WaitReason.TOO_LARGE,
        "its dnsConfig makes a resolv.conf of 65545 bytes; the limit is 65536",
    )


def test_a_nul_in_an_option_waits() -> None:
    found = decided(pod("a", dnsConfig={"options": [{"name": "x", "value": "\0"}]}))
    assert found.text is None
    assert found.waiting == PodWaiting(
        WaitReason.INVALID_OPTION, "an option of its dnsConfig has a NUL character"
    )


def test_truncation_makes_an_event() -> None:
    searches = [f"s{number}" for number in range(32)]
    (event,) = decided(pod("a", dnsConfig={"searches": searches})).events
    assert event.reason == "DNSConfigForming"


# ---- isolation, case by case


@pytest.mark.parametrize("case", isolation.load(), ids=lambda case: case.id)
def test_isolation_case(case: isolation.DnsCase) -> None:
    found = decide(pod_of(case.pod()), cluster_state_of(case.items()), node_dns_of(isolation.HOST))
    assert (found is None) == case.is_nothing
    if found is None:
        return
    lines = (found.text or "").splitlines()
    servers = tuple(line.split()[1] for line in lines if line.startswith("nameserver"))
    assert (servers, found.waiting and found.waiting.reason) == (case.servers, case.waits)
    assert isolation.FORBIDDEN_PREFIX not in (found.text or "")


# ---- readiness


@pytest.mark.parametrize(
    ("value", "host_network", "is_pending"),
    [
        (None, False, False),
        ("false", False, True),
        ("true", False, False),
        ("TRUE", False, False),
        ("", False, True),
        ("yes", False, True),
        ("false", True, False),
    ],
)
def test_readiness_annotation_blocks_unless_true(
    value: str | None, host_network: bool, is_pending: bool
) -> None:
    annotations = {} if value is None else {keys.NETWORK_READINESS: value}
    item = pod("a", annotations=annotations, hostNetwork=host_network)
    expected = PodWaiting(
        WaitReason.READINESS_ANNOTATION,
        f"its network is not ready: annotation {keys.NETWORK_READINESS} is {value!r}",
    )
    assert readiness_wait(pod_of(item)) == (expected if is_pending else None)
    # A blocked pod has a resolver all the same.
    assert decided(item).text is not None
    assert decided(item).waiting == readiness_wait(pod_of(item))


def test_a_missing_resolver_precedes_the_annotation() -> None:
    item = pod("a", network="red", annotations={keys.NETWORK_READINESS: "false"})
    assert decided(item).waiting == PodWaiting(WaitReason.NOT_FOUND, "network red does not exist")


# ---- the node


def test_node_dns_of_each_kind_of_file() -> None:
    assert node_dns_of(None, ["10.0.0.9"]).ips == ("10.0.0.9",)
    assert decided(pod("a", dnsPolicy="Default"), node=node_dns_of(None)).text == (
        "search .\nnameserver 127.0.0.1\n"
    )


# ---- properties

TENANTS = ("a", "a-b", "b")
NETWORKS = ("default", "blue", "kube-dns-blue")
NAMESPACES = ("kube-system", "shop", "b-kube-system")


@st.composite
def objects(draw: st.DrawFn) -> list[Json]:
    """Objects that tenants can create in their own control planes, copied unchanged. No two tenants share an
    address."""
    found: list[Json] = []
    for number, tenant_key in enumerate(TENANTS):
        for in_tenant in draw(st.lists(st.sampled_from(NAMESPACES), unique=True)):
            found.append(namespace(tenant_key, in_tenant, called=f"ns-{tenant_key}--{in_tenant}"))
            where = f"ns-{tenant_key}--{in_tenant}"
            for name in draw(st.lists(st.sampled_from(NETWORKS), unique=True)):
                labels = {keys.ARKTOS_NETWORK: draw(st.sampled_from(NETWORKS))}
                ip = f"10.{number}.{draw(st.integers(0, 255))}.53"
                found.append(service(tenant_key, name, ip, where=where, labels=labels))
            for name in draw(st.lists(st.sampled_from(NETWORKS), unique=True)):
                phase = draw(st.sampled_from(["Ready", "Pending"]))
                ipam = draw(st.sampled_from(["Arktos", "External"]))
                found.append(
                    network(
                        tenant_key, name, phase, where=where, ipam=ipam, dns_service_ip=f"10.{number}.0.1"
                    )
                )
    return found


@st.composite
def pods(draw: st.DrawFn) -> Json:
    tenant_key, in_tenant = draw(st.sampled_from(TENANTS)), draw(st.sampled_from(NAMESPACES))
    item = pod(
        tenant_key,
        tenant_namespace=in_tenant,
        network=draw(st.sampled_from([None, "", *NETWORKS, "Odd Name", "../blue"])),
        annotations={keys.CLUSTER: draw(st.sampled_from(TENANTS))},
    )
    item["metadata"]["namespace"] = f"ns-{tenant_key}--{in_tenant}"
    return item


@settings(max_examples=100)
@given(items=objects(), item=pods())
def test_no_drawn_tenant_becomes_anothers_resolver(items: list[Json], item: Json) -> None:
    found = decided(item, cluster_state_of(items))
    if found.text is None:
        assert found.waiting is not None
        return
    cluster_key = item["metadata"]["annotations"][keys.CLUSTER]
    (server,) = [line.split()[1] for line in found.text.splitlines() if line.startswith("nameserver")]
    assert server.startswith(f"10.{TENANTS.index(cluster_key)}.")
    assert item["metadata"]["namespace"].startswith(f"ns-{cluster_key}--")
    # Another tenant's objects change nothing.
    others = [
        each
        for each in items
        if each["kind"] == "Namespace"
        or each["metadata"]["namespace"].startswith(f"ns-{cluster_key}--kube-system")
    ]
    assert decided(item, cluster_state_of(others)) == found


@settings(max_examples=40)
@given(items=objects().flatmap(lambda made: st.tuples(st.just(made), st.permutations(made))), item=pods())
def test_the_order_of_objects_does_not_matter(items: tuple[list[Json], list[Json]], item: Json) -> None:
    one, other = items
    assert decided(item, cluster_state_of(one)) == decided(item, cluster_state_of(other))


@settings(max_examples=50)
@given(item=pods())
def test_an_unsynced_state_blocks_every_pod(item: Json) -> None:
    found = decided(item, ClusterState(has_namespaces=False, has_virtual_clusters=False))
    assert found.text is None
    assert found.waiting is not None
    assert found.waiting.reason is WaitReason.NOT_SYNCED


def test_not_synced_becomes_a_decision() -> None:
    unsynced = replace(CLUSTER, synced_namespaces=frozenset())
    assert decided(pod("a"), unsynced).text is None
    assert decided(pod("a")).text is not None
