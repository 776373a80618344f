# SPDX-License-Identifier: Apache-2.0
"""Packets through documents of nft, as the renderer writes them and as a guest may change them."""

import pytest

from ruleset.document import Document
from ruleset.model import Endpoint, Family, Protocol
from ruleset.names import Backend
from ruletrace.nft import trace
from ruletrace.packet import Packet, PacketVerdict

KEY = "type ipv4_addr . inet_proto . inet_service"
TABLE = Document(
    Family.IPV4,
    Backend.NFT,
    {
        "map services": (
            f"{KEY} : verdict",
            "172.30.0.42 . tcp . 80 : goto VCN-SVC-PLAIN",
            "172.30.0.43 . tcp . 80 : goto VCN-SVC-AFFINE",
        ),
        "map endpoints": (
            f"{KEY} : ipv4_addr . inet_service",
            "172.30.0.41 . tcp . 80 : 10.180.0.1 . 80",
        ),
        "map refusals": (f"{KEY} : verdict", "172.30.0.46 . tcp . 80 : drop"),
        "set service-cidrs": ("type ipv4_addr", "flags interval", "172.30.0.0/16"),
        "set VCN-SEP-1-3h": ("type ipv4_addr", "size 1024", "flags dynamic,timeout", "timeout 3h"),
        "chain nat-output": (
            "type nat hook output priority -95; policy accept;",
            "ip daddr . meta l4proto . th dport vmap @services",
            "meta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport map @endpoints",
        ),
        "chain filter-output": (
            "type filter hook output priority filter; policy accept;",
            "ct state new ct status ! dnat ip daddr . meta l4proto . th dport vmap @refusals",
            "ct state new ct status ! dnat ip daddr @service-cidrs goto refuse",
        ),
        "chain refuse": ("reject with tcp reset", "reject"),
        "chain VCN-SVC-PLAIN": (
            "meta l4proto tcp dnat ip to numgen random mod 2 map "
            "{ 0 : 10.180.0.1 . 80, 1 : 10.180.2.1 . 80 }",
        ),
        "chain VCN-SVC-AFFINE": (
            "ip saddr @VCN-SEP-1-3h goto VCN-SEP-1",
            "numgen random mod 2 vmap { 0 : goto VCN-SEP-1, 1 : drop }",
        ),
        "chain VCN-SEP-1": ("update @VCN-SEP-1-3h { ip saddr } meta l4proto tcp dnat to 10.180.0.9:80",),
    },
)
CONTINUES = "vcnode filter-output: no rule decides, the packet continues"


def packet(destination: str, port: int = 80, protocol: Protocol = Protocol.TCP) -> Packet:
    return Packet("10.0.0.2", protocol, destination, port)


def with_rule(rule: str) -> Document:
    """The table with a rule before those of nat."""
    kind, *rules = TABLE.objects["chain nat-output"]
    return Document(TABLE.family, TABLE.backend, {**TABLE.objects, "chain nat-output": (kind, rule, *rules)})


def test_single_endpoint_is_found_in_its_map() -> None:
    traced = trace(TABLE, packet("172.30.0.41"))
    assert traced.summary == "10.180.0.1:80"
    assert traced.steps == (
        'vcnode nat-output 2 "meta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport '
        'map @endpoints": destination becomes 10.180.0.1:80',
        f"to 10.180.0.1:80: {CONTINUES}",
    )


def test_random_choice_shares_new_connections() -> None:
    traced = trace(TABLE, packet("172.30.0.42"))
    assert traced.chances == {Endpoint("10.180.0.1", 80): 0.5, Endpoint("10.180.2.1", 80): 0.5}
    assert traced.steps == (
        'vcnode nat-output 1 "ip daddr . meta l4proto . th dport vmap @services": jumps to VCN-SVC-PLAIN',
        'vcnode VCN-SVC-PLAIN 1 "meta l4proto tcp dnat ip to numgen random mod 2 map '
        '{ 0 : 10.180.0.1 . 80, 1 : 10.180.2.1 . 80 }": 50 % of new connections each: destination '
        "becomes 10.180.0.1:80; destination becomes 10.180.2.1:80",
        f"to 10.180.0.1:80, 10.180.2.1:80: {CONTINUES}",
    )


