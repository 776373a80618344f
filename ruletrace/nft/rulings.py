# SPDX-License-Identifier: Apache-2.0
"""What one rule of nft does to a packet: its words are read from left to right, as nft reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ruleset.model import Endpoint, Protocol
from ruletrace.nft.fields import ABSENT, Alternative, fits, read_expression
from ruletrace.nft.rule_text import Collection, Element, Rule, elements
from ruletrace.packet import Outcome, Packet, PacketVerdict


@dataclass(frozen=True, slots=True)
class Does:
    """What a rule does to a share of the packets. Kinds: end, jump, goto, return, on (to the next rule)."""

    share: float
    kind: str
    said: str
    outcome: Outcome = PacketVerdict.UNKNOWN
    chain: str = ""


@dataclass(frozen=True, slots=True)
class Rulings:
    """All that a rule may do to a packet; `unknown` are words of which nobody can tell whether they match."""

    does: tuple[Does, ...] = ()
    unknown: tuple[str, ...] = ()
    is_affinity: bool = False


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the rules of one table, whose maps and sets it looks into."""

    collections: Mapping[str, Collection]

    def rulings(self, rule: Rule, packet: Packet) -> Rulings:
        """Read a rule from left to right until a word that does not match, or a verdict."""
        words = list(rule.words)
        unknown: list[str] = []
        share = 1.0
        while words:
            taken = _side_effect(words)
            if taken:
                del words[:taken]
                continue
            does = self._verdict(words, packet)
            if does is not None:
                found = tuple(replace(one, share=share * one.share) for one in does)
                return Rulings(found, tuple(unknown))
            expression = read_expression(words, packet)
            if expression is None:
                unknown.append(words.pop(0))
                continue
            subject = " ".join(words[: expression.words])
            del words[: expression.words]
            if words[:1] == ["vmap"]:
                return self._looked_up(expression.alternatives, words[1:], share, tuple(unknown), packet)
            matched = self._matches(expression.alternatives, words)
            if isinstance(matched, str):
                return Rulings(is_affinity=True) if matched == "affinity" else Rulings()
            if matched is None:
                unknown.append(subject)
            else:
                share *= matched
                if share == 0:
                    return Rulings()
            del words[: _operand_length(words)]
        said = "its client is remembered" if "update" in rule.words else "only counted"
        return Rulings((Does(share, "on", f"{said}, it goes on"),), tuple(unknown))

    def _matches(self, alternatives: Sequence[Alternative], words: Sequence[str]) -> float | str | None:
        """The chance that the operand that `words` begin with matches; "affinity" for a set of clients."""
        is_inverted = bool(words) and words[0] in ("!=", "!")
        at = 1 if words and words[0] in ("!=", "!", "==") else 0
        if words[at : at + 1] and words[at].startswith("@"):
            collection = self._collection(words[at])
            if collection.is_dynamic and not is_inverted:
                return "affinity"
            wanted = [] if collection.is_dynamic else collection.elements
        elif words[at : at + 1] == ["{"]:
            wanted = elements(tuple(words[at + 1 : _closing(words, at)]))
        else:
            wanted = _plain(words[at : _operand_length(words)])
        chance = 0.0
        for share, values in alternatives:
            said = [fits(values, element) for element in wanted]
            if True not in said and None in said:
                return None
            chance += share * (((True in said) != is_inverted) and ABSENT not in values)
        return min(1.0, chance)

    def _looked_up(
        self,
        alternatives: Sequence[Alternative],
        words: Sequence[str],
        share: float,
        unknown: tuple[str, ...],
        packet: Packet,
    ) -> Rulings:
        """`... vmap @map` and `... vmap { ... }`: the verdicts that the alternatives lead to."""
        found: list[Does] = []
        collection = self._map(words)
        if collection.is_dynamic:
            return Rulings(is_affinity=True)
        for chance, values in alternatives:
            for element in collection.elements:
                said = fits(values, element)
                if said is False:
                    continue
                if said is None:
                    unknown = (*unknown, " . ".join(element.key))
                found += [
                    replace(does, share=share * chance * does.share)
                    for does in self._verdict(list(element.value), packet) or ()
                ]
                if said:
                    break
        return Rulings(tuple(found), unknown)

    def _map(self, words: Sequence[str]) -> Collection:
        if words and words[0].startswith("@"):
            return self._collection(words[0])
        return Collection(elements=elements(tuple(words[1 : _closing(words, 0)])))

    def _collection(self, word: str) -> Collection:
        return self.collections.get(word[1:], Collection())

    def _verdict(self, words: list[str], packet: Packet) -> tuple[Does, ...] | None:
        """The verdict that `words` begin with, if they do."""
        match words:
            case ["accept", *_]:
                return (Does(1.0, "end", "accepted: past the other rules of this chain", PacketVerdict.PASS),)
            case ["drop", *_]:
                return (Does(1.0, "end", "dropped: the sender hears nothing", PacketVerdict.DROP),)
            # nft leaves out of its lists the match on TCP that a reset implies.
            case ["reject", "with", "tcp", "reset", *_] if packet.protocol is not Protocol.TCP:
                return ()
            case ["reject", *rest]:
                how = " ".join(rest[1:]) if rest[:1] == ["with"] else "icmp port-unreachable"
                return (
                    Does(1.0, "end", f"rejected: the sender is told at once, by {how}", PacketVerdict.REJECT),
                )
            case ["jump", chain, *_]:
                return (Does(1.0, "jump", f"on to {chain}", chain=chain),)
            case ["goto", chain, *_]:
                return (Does(1.0, "goto", f"on to {chain}", chain=chain),)
            case ["return", *_]:
                return (Does(1.0, "return", "back to where it came from"),)
            case ["continue", *_]:
                return (Does(1.0, "on", "it goes on"),)
            case ["dnat", *rest]:
                return self._rewritten(rest, packet)
            case ["redirect", *rest]:
                port = int(rest[1].lstrip(":")) if rest[:1] == ["to"] else packet.port
                itself = Endpoint("127.0.0.1" if packet.to.version == 4 else "::1", port)
                return (Does(1.0, "end", f"to port {port} of the guest itself", itself),)
            case ["queue" | "tproxy" | "synproxy" | "fwd" | "dup" as word, *_]:
                return (
                    Does(1.0, "end", f"handed to {word}, which cannot be followed", PacketVerdict.UNKNOWN),
                )
        return None

    def _rewritten(self, words: list[str], packet: Packet) -> tuple[Does, ...]:
        """`dnat [ip|ip6] [addr . port] to VALUE`, where VALUE may be looked up in a map."""
        if "to" in words[:5]:
            words = words[words.index("to") + 1 :]
        expression = read_expression(words, packet)
        if expression is None:
            return (_to(tuple(words), 1.0, packet),)
        rest = words[expression.words :]
        found: list[Does] = []
        if rest[:1] != ["map"]:
            return (Does(1.0, "end", "to an address that cannot be followed", PacketVerdict.UNKNOWN),)
        for share, values in expression.alternatives:
            for element in self._map(rest[1:]).elements:
                if fits(values, element):
                    found.append(_to(element.value, share, packet))
                    break
        return tuple(found)


