# SPDX-License-Identifier: Apache-2.0
"""Regular expressions as the interpreter itself parses them, in the few forms that are of use here.

Characters are those of a small alphabet that has one of each kind: ASCII, and a letter, digit and
blank beyond it.
"""

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

# Not public, but the only parser with `re`'s own result.
_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")

MAXREPEAT: Final = int(_constants.MAXREPEAT)
TEXT: Final = (*map(chr, range(128)), "\x85", "\xa0", "\xe9", "\u0660", "\u2003", "\u4e00")
BYTES: Final = tuple(map(chr, range(256)))

Chars = frozenset[str]


class UnsupportedError(Exception):
    """A form of which nothing can be proven here, such as a reference back to a group."""


@dataclass(frozen=True)
class Char:
    chars: Chars


@dataclass(frozen=True)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Alternatives:
    options: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    """`most` is None without a bound; `is_possessive`: there is no way back into it."""

    body: "Node"
    least: int
    most: int | None
    is_lazy: bool = False
    is_possessive: bool = False


@dataclass(frozen=True)
class Atomic:
    body: "Node"


@dataclass(frozen=True)
class Look:
    """A lookahead or a lookbehind: `behind` is the width of the latter, None for the former."""

    body: "Node"
    is_negative: bool
    behind: int | None


@dataclass(frozen=True)
class At:
    """A position; `kind` is the interpreter's name of it."""

    kind: str


Node = Char | Sequence | Alternatives | Repeat | Atomic | Look | At


def alphabet_of(pattern: "re.Pattern[Any]") -> tuple[str, ...]:
    return BYTES if isinstance(pattern.pattern, bytes) else TEXT


def parse(pattern: "re.Pattern[Any]") -> Node:
    """Raises `UnsupportedError`."""
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    return _Reader(alphabet_of(pattern), isinstance(pattern.pattern, bytes)).sequence(tree, pattern.flags)


def _cases(char: str) -> set[str]:
    return {each for each in (char, char.lower(), char.upper()) if len(each) == 1}


class _Reader:
    def __init__(self, alphabet: tuple[str, ...], is_bytes: bool) -> None:
        self._alphabet = alphabet
        self._is_bytes = is_bytes

    def sequence(self, tree: Iterable[Any], flags: int) -> Sequence:
        return Sequence(tuple(self._node(str(op), argument, flags) for op, argument in tree))

    def _node(self, op: str, argument: Any, flags: int) -> Node:
        match op:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "RANGE" | "CATEGORY":
                return Char(self._chars(op, argument, flags))
            case "BRANCH":
                return Alternatives(tuple(self.sequence(each, flags) for each in argument[1]))
            case "SUBPATTERN":
                _, add, remove, body = argument
                return self.sequence(body, (flags | add) & ~remove)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, body = argument
                return Repeat(
                    self.sequence(body, flags),
                    int(least),
                    None if int(most) == MAXREPEAT else int(most),
                    is_lazy=op == "MIN_REPEAT",
                    is_possessive=op == "POSSESSIVE_REPEAT",
                )
            case "ATOMIC_GROUP":
                return Atomic(self.sequence(argument, flags))
            case "ASSERT" | "ASSERT_NOT":
                direction, body = argument
                behind = body.getwidth()[0] if direction < 0 else None
                return Look(self.sequence(body, flags), op == "ASSERT_NOT", behind)
            case "AT":
                is_each_line = flags & re.MULTILINE and str(argument) in ("AT_BEGINNING", "AT_END")
                return At(f"{argument}_LINE" if is_each_line else str(argument))
        raise UnsupportedError(op)

    def _chars(self, op: str, argument: Any, flags: int) -> Chars:
        return frozenset(each for each in self._alphabet if self._is_in(op, argument, flags, each))

    def _is_in(self, op: str, argument: Any, flags: int, char: str) -> bool:
        if flags & re.IGNORECASE and op != "CATEGORY":
            exact = flags & ~re.IGNORECASE
            return any(self._is_in(op, argument, exact, each) for each in _cases(char))
        match op:
            case "LITERAL":
                return bool(ord(char) == argument)
            case "NOT_LITERAL":
                return bool(ord(char) != argument)
            case "ANY":
                return char != "\n" or bool(flags & re.DOTALL)
            case "RANGE":
                return bool(argument[0] <= ord(char) <= argument[1])
            case "CATEGORY":
                return self._is_of_category(str(argument), flags, char)
        is_negated = bool(argument) and str(argument[0][0]) == "NEGATE"
        found = any(self._is_in(str(each), part, flags, char) for each, part in argument[is_negated:])
        return found != is_negated

    def _is_of_category(self, category: str, flags: int, char: str) -> bool:
        name = category.removeprefix("CATEGORY_")
        letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.removeprefix("NOT_")]
        letter = letter.upper() if name.startswith("NOT_") else letter
        if self._is_bytes:
            return re.fullmatch(b"\\" + letter.encode(), char.encode("latin-1")) is not None
        return re.fullmatch("\\" + letter, char, re.ASCII & flags) is not None
