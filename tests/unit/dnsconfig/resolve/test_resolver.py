# SPDX-License-Identifier: Apache-2.0
"""The kubelet's own test table, its limits, and the source of each value."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnsconfig.cluster.objects import PodSpec
from dnsconfig.resolve.node_resolver import NO_NODE_RESOLVER, NodeResolver
from dnsconfig.resolve.resolv_conf import lines, text_of
from dnsconfig.resolve.resolver import (
    MAX_SEARCH_BYTES,
    MAX_SEARCHES,
    MAX_SERVERS,
    ClusterDns,
    DnsClass,
    PodEvent,
    ResolvConf,
    ResolverEventReason,
    SourcedValue,
    compute_resolver,
    dns_class,
)

CLUSTER = ClusterDns(("1.2.3.4",), "network blue", "testns", "kubernetes.io", "configured")
HOST = NodeResolver(("8.8.8.8",), ("host.domain",))
SETTINGS = {
    "nameservers": ["10.0.0.11"],
    "searches": ["my.domain"],
    "options": [{"name": "ndots", "value": "3"}, {"name": "debug"}],
}


def spec(**fields: object) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def file(pod: PodSpec, host: NodeResolver, *node_ips: str) -> tuple[str, tuple[PodEvent, ...]]:
    found, events = compute_resolver(pod, CLUSTER, host, node_ips)
    return text_of(lines(found)), events


CLUSTER_TEXT = """\
search testns.svc.kubernetes.io svc.kubernetes.io kubernetes.io host.domain
nameserver 1.2.3.4
options ndots:5
"""
BOTH_TEXT = """\
search testns.svc.kubernetes.io svc.kubernetes.io kubernetes.io host.domain my.domain
nameserver 1.2.3.4
nameserver 10.0.0.11
options ndots:3 debug
"""


@pytest.mark.parametrize(
    ("pod", "host", "expected"),
    [
        (spec(dnsPolicy="ClusterFirstWithHostNet", hostNetwork=True), HOST, CLUSTER_TEXT),
        (
            spec(dnsPolicy="ClusterFirst", hostNetwork=True),
            NO_NODE_RESOLVER,
            "search .\nnameserver 127.0.0.1\n",
        ),
        (spec(dnsPolicy="ClusterFirst", hostNetwork=True), HOST, "search host.domain\nnameserver 8.8.8.8\n"),
        (spec(dnsPolicy="ClusterFirst"), HOST, CLUSTER_TEXT),
        (spec(), HOST, CLUSTER_TEXT),
        (
            spec(dnsPolicy="ClusterFirst"),
            NO_NODE_RESOLVER,
            "search testns.svc.kubernetes.io svc.kubernetes.io kubernetes.io\n"
            "nameserver 1.2.3.4\noptions ndots:5\n",
        ),
        (spec(dnsPolicy="Default"), NO_NODE_RESOLVER, "search .\nnameserver 127.0.0.1\n"),
        (spec(dnsPolicy="Default"), HOST, "search host.domain\nnameserver 8.8.8.8\n"),
        (spec(dnsPolicy="None"), HOST, ""),
        (
            spec(
                dnsPolicy="None",
                dnsConfig={
                    "nameservers": ["203.0.113.1"],
                    "searches": ["my.domain", "second.domain"],
                    "options": [{"name": "ndots", "value": "3"}, {"name": "debug"}],
                },
            ),
            HOST,
            "search my.domain second.domain\nnameserver 203.0.113.1\noptions ndots:3 debug\n",
        ),
        (spec(dnsPolicy="ClusterFirst", dnsConfig=SETTINGS), HOST, BOTH_TEXT),
        (
            spec(dnsPolicy="ClusterFirstWithHostNet", hostNetwork=True, dnsConfig=SETTINGS),
            HOST,
            BOTH_TEXT,
        ),
        (
            spec(dnsPolicy="Default", dnsConfig=SETTINGS),
            HOST,
            "search host.domain my.domain\nnameserver 8.8.8.8\nnameserver 10.0.0.11\noptions ndots:3 debug\n",
        ),
        (spec(dnsPolicy="Unknown"), HOST, CLUSTER_TEXT),
    ],
)
def test_resolvers_match_the_kubelets_own_test_table(pod: PodSpec, host: NodeResolver, expected: str) -> None:
    assert file(pod, host) == (expected, ())


def test_dns_class_by_policy_and_host_network() -> None:
    assert dns_class(spec(dnsPolicy="ClusterFirst", hostNetwork=True)) is DnsClass.HOST
    assert dns_class(spec(dnsPolicy="ClusterFirstWithHostNet")) is DnsClass.CLUSTER
    assert dns_class(spec(dnsPolicy="Default", hostNetwork=True)) is DnsClass.HOST
    assert dns_class(spec(dnsPolicy="None", hostNetwork=True)) is DnsClass.NONE
    assert dns_class(spec()) is DnsClass.CLUSTER


def test_without_a_node_file_servers_follow_node_ips() -> None:
    pod = spec(dnsPolicy="Default")
    assert file(pod, NO_NODE_RESOLVER, "10.0.0.1", "fd00::1")[0] == (
        "search .\nnameserver 127.0.0.1\nnameserver ::1\n"
    )


def test_options_merge_by_name_and_the_pod_wins() -> None:
    host = NodeResolver((), (), ("ndots:5", "debug"))
    options = [
        {"name": "ndots", "value": "3"},
        {"name": "debug"},
        {"name": "single-request"},
        {"name": "attempts", "value": "3"},
    ]
    pod = spec(dnsPolicy="Default", dnsConfig={"options": options})
    assert file(pod, host)[0] == "options ndots:3 debug single-request attempts:3\n"


@pytest.mark.parametrize(
    ("of_node", "of_pod", "expected"),
    [
        (("ndots:",), None, "options ndots:\n"),
        (("ndots:",), [], "options ndots\n"),
        (("timeout:1:2",), [], "options timeout:1:2\n"),
        (("debug",), [{"name": "debug", "value": ""}], "options debug\n"),
        (("ndots:2",), [{"name": "ndots:3"}], "options ndots:2 ndots:3\n"),
    ],
)
def test_unusual_options_are_written_as_the_kubelet_does(
    of_node: tuple[str, ...], of_pod: list[dict[str, str]] | None, expected: str
) -> None:
    settings = None if of_pod is None else {"options": of_pod}
    pod = spec(dnsPolicy="Default", dnsConfig=settings)
    assert file(pod, NodeResolver((), (), of_node))[0] == expected


def test_duplicates_are_removed_as_the_kubelet_does() -> None:
    host = NodeResolver(("8.8.8.8", "8.8.8.8"), ("a", "a", "kubernetes.io"))
    # The node's stay, unless the pod has its own.
    assert file(spec(dnsPolicy="Default"), host)[0] == (
        "search a a kubernetes.io\nnameserver 8.8.8.8\nnameserver 8.8.8.8\n"
    )
    own = spec(dnsPolicy="Default", dnsConfig={"nameservers": ["8.8.8.8"], "searches": ["a"]})
    assert file(own, host)[0] == "search a kubernetes.io\nnameserver 8.8.8.8\n"
    assert file(spec(), host)[0] == (
        "search testns.svc.kubernetes.io svc.kubernetes.io kubernetes.io a\n"
        "nameserver 1.2.3.4\noptions ndots:5\n"
    )


def test_without_a_cluster_domain_only_node_searches_remain() -> None:
    cluster = ClusterDns(("1.2.3.4",), "", "testns", "", "")
    found, _ = compute_resolver(spec(), cluster, NodeResolver((), ("a", "a")))
    assert text_of(lines(found)) == "search a a\nnameserver 1.2.3.4\noptions ndots:5\n"


def test_a_fourth_server_is_truncated_with_an_event() -> None:
    pod = spec(dnsConfig={"nameservers": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]})
    text, events = file(pod, HOST)
    assert [line for line in text.splitlines() if line.startswith("nameserver")] == [
        "nameserver 1.2.3.4",
        "nameserver 10.0.0.1",
        "nameserver 10.0.0.2",
    ]
    assert events == (
        PodEvent(
            ResolverEventReason.DNS_CONFIG_FORMING,
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            "the applied nameserver line is: 1.2.3.4 10.0.0.1 10.0.0.2",
        ),
    )


def searches(*paths: str) -> tuple[str, tuple[PodEvent, ...]]:
    return file(spec(dnsPolicy="None", dnsConfig={"searches": list(paths)}), HOST)


def test_search_paths_beyond_32_are_truncated() -> None:
    paths = [f"p{number}" for number in range(33)]
    assert searches(*paths[:32]) == (f"search {' '.join(paths[:32])}\n", ())
    text, events = searches(*paths)
    assert text == f"search {' '.join(paths[:32])}\n"
    assert events == (
        PodEvent(
            ResolverEventReason.DNS_CONFIG_FORMING,
            "Search Line limits were exceeded, some search paths have been omitted, "
            f"the applied search line is: {' '.join(paths[:32])}",
        ),
    )


def test_a_search_path_above_253_bytes_is_omitted() -> None:
    text, events = searches("a", "b" * 253, "c" * 254, "d")
    assert text == f"search a {'b' * 253} d\n"
    assert len(events) == 1
    # Bytes are counted, as len() of a Go string does.
    assert searches("\N{LATIN SMALL LETTER E WITH ACUTE}" * 127)[0] == ""


def test_the_search_line_is_truncated_to_2048_bytes() -> None:
    # Eight of 227 with their blanks are 1823; 225 more are 2048 + 1 blank.
    head = [f"{number}{'a' * 226}" for number in range(8)]
    assert searches(*head, "b" * 224)[1] == ()
    text, events = searches(*head, "b" * 225, "c")
    assert text == f"search {' '.join(head)}\n"
    assert len(events) == 1


def test_each_value_has_its_source() -> None:
    found, _ = compute_resolver(spec(dnsConfig=SETTINGS), CLUSTER, HOST)
    assert found == ResolvConf(
        (
            SourcedValue("1.2.3.4", "network blue"),
            SourcedValue("10.0.0.11", "the pod's dnsConfig", is_from_pod=True),
        ),
        (
            SourcedValue("testns.svc.kubernetes.io", "cluster domain, configured"),
            SourcedValue("svc.kubernetes.io", "cluster domain, configured"),
            SourcedValue("kubernetes.io", "cluster domain, configured"),
            SourcedValue("host.domain", "the node's resolv.conf"),
            SourcedValue("my.domain", "the pod's dnsConfig", is_from_pod=True),
        ),
        (
            SourcedValue("ndots:3", "the pod's dnsConfig", is_from_pod=True),
            SourcedValue("debug", "the pod's dnsConfig", is_from_pod=True),
        ),
    )


def test_class_cluster_without_a_server_is_an_error() -> None:
    with pytest.raises(ValueError, match="a pod of class CLUSTER needs"):
        compute_resolver(spec(), None, HOST)
    assert compute_resolver(spec(dnsPolicy="None"), None, HOST) == (ResolvConf(), ())


WORDS = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=260)


@given(
    policy=st.sampled_from(["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    own=st.lists(WORDS, max_size=40),
    of_node=st.lists(WORDS, max_size=40),
    servers=st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]), max_size=5),
)
def test_limits_hold_for_any_dns_config(
    policy: str, own: list[str], of_node: list[str], servers: list[str]
) -> None:
    pod = spec(dnsPolicy=policy, dnsConfig={"searches": own, "nameservers": servers})
    found, events = compute_resolver(pod, CLUSTER, NodeResolver(tuple(servers), tuple(of_node)))
    line = " ".join(entry.value for entry in found.searches)
    assert len(line) <= MAX_SEARCH_BYTES
    assert len(found.searches) <= MAX_SEARCHES
    assert len(found.servers) <= MAX_SERVERS
    configured = {*own, *(() if policy == "None" else of_node)}
    is_server_removed = bool(configured - {entry.value for entry in found.searches})
    assert is_server_removed <= any("Search Line" in event.message for event in events)
