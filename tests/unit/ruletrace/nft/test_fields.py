# SPDX-License-Identifier: Apache-2.0
"""What nft's expressions are for a packet."""

import ipaddress
from collections.abc import Sequence

import pytest

from ruleset.model import Protocol
from ruletrace.nft.fields import ABSENT, UNKNOWN, Read, Value, fits, read_expression
from ruletrace.nft.rule_text import Element
from ruletrace.packet import Packet

PACKET = Packet("10.0.0.2", Protocol.TCP, "172.30.0.41", 80)
TO = ipaddress.ip_address("172.30.0.41")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("ip daddr . meta l4proto . th dport vmap", (TO, "tcp", 80)),
        ("ip saddr @x", (ipaddress.ip_address("10.0.0.2"),)),
        ("ip6 daddr ::1", (ABSENT,)),
        ("ip protocol udp", ("tcp",)),
        ("l4proto udp", ("tcp",)),
        ("tcp dport 80", (80,)),
        ("udp dport 80", (ABSENT,)),
        ("ct state new", ("new",)),
        ("ct status dnat", ("",)),
        ("meta nfproto ipv4", ("ipv4",)),
        ("fib daddr type local", ("unicast",)),
        ("oifname eth0", (UNKNOWN,)),
        ("meta oifname eth0", (UNKNOWN,)),
        ("meta skuid 1337", (UNKNOWN,)),
        ("tcp sport 1", (UNKNOWN,)),
    ],
)
def test_fields(text: str, values: tuple[Value, ...]) -> None:
    read = read_expression(text.split(), PACKET)
    assert read is not None
    assert read.alternatives == ((1.0, values),)


def test_chance_has_alternatives() -> None:
    read = read_expression(["numgen", "random", "mod", "2", "offset", "5", "map"], PACKET)
    assert read == Read(((0.5, (5,)), (0.5, (6,))), 6)
    both = read_expression(["ip", "daddr", ".", "numgen", "inc", "mod", "2", "map"], PACKET)
    assert both == Read(((0.5, (TO, 0)), (0.5, (TO, 1))), 7)


@pytest.mark.parametrize("text", ["accept", "numgen random mod 0", "", "xt match"])
def test_what_is_no_expression(text: str) -> None:
    assert read_expression(text.split(), PACKET) is None


@pytest.mark.parametrize(
    ("values", "key", "wanted"),
    [
        ((TO,), ("172.30.0.0/16",), True),
        ((TO,), ("172.30.0.1-172.30.0.50",), True),
        ((TO,), ("172.30.0.42-172.30.0.50",), False),
        ((TO,), ("fd00::/8",), False),
        ((TO,), ("nonsense",), False),
        ((80,), ("80",), True),
        ((80,), ("1-79",), False),
        ((80,), ("http",), False),
        (("tcp", 80), ("tcp", "80"), True),
        (("tcp", 80), ("tcp",), False),
        (("tcp", UNKNOWN), ("tcp", "80"), None),
        (("udp", UNKNOWN), ("tcp", "80"), False),
        ((ABSENT,), ("80",), False),
        ((UNKNOWN,), ("*",), True),
        (("lo",), ('"lo"',), True),
    ],
)
def test_fits(values: Sequence[Value], key: tuple[str, ...], wanted: bool | None) -> None:
    assert fits(values, Element(key)) is wanted
