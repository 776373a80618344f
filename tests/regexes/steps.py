# SPDX-License-Identifier: Apache-2.0
"""A backtracking matcher that counts its steps: `re` itself shows only its time.

It tries what `re` tries, in its order, without the shortcuts for literals: so it counts at least as
much, and finds the same match, which the tests hold against `re`.
"""

from dataclasses import dataclass

from tests.regexes.syntax import Alternatives, At, Atomic, Char, Look, Node, Repeat, Sequence


class TooManyStepsError(Exception):
    """More than the matcher was given."""


@dataclass(slots=True)
class Matcher:
    """Matches one text; `steps` are those of all calls."""

    text: str
    most: int
    is_bytes: bool = False
    steps: int = 0

    def search(self, node: Node, at: int, *, is_full: bool = False) -> tuple[int, int] | None:
        """The first match that begins at `at` or later."""
        for begin in range(at, len(self.text) + 1):
            end = self.match(node, begin, is_full=is_full)
            if end is not None:
                return begin, end
        return None

    def match(self, node: Node, at: int, *, is_full: bool = False) -> int | None:
        """The end of the match that begins here."""
        # What is still to be matched, as a list from the front; a way not taken is a pair on the stack.
        stack: list[tuple[int, _Todo | None]] = [(at, _Todo(node, None))]
        while stack:
            place, todo = stack.pop()
            while True:
                self.steps += 1
                if self.steps > self.most:
                    raise TooManyStepsError
                if todo is None:
                    if is_full and place != len(self.text):
                        break
                    return place
                after = self._step(place, todo, stack)
                if after is None:
                    break
                place, todo = after
        return None

    def _step(
        self, place: int, todo: "_Todo", stack: "list[tuple[int, _Todo | None]]"
    ) -> "tuple[int, _Todo | None] | None":
        rest = todo.rest
        match todo.node:
            case Char(chars):
                is_there = place < len(self.text) and self.text[place] in chars
                return (place + 1, rest) if is_there else None
            case Sequence(parts):
                for part in reversed(parts):
                    rest = _Todo(part, rest)
                return place, rest
            case Alternatives(options):
                stack += [(place, _Todo(option, rest)) for option in reversed(options[1:])]
                return place, _Todo(options[0], rest)
            case Atomic(body):
                end = self.match(body, place)
                return None if end is None else (end, rest)
            case Look(body, is_negative, behind):
                begin = place - (behind or 0)
                found = begin >= 0 and self.match(body, begin) is not None
                return (place, rest) if found != is_negative else None
            case At(kind):
                return (place, rest) if self._is_at(kind, place) else None
            case Repeat() as repeat:
                return self._repeat(repeat, place, todo, stack)

    def _repeat(
        self, node: Repeat, place: int, todo: "_Todo", stack: "list[tuple[int, _Todo | None]]"
    ) -> "tuple[int, _Todo | None] | None":
        if node.is_possessive:
            greedy = Repeat(node.body, node.least, node.most)
            end = self.match(greedy, place)
            return None if end is None else (end, todo.rest)
        least = max(0, node.least - 1)
        most = None if node.most is None else node.most - 1
        if node.most == 0 or (todo.since == place and node.least == 0):
            return place, todo.rest
        again = _Todo(node.body, _Todo(Repeat(node.body, least, most, node.is_lazy), todo.rest, place))
        if node.least > 0:
            return place, again
        if node.is_lazy:
            stack.append((place, again))
            return place, todo.rest
        stack.append((place, todo.rest))
        return place, again

    def _is_at(self, kind: str, place: int) -> bool:
        text, size = self.text, len(self.text)
        match kind:
            case "AT_BEGINNING" | "AT_BEGINNING_STRING":
                return place == 0
            case "AT_BEGINNING_LINE":
                return place == 0 or text[place - 1] == "\n"
            case "AT_END_STRING":
                return place == size
            case "AT_END":
                return place == size or (place == size - 1 and text[place] == "\n")
            case "AT_END_LINE":
                return place == size or text[place] == "\n"
            case "AT_BOUNDARY" | "AT_NON_BOUNDARY":
                is_between = (place > 0 and self._is_word(place - 1)) != (
                    place < size and self._is_word(place)
                )
                return is_between == (kind == "AT_BOUNDARY")
        raise NotImplementedError(kind)

    def _is_word(self, place: int) -> bool:
        char = self.text[place]
        return (char.isascii() or not self.is_bytes) and (char.isalnum() or char == "_")


@dataclass(frozen=True, slots=True)
class _Todo:
    node: Node
    rest: "_Todo | None"
    since: int = -1
    """Where the last round of a repetition began: an empty round is the last one."""
