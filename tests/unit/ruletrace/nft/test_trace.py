# SPDX-License-Identifier: Apache-2.0
"""Packets through nft's rules, as they are written and as `nft list` prints them; steps in full."""

import pytest

from ruleset.model import Endpoint, Protocol
from ruletrace.chain_walk import TooDeepError
from ruletrace.nft.trace import trace
from ruletrace.packet import Packet, PacketVerdict

GUEST = "10.0.0.2"

# As nft 1.0.6 prints our table, with the wrapped elements and without the match on TCP before a reset.
LISTED = """\
table ip vcnode {
	map services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 172.30.0.43 . tcp . 80 : goto VCN-SVC-AFFINE,
				172.30.0.42 . tcp . 80 : goto VCN-SVC-GNZBNJ2PO5MGZ6GT }
	}

	map endpoints {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
		elements = { 172.30.0.41 . tcp . 80 : 10.180.0.1 . 80 }
	}

	map refusals {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 172.30.0.46 . tcp . 80 : drop }
	}

	set service-cidrs {
		type ipv4_addr
		flags interval
		elements = { 172.30.0.0/16 }
	}

	set VCN-SEP-1 {
		type ipv4_addr
		size 1024
		flags dynamic,timeout
		timeout 3h
		elements = { 10.0.0.2 expires 2h59m59s }
	}

	chain nat-output {
		type nat hook output priority -95; policy accept;
		ip daddr . meta l4proto . th dport vmap @services
		meta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport map @endpoints
	}

	chain filter-output {
		type filter hook output priority filter; policy accept;
		ct state new ct status ! dnat ip daddr . meta l4proto . th dport vmap @refusals
		ct state new ct status ! dnat ip daddr @service-cidrs goto refuse
	}

	chain refuse {
		reject with tcp reset
		reject
	}

	chain VCN-SVC-GNZBNJ2PO5MGZ6GT {
		meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.180.0.1 . 80, 1 : 10.180.2.1 . 80 }
	}

	chain VCN-SVC-AFFINE {
		ip saddr @VCN-SEP-1 goto VCN-SEP-1
		numgen random mod 2 vmap { 0 : goto VCN-SEP-1, 1 : drop }
	}

	chain VCN-SEP-1 {
		update @VCN-SEP-1 { ip saddr } meta l4proto tcp dnat to 10.180.0.9:80
	}
}
"""


def packet(destination: str, port: int = 80, protocol: Protocol = Protocol.TCP) -> Packet:
    return Packet(GUEST, protocol, destination, port)


def test_one_endpoint() -> None:
    traced = trace(LISTED, packet("172.30.0.41"))
    assert traced.verdict == "10.180.0.1:80"
    assert traced.steps == (
        'vcnode nat-output 2 "meta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport '
        'map @endpoints": the destination becomes 10.180.0.1:80',
        "to 10.180.0.1:80: vcnode filter-output: no rule takes it, policy accept: it goes on",
    )


def test_chance_leads_to_all_endpoints_and_each_has_its_share() -> None:
    traced = trace(LISTED, packet("172.30.0.42"))
    assert traced.chances == {Endpoint("10.180.0.1", 80): 0.5, Endpoint("10.180.2.1", 80): 0.5}
    assert traced.steps == (
        'vcnode nat-output 1 "ip daddr . meta l4proto . th dport vmap @services": on to '
        "VCN-SVC-GNZBNJ2PO5MGZ6GT",
        'vcnode VCN-SVC-GNZBNJ2PO5MGZ6GT 1 "meta l4proto tcp dnat ip to numgen random mod 2 map '
        '{ 0 : 10.180.0.1 . 80, 1 : 10.180.2.1 . 80 }": 50 % of new connections each: the destination '
        "becomes 10.180.0.1:80; the destination becomes 10.180.2.1:80",
        "to 10.180.0.1:80, 10.180.2.1:80: vcnode filter-output: no rule takes it, policy accept: it goes on",
    )