def test_affinity_rule_is_skipped_for_a_new_client() -> None:
    traced = trace(TABLE, packet("172.30.0.43"))
    assert traced.chances == {Endpoint("10.180.0.9", 80): 0.5, PacketVerdict.DROP: 0.5}
    assert traced.steps == (
        'vcnode nat-output 1 "ip daddr . meta l4proto . th dport vmap @services": jumps to VCN-SVC-AFFINE',
        'vcnode VCN-SVC-AFFINE 1 "ip saddr @VCN-SEP-1-3h goto VCN-SEP-1": skipped: it is for clients that '
        "affinity remembers, and this trace is of a new client",
        'vcnode VCN-SVC-AFFINE 2 "numgen random mod 2 vmap { 0 : goto VCN-SEP-1, 1 : drop }": 50 % of new '
        "connections each: jumps to VCN-SEP-1; dropped: the sender times out",
        'vcnode VCN-SEP-1 1 "update @VCN-SEP-1-3h { ip saddr } meta l4proto tcp dnat to 10.180.0.9:80": 50 % '
        "of new connections: destination becomes 10.180.0.9:80",
        f"to 10.180.0.9:80: {CONTINUES}",
    )


def test_service_range_rejects_tcp_by_reset_and_the_rest_by_icmp() -> None:
    traced = trace(TABLE, packet("172.30.0.41", protocol=Protocol.UDP))
    assert traced.summary == "reject"
    assert traced.steps == (
        "vcnode nat-output: no rule decides, the packet continues",
        'vcnode filter-output 2 "ct state new ct status ! dnat ip daddr @service-cidrs goto refuse": jumps '
        "to refuse",
        'vcnode refuse 2 "reject": rejected with icmp port-unreachable: the sender fails at once',
    )
    assert trace(TABLE, packet("172.30.0.41", 81)).steps[-1] == (
        'vcnode refuse 1 "reject with tcp reset": rejected with tcp reset: the sender fails at once'
    )


@pytest.mark.parametrize(
    ("sent", "summary"),
    [
        (packet("172.30.0.46"), "drop"),
        (packet("172.30.0.46", protocol=Protocol.SCTP), "reject"),
        (packet("10.0.0.9"), "pass"),
        (Packet("fd00::2", Protocol.TCP, "fd00:172:30::41", 80), "pass"),
    ],
)
def test_packets_that_reach_no_endpoint(sent: Packet, summary: str) -> None:
    assert trace(TABLE, sent).summary == summary


@pytest.mark.parametrize(
    ("rule", "summary"),
    [
        ("meta skuid 1337 accept", "unknown"),
        ("redirect to :15001", "unknown"),
        ("numgen random mod 2 vmap { 0 : queue, 1 : drop }", "drop, unknown"),
        ("meta l4proto udp queue", "10.180.0.1:80"),
        ("ip daddr @nowhere queue", "10.180.0.1:80"),
        ("accept", "reject"),
        ("return", "reject"),
        ("drop", "drop"),
        ("meta l4proto { udp, sctp } drop", "10.180.0.1:80"),
        ("jump VCN-SEP-1", "10.180.0.9:80"),
        ("numgen random mod 3 vmap { 0 : drop, 1 : drop }", "10.180.0.1:80, drop"),
        ("numgen random mod 1 vmap { 0 : accept, 1 : drop }", "reject"),
    ],
)
def test_foreign_rule_counts_only_where_it_may_match(rule: str, summary: str) -> None:
    assert trace(with_rule(rule), packet("172.30.0.41")).summary == summary


@pytest.mark.parametrize(
    "rule",
    [
        "jump nowhere",
        "dnat to nowhere",
        "numgen random mod 0 vmap { 0 : drop }",
        "numgen random mod 2 vmap { x : drop }",
    ],
)
def test_rule_that_cannot_be_read_is_an_error(rule: str) -> None:
    with pytest.raises(ValueError, match=r"nowhere|int|below"):
        trace(with_rule(rule), packet("172.30.0.41"))


def test_ipv6_endpoint_is_found_in_its_map() -> None:
    objects = {
        "map endpoints": (
            "type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service",
            "fd00:172:30::41 . udp . 53 : fd00:10::3 . 5353",
        ),
        "chain nat-output": (
            "type nat hook output priority -95; policy accept;",
            "meta l4proto { tcp, udp, sctp } dnat ip6 to ip6 daddr . meta l4proto . th dport map @endpoints",
        ),
    }
    sent = Packet("fd00:10::2", Protocol.UDP, "fd00:172:30::41", 53)
    assert trace(Document(Family.IPV6, Backend.NFT, objects), sent).summary == "[fd00:10::3]:5353"
