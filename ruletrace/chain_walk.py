# SPDX-License-Identifier: Apache-2.0
"""The way of a packet through one hook after another, with every turn that chance may give it.

What the tracers of all packet filters share: shares of packets, and steps told once for all
destinations that fare alike.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ruleset.model import Endpoint
from ruletrace.packet import Outcome, Packet, PacketVerdict, Trace, format_outcomes

_Key = TypeVar("_Key", bound=Hashable)

MAX_DEPTH = 64
"""Chains within chains. Kernels refuse deeper nesting when rules are loaded; a text may have it."""

MAX_RULES_WALKED = 250_000


class TooDeepError(ValueError):
    """The rules have a loop of chains, or more ways through them than can be walked."""


@dataclass(frozen=True, slots=True)
class End:
    """`share` of the packets that came in end so; PASS: the hook lets them go on as they are."""

    share: float
    outcome: Outcome


@dataclass(slots=True)
class Walked:
    """What is noted on the way through one hook."""

    steps: list[str] = field(default_factory=list)
    is_certain: bool = True
    path: list[str] = field(default_factory=list)
    rules: int = 0

    def enter(self, chain: str) -> None:
        if chain in self.path or len(self.path) >= MAX_DEPTH:
            raise TooDeepError(f"chains that lead to each other: {' -> '.join([*self.path, chain])}")
        self.path.append(chain)

    def count(self) -> None:
        self.rules += 1
        if self.rules > MAX_RULES_WALKED:
            raise TooDeepError(f"more than {MAX_RULES_WALKED} rules on the way")

    def split(self, share: float, chance: float | None) -> tuple[float, float]:
        """How much goes with a rule and how much past it; all both ways if nobody can know."""
        if chance is None:
            self.is_certain = False
            return share, share
        return share * chance, share * (1 - chance)


Hook = Callable[[Packet, Walked], Sequence[End]]


def follow(packet: Packet, hooks: Sequence[Hook]) -> Trace:
    """Take `packet` through `hooks` in order, each with the destinations that the ones before left."""
    alive: dict[Endpoint | None, float] = {None: 1.0}  # None: the destination it came with
    ended: dict[Outcome, float] = {}
    steps: list[str] = []
    is_certain = True
    for hook in hooks:
        left: dict[Endpoint | None, float] = {}
        told: dict[tuple[str, ...], list[Endpoint | None]] = {}
        for destination, share in alive.items():
            walked = Walked()
            now = packet.rewritten(destination) if destination is not None else packet
            for end in hook(now, walked):
                if isinstance(end.outcome, Endpoint):
                    _add(left, end.outcome, share * end.share)
                elif end.outcome is PacketVerdict.PASS:
                    _add(left, destination, share * end.share)
                else:
                    _add(ended, end.outcome, share * end.share)
            told.setdefault(tuple(walked.steps), []).append(destination)
            is_certain = is_certain and walked.is_certain
        for said, whose in told.items():
            prefix = _whom(whose, packet) if alive.keys() != {None} else ""
            steps += [prefix + step for step in said]
        alive = left
    for destination, share in alive.items():
        _add(ended, destination if destination is not None else PacketVerdict.PASS, share)
    return Trace(frozenset(ended), tuple(steps), ended if is_certain else {})


def _whom(destinations: Sequence[Endpoint | None], packet: Packet) -> str:
    came_with = [Endpoint(packet.destination, packet.port)] if None in destinations else []
    return f"to {format_outcomes([*came_with, *(d for d in destinations if d is not None)])}: "


def _add(shares: dict[_Key, float], key: _Key, share: float) -> None:
    # Shares of ways of which nobody can tell which is taken may add up to more than all.
    shares[key] = min(1.0, shares.get(key, 0.0) + share)


def chance_said(share: float, unknown: Sequence[str] = ()) -> str:
    """How a step begins whose rule takes only `share` of the packets, or takes them perhaps."""
    if unknown:
        return f"perhaps (nobody can tell from outside: {', '.join(unknown)}): "
    return "" if share >= 1 else f"{share * 100:.4g} % of new connections: "


def chances_said(shares: Mapping[str, float], unknown: Sequence[str] = ()) -> list[str]:
    """What a rule does to which share of the packets; in one sentence if the shares are equal."""
    if len(shares) > 1 and not unknown and max(shares.values()) - min(shares.values()) < 1e-9:
        each = f"{next(iter(shares.values())) * 100:.4g} % of new connections each: "
        return [each + "; ".join(shares)]
    return [chance_said(share, unknown) + said for said, share in shares.items()]


def none_of(rules: int) -> str:
    """What a chain of so many rules did to a packet that none of them took."""
    if rules < 2:
        return "its only rule is not for it" if rules else "it is empty"
    return f"none of its {rules} rules is for it"
