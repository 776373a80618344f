# SPDX-License-Identifier: Apache-2.0
"""Reads tables of nft: what `nft list` prints, and what `nft -f` takes as blocks.

A rule is kept as its words. Commands outside of table blocks (`add table`, `delete table`, `flush`)
are passed over: they say what was there before.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_PRIORITIES = {"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}
_TOKEN = re.compile(r'"[^"\n]*"|[!=<>]=|[{},;=]|\n|[^\s{},;="]+')
_PASSED_OVER = frozenset({"add", "delete", "flush", "destroy", "create"})


class RuleTextError(ValueError):
    """A text that is not of this language. `line_number` counts from 1."""

    def __init__(self, line_number: int, line: str, why: str) -> None:
        super().__init__(f"line {line_number}: {why}: {line}")
        self.line_number = line_number
        self.line = line


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    line_number: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `text` is its words with single spaces."""

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        said = " ".join(word for word in self.words if word != "\n")
        return said.replace(" ,", ",")


@dataclass(frozen=True, slots=True)
class Hook:
    """Where a base chain hangs."""

    kind: str
    name: str
    priority: int
    policy: str = "accept"


@dataclass(slots=True)
class Chain:
    hook: Hook | None = None
    rules: list[Rule] = field(default_factory=list)


Pattern = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """`key` are the parts of a concatenation; `value` are the words after the colon, if any."""

    key: Pattern
    value: tuple[str, ...] = ()


@dataclass(slots=True)
class Collection:
    """A map or set. `is_dynamic`: rules put elements in, as packets pass."""

    is_dynamic: bool = False
    elements: list[Element] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    family: str
    name: str
    chains: dict[str, Chain] = field(default_factory=dict)
    collections: dict[str, Collection] = field(default_factory=dict)


def read_tables(text: str) -> list[Table]:
    """The tables in the order of the text. Raises RuleTextError."""
    return list(_Reader(text).tables())


def elements(words: tuple[str, ...]) -> list[Element]:
    """`a . b : goto c , ...`: the elements between the braces of a map or set."""
    return [_element(part) for part in _split(words, ",") if part]


def _split(words: tuple[str, ...], at: str) -> list[tuple[str, ...]]:
    """Split where `at` stands outside of braces; ends of lines are dropped."""
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "{") - (word == "}")
        if word == at and depth == 0:
            parts.append([])
        elif word != "\n":
            parts[-1].append(word)
    return [tuple(part) for part in parts]


def _element(words: tuple[str, ...]) -> Element:
    key, _, value = _partition(words, ":")
    # `10.0.0.1 timeout 3h expires 2h counter ...`: what is said of an element is not its key.
    parts: list[str] = []
    is_expected = True
    for word in key:
        if word == ".":
            is_expected = True
        elif is_expected:
            parts.append(word)
            is_expected = False
        else:
            break
    return Element(tuple(parts), value)


def _partition(words: tuple[str, ...], at: str) -> tuple[tuple[str, ...], bool, tuple[str, ...]]:
    if at not in words:
        return words, False, ()
    where = words.index(at)
    return words[:where], True, words[where + 1 :]


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._words: list[Word] = []
        for number, line in enumerate(self._lines, 1):
            # Only `nft` itself writes comments into a list, and only as whole words at the end.
            for found in _TOKEN.finditer(line):
                if found[0].startswith("#"):
                    break
                self._words.append(Word(found[0], number))
            self._words.append(Word("\n", number))
        self._at = 0

    def tables(self) -> Iterator[Table]:
        while True:
            self._skip("\n", ";")
            if self._at >= len(self._words):
                return
            word = self._next()
            if word.text in _PASSED_OVER:
                self._to_end_of_line()
            elif word.text == "table":
                words = self._until("{")
                family, name = ("ip", *words)[-2:]
                table = Table(family, name)
                self._table(table)
                yield table
            else:
                raise self._error(word, "not a table")

    def _table(self, table: Table) -> None:
        while True:
            self._skip("\n", ";")
            word = self._next()
            match word.text:
                case "}":
                    return
                case "chain":
                    (name,) = self._until("{") or ("",)
                    self._chain(table.chains.setdefault(name, Chain()))
                case "map" | "set":
                    (name,) = self._until("{") or ("",)
                    self._collection(table.collections.setdefault(name, Collection()))
                case "flags" | "comment":
                    self._to_end_of_line()
                case "flowtable" | "counter" | "quota" | "ct" | "limit" | "secmark" | "synproxy":
                    self._until("{")
                    self._block()
                case _:
                    raise self._error(word, "not of a table")

    def _chain(self, chain: Chain) -> None:
        for words in self._statements():
            match words:
                case ("type", kind, "hook", name, *rest):
                    chain.hook = Hook(kind, name, self._priority(rest))
                case ("policy", policy):
                    if chain.hook is not None:
                        chain.hook = Hook(chain.hook.kind, chain.hook.name, chain.hook.priority, policy)
                case ("comment", *_):
                    pass
                case _:
                    chain.rules.append(Rule(words))

    def _collection(self, collection: Collection) -> None:
        for words in self._statements():
            match words:
                case ("flags", *flags):
                    collection.is_dynamic = collection.is_dynamic or "dynamic" in flags
                case ("elements", "=", "{", *inside, "}"):
                    collection.elements += elements(tuple(inside))
                case _:
                    pass

    def _statements(self) -> Iterator[tuple[str, ...]]:
        """The statements of a block, whose `{` has been read, to its `}`."""
        words: list[str] = []
        depth = 0
        while True:
            word = self._next()
            if depth == 0 and word.text in ("\n", ";", "}"):
                if words:
                    yield tuple(words)
                words = []
                if word.text == "}":
                    return
                continue
            depth += (word.text == "{") - (word.text == "}")
            if word.text != "\n":
                words.append(word.text)

    def _block(self) -> None:
        for _ in self._statements():
            pass

    def _next(self) -> Word:
        if self._at >= len(self._words):
            last = self._words[-1]
            raise self._error(last, "the text ends within a block")
        self._at += 1
        return self._words[self._at - 1]

    def _skip(self, *texts: str) -> None:
        while self._at < len(self._words) and self._words[self._at].text in texts:
            self._at += 1

    def _until(self, text: str) -> list[str]:
        words = []
        while (word := self._next()).text != text:
            if word.text == "\n":
                raise self._error(word, f"no {text}")
            words.append(word.text)
        return words

    def _to_end_of_line(self) -> None:
        while self._next().text != "\n":
            pass

    def _error(self, word: Word, why: str) -> RuleTextError:
        return RuleTextError(word.line_number, self._lines[word.line_number - 1], why)

    def _priority(self, words: list[str]) -> int:
        """`priority dstnat`, `priority -100`, `priority filter + 10`; without one: 0."""
        if not words or words[0] != "priority":
            return 0
        total, sign = 0, 1
        for word in words[1:]:
            if word in ("+", "-"):
                sign = 1 if word == "+" else -1
            elif word in _PRIORITIES or word.lstrip("-").isdecimal():
                total += sign * (_PRIORITIES[word] if word in _PRIORITIES else int(word))
                sign = 1
            else:
                raise self._error(self._words[self._at - 1], f"{word!r} is not a priority")
        return total
