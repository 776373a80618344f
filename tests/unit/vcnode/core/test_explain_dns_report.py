# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec

from vcnode.core.dns_message import DnsAnswer, DnsRecord, QueryResult, RecordType
from vcnode.core.explain_dns_report import DnsPage, render, render_names, search_of, servers_of

PAGE: dict[str, Any] = {
    "pod": {
        "pod": "vc-a-shop/web-0",
        "uid": "u",
        "tenant": "vc-a",
        "tenantPod": "shop/web-0",
        "network": "blue",
        "servers": ["10.96.0.53"],
        "state": "applied",
    },
    "policy": "ClusterFirst",
    "networkFrom": "label arktos.futurewei.com/network",
    "serverFrom": "network blue: Service kube-system/kube-dns-blue",
    "domain": "cluster.local",
    "domainFrom": "the default",
    "record": "web-0.web.shop.svc.cluster.local",
    "text": "search a b example.org\nnameserver 10.96.0.53\noptions ndots:5\n",
    "lines": [
        {
            "keyword": "search",
            "values": [
                {"value": "a", "source": "cluster domain, the default"},
                {"value": "b", "source": "cluster domain, the default"},
                {"value": "example.org", "source": "the node's resolv.conf"},
            ],
        },
        {"keyword": "nameserver", "values": [{"value": "10.96.0.53", "source": "network blue"}]},
        {"keyword": "options", "values": [{"value": "ndots:5", "source": "policy ClusterFirst"}]},
    ],
}


def page(pod: dict[str, Any] | None = None, **fields: object) -> DnsPage:
    return msgspec.convert({**PAGE, **fields, "pod": {**PAGE["pod"], **(pod or {})}}, DnsPage)


def test_pod_with_its_resolver() -> None:
    assert render(page()) == [
        "pod      shop/web-0 (super cluster: vc-a-shop/web-0), tenant vc-a",
        "network  blue (label arktos.futurewei.com/network)",
        "policy   ClusterFirst",
        "server   10.96.0.53 (network blue: Service kube-system/kube-dns-blue)",
        "domain   cluster.local (the default)",
        "record   web-0.web.shop.svc.cluster.local, by its headless Service",
        "",
        "/etc/resolv.conf (delivered to kata-bridge)",
        "  search a b             <- cluster domain, the default",
        "         example.org     <- the node's resolv.conf",
        "  nameserver 10.96.0.53  <- network blue",
        "  options ndots:5        <- policy ClusterFirst",
    ]


def test_waiting_pod_reports_its_reason() -> None:
    waiting = page(
        pod={
            "waitMessage": "network blue does not exist",
            "waitSeconds": 65.0,
            "servers": [],
            "state": "applied",
        },
        text="",
        lines=[],
        domain="",
        record="",
    )
    assert render(waiting) == [
        "pod      shop/web-0 (super cluster: vc-a-shop/web-0), tenant vc-a",
        "network  blue (label arktos.futurewei.com/network)",
        "policy   ClusterFirst",
        "waits    network blue does not exist (for 1 min 5 s)",
    ]


def test_pod_with_a_retained_resolver() -> None:
    kept = page(
        pod={
            "retainedBecause": "network blue is not ready",
            "state": "failing",
            "problem": "away",
            "servers": [],
        },
        text="nameserver 10.96.0.9\n",
        lines=[],
        domain="",
        record="",
        hostNetwork=True,
    )
    assert render(kept)[2:] == [
        "policy   ClusterFirst, in the host's network",
        "server   10.96.0.9 (of its previous resolver)",
        "retains  its previous resolver: network blue is not ready",
        "",
        "/etc/resolv.conf (kata-bridge: failing: away)",
        "  nameserver 10.96.0.9  <- retained",
    ]


def test_pod_with_a_revoked_server() -> None:
    gone = "network blue has no DNS server yet: Service kube-system/kube-dns-blue does not exist"
    before = page(
        pod={"retainedBecause": gone, "serverRemovedInSeconds": 12.3, "servers": []},
        text="nameserver 10.96.0.9\n",
        lines=[],
        domain="",
        record="",
    )
    assert render(before)[3:] == [
        "server   10.96.0.9 (of its previous resolver)",
        f"retains  its previous resolver: {gone}",
        "revoked  its network's Service gave up the server's address, which is removed in 12 s",
        "",
        "/etc/resolv.conf (delivered to kata-bridge)",
        "  nameserver 10.96.0.9  <- retained",
    ]
    why = {"keyword": "#", "values": [{"value": "Why so.", "source": "why its network's server is missing"}]}
    after = page(
        pod={"waitMessage": gone, "isServerRemoved": True, "servers": []},
        text="# Why so.\n",
        lines=[why],
        domain="",
        record="",
    )
    assert render(after)[3:] == [
        f"waits    {gone}",
        "revoked  its network's Service gave up the server's address, which was removed",
        "",
        "/etc/resolv.conf (delivered to kata-bridge)",
        "  # Why so.  <- why its network's server is missing",
    ]


def test_truncation_of_the_file_is_shown() -> None:
    assert "Search Line limits were exceeded" in render(page(truncated=["Search Line limits were exceeded"]))


def test_search_list_and_ndots_are_read_as_libc_does() -> None:
    assert search_of(PAGE["text"]) == (("a", "b", "example.org"), 5)
    assert search_of("") == ((), 1)
    assert search_of("search a\noptions ndots:99 ndots:x\n") == (("a",), 1)
    assert search_of("options ndots:99\n") == ((), 15)
    # A pod's author may write any number of digits; Python converts at most 4 300.
    assert search_of(f"options ndots:{'9' * 5000}\n") == ((), 15)


def test_nameserver_must_be_an_address() -> None:
    text = "nameserver 10.0.0.1\noptions x\nnameserver intra.example\nnameserver\nnameserver fd00::1\n"
    assert servers_of(text) == ("10.0.0.1", "fd00::1")


def test_each_query_is_shown_with_its_result() -> None:
    assert list(render_names((), RecordType.A, [])) == []
    assert list(render_names(("x.a", "x"), RecordType.A, [])) == [
        "",
        "the pod looks up A records in this order:",
        "  x.a",
        "  x",
    ]
    lookups = [
        QueryResult("x.a", "10.0.0.1", None, "no answer within 4 s", 4.0),
        QueryResult("x.a", "10.0.0.2", DnsAnswer(3, False, ()), "", 0.001),
        QueryResult("x.b", "10.0.0.1", DnsAnswer(0, False, ()), "", 0.002),
        QueryResult("x", "10.0.0.1", DnsAnswer(0, False, (DnsRecord("x", 1, 30, "10.1.2.3"),)), "", 0.0126),
    ]
    assert list(render_names(("x.a", "x.b", "x"), RecordType.A, lookups)) == [
        "",
        "x.a A  @10.0.0.1  4000 ms  no answer within 4 s",
        "x.a A  @10.0.0.2  1 ms     NXDOMAIN",
        "x.b A  @10.0.0.1  2 ms     no such record",
        "x A    @10.0.0.1  13 ms    NOERROR",
        "  x 30 s A 10.1.2.3",
    ]


def test_sources_stand_below_the_lines_if_narrow() -> None:
    lines = render(page(), 50)
    assert lines[-8:] == [
        "  search a b",
        "      <- cluster domain, the default",
        "         example.org",
        "      <- the node's resolv.conf",
        "  nameserver 10.96.0.53",
        "      <- network blue",
        "  options ndots:5",
        "      <- policy ClusterFirst",
    ]
