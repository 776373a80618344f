# SPDX-License-Identifier: Apache-2.0
"""What single options of a rule say of a packet."""

import pytest

from ruleset.model import Protocol
from ruletrace.iptables.matches import Assumed, takes
from ruletrace.iptables.rule_text import read_tables
from ruletrace.packet import Packet

PACKET = Packet("10.0.0.2", Protocol.TCP, "172.30.0.41", 80)
UDP6 = Packet("fd00::2", Protocol.UDP, "fd00::41", 53)
TO_ITSELF = Packet("10.0.0.2", Protocol.TCP, "10.0.0.2", 80)
REWRITTEN = Packet("10.0.0.2", Protocol.TCP, "10.0.0.9", 80, is_rewritten=True)


def chance(options: str, packet: Packet = PACKET) -> float | None:
    (rule,) = read_tables(f"*nat\n-A OUTPUT {options} -j ACCEPT\nCOMMIT\n")["nat"]["OUTPUT"].rules
    return takes(rule, packet).chance


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", 1),
        ("-p tcp", 1),
        ("-p 6", 1),
        ("-p all", 1),
        ("-p udp", 0),
        ("! -p udp", 1),
        ("-d 172.30.0.41", 1),
        ("-d 172.30.0.0/255.255.0.0", 1),
        ("-d 10.0.0.0/8,172.30.0.0/16", 1),
        ("-d 172.31.0.0/16", 0),
        ("! -d 172.30.0.0/16", 0),
        ("-d example.org", None),
        ("-s 10.0.0.2/32", 1),
        ("-p tcp -m tcp --dport 80", 1),
        ("-p tcp --dport 80:90", 1),
        ("-p tcp --dport :79", 0),
        ("-p tcp --dport 81:", 0),
        ("-p tcp ! --dport 80", 0),
        ("-p tcp --dport http", None),
        ("-p tcp -m multiport --dports 22,80", 1),
        ("-p tcp --sport 1024:", None),
        ("-p tcp --syn", 1),
        ("-o lo", 0),
        ("! -o lo", 1),
        ("-o eth0", None),
        ("-m addrtype --dst-type LOCAL", 0),
        ("-m addrtype --dst-type UNICAST", None),
        ("-m comment --comment 'ns1/svc1 -j DROP'", 1),
        ("-m conntrack --ctstate NEW,RELATED", 1),
        ("-m conntrack --ctstate RELATED,ESTABLISHED", 0),
        ("-m conntrack ! --ctstate ESTABLISHED", 1),
        ("-m conntrack --ctstate DNAT", 0),
        ("-m state --state INVALID", 0),
        ("-m statistic --mode random --probability 0.25", 0.25),
        ("-m statistic --mode random ! --probability 0.25", 0.75),
        ("-m statistic --mode nth --every 4 --packet 0", 0.25),
        ("-p udp -m statistic --mode random --probability 0.25", 0),
        ("-m recent --rcheck --seconds 10 --name X --rsource", 0),
        ("-m recent --set --name X --rsource", 1),
        ("-m owner --uid-owner 1337", None),
        ("-m owner --uid-owner 1337 -p udp", 0),
        ("-m mark --mark 0x1/0x1", None),
        ("-m set --match-set names dst", None),
    ],
)
def test_chances(options: str, wanted: float | None) -> None:
    assert chance(options) == wanted


def test_packets_to_oneself() -> None:
    assert chance("-o lo", TO_ITSELF) == 1
    assert chance("-o eth0", TO_ITSELF) == 0
    assert chance("-m addrtype --dst-type LOCAL", TO_ITSELF) == 1


def test_rewritten_packets() -> None:
    assert chance("-m conntrack --ctstate NEW -m conntrack ! --ctstate DNAT", REWRITTEN) == 0
    assert chance("-m conntrack --ctstate NEW -m conntrack ! --ctstate DNAT", PACKET) == 1


def test_the_other_family() -> None:
    assert chance("-d 172.30.0.0/16", UDP6) == 0
    assert chance("-d fd00::/64 -p udp -m udp --dport 53", UDP6) == 1


def test_why_a_rule_is_passed_over_is_told_only_if_nothing_else_is_against_it() -> None:
    (other, ours) = read_tables(
        "*nat\n-A OUTPUT -p udp -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
        "-A OUTPUT -m conntrack --ctstate ESTABLISHED -p tcp -j ACCEPT\nCOMMIT\n"
    )["nat"]["OUTPUT"].rules
    assert takes(other, PACKET).assumed is None
    assert takes(ours, PACKET).assumed is Assumed.STATE
