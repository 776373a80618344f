# SPDX-License-Identifier: Apache-2.0
"""Walks a packet out of a guest through iptables rules, as text, and tells every end it can have.

The text is input for `iptables-restore` or output of `iptables-save`, with whatever chains others
put there. The walk is the kernel's: OUTPUT of raw, mangle and nat, then filter with the
destination as nat left it. Where a rule takes a packet by chance, or where nobody can know whether
it does, the walk goes on both with it and without it (service-proxy.md 5.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ruleset.model import Endpoint
from ruletrace.chain_walk import End, Walked, chance_said, follow, none_of
from ruletrace.iptables.matches import takes
from ruletrace.iptables.rule_text import Rule, Table, read_tables
from ruletrace.packet import Outcome, Packet, PacketVerdict, Trace

_HOOK = "OUTPUT"
_TABLES = ("raw", "mangle", "nat", "filter", "security")
# Targets that do something to a packet and leave its way alone.
_GOES_ON = frozenset(
    {
        *("LOG", "NFLOG", "ULOG", "TRACE", "MARK", "CONNMARK", "CONNSECMARK", "SECMARK", "CLASSIFY"),
        *("TCPMSS", "TTL", "HL", "TOS", "DSCP", "CT", "NOTRACK", "CHECKSUM", "AUDIT", "SET", "RATEEST"),
        *("TCPOPTSTRIP", "LED", "IDLETIMER", "HMARK", "ECN"),
    }
)


def trace(text: str, packet: Packet) -> Trace:
    """Every end of `packet` under the rules in `text`.

    Raises `rule_text.RuleTextError` and `way.TooDeepError`.
    """
    return trace_tables(read_tables(text), packet)


def trace_tables(tables: Mapping[str, Table], packet: Packet) -> Trace:
    """`trace`, of tables that are read already: for many packets through one text."""
    return follow(packet, [_Filter(name, tables[name]).hook for name in _TABLES if name in tables])


@dataclass(frozen=True, slots=True)
class _Filter:
    """One table."""

    name: str
    chains: Table

    def hook(self, packet: Packet, walked: Walked) -> list[End]:
        chain = self.chains.get(_HOOK)
        if chain is None or not (chain.rules or chain.policy == "DROP"):
            return [End(1.0, PacketVerdict.PASS)]
        ends, left = self._chain(_HOOK, packet, 1.0, walked)
        if left > 0:
            is_dropped = chain.policy == "DROP"
            said = f"else policy {chain.policy}" if ends else f"no rule takes it, policy {chain.policy}"
            walked.steps.append(f"{self.name} {_HOOK}: {said}: {'dropped' if is_dropped else 'it goes on'}")
            ends.append(End(left, PacketVerdict.DROP if is_dropped else PacketVerdict.PASS))
        return ends

    def _chain(self, name: str, packet: Packet, share: float, walked: Walked) -> tuple[list[End], float]:
        """The ends of `share` packets that enter a chain, and how many fall off its end."""
        walked.enter(name)
        ends: list[End] = []
        returned, is_any_taken = 0.0, False
        rules = self.chains[name].rules
        for number, rule in enumerate(rules, 1):
            walked.count()
            taken = takes(rule, packet)
            at = f'{self.name} {name} {number} "{rule.text}": '
            if taken.assumed is not None:
                walked.steps.append(f"{at}passed over: {taken.assumed.value}")
            if taken.chance == 0:
                continue
            is_any_taken = True
            with_it, share = walked.split(share, taken.chance)
            at += chance_said(with_it, taken.unknown)
            if rule.target in self.chains:
                walked.steps.append(f"{at}{'over to' if rule.is_goto else 'on to'} {rule.target}")
                more, back = self._chain(rule.target, packet, with_it, walked)
                ends += more
                if rule.is_goto:
                    returned += back
                else:
                    share = min(1.0, share + back)
            else:
                outcome, said = _target(rule, packet)
                walked.steps.append(at + said)
                if outcome is not None:
                    ends.append(End(with_it, outcome))
                elif rule.target == "RETURN":
                    returned += with_it
                else:
                    share = min(1.0, share + with_it)
            if share <= 0:
                break
        walked.path.pop()
        if not is_any_taken and walked.path:
            walked.steps.append(f"{self.name} {name}: {none_of(len(rules))}, back to {walked.path[-1]}")
        return ends, min(1.0, share + returned)


def _target(rule: Rule, packet: Packet) -> tuple[Outcome | None, str]:
    """What a target that is no chain makes of a packet, and how to say so. None: no end."""
    options = rule.target_options
    match rule.target:
        case "ACCEPT":
            return PacketVerdict.PASS, "accepted: past the other rules of this table"
        case "DROP":
            return PacketVerdict.DROP, "dropped: the sender hears nothing"
        case "REJECT":
            with_what = options.get("--reject-with", "icmp-port-unreachable")
            return PacketVerdict.REJECT, f"rejected: the sender is told at once, by {with_what}"
        case "RETURN":
            return None, "back to where it came from"
        case "DNAT":
            endpoint = _destination(options.get("--to-destination", ""), packet)
            if endpoint is None:
                return PacketVerdict.UNKNOWN, "to one of several addresses, which cannot be followed"
            return endpoint, f"the destination becomes {endpoint}"
        case "REDIRECT":
            ports = options.get("--to-ports", str(packet.port))
            endpoint = _destination(f"{'[::1]' if packet.to.version == 6 else '127.0.0.1'}:{ports}", packet)
            return endpoint or PacketVerdict.UNKNOWN, f"to port {ports} of the guest itself"
        case "":
            return None, "only counted, it goes on"
        case target if target in _GOES_ON:
            return None, f"{target} leaves its way alone, it goes on"
        case target:
            return PacketVerdict.UNKNOWN, f"handed to {target}, which cannot be followed"


def _destination(text: str, packet: Packet) -> Endpoint | None:
    """`1.2.3.4:80`, `1.2.3.4`, `:80`, `[::1]:80`, `::1`; None for a range of addresses or ports."""
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") <= 1:
        address, _, port = text.partition(":")
    else:
        address, port = text, ""
    if "-" in text or not (port.isdigit() or not port):
        return None
    return Endpoint(address or packet.destination, int(port) if port else packet.port)