def test_affinity_remembers_nobody() -> None:
    traced = trace(LISTED, packet("172.30.0.43"))
    assert traced.chances == {Endpoint("10.180.0.9", 80): 0.5, PacketVerdict.DROP: 0.5}
    assert traced.steps == (
        'vcnode nat-output 1 "ip daddr . meta l4proto . th dport vmap @services": on to VCN-SVC-AFFINE',
        'vcnode VCN-SVC-AFFINE 1 "ip saddr @VCN-SEP-1 goto VCN-SEP-1": passed over: it is for clients that '
        "affinity remembers, and none is taken to be remembered",
        'vcnode VCN-SVC-AFFINE 2 "numgen random mod 2 vmap { 0 : goto VCN-SEP-1, 1 : drop }": 50 % of new '
        "connections each: on to VCN-SEP-1; dropped: the sender hears nothing",
        'vcnode VCN-SEP-1 1 "update @VCN-SEP-1 { ip saddr } meta l4proto tcp dnat to 10.180.0.9:80": 50 % of '
        "new connections: the destination becomes 10.180.0.9:80",
        "to 10.180.0.9:80: vcnode filter-output: no rule takes it, policy accept: it goes on",
    )


def test_the_service_range() -> None:
    traced = trace(LISTED, packet("172.30.0.41", protocol=Protocol.UDP))
    assert traced.verdict == "reject"
    assert traced.steps == (
        "vcnode nat-output: no rule takes it, policy accept: it goes on",
        'vcnode filter-output 2 "ct state new ct status ! dnat ip daddr @service-cidrs goto refuse": on to '
        "refuse",
        'vcnode refuse 2 "reject": rejected: the sender is told at once, by icmp port-unreachable',
    )
    assert trace(LISTED, packet("172.30.0.41", 81)).steps[-1] == (
        'vcnode refuse 1 "reject with tcp reset": rejected: the sender is told at once, by tcp reset'
    )


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        (packet("172.30.0.46"), "drop"),
        (packet("172.30.0.46", protocol=Protocol.SCTP), "reject"),
        (packet("10.0.0.9"), "pass"),
        (Packet("fd00::2", Protocol.TCP, "fd00:172:30::41", 80), "pass"),
    ],
)
def test_verdicts(asked: Packet, verdict: str) -> None:
    assert trace(LISTED, asked).verdict == verdict


@pytest.mark.parametrize(
    ("chain", "verdict"),
    [
        ("type nat hook output priority -100; dnat to 1.1.1.1:81", "1.1.1.1:81"),
        ("type nat hook output priority -90; dnat to 1.1.1.1:81", "10.180.0.1:80"),
        ("type filter hook output priority raw; ip daddr 172.30.0.41 drop", "drop"),
        ("type filter hook output priority filter + 10; ip daddr 172.30.0.41 drop", "10.180.0.1:80"),
        ("type filter hook output priority filter - 10; ip daddr 10.180.0.1 reject", "reject"),
        ("type filter hook output priority 0; policy drop; tcp dport 80 accept", "10.180.0.1:80"),
        ("type filter hook output priority 0; policy drop; udp dport 80 accept", "drop"),
        ("type filter hook input priority 0; policy drop;", "10.180.0.1:80"),
        (
            "type nat hook output priority -100; meta skuid 1337 redirect to :15001",
            "10.180.0.1:80, 127.0.0.1:15001",
        ),
        ("type nat hook output priority -100; tcp dport 80 redirect to :15001", "127.0.0.1:15001"),
        ("type nat hook output priority -100; counter packets 1 bytes 60 queue", "unknown"),
        ('type filter hook output priority 5; oifname "lo" drop', "10.180.0.1:80, drop"),
        ("type filter hook output priority 5; jump gone", "10.180.0.1:80"),
    ],
)
def test_others_tables_beside_ours(chain: str, verdict: str) -> None:
    text = f"{LISTED}table inet other {{\n\tchain c {{\n\t\t{chain}\n\t}}\n}}\n"
    assert trace(text, packet("172.30.0.41")).verdict == verdict


def test_ipv6() -> None:
    text = """\
table ip6 vcnode {
	map endpoints {
		type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service
		elements = { fd00:172:30::41 . udp . 53 : fd00:10::3 . 5353 }
	}
	chain nat-output {
		type nat hook output priority -95; policy accept;
		meta l4proto { tcp, udp, sctp } dnat ip6 to ip6 daddr . meta l4proto . th dport map @endpoints
	}
}
"""
    asked = Packet("fd00:10::2", Protocol.UDP, "fd00:172:30::41", 53)
    assert trace(text, asked).verdict == "[fd00:10::3]:5353"
    assert trace(text, packet("172.30.0.41")).verdict == "pass"


def test_a_loop_of_chains() -> None:
    text = """\
table ip x {
	chain o { type nat hook output priority 0; jump a; }
	chain a { jump b; }
	chain b { jump a; }
}
"""
    with pytest.raises(TooDeepError, match="a -> b -> a"):
        trace(text, packet("172.30.0.41"))
