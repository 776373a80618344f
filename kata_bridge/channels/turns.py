# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is, where only so many may go at once. Pure.

Who waits goes before others of origins that have more turns already, else in order. A turn that has
lasted longer than it should is taken back once somebody waits: whoever holds all turns and does
nothing with them keeps nobody out for long.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """One of: `ended` loses its turn, `begun` has it now, or it is too early, look `again_s` later."""

    ended: T | None = None
    begun: T | None = None
    again_s: float | None = None


class Turns(Generic[T]):
    """At most `most` at once; each may be ended after `longest_s` if another waits."""

    def __init__(self, most: int, longest_s: float) -> None:
        self._most = most
        self._longest_s = longest_s
        self._origin: dict[T, str] = {}
        self._waiting: dict[T, None] = {}  # in order
        self._begun_s: dict[T, float] = {}  # the oldest first
        self._by_origin: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many have their turn."""
        return len(self._begun_s)

    def wait(self, one: T, origin: str) -> None:
        """`one` wants a turn."""
        self._origin[one] = origin
        self._waiting[one] = None

    def over(self, one: T) -> None:
        """`one` needs no turn any more; of one that never did, nothing happens."""
        origin = self._origin.pop(one, None)
        self._waiting.pop(one, None)
        if self._begun_s.pop(one, None) is not None and origin is not None:
            self._by_origin[origin] -= 1
            if not self._by_origin[origin]:
                del self._by_origin[origin]

    def next(self, now_s: float) -> Step[T]:
        """What to do now; to be asked until it says neither `ended` nor `begun`."""
        if not self._waiting:
            return Step()
        if len(self._begun_s) >= self._most:
            left_s = next(iter(self._begun_s.values())) + self._longest_s - now_s
            if left_s > 0:
                return Step(again_s=left_s)
            late = [one for one, begun_s in self._begun_s.items() if begun_s + self._longest_s <= now_s]
            ended = max(late, key=lambda each: self._by_origin[self._origin[each]])
            self.over(ended)
            return Step(ended=ended)
        one = min(self._waiting, key=lambda each: self._by_origin[self._origin[each]])
        del self._waiting[one]
        self._begun_s[one] = now_s
        self._by_origin[self._origin[one]] += 1
        return Step(begun=one)
