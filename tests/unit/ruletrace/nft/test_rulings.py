# SPDX-License-Identifier: Apache-2.0
"""What single rules do to a packet, in the words of the steps."""

import pytest

from ruleset.model import Protocol
from ruletrace.nft.rule_text import Collection, Element, Rule
from ruletrace.nft.rulings import Judge
from ruletrace.packet import Packet

PACKET = Packet("10.0.0.2", Protocol.TCP, "172.30.0.41", 80)
JUDGE = Judge(
    {
        "cidrs": Collection(elements=[Element(("172.30.0.0/16",))]),
        "clients": Collection(is_dynamic=True),
        "ends": Collection(elements=[Element(("tcp", "80"), ("10.0.0.3", ".", "8080"))]),
        "verdicts": Collection(elements=[Element(("80",), ("goto", "x")), Element(("81",), ("drop",))]),
    }
)
NOTHING: list[tuple[float, str, str]] = []


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("accept", [(1.0, "end", "accepted: past the other rules of this chain")]),
        ("tcp dport { 80, 443 } drop", [(1.0, "end", "dropped: the sender hears nothing")]),
        ("tcp dport != { 80, 443 } drop", NOTHING),
        ("udp dport != 53 drop", NOTHING),
        ("ip daddr @cidrs jump x", [(1.0, "jump", "on to x")]),
        ("ip daddr != @cidrs jump x", NOTHING),
        ("ct state established,related accept", NOTHING),
        ("ct state { new, related } return", [(1.0, "return", "back to where it came from")]),
        ("ct status ! dnat continue", [(1.0, "on", "it goes on")]),
        ("counter packets 5 bytes 300", [(1.0, "on", "only counted, it goes on")]),
        ("update @clients { ip saddr timeout 3h }", [(1.0, "on", "its client is remembered, it goes on")]),
        ("meta mark set 0x1 accept", [(1.0, "on", "only counted, it goes on")]),
        ("th dport vmap @verdicts", [(1.0, "goto", "on to x")]),
        ("th dport vmap { 1 : drop }", NOTHING),
        ("numgen random mod 4 0 drop", [(0.25, "end", "dropped: the sender hears nothing")]),
        ("numgen random mod 4 0-2 drop", [(0.75, "end", "dropped: the sender hears nothing")]),
        (
            "dnat to meta l4proto . th dport map @ends",
            [(1.0, "end", "the destination becomes 10.0.0.3:8080")],
        ),
        ("dnat to 10.0.0.3", [(1.0, "end", "the destination becomes 10.0.0.3:80")]),
        ("dnat to :8080", [(1.0, "end", "the destination becomes 172.30.0.41:8080")]),
        ("dnat ip to 10.0.0.3:8080 random", [(1.0, "end", "the destination becomes 10.0.0.3:8080")]),
        (
            "dnat to 10.0.0.3-10.0.0.9",
            [(1.0, "end", "to one of several addresses, which cannot be followed")],
        ),
        ("reject with tcp reset", [(1.0, "end", "rejected: the sender is told at once, by tcp reset")]),
        (
            "reject with icmp admin-prohibited",
            [(1.0, "end", "rejected: the sender is told at once, by icmp admin-prohibited")],
        ),
        ("redirect", [(1.0, "end", "to port 80 of the guest itself")]),
        ("tproxy to :1", [(1.0, "end", "handed to tproxy, which cannot be followed")]),
    ],
)
def test_rulings(rule: str, wanted: list[tuple[float, str, str]]) -> None:
    rulings = JUDGE.rulings(Rule(tuple(rule.replace(",", " , ").split())), PACKET)
    assert [(does.share, does.kind, does.said) for does in rulings.does] == wanted
    assert rulings.unknown == ()


def test_clients_of_affinity() -> None:
    for rule in ("ip saddr @clients goto x", "ip saddr vmap @clients"):
        rulings = JUDGE.rulings(Rule(tuple(rule.split())), PACKET)
        assert (rulings.does, rulings.is_affinity) == ((), True)


@pytest.mark.parametrize(
    ("rule", "unknown"),
    [
        ("meta skuid 1337 accept", ("meta skuid",)),
        ('oifname "eth0" tcp dport 80 drop', ("oifname",)),
        ("limit rate 1/second drop", ("limit", "rate", "1/second")),
        ('xt match "owner" counter packets 0 bytes 0 return', ("xt", "match", '"owner"')),
    ],
)
def test_what_nobody_can_know(rule: str, unknown: tuple[str, ...]) -> None:
    rulings = JUDGE.rulings(Rule(tuple(rule.split())), PACKET)
    assert (len(rulings.does), rulings.unknown) == (1, unknown)
    assert JUDGE.rulings(Rule(("udp", "dport", "80", *rule.split())), PACKET).does == ()
