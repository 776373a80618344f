# SPDX-License-Identifier: Apache-2.0
"""Packets through iptables rules: ours, and others' beside them. Steps are written out in full."""

import pytest

from ruleset.model import Endpoint, Protocol
from ruletrace.chain_walk import TooDeepError
from ruletrace.iptables.trace import trace
from ruletrace.packet import Packet, PacketVerdict

GUEST = "10.0.0.2"

OURS = """\
*filter
:VCN-SERVICES - [0:0]
-A OUTPUT -m conntrack --ctstate NEW -m conntrack ! --ctstate DNAT -j VCN-SERVICES
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

MESH = """\
*nat
:OUTPUT ACCEPT [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
:VCN-SERVICES - [0:0]
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A OUTPUT -j VCN-SERVICES
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A VCN-SERVICES -d 172.30.0.41/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.180.0.1:80
COMMIT
"""


def tcp(destination: str, port: int = 80) -> Packet:
    return Packet(GUEST, Protocol.TCP, destination, port)


def test_one_endpoint() -> None:
    traced = trace(OURS, tcp("172.30.0.41"))
    assert traced.verdict == "10.180.0.1:80"
    assert traced.steps == (
        'nat OUTPUT 1 "-j VCN-SERVICES": on to VCN-SERVICES',
        'nat VCN-SERVICES 1 "-d 172.30.0.41/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination '
        '10.180.0.1:80": the destination becomes 10.180.0.1:80',
        "to 10.180.0.1:80: filter OUTPUT: no rule takes it, policy ACCEPT: it goes on",
    )


def test_chance_leads_to_all_endpoints_and_each_has_its_share() -> None:
    traced = trace(OURS, tcp("172.30.0.42"))
    assert traced.chances == {Endpoint("10.180.0.1", 80): 0.5, Endpoint("10.180.2.1", 80): 0.5}
    assert traced.steps == (
        'nat OUTPUT 1 "-j VCN-SERVICES": on to VCN-SERVICES',
        'nat VCN-SERVICES 2 "-d 172.30.0.42/32 -p tcp -m tcp --dport 80 -j VCN-SVC-GNZBNJ2PO5MGZ6GT": '
        "on to VCN-SVC-GNZBNJ2PO5MGZ6GT",
        'nat VCN-SVC-GNZBNJ2PO5MGZ6GT 1 "-p tcp -m statistic --mode random --probability 0.5000000000 '
        '-j DNAT --to-destination 10.180.0.1:80": 50 % of new connections: the destination becomes '
        "10.180.0.1:80",
        'nat VCN-SVC-GNZBNJ2PO5MGZ6GT 2 "-p tcp -j DNAT --to-destination 10.180.2.1:80": '
        "50 % of new connections: the destination becomes 10.180.2.1:80",
        "to 10.180.0.1:80, 10.180.2.1:80: filter OUTPUT: no rule takes it, policy ACCEPT: it goes on",
    )


def test_a_chain_whose_last_rule_has_a_weight_lets_packets_through() -> None:
    last = "-A VCN-SVC-GNZBNJ2PO5MGZ6GT -p tcp -j DNAT --to-destination 10.180.2.1:80\n"
    traced = trace(OURS.replace(last, ""), tcp("172.30.0.42"))
    assert traced.chances == {Endpoint("10.180.0.1", 80): 0.5, PacketVerdict.REJECT: 0.5}


def test_the_catch_all_rejects_what_no_service_took() -> None:
    traced = trace(OURS, tcp("172.30.0.41", 81))
    assert traced.verdict == "reject"
    assert traced.steps == (
        'nat OUTPUT 1 "-j VCN-SERVICES": on to VCN-SERVICES',
        "nat VCN-SERVICES: none of its 2 rules is for it, back to OUTPUT",
        "nat OUTPUT: no rule takes it, policy ACCEPT: it goes on",
        'filter OUTPUT 1 "-m conntrack --ctstate NEW -m conntrack ! --ctstate DNAT -j VCN-SERVICES": '
        "on to VCN-SERVICES",
        'filter VCN-SERVICES 2 "-d 172.30.0.0/16 -j REJECT --reject-with icmp-port-unreachable": '
        "rejected: the sender is told at once, by icmp-port-unreachable",
    )


@pytest.mark.parametrize(
    ("packet", "verdict"),
    [
        (tcp("172.30.0.46"), "drop"),
        (Packet(GUEST, Protocol.UDP, "172.30.0.41", 80), "reject"),
        (tcp("10.0.0.9"), "pass"),
        (Packet("fd00::2", Protocol.TCP, "fd00:172:30::41", 80), "pass"),
    ],
)
def test_verdicts(packet: Packet, verdict: str) -> None:
    assert trace(OURS, packet).verdict == verdict


def test_affinity_remembers_nobody() -> None:
    text = OURS.replace(
        "-A VCN-SVC-GNZBNJ2PO5MGZ6GT -p tcp -m statistic",
        "-A VCN-SVC-GNZBNJ2PO5MGZ6GT -m recent --rcheck --seconds 10 --reap --name X "
        "-j DNAT --to-destination 9.9.9.9:1\n-A VCN-SVC-GNZBNJ2PO5MGZ6GT -p tcp -m statistic",
    )
    traced = trace(text, tcp("172.30.0.42"))
    assert traced.verdict == "10.180.0.1:80, 10.180.2.1:80"
    assert traced.steps[2] == (
        'nat VCN-SVC-GNZBNJ2PO5MGZ6GT 1 "-m recent --rcheck --seconds 10 --reap --name X -j DNAT '
        '--to-destination 9.9.9.9:1": passed over: it is for clients that affinity remembers, and none '
        "is taken to be remembered"
    )


def test_a_rule_that_nobody_can_judge_is_followed_both_ways() -> None:
    traced = trace(MESH, tcp("172.30.0.41"))
    assert (traced.verdict, traced.chances) == ("10.180.0.1:80, 127.0.0.1:15001", {})
    assert traced.steps == (
        'nat OUTPUT 1 "-p tcp -j ISTIO_OUTPUT": on to ISTIO_OUTPUT',
        'nat ISTIO_OUTPUT 1 "-m owner --uid-owner 1337 -j RETURN": perhaps (nobody can tell from '
        "outside: --uid-owner 1337): back to where it came from",
        'nat ISTIO_OUTPUT 3 "-j ISTIO_REDIRECT": on to ISTIO_REDIRECT',
        'nat ISTIO_REDIRECT 1 "-p tcp -j REDIRECT --to-ports 15001": to port 15001 of the guest itself',
        'nat OUTPUT 2 "-j VCN-SERVICES": on to VCN-SERVICES',
        'nat VCN-SERVICES 1 "-d 172.30.0.41/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination '
        '10.180.0.1:80": the destination becomes 10.180.0.1:80',
    )


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ("*mangle\n-A OUTPUT -p tcp -j DROP\nCOMMIT\n", "drop"),
        (  # as a container engine in the pod has it: for addresses of the guest's own alone
            "*nat\n:DOCKER - [0:0]\n-I OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER\n"
            "-A DOCKER ! -i docker0 -p tcp -j DNAT --to-destination 172.17.0.2:80\nCOMMIT\n",
            "10.180.0.1:80",
        ),
        ("*raw\n-A OUTPUT -j NOTRACK\nCOMMIT\n", "10.180.0.1:80"),
        ("*filter\n:OUTPUT DROP [0:0]\nCOMMIT\n", "drop"),
        ("*filter\n-I OUTPUT -d 10.180.0.0/24 -j ACCEPT\n-P OUTPUT DROP\nCOMMIT\n", "10.180.0.1:80"),
        ("*security\n-A OUTPUT -d 10.180.0.1 -j REJECT\nCOMMIT\n", "reject"),
        ("*nat\n-I OUTPUT -j NFQUEUE\nCOMMIT\n", "unknown"),
        ("*nat\n-I OUTPUT -j DNAT --to-destination 1.1.1.1-1.1.1.9\nCOMMIT\n", "unknown"),
        ("*nat\n-I OUTPUT -j DNAT --to-destination :8080\nCOMMIT\n", "172.30.0.41:8080"),
        ("*nat\n-I OUTPUT -j DNAT --to-destination 1.1.1.1\nCOMMIT\n", "1.1.1.1:80"),
        ("*nat\n-I OUTPUT -j LOG\nCOMMIT\n", "10.180.0.1:80"),
        ("*nat\n-I OUTPUT\nCOMMIT\n", "10.180.0.1:80"),
        ("*nat\n:X - [0:0]\n-I OUTPUT -g X\n-A X -d 1.1.1.1 -j RETURN\nCOMMIT\n", "reject"),
        ("*nat\n:X - [0:0]\n-I OUTPUT -j X\n-A X -j RETURN\nCOMMIT\n", "10.180.0.1:80"),
        ("*nat\n-I OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\nCOMMIT\n", "10.180.0.1:80"),
    ],
)
def test_others_rules_beside_ours(rules: str, verdict: str) -> None:
    assert trace(OURS + rules, tcp("172.30.0.41")).verdict == verdict


def test_ipv6() -> None:
    text = """\
*nat
:VCN-SERVICES - [0:0]
-A OUTPUT -j VCN-SERVICES
-A VCN-SERVICES -d fd00:172:30::41/128 -p udp -m udp --dport 53 -j DNAT --to-destination [fd00:10::3]:5353
COMMIT
"""
    packet = Packet("fd00:10::2", Protocol.UDP, "fd00:172:30::41", 53)
    assert trace(text, packet).verdict == "[fd00:10::3]:5353"


def test_a_loop_of_chains() -> None:
    text = "*nat\n:A - [0:0]\n:B - [0:0]\n-A OUTPUT -j A\n-A A -j B\n-A B -j A\nCOMMIT\n"
    with pytest.raises(TooDeepError, match="A -> B -> A"):
        trace(text, tcp("172.30.0.41"))


def test_more_ways_than_can_be_walked() -> None:
    chains = "".join(f":C{n} - [0:0]\n" for n in range(30))
    jumps = "".join(f"-A C{n} -j C{n + 1}\n" * 2 for n in range(29))
    with pytest.raises(TooDeepError, match="more than"):
        trace(f"*nat\n{chains}-A OUTPUT -j C0\n{jumps}COMMIT\n", tcp("172.30.0.41"))
