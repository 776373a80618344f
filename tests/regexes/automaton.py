# SPDX-License-Identifier: Apache-2.0
"""Proves that a backtracking matcher takes time that grows no faster than its input, or shows why not.

It is known (Weber and Seidl 1991; Weideman and others 2016) that a matcher which tries all ways takes
more than linear time only if there are two states p, q and a word v with p -v-> p, p -v-> q and
q -v-> q: a text of n times v then has n ways, and all are tried before it fails. A search is a
matcher that may begin anywhere, so p is often the beginning itself.

What is not modelled is taken for the worse: assertions hold, lookarounds are ways that fail, an
atomic group of more than one character has a way back. Where q can end in a match whatever follows,
there is no failure to come back from.
"""

import enum
import re
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.regexes.syntax import (
    Alternatives,
    At,
    Atomic,
    Char,
    Chars,
    Look,
    Node,
    Repeat,
    Sequence,
    alphabet_of,
    parse,
)

_COPIES = 2
_MAX_PATHS = 20_000
_MAX_SUBSETS = 2_000


@dataclass(frozen=True)
class Pump:
    """A text that takes long: `begin`, many times `again`, and something that does not match."""

    begin: str
    again: str
    is_exponential: bool


class Holds(enum.IntEnum):
    """When one gets on without a character."""

    ALWAYS = 0
    AT_END = 1
    SOMETIMES = 2


_ENDS = frozenset({"AT_END", "AT_END_STRING", "AT_END_LINE"})


@dataclass
class _Edges:
    free: list[tuple[int, Chars | None, "Holds"]] = field(default_factory=list)
    """To another state without a character: only if the next one is not of these; when."""
    chars: list[tuple[Chars, int]] = field(default_factory=list)


