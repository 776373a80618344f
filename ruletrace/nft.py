# SPDX-License-Identifier: Apache-2.0
"""Traces a packet through a document of nft: chain nat-output, then chain filter-output.

It understands the rules that `ruleset.render.nft` writes. Any other rule that the packet may match
ends the trace with `PacketVerdict.UNKNOWN`.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ruleset.document import Document
from ruleset.model import Endpoint, Protocol
from ruleset.names import NFT_TABLE
from ruleset.syntax.nft import is_property
from ruletrace.chain_walk import (
    NO_MATCH,
    SKIPS_AFFINITY,
    Hook,
    RuleEffect,
    RuleResult,
    unsupported_rule,
    walk_hooks,
)
from ruletrace.packet import Packet, PacketVerdict, Trace

_BASES = ("nat-output", "filter-output")
_LOOKUP = "daddr . meta l4proto . th dport"


def trace(document: Document, packet: Packet) -> Trace:
    """Every outcome of `packet` under the rules of `document`.

    Raises `ValueError` for rules that cannot be read or walked.
    """
    if document.family is not packet.family:
        return walk_hooks(packet, ())
    chains: dict[str, Sequence[str]] = {}
    collections: dict[str, Sequence[str]] = {}
    for name, lines in document.objects.items():
        kind, _, short = name.partition(" ")
        kept = tuple(line for line in lines if not is_property(line))
        (chains if kind == "chain" else collections)[short] = kept
    evaluate = _Evaluator(collections).evaluate
    return walk_hooks(packet, [Hook(NFT_TABLE, base, chains, evaluate) for base in _BASES])


@dataclass(frozen=True, slots=True)
class _Evaluator:
    """Reads a rule from left to right. `collections` are the elements of the table's maps and sets."""

    collections: Mapping[str, Sequence[str]]

    def evaluate(self, rule: str, packet: Packet) -> RuleResult:
        words = rule.split()
        while True:
            match words:
                case ["ct", "state", "new", *rest]:
                    pass
                case ["ct", "status", "!", "dnat", *rest]:
                    if packet.is_translated:
                        return NO_MATCH
                case ["meta", "l4proto", "{", *more] if "}" in more:
                    end = more.index("}")
                    if packet.protocol.value not in " ".join(more[:end]).split(", "):
                        return NO_MATCH
                    rest = more[end + 1 :]
                case ["meta", "l4proto", protocol, *rest]:
                    if protocol != packet.protocol.value:
                        return NO_MATCH
                case ["ip" | "ip6", "daddr", named, *rest] if named.startswith("@"):
                    cidrs = self.collections.get(named[1:], ())
                    if not any(packet.address in ipaddress.ip_network(cidr) for cidr in cidrs):
                        return NO_MATCH
                case ["ip" | "ip6", "saddr", named, *_] if named.startswith("@"):
                    return RuleResult(note=SKIPS_AFFINITY)
                case ["update", _, "{", "ip" | "ip6", "saddr", "}", *rest]:
                    pass
                case _:
                    return self._act(words, packet) or unsupported_rule(rule)
            words = rest

    def _act(self, words: Sequence[str], packet: Packet) -> RuleResult | None:
        """The lookup or verdict that ends a rule; None for another one than the renderer's."""
        text = " ".join(words)
        key = f"{packet.address} . {packet.protocol.value} . {packet.port}"
        match words:
            case ["ip" | "ip6", *_, "vmap", named] if f" {_LOOKUP} vmap @" in text:
                value = self._find(named, key)
                return NO_MATCH if value is None else _verdict(value, packet)
            case ["dnat", "ip" | "ip6", "to", "ip" | "ip6", *_, "map", named] if f" {_LOOKUP} map @" in text:
                value = self._find(named, key)
                return NO_MATCH if value is None else RuleResult((_translation(value),))
            case ["numgen", "random", "mod", modulus, "vmap", "{", *choices, "}"]:
                share, values = _random_choice(modulus, choices)
                verdicts = (_verdict(value, packet) or unsupported_rule(value) for value in values)
                effects = (effect for verdict in verdicts for effect in verdict.effects)
                return RuleResult(tuple(replace(effect, share=share) for effect in effects))
            case ["dnat", "ip" | "ip6", "to", "numgen", "random", "mod", modulus, "map", "{", *choices, "}"]:
                share, values = _random_choice(modulus, choices)
                return RuleResult(tuple(_translation(value, share) for value in values))
            case ["dnat", "to", value]:
                return RuleResult((_translation(value),))
        return _verdict(text, packet)

    def _find(self, named: str, key: str) -> str | None:
        """The value of a key in a map of the table."""
        start = f"{key} : "
        elements = self.collections.get(named.removeprefix("@"), ())
        return next((line.removeprefix(start) for line in elements if line.startswith(start)), None)


def _random_choice(modulus: str, choices: Sequence[str]) -> tuple[float, list[str]]:
    """The chance of each value of `0 : a, 1 : b`, and the values that can be drawn. Raises ValueError."""
    count = int(modulus)
    if count < 1:
        raise ValueError(f"a random number below {count}")
    pairs = (choice.partition(" : ") for choice in " ".join(choices).split(", "))
    return 1 / count, [value for number, _, value in pairs if int(number) < count]


def _verdict(statement: str, packet: Packet) -> RuleResult | None:
    """What a verdict statement does; None for another one than the renderer's."""
    match statement.split():
        case ["accept"]:
            effect = RuleEffect(1.0, "accepted by this chain", PacketVerdict.PASS)
        case ["drop"]:
            effect = RuleEffect(1.0, "dropped: the sender times out", PacketVerdict.DROP)
        # nft leaves the match on TCP, which a reset implies, out of its lists.
        case ["reject", "with", "tcp", "reset"]:
            if packet.protocol is not Protocol.TCP:
                return NO_MATCH
            effect = RuleEffect(
                1.0, "rejected with tcp reset: the sender fails at once", PacketVerdict.REJECT
            )
        case ["reject"]:
            text = "rejected with icmp port-unreachable: the sender fails at once"
            effect = RuleEffect(1.0, text, PacketVerdict.REJECT)
        case ["return"]:
            effect = RuleEffect(1.0, "returns to the calling chain")
        case ["jump" | "goto" as how, chain]:
            effect = RuleEffect(1.0, f"jumps to {chain}", chain=chain, is_goto=how == "goto")
        case _:
            return None
    return RuleResult((effect,))


def _translation(value: str, share: float = 1.0) -> RuleEffect:
    """The effect of `10.0.0.1 . 80` and `[fd00::1]:80`. Raises ValueError."""
    ip, _, port = value.partition(" . ") if " . " in value else value.rpartition(":")
    endpoint = Endpoint(ip.strip("[]"), int(port))
    return RuleEffect(share, f"destination becomes {endpoint}", endpoint)
