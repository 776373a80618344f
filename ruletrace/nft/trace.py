# SPDX-License-Identifier: Apache-2.0
"""Walks a packet out of a guest through nft's rules, as text, and tells every end it can have.

The text is a table of ours, or what `nft list table` or `nft list ruleset` prints. The walk is the
kernel's: base chains at the output hook by priority; of those of type nat the first that rewrites
the destination has the word. Where a rule takes a packet by chance, or where nobody can know
whether it does, the walk goes on both with it and without it (service-proxy.md 5.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ruletrace.chain_walk import End, Walked, chances_said, follow, none_of
from ruletrace.nft.rule_text import Chain, Table, read_tables
from ruletrace.nft.rulings import Does, Judge
from ruletrace.packet import Packet, PacketVerdict, Trace

_HOOK = "output"
_NAT_PRIORITY = -100
_PASSED_OVER = "passed over: it is for clients that affinity remembers, and none is taken to be remembered"


def trace(text: str, packet: Packet) -> Trace:
    """Every end of `packet` under the rules in `text`.

    Raises `rule_text.RuleTextError` and `way.TooDeepError`.
    """
    return trace_tables(read_tables(text), packet)


def trace_tables(tables: Sequence[Table], packet: Packet) -> Trace:
    """`trace`, of tables that are read already: for many packets through one text."""
    families = ("inet", "ip" if packet.to.version == 4 else "ip6")
    bases = [
        _Base(table, name, chain)
        for table in tables
        if table.family in families
        for name, chain in table.chains.items()
        if chain.hook is not None and chain.hook.name == _HOOK
    ]
    bases.sort(key=lambda base: base.priority)
    nat = [base for base in bases if base.kind == "nat"]
    others = [base for base in bases if base.kind != "nat"]
    before = [base.hook for base in others if base.priority < _NAT_PRIORITY]
    after = [base.hook for base in others if base.priority >= _NAT_PRIORITY]
    return follow(packet, [*before, _Nat(nat).hook, *after])


@dataclass(frozen=True, slots=True)
class _Base:
    """A base chain at the output hook."""

    table: Table
    name: str
    chain: Chain

    @property
    def kind(self) -> str:
        return self.chain.hook.kind if self.chain.hook is not None else ""

    @property
    def priority(self) -> int:
        return self.chain.hook.priority if self.chain.hook is not None else 0

    def hook(self, packet: Packet, walked: Walked) -> list[End]:
        is_dropped = self.chain.hook is not None and self.chain.hook.policy == "drop"
        if not (self.chain.rules or is_dropped):
            return [End(1.0, PacketVerdict.PASS)]
        ends, left = self._chain(self.name, packet, 1.0, walked)
        if left > 0:
            policy = "drop" if is_dropped else "accept"
            said = f"else policy {policy}" if ends else f"no rule takes it, policy {policy}"
            walked.steps.append(f"{self._at(self.name)}: {said}: {'dropped' if is_dropped else 'it goes on'}")
            ends.append(End(left, PacketVerdict.DROP if is_dropped else PacketVerdict.PASS))
        return ends

    def _at(self, chain: str) -> str:
        return f"{self.table.name} {chain}"

    def _chain(self, name: str, packet: Packet, share: float, walked: Walked) -> tuple[list[End], float]:
        """The ends of `share` packets that enter a chain, and how many fall off its end."""
        walked.enter(name)
        ends: list[End] = []
        returned, is_any_taken = 0.0, False
        judge = Judge(self.table.collections)
        rules = self.table.chains[name].rules if name in self.table.chains else []
        for number, rule in enumerate(rules, 1):
            walked.count()
            rulings = judge.rulings(rule, packet)
            at = f'{self._at(name)} {number} "{_shortened(rule.text)}": '
            if rulings.is_affinity:
                walked.steps.append(at + _PASSED_OVER)
            if not rulings.does:
                continue
            is_any_taken = True
            share_before = share
            walked.is_certain = walked.is_certain and not rulings.unknown
            share = share if rulings.unknown else max(0.0, share * (1 - sum(d.share for d in rulings.does)))
            share = 0.0 if share < 1e-9 * share_before else share
            told: dict[str, float] = {}
            below: list[tuple[Does, float]] = []
            for does in rulings.does:
                with_it = share_before * does.share
                told[does.said] = told.get(does.said, 0.0) + with_it
                match does.kind:
                    case "end":
                        ends.append(End(with_it, does.outcome))
                    case "return":
                        returned += with_it
                    case "jump" | "goto":
                        below.append((does, with_it))
                    case _:
                        share = min(1.0, share + with_it)
            walked.steps += [at + said for said in chances_said(told, rulings.unknown)]
            for does, with_it in below:
                more, back = self._chain(does.chain, packet, with_it, walked)
                ends += more
                if does.kind == "jump":
                    share = min(1.0, share + back)
                else:
                    returned += back
            if share <= 0:
                break
        walked.path.pop()
        if not is_any_taken and walked.path:
            walked.steps.append(f"{self._at(name)}: {none_of(len(rules))}, back to {walked.path[-1]}")
        return ends, min(1.0, share + returned)


@dataclass(frozen=True, slots=True)
class _Nat:
    """The base chains of type nat: all hang at one place, and the first that rewrites has the word."""

    chains: Sequence[_Base]

    def hook(self, packet: Packet, walked: Walked) -> list[End]:
        ends: list[End] = []
        passing = 1.0
        for base in self.chains:
            more = base.hook(packet, walked)
            ends += [
                End(passing * end.share, end.outcome) for end in more if end.outcome is not PacketVerdict.PASS
            ]
            passing = min(1.0, passing * sum(end.share for end in more if end.outcome is PacketVerdict.PASS))
            if passing <= 0:
                return ends
        return [*ends, End(passing, PacketVerdict.PASS)]


def _shortened(text: str) -> str:
    """Long maps are cut: a step is to be read."""
    return text if len(text) <= 160 else f"{text[:150].rstrip()} ..."