def _to(value: Sequence[str], share: float, packet: Packet) -> Does:
    """`10.0.0.1 . 80`, `10.0.0.1:80`, `[::1]:80`, `10.0.0.1`, `:80`."""
    words = [word for word in value if word != "."]
    text = words[0] if words else ""
    if len(value) > 2 and value[1] == "." and words[1].isdigit():
        address, port = words[0], words[1]
    elif text.startswith("[") or text.count(":") == 1:
        address, _, port = text.rpartition(":")
    else:
        address, port = text, ""
    if "-" in address or not (port.isdigit() or not port):
        return Does(
            share, "end", "to one of several addresses, which cannot be followed", PacketVerdict.UNKNOWN
        )
    ip = address.strip("[]") or packet.destination
    endpoint = Endpoint(ip, int(port) if port else packet.port)
    return Does(share, "end", f"the destination becomes {endpoint}", endpoint)


def _side_effect(words: Sequence[str]) -> int:
    """How many words at the start do something and decide nothing."""
    match list(words[:4]):
        case ["counter", "packets", *_]:
            return 5
        case ["counter", *_]:
            return 1
        case ["comment", _, *_]:
            return 2
        case ["log" | "notrack", *_]:
            return len(words)
        case ["add" | "update" | "delete", collection, "{", *_] if collection.startswith("@"):
            return _closing(words, 2) + 1
        case ["meta" | "ct", "mark" | "priority" | "zone", "set", *_]:
            return len(words)
    return 0


def _closing(words: Sequence[str], opening: int) -> int:
    depth = 0
    for at in range(opening, len(words)):
        depth += (words[at] == "{") - (words[at] == "}")
        if depth == 0:
            return at
    return len(words)


def _operand_length(words: Sequence[str]) -> int:
    """How many words the right side of a comparison has: `!= { ... }`, `new`, `a, b`, `a . b`, `@set`."""
    at = 1 if words and words[0] in ("==", "!=", "!", "<", ">", "<=", ">=") else 0
    if words[at : at + 1] == ["{"]:
        return _closing(words, at) + 1
    at += 1
    while at + 1 < len(words) and words[at] in (",", "."):
        at += 2
    return at


def _plain(words: Sequence[str]) -> list[Element]:
    """`new` or `established, related` or `10.0.0.1 . 80` as elements."""
    return elements(tuple(words))
