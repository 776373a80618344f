# SPDX-License-Identifier: Apache-2.0
"""Traces a packet through a document of iptables: OUTPUT of nat, then OUTPUT of filter.

It understands the rules that `ruleset.render.iptables` writes. Any other rule that the packet may
match ends the trace with `PacketVerdict.UNKNOWN`.
"""

import ipaddress
from collections.abc import Callable
from functools import partial

from ruleset.document import Document
from ruleset.model import Endpoint
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

_BASE = "OUTPUT"
_TABLES = ("nat", "filter")
_EXTENSIONS = frozenset({"tcp", "udp", "sctp", "conntrack", "statistic", "recent"})


def trace(document: Document, packet: Packet) -> Trace:
    """Every outcome of `packet` under the rules of `document`.

    Raises `ValueError` for rules that cannot be read or walked.
    """
    hooks = []
    for table in _TABLES:
        chains = {
            name.partition("/")[2]: rules
            for name, rules in document.objects.items()
            if name.startswith(f"{table}/")
        }
        hooks.append(Hook(table, _BASE, chains, partial(_evaluate, frozenset(chains))))
    return walk_hooks(packet, hooks if document.family is packet.family else ())


def _evaluate(chains: frozenset[str], rule: str, packet: Packet) -> RuleResult:
    options = _options(rule)
    if any(not matches(options[name], packet) for name, matches in _MATCHES.items() if name in options):
        return NO_MATCH
    if "--rcheck" in options:
        return RuleResult(note=SKIPS_AFFINITY)
    effect = _effect(options, chains)
    if effect is None or not options.keys() <= _KNOWN or not _EXTENSIONS.issuperset(options["-m"].split()):
        return unsupported_rule(rule)
    return RuleResult((effect,))


def _options(rule: str) -> dict[str, str]:
    """The options of a rule with their values; `-m` has all extensions. Raises ValueError.

    An option that is inverted or comes again has a name that `_KNOWN` lacks.
    """
    options = {"-m": ""}
    name, is_inverted = "", False
    for word in rule.split():
        if word == "!":
            is_inverted = True
        elif word.startswith("-"):
            name = f"! {word}" if is_inverted else word
            name = name if name == "-m" or name not in options else f"{name} again"
            options.setdefault(name, "")
            is_inverted = False
        elif not name:
            raise ValueError(f"{word} without an option: {rule}")
        else:
            options[name] = f"{options[name]} {word}".lstrip()
    return options


def _has_state(states: str, packet: Packet) -> bool:
    return any(state == "NEW" or (state == "DNAT" and packet.is_translated) for state in states.split(","))


_MATCHES: dict[str, Callable[[str, Packet], bool]] = {
    "-d": lambda value, packet: packet.address in ipaddress.ip_network(value),
    "-p": lambda value, packet: value == packet.protocol.value,
    "--dport": lambda value, packet: value == str(packet.port),
    "--ctstate": _has_state,
}
_KNOWN = frozenset(
    {
        *("-m", "-j", *_MATCHES, "--mode", "--probability", "--to-destination", "--reject-with"),
        *("--set", "--name", "--mask", "--rsource"),
    }
)


def _effect(options: dict[str, str], chains: frozenset[str]) -> RuleEffect | None:
    """What the rule's target does; None for another target than the renderer's."""
    share = float(options.get("--probability", "1"))
    target = options.get("-j", "")
    match target:
        case "ACCEPT":
            return RuleEffect(share, "accepted by this table", PacketVerdict.PASS)
        case "DROP":
            return RuleEffect(share, "dropped: the sender times out", PacketVerdict.DROP)
        case "REJECT":
            how = options.get("--reject-with", "icmp-port-unreachable")
            return RuleEffect(share, f"rejected with {how}: the sender fails at once", PacketVerdict.REJECT)
        case "RETURN":
            return RuleEffect(share, "returns to the calling chain")
        case "DNAT":
            ip, _, port = options.get("--to-destination", "").rpartition(":")
            endpoint = Endpoint(ip.strip("[]"), int(port))
            return RuleEffect(share, f"destination becomes {endpoint}", endpoint)
    return RuleEffect(share, f"jumps to {target}", chain=target) if target in chains else None
