# SPDX-License-Identifier: Apache-2.0
"""Packets through documents of iptables, as the renderer writes them and as a guest may change them."""

import pytest

from ruleset.document import Document, parse
from ruleset.model import Endpoint, Family, Protocol
from ruleset.names import Backend
from ruletrace.iptables import trace
from ruletrace.packet import Packet, PacketVerdict

CHAIN = "VCN-SVC-GNZBNJ2PO5MGZ6GT"
OURS = """\
*filter
:VCN-SERVICES - [0:0]
-A OUTPUT -m conntrack --ctstate NEW -j VCN-SERVICES
-A VCN-SERVICES -m conntrack --ctstate DNAT -j RETURN
-A VCN-SERVICES -d 172.30.0.46/32 -p tcp -m tcp --dport 80 -j DROP
-A VCN-SERVICES -d 172.30.0.0/16 -j REJECT --reject-with icmp-port-unreachable
COMMIT
*nat
:VCN-SERVICES - [0:0]
:VCN-SVC-GNZBNJ2PO5MGZ6GT - [0:0]
-A OUTPUT -j VCN-SERVICES
-A VCN-SERVICES -d 172.30.0.41/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.180.0.1:80
-A VCN-SERVICES -d 172.30.0.42/32 -p tcp -m tcp --dport 80 -j VCN-SVC-GNZBNJ2PO5MGZ6GT
-A VCN-SVC-GNZBNJ2PO5MGZ6GT -p tcp -m statistic --mode random --probability 0.5000000000 -j DNAT --to-destination 10.180.0.1:80
-A VCN-SVC-GNZBNJ2PO5MGZ6GT -p tcp -j DNAT --to-destination 10.180.2.1:80
COMMIT
"""  # noqa: E501 - as iptables-save prints it


def document(text: str = OURS, family: Family = Family.IPV4) -> Document:
    return parse(text, family, Backend.IPTABLES)


def changed(line: str, *, before: str) -> Document:
    """Our rules with one more, in front of the first that begins with `before`."""
    assert before in OURS
    return document(OURS.replace(before, f"{line}\n{before}", 1))


def tcp(destination: str, port: int = 80) -> Packet:
    return Packet("10.0.0.2", Protocol.TCP, destination, port)


def test_single_endpoint_is_reached_through_nat_and_filter() -> None:
    traced = trace(document(), tcp("172.30.0.41"))
    assert traced.summary == "10.180.0.1:80"
    assert traced.steps == (
        'nat OUTPUT 1 "-j VCN-SERVICES": jumps to VCN-SERVICES',
        'nat VCN-SERVICES 1 "-d 172.30.0.41/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination '
        '10.180.0.1:80": destination becomes 10.180.0.1:80',
        'to 10.180.0.1:80: filter OUTPUT 1 "-m conntrack --ctstate NEW -j VCN-SERVICES": jumps to '
        "VCN-SERVICES",
        'to 10.180.0.1:80: filter VCN-SERVICES 1 "-m conntrack --ctstate DNAT -j RETURN": returns to the '
        "calling chain",
        "to 10.180.0.1:80: filter OUTPUT: no rule decides, the packet continues",
    )


def test_weighted_rules_share_new_connections() -> None:
    traced = trace(document(), tcp("172.30.0.42"))
    assert traced.chances == {Endpoint("10.180.0.1", 80): 0.5, Endpoint("10.180.2.1", 80): 0.5}
    assert traced.steps[1:4] == (
        f'nat VCN-SERVICES 2 "-d 172.30.0.42/32 -p tcp -m tcp --dport 80 -j {CHAIN}": jumps to {CHAIN}',
        f'nat {CHAIN} 1 "-p tcp -m statistic --mode random --probability 0.5000000000 -j DNAT '
        '--to-destination 10.180.0.1:80": 50 % of new connections: destination becomes 10.180.0.1:80',
        f'nat {CHAIN} 2 "-p tcp -j DNAT --to-destination 10.180.2.1:80": 50 % of new connections: '
        "destination becomes 10.180.2.1:80",
    )
    assert traced.steps[4].startswith("to 10.180.0.1:80, 10.180.2.1:80: filter OUTPUT 1 ")


