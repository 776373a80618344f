# SPDX-License-Identifier: Apache-2.0
"""Walks a packet through the chains of a guest's rules, for the tracers of both packet filters.

A tracer evaluates one rule; this module follows jumps, shares packets among random choices, and
writes the steps.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ruleset.model import Endpoint
from ruletrace.packet import Outcome, Packet, PacketVerdict, Trace, format_outcomes

_Key = TypeVar("_Key", bound=Hashable)

MAX_DEPTH = 64
"""Nested chains. Kernels refuse deeper nesting when rules are loaded; a text may have it."""

MAX_RULES_WALKED = 250_000

_MAX_RULE_CHARACTERS = 160

SKIPS_AFFINITY = "skipped: it is for clients that affinity remembers, and this trace is of a new client"


class BrokenChainsError(ValueError):
    """Chains that lead to each other or nowhere, or more paths through the rules than can be walked."""


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """What a rule does to `share` of the packets that reach it.

    One of three: the packets end with `outcome`, go to `chain`, or (neither) return from this chain.
    With `is_goto` they do not come back from `chain` to the next rule.
    """

    share: float
    text: str
    outcome: Outcome | None = None
    chain: str = ""
    is_goto: bool = False


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule does to a packet; the share that no effect takes goes to the next rule.

    `note` is why a rule is skipped that applies to other packets of the same flow.
    """

    effects: tuple[RuleEffect, ...] = ()
    note: str = ""


NO_MATCH = RuleResult()


def unsupported_rule(rule: str) -> RuleResult:
    """The result of a rule that the tracer cannot evaluate."""
    text = f"this tool does not understand {rule!r}"
    return RuleResult((RuleEffect(1.0, text, PacketVerdict.UNKNOWN),))


@dataclass(frozen=True, slots=True)
class Hook:
    """A base chain of a packet filter, and the chains that it leads to. `label` names its table."""

    label: str
    base: str
    chains: Mapping[str, Sequence[str]]
    evaluate: Callable[[str, Packet], RuleResult]


def walk_hooks(packet: Packet, hooks: Sequence[Hook]) -> Trace:
    """Walk `packet` through `hooks` in order. Raises `BrokenChainsError`.

    Each hook is walked for every destination still possible. Destinations with the same steps are
    reported once.
    """
    alive: dict[Endpoint | None, float] = {None: 1.0}  # None: the original destination
    chances: dict[Outcome, float] = {}
    steps: list[str] = []
    for hook in hooks:
        left: dict[Endpoint | None, float] = {}
        walks: dict[tuple[str, ...], list[Endpoint]] = {}
        for destination, share in alive.items():
            walk = _Walk(hook, packet if destination is None else packet.translated(destination))
            walk.run()
            for outcome, part in walk.ended.items():
                if isinstance(outcome, Endpoint):
                    _add(left, outcome, share * part)
                else:
                    _add(chances, outcome, share * part)
            if walk.passed > 0:
                _add(left, destination, share * walk.passed)
            walks.setdefault(tuple(walk.steps), []).append(destination or packet.endpoint)
        for sentences, destinations in walks.items():
            prefix = f"to {format_outcomes(destinations)}: " if alive.keys() != {None} else ""
            steps += [prefix + sentence for sentence in sentences]
        alive = left
    for destination, share in alive.items():
        _add(chances, PacketVerdict.PASS if destination is None else destination, share)
    return Trace(chances, tuple(steps))


@dataclass(slots=True)
class _Walk:
    """One packet in one hook: shares of the packets, and the log of its steps."""

    hook: Hook
    packet: Packet
    steps: list[str] = field(default_factory=list)
    ended: dict[Outcome, float] = field(default_factory=dict)
    passed: float = 0.0
    _path: list[str] = field(default_factory=list)
    _rules: int = 0

    def run(self) -> None:
        left = self._chain(self.hook.base, 1.0) if self.hook.chains.get(self.hook.base) else 1.0
        if left > 0 and self._rules:
            self.steps.append(f"{self.hook.label} {self.hook.base}: no rule decides, the packet continues")
        self.passed = left + self.ended.pop(PacketVerdict.PASS, 0.0)

    def _chain(self, name: str, share: float) -> float:
        """Walk `share` of the packets through a chain; return the share that comes back."""
        if name not in self.hook.chains:
            raise BrokenChainsError(f"{self._path[-1]} leads to {name}, which does not exist")
        if name in self._path or len(self._path) >= MAX_DEPTH:
            raise BrokenChainsError(f"chains lead to each other: {' -> '.join([*self._path, name])}")
        self._path.append(name)
        back, has_matched = 0.0, False
        rules = self.hook.chains[name]
        for number, rule in enumerate(rules, 1):
            self._rules += 1
            if self._rules > MAX_RULES_WALKED:
                raise BrokenChainsError(f"more than {MAX_RULES_WALKED} rules to walk")
            result = self.hook.evaluate(rule, self.packet)
            at = f'{self.hook.label} {name} {number} "{_shortened(rule)}": '
            if result.note:
                self.steps.append(at + result.note)
            if not result.effects:
                continue
            has_matched = True
            self.steps += [at + sentence for sentence in _sentences(result.effects, share)]
            taken = [(effect, share * effect.share) for effect in result.effects]
            share = _rest(share, result.effects)
            for effect, part in taken:
                if effect.outcome is not None:
                    _add(self.ended, effect.outcome, part)
                elif not effect.chain:
                    back += part
                elif effect.is_goto:
                    back += self._chain(effect.chain, part)
                else:
                    share += self._chain(effect.chain, part)
            if share <= 0:
                break
        self._path.pop()
        if not has_matched and self._path:
            self.steps.append(
                f"{self.hook.label} {name}: {_no_match(len(rules))}, returns to {self._path[-1]}"
            )
        return share + back


def _rest(share: float, effects: Sequence[RuleEffect]) -> float:
    """The share that a rule leaves to the next one; none where only a rounding error is left."""
    rest = 1 - sum(effect.share for effect in effects)
    return share * rest if rest > 1e-9 else 0.0


def _sentences(effects: Sequence[RuleEffect], share: float) -> list[str]:
    """The steps of a rule; one sentence if it chooses among effects with equal chances."""
    shares: dict[str, float] = {}
    for effect in effects:
        shares[effect.text] = shares.get(effect.text, 0.0) + share * effect.share
    if len(shares) > 1 and max(shares.values()) - min(shares.values()) < 1e-9:
        return [f"{_percent(next(iter(shares.values())))} of new connections each: {'; '.join(shares)}"]
    return [
        text if part >= 1 else f"{_percent(part)} of new connections: {text}" for text, part in shares.items()
    ]


def _percent(share: float) -> str:
    return f"{share * 100:.4g} %"


def _no_match(rules: int) -> str:
    if rules < 2:
        return "its only rule does not match" if rules else "it is empty"
    return f"none of its {rules} rules matches"


def _shortened(rule: str) -> str:
    """Long maps are cut: a step is for reading."""
    return rule if len(rule) <= _MAX_RULE_CHARACTERS else f"{rule[:150].rstrip()} ..."


def _add(shares: dict[_Key, float], key: _Key, share: float) -> None:
    shares[key] = shares.get(key, 0.0) + share
