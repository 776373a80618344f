# SPDX-License-Identifier: Apache-2.0
"""Walks through chains whose rules are effects, written as the keys of a table."""

from collections.abc import Mapping, Sequence

import pytest

from ruleset.model import Endpoint, Protocol
from ruletrace.chain_walk import BrokenChainsError, Hook, RuleEffect, RuleResult, unsupported_rule, walk_hooks
from ruletrace.packet import Packet, PacketVerdict

PACKET = Packet("10.0.0.2", Protocol.TCP, "172.30.0.41", 80)
A, B = Endpoint("10.0.0.3", 80), Endpoint("10.0.0.4", 80)
RULES: dict[str, RuleResult] = {
    "drop": RuleResult((RuleEffect(1.0, "dropped", PacketVerdict.DROP),)),
    "accept": RuleResult((RuleEffect(1.0, "accepted", PacketVerdict.PASS),)),
    "to-a": RuleResult((RuleEffect(1.0, "to a", A),)),
    "a-or-b": RuleResult((RuleEffect(0.5, "to a", A), RuleEffect(0.5, "to b", B))),
    "half-b": RuleResult((RuleEffect(0.5, "to b", B),)),
    "jump": RuleResult((RuleEffect(1.0, "jumps to x", chain="x"),)),
    "goto": RuleResult((RuleEffect(1.0, "jumps to x", chain="x", is_goto=True),)),
    "return": RuleResult((RuleEffect(1.0, "returns"),)),
    "skipped": RuleResult(note="skipped: a note"),
}


def hook(label: str, chains: Mapping[str, Sequence[str]]) -> Hook:
    def evaluate(rule: str, packet: Packet) -> RuleResult:
        if rule == "drop-b":
            return RULES["drop"] if packet.destination == B.ip else RuleResult()
        return RULES.get(rule, RuleResult())

    return Hook(label, "base", chains, evaluate)


def test_each_destination_walks_the_later_hooks() -> None:
    trace = walk_hooks(PACKET, [hook("nat", {"base": ["a-or-b"]}), hook("filter", {"base": ["drop-b"]})])
    assert trace.chances == {A: 0.5, PacketVerdict.DROP: 0.5}
    assert trace.steps == (
        'nat base 1 "a-or-b": 50 % of new connections each: to a; to b',
        "to 10.0.0.3:80: filter base: no rule decides, the packet continues",
        'to 10.0.0.4:80: filter base 1 "drop-b": dropped',
    )


def test_without_hooks_a_packet_passes() -> None:
    trace = walk_hooks(PACKET, [])
    assert (trace.chances, trace.steps) == ({PacketVerdict.PASS: 1.0}, ())


@pytest.mark.parametrize(
    ("base", "x", "chances"),
    [
        (["jump", "drop"], ["return", "to-a"], {PacketVerdict.DROP: 1.0}),
        (["goto", "drop"], ["return", "to-a"], {PacketVerdict.PASS: 1.0}),
        (["jump", "to-a"], ["half-b"], {A: 0.5, B: 0.5}),
        (["goto", "to-a"], ["half-b"], {PacketVerdict.PASS: 0.5, B: 0.5}),
        (["jump", "drop"], ["accept"], {PacketVerdict.PASS: 1.0}),
        (["half-b", "half-b", "to-a"], [], {A: 0.25, B: 0.75}),
        (["return", "drop"], [], {PacketVerdict.PASS: 1.0}),
        ([], [], {PacketVerdict.PASS: 1.0}),
    ],
)
def test_jumps_come_back_and_gotos_do_not(base: list[str], x: list[str], chances: object) -> None:
    assert walk_hooks(PACKET, [hook("t", {"base": base, "x": x})]).chances == chances


def test_steps_have_shares_notes_and_mismatches() -> None:
    chains = {"base": ["skipped", "half-b", "jump", "other"], "x": ["other", "other"]}
    assert walk_hooks(PACKET, [hook("t", chains)]).steps == (
        't base 1 "skipped": skipped: a note',
        't base 2 "half-b": 50 % of new connections: to b',
        't base 3 "jump": 50 % of new connections: jumps to x',
        "t x: none of its 2 rules matches, returns to base",
        "t base: no rule decides, the packet continues",
    )


@pytest.mark.parametrize(
    ("rules", "text"), [([], "it is empty"), (["other"], "its only rule does not match")]
)
def test_short_chain_without_match_is_described(rules: list[str], text: str) -> None:
    steps = walk_hooks(PACKET, [hook("t", {"base": ["jump"], "x": rules})]).steps
    assert steps[1] == f"t x: {text}, returns to base"


def test_long_rule_is_cut_in_a_step() -> None:
    long = "x" * 200
    walked = walk_hooks(PACKET, [Hook("t", "base", {"base": [long]}, lambda _, __: unsupported_rule("x"))])
    assert walked.steps == (f"t base 1 \"{'x' * 150} ...\": this tool does not understand 'x'",)
    assert walked.summary == "unknown"


@pytest.mark.parametrize(
    ("chains", "text"),
    [
        ({"base": ["jump"], "x": ["jump"]}, "chains lead to each other: base -> x -> x"),
        ({"base": ["jump"]}, "base leads to x, which does not exist"),
        ({"base": ["other"] * 250_001}, "more than 250000 rules"),
    ],
)
def test_chains_that_cannot_be_walked_are_an_error(chains: dict[str, list[str]], text: str) -> None:
    with pytest.raises(BrokenChainsError, match=text):
        walk_hooks(PACKET, [hook("t", chains)])