def test_packets_past_a_weighted_last_rule_are_rejected() -> None:
    last = f"-A {CHAIN} -p tcp -j DNAT --to-destination 10.180.2.1:80\n"
    traced = trace(document(OURS.replace(last, "")), tcp("172.30.0.42"))
    assert traced.chances == {Endpoint("10.180.0.1", 80): 0.5, PacketVerdict.REJECT: 0.5}


def test_unknown_port_in_the_service_range_is_rejected() -> None:
    assert trace(document(), tcp("172.30.0.41", 81)).steps == (
        'nat OUTPUT 1 "-j VCN-SERVICES": jumps to VCN-SERVICES',
        "nat VCN-SERVICES: none of its 2 rules matches, returns to OUTPUT",
        "nat OUTPUT: no rule decides, the packet continues",
        'filter OUTPUT 1 "-m conntrack --ctstate NEW -j VCN-SERVICES": jumps to VCN-SERVICES',
        'filter VCN-SERVICES 3 "-d 172.30.0.0/16 -j REJECT --reject-with icmp-port-unreachable": rejected '
        "with icmp-port-unreachable: the sender fails at once",
    )


@pytest.mark.parametrize(
    ("packet", "summary"),
    [
        (tcp("172.30.0.46"), "drop"),
        (Packet("10.0.0.2", Protocol.UDP, "172.30.0.41", 80), "reject"),
        (tcp("10.0.0.9"), "pass"),
        (Packet("fd00::2", Protocol.TCP, "fd00:172:30::41", 80), "pass"),
    ],
)
def test_packets_that_reach_no_endpoint(packet: Packet, summary: str) -> None:
    assert trace(document(), packet).summary == summary


def test_affinity_rule_is_skipped_for_a_new_client() -> None:
    rule = "-m recent --rcheck --seconds 10 --reap --name X --mask 255.255.255.255 --rsource -j VCN-SERVICES"
    traced = trace(changed(f"-A {CHAIN} {rule}", before=f"-A {CHAIN} -p tcp -m st"), tcp("172.30.0.42"))
    assert traced.summary == "10.180.0.1:80, 10.180.2.1:80"
    assert traced.steps[2] == (
        f'nat {CHAIN} 1 "{rule}": skipped: it is for clients that affinity remembers, and this trace is of a '
        "new client"
    )


@pytest.mark.parametrize(
    ("rule", "summary"),
    [
        ("-j LOG", "unknown"),
        ("-p tcp -m owner -j DROP", "unknown"),
        ("! -d 10.0.0.0/8 -j DROP", "unknown"),
        ("-p tcp", "unknown"),
        ("-m conntrack --ctstate NEW -m conntrack --ctstate DNAT -j DROP", "unknown"),
        ("-d 9.9.9.9/32 -p tcp -m owner -j DROP", "10.180.0.1:80"),
        ("-p udp -j LOG", "10.180.0.1:80"),
        ("-j ACCEPT", "reject"),
        ("-m conntrack --ctstate ESTABLISHED -j DROP", "10.180.0.1:80"),
    ],
)
def test_foreign_rule_counts_only_where_it_may_match(rule: str, summary: str) -> None:
    traced = trace(
        changed(f"-A VCN-SERVICES {rule}", before="-A VCN-SERVICES -d 172.30.0.41"), tcp("172.30.0.41")
    )
    assert traced.summary == summary


@pytest.mark.parametrize(
    "rule", ["-d nonsense -j DROP", "-j DNAT", "-j DNAT --to-destination x", "tcp -j DROP"]
)
def test_rule_that_cannot_be_read_is_an_error(rule: str) -> None:
    with pytest.raises(ValueError, match=r"nonsense|int|option"):
        trace(changed(f"-A VCN-SERVICES {rule}", before="-A VCN-SERVICES -d 172.30.0.41"), tcp("172.30.0.41"))


def test_ipv6_endpoint_is_written_in_brackets() -> None:
    text = """\
*nat
:VCN-SERVICES - [0:0]
-A OUTPUT -j VCN-SERVICES
-A VCN-SERVICES -d fd00:172:30::41/128 -p udp -m udp --dport 53 -j DNAT --to-destination [fd00:10::3]:5353
COMMIT
"""
    packet = Packet("fd00:10::2", Protocol.UDP, "fd00:172:30::41", 53)
    assert trace(document(text, Family.IPV6), packet).summary == "[fd00:10::3]:5353"
