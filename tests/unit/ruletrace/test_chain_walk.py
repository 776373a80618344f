# SPDX-License-Identifier: Apache-2.0
"""Following a packet through hooks that are functions."""

import pytest

from ruleset.model import Endpoint, Protocol
from ruletrace.chain_walk import End, Walked, chance_said, chances_said, follow, none_of
from ruletrace.packet import Packet, PacketVerdict

PACKET = Packet("10.0.0.2", Protocol.TCP, "172.30.0.41", 80)
A, B = Endpoint("10.0.0.3", 80), Endpoint("10.0.0.4", 80)


def nat(_: Packet, walked: Walked) -> list[End]:
    walked.steps.append("nat")
    return [End(0.25, A), End(0.25, B), End(0.5, PacketVerdict.PASS)]


def refuses_b(packet: Packet, walked: Walked) -> list[End]:
    is_b = packet.destination == B.ip
    walked.steps.append("no" if is_b else "yes")
    return [End(1.0, PacketVerdict.DROP if is_b else PacketVerdict.PASS)]


def test_every_destination_goes_through_the_hooks_that_follow() -> None:
    traced = follow(PACKET, [nat, refuses_b])
    assert traced.chances == {A: 0.25, PacketVerdict.DROP: 0.25, PacketVerdict.PASS: 0.5}
    assert traced.steps == (
        "nat",
        "to 10.0.0.3:80, 172.30.0.41:80: yes",
        "to 10.0.0.4:80: no",
    )


def test_no_hooks_at_all() -> None:
    assert follow(PACKET, []).chances == {PacketVerdict.PASS: 1.0}


def test_chances_are_not_told_where_nobody_knows() -> None:
    def perhaps(_: Packet, walked: Walked) -> list[End]:
        with_it, past = walked.split(1.0, None)
        return [End(with_it, PacketVerdict.DROP), End(past, PacketVerdict.PASS)]

    traced = follow(PACKET, [perhaps])
    assert (traced.verdict, traced.chances) == ("drop, pass", {})


@pytest.mark.parametrize(
    ("share", "unknown", "wanted"),
    [
        (1.0, (), ""),
        (1 / 3, (), "33.33 % of new connections: "),
        (
            1.0,
            ("--uid-owner 1", "-o eth0"),
            "perhaps (nobody can tell from outside: --uid-owner 1, -o eth0): ",
        ),
    ],
)
def test_how_steps_begin(share: float, unknown: tuple[str, ...], wanted: str) -> None:
    assert chance_said(share, unknown) == wanted


def test_equal_shares_are_said_once() -> None:
    assert chances_said({"a": 0.5, "b": 0.5}) == ["50 % of new connections each: a; b"]
    assert chances_said({"a": 0.75, "b": 0.25}) == [
        "75 % of new connections: a",
        "25 % of new connections: b",
    ]


def test_chains_that_take_nothing() -> None:
    assert [none_of(rules) for rules in (0, 1, 2)] == [
        "it is empty",
        "its only rule is not for it",
        "none of its 2 rules is for it",
    ]