class Automaton:
    """Of one expression; `is_search`: a match may begin anywhere, `is_full`: it must reach the end."""

    def __init__(self, pattern: "re.Pattern[Any]", *, is_search: bool, is_full: bool) -> None:
        """Raises `syntax.UnsupportedError`."""
        self._edges: list[_Edges] = []
        self._alphabet = frozenset(alphabet_of(pattern))
        self._is_full = is_full
        self.begin = self._new()
        self._accept = self._new()
        self._prefix = self.begin if is_search else -1
        if is_search:
            self._edges[self.begin].chars.append((self._alphabet, self.begin))
        end = self._build(parse(pattern), self.begin)
        self._free(end, self._accept)

    # ---- building

    def _new(self) -> int:
        self._edges.append(_Edges())
        return len(self._edges) - 1

    def _free(
        self, origin: int, to: int, *, unless: Chars | None = None, holds: Holds = Holds.ALWAYS
    ) -> None:
        self._edges[origin].free.append((to, unless, holds))

    def _build(self, node: Node, at: int) -> int:
        match node:
            case Char(chars):
                after = self._new()
                self._edges[at].chars.append((chars, after))
                return after
            case Sequence(parts):
                for part in parts:
                    at = self._build(part, at)
                return at
            case Alternatives(options):
                after = self._new()
                for option in options:
                    first = self._new()
                    self._free(at, first)
                    self._free(self._build(option, first), after)
                return after
            case Atomic(body):
                return self._build(body, at)
            case Look(body):
                inside, after = self._new(), self._new()
                self._free(at, inside)
                self._build(body, inside)
                self._free(at, after, holds=Holds.SOMETIMES)
                return after
            case At(kind):
                after = self._new()
                self._free(at, after, holds=Holds.AT_END if kind in _ENDS else Holds.SOMETIMES)
                return after
            case Repeat():
                return self._repeat(node, at)

    def _repeat(self, node: Repeat, at: int) -> int:
        for _ in range(min(node.least, _COPIES)):
            at = self._build(node.body, at)
        after = self._new()
        single = _single(node.body) if node.is_possessive else None
        if node.most is None:
            head = self._new()
            self._free(at, head)
            self._free(self._build(node.body, head), head)
            self._free(head, after, unless=single)
            return after
        for _ in range(min(node.most - node.least, _COPIES)):
            self._free(at, after, unless=single)
            at = self._build(node.body, at)
        self._free(at, after)
        return after

    # ---- reading

    @cached_property
    def steps(self) -> dict[int, list[tuple[Chars, int, int]]]:
        """From each state that is reached: by which characters to which state, and in how many ways."""
        found: dict[int, list[tuple[Chars, int, int]]] = {}
        todo = [self.begin]
        while todo:
            state = todo.pop()
            if state in found:
                continue
            ways: dict[tuple[Chars, int, int], int] = defaultdict(int)
            for inner, forbidden, _ in self._free_ways(state):
                for index, (chars, to) in enumerate(self._edges[inner].chars):
                    ways[chars - forbidden, to, inner * 1_000 + index] += 1
            found[state] = [(chars, to, count) for (chars, to, _), count in ways.items() if chars]
            todo += [to for _, to, _ in found[state]]
        return found

    def _free_ways(self, state: int) -> list[tuple[int, Chars, Holds]]:
        """All empty paths, at most twice through each state: their states, and excluded successors."""
        ways: list[tuple[int, Chars, Holds]] = []
        none: Chars = frozenset()

        def walk(at: int, forbidden: Chars, holds: Holds, seen: dict[int, int]) -> None:
            if seen.get(at, 0) >= _COPIES or len(ways) > _MAX_PATHS:
                return
            seen = {**seen, at: seen.get(at, 0) + 1}
            ways.append((at, forbidden, holds))
            for to, unless, when in self._edges[at].free:
                walk(to, forbidden | (unless or none), max(holds, when), seen)

        walk(state, none, Holds.ALWAYS, {})
        return ways

    @cached_property
    def _accepting(self) -> tuple[frozenset[int], frozenset[int]]:
        """The states that are a match whatever follows, and those that are one at the end."""
        anywhere, at_end = set(), set()
        for state in self.steps:
            for at, forbidden, holds in self._free_ways(state):
                if at == self._accept and holds is not Holds.SOMETIMES:
                    at_end.add(state)
                    if holds is Holds.ALWAYS and not forbidden and not self._is_full:
                        anywhere.add(state)
        return frozenset(anywhere), frozenset(at_end)

    @cached_property
    def _classes(self) -> list[str]:
        """One character of each class that the automaton treats alike."""
        sets = list({chars for ways in self.steps.values() for chars, _, _ in ways})
        kinds: dict[tuple[bool, ...], str] = {}
        for char in sorted(self._alphabet):
            kinds.setdefault(tuple(char in chars for chars in sets), char)
        return list(kinds.values())

    def _next(self, state: int, char: str) -> list[int]:
        return [to for chars, to, _ in self.steps[state] if char in chars]

    def _following(self, state: int, char: str) -> list[int]:
        return [to for to in self._next(state, char) if to in self._failing]

    def _is_never_failing(self, state: int) -> bool:
        """Whether what follows matches from here, whatever it is."""
        anywhere, at_end = self._accepting
        seen: set[frozenset[int]] = set()
        todo = [frozenset([state])]
        while todo:
            states = todo.pop()
            if states in seen or states & anywhere:
                continue
            if not states & at_end or len(seen) > _MAX_SUBSETS:
                return False
            seen.add(states)
            todo += [frozenset(to for each in states for to in self._next(each, c)) for c in self._classes]
        return True

    # ---- the proof

    def pumps(self) -> list[Pump]:
        """Texts that take more than linear time; none is the proof that there are none."""
        reach = {state: self._reachable(state) for state in self.steps}
        on_cycle = [state for state in self._failing if state in reach[state]]
        found = []
        for p in on_cycle:
            if (again := self._two_ways(p, reach)) is not None:
                found.append(Pump(self._word(self.begin, p), again, is_exponential=True))
            for q in on_cycle:
                if q == p or q not in reach[p] or not self._is_on_one_cycle(p, q):
                    continue
                if (again := self._pumped(p, q, reach)) is not None:
                    found.append(Pump(self._word(self.begin, p), again, is_exponential=False))
        return found

    @cached_property
    def _failing(self) -> frozenset[int]:
        """The states from which a match may fail: who passes another comes back from it no more.

        But for the beginning of a search: the next search begins where the last match ended.
        """
        return frozenset(
            state for state in self.steps if state == self._prefix or not self._is_never_failing(state)
        )

    def _is_on_one_cycle(self, p: int, q: int) -> bool:
        """Whether some word leads from both back to themselves: most pairs are out of the question."""
        todo, seen = [(p, q)], set[tuple[int, int]]()
        while todo:
            one, two = todo.pop()
            for chars, a, _ in self._ways(one):
                for other, b, _ in self._ways(two):
                    if (a, b) not in seen and not chars.isdisjoint(other):
                        seen.add((a, b))
                        todo.append((a, b))
        return (p, q) in seen

    def _ways(self, state: int) -> list[tuple[Chars, int, int]]:
        return [way for way in self.steps[state] if way[1] in self._failing]

    def _reachable(self, state: int) -> frozenset[int]:
        seen: set[int] = set()
        todo = [to for _, to, _ in self.steps[state]]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += [to for _, to, _ in self.steps[at]]
        return frozenset(seen)

    def _word(self, origin: int, to: int) -> str:
        """The shortest that leads there."""
        todo, seen = deque([(origin, "")]), {origin}
        while todo:
            at, word = todo.popleft()
            if at == to:
                return word
            for chars, after, _ in self.steps[at]:
                if after not in seen:
                    seen.add(after)
                    todo.append((after, word + min(chars)))
        return ""

    def _pumped(self, p: int, q: int, reach: dict[int, frozenset[int]]) -> str | None:
        """The word v, if there is one."""
        todo, seen = deque([((p, p, q), "")]), set[tuple[int, int, int]]()
        while todo:
            (one, two, three), word = todo.popleft()
            for char in self._classes:
                for a in self._following(one, char):
                    if p not in reach[a] and a != p:
                        continue
                    for b in self._following(two, char):
                        if q not in reach[b] and b != q:
                            continue
                        for c in self._following(three, char):
                            if (a, b, c) == (p, q, q):
                                return word + char
                            if (a, b, c) not in seen and (q in reach[c] or c == q):
                                seen.add((a, b, c))
                                todo.append(((a, b, c), word + char))
        return None

    def _two_ways(self, p: int, reach: dict[int, frozenset[int]]) -> str | None:
        """A word that leads from p back to it in two ways."""
        todo, seen = deque([((p, p, False), "")]), set[tuple[int, int, bool]]()
        while todo:
            (one, two, differ), word = todo.popleft()
            for char in self._classes:
                for chars, a, ways in self._ways(one):
                    if char not in chars or (p not in reach[a] and a != p):
                        continue
                    for other, b, _ in self._ways(two):
                        if char not in other or (p not in reach[b] and b != p):
                            continue
                        state = (a, b, differ or a != b or (ways > 1 and one == two))
                        if state == (p, p, True):
                            return word + char
                        if state not in seen:
                            seen.add(state)
                            todo.append((state, word + char))
        return None

    def cycles(self, most: int) -> list[tuple[str, str]]:
        """Ways to a state that leads back to itself, and a way back: what a text can be pumped with."""
        found: dict[tuple[str, str], None] = {}
        reach = {state: self._reachable(state) for state in self.steps}
        for state in self.steps:
            if state == self._prefix or state not in reach[state]:
                continue
            begin = self._word(self.begin, state)
            for char in self._classes:
                for after in self._next(state, char):
                    if after == state or state in reach[after]:
                        found[begin, char + self._word(after, state)] = None
        return list(found)[:most]


def _single(node: Node) -> Chars | None:
    """The characters of an expression that is one character."""
    while isinstance(node, Sequence) and len(node.parts) == 1:
        node = node.parts[0]
    return node.chars if isinstance(node, Char) else None
