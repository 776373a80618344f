# SPDX-License-Identifier: Apache-2.0
"""Reads what `iptables-save` prints and `iptables-restore` takes: anybody's tables, not ours alone.

A rule is split into what it asks of a packet (`Ask`, grouped by the extension that asks) and what
it does then. Nothing is judged here; words that nobody knows are kept as they stand.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class RuleTextError(ValueError):
    """A line that is not of this language. `line_number` counts from 1."""

    def __init__(self, line_number: int, line: str, why: str) -> None:
        super().__init__(f"line {line_number}: {why}: {line}")
        self.line_number = line_number
        self.line = line


@dataclass(frozen=True, slots=True)
class Option:
    """One option with its values, as `--dport 80`, `! -d 10.0.0.0/8`."""

    name: str
    values: tuple[str, ...] = ()
    is_inverted: bool = False

    @property
    def value(self) -> str:
        return self.values[0] if self.values else ""

    def __str__(self) -> str:
        return " ".join([*(["!"] if self.is_inverted else []), self.name, *self.values])


@dataclass(frozen=True, slots=True)
class Ask:
    """What one extension (`-m NAME`; "" for options that need none) asks."""

    extension: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `text` is the line without `-A CHAIN`, `target` empty where it only counts."""

    text: str
    line_number: int
    asks: tuple[Ask, ...]
    target: str = ""
    is_goto: bool = False
    target_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Chain:
    """`policy` is None for a chain that is not built in. Filled while a text is read."""

    policy: str | None
    rules: list[Rule] = field(default_factory=list)


Table = dict[str, Chain]

_QUOTING = re.compile(r"[\"'\\]")

BUILT_IN = frozenset({"INPUT", "OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING"})
# Options that have two names, and the name that the kernel's own print has.
_SHORT = {
    "--source": "-s",
    "--src": "-s",
    "--destination": "-d",
    "--dst": "-d",
    "--protocol": "-p",
    "--out-interface": "-o",
    "--match": "-m",
    "--jump": "-j",
    "--goto": "-g",
    "--destination-port": "--dport",
    "--source-port": "--sport",
    "--destination-ports": "--dports",
}


def read_tables(text: str) -> dict[str, Table]:
    """The tables of a text by name, chains in the order of their declaration.

    A table that comes twice goes on, and a chain that is declared again loses its rules, as
    with `iptables-restore --noflush`. Raises RuleTextError.
    """
    tables: dict[str, Table] = {}
    table: Table | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("*"):
            table = tables.setdefault(line[1:], {})
        elif line == "COMMIT":
            table = None
        elif table is None:
            raise RuleTextError(number, raw, "not in a table")
        elif line.startswith(":"):
            name, _, rest = line[1:].partition(" ")
            policy = rest.split(" ")[0] or "-"
            table[name] = Chain(None if policy == "-" else policy)
        else:
            _command(table, number, line)
    return tables


def _command(table: Table, number: int, line: str) -> None:
    words = _split(number, line)
    if words and words[0].startswith("["):  # counters, with `iptables-save -c`
        words = words[1:]
        line = line.partition("]")[2].strip()
    command, chain = (*words[:2], "", "")[:2]
    match command:
        case "-A" | "--append":
            rest = line.split(None, 2)[2] if len(words) > 2 else ""
            _chain(table, chain).rules.append(_rule(number, rest, words[2:]))
        case "-I" | "--insert":
            at, skip = (int(words[2]), 3) if len(words) > 2 and words[2].isdigit() else (1, 2)
            rest = (line.split(None, skip)[skip:] or [""])[0]
            _chain(table, chain).rules.insert(at - 1, _rule(number, rest, words[skip:]))
        case "-N" | "--new-chain":
            table.setdefault(chain, Chain(None))
        case "-F" | "--flush":
            for flushed in [table[chain]] if chain in table else table.values() if not chain else []:
                flushed.rules.clear()
        case "-X" | "--delete-chain":
            table.pop(chain, None)
        case "-P" | "--policy":
            _chain(table, chain).policy = words[2] if len(words) > 2 else "ACCEPT"
        case "-D" | "--delete":
            _delete(_chain(table, chain), number, words[2:])
        case _:
            raise RuleTextError(number, line, f"{command} is not known")


def _chain(table: Table, name: str) -> Chain:
    """A built-in chain need not be declared; another that is not is kept for the checker to find."""
    return table.setdefault(name, Chain("ACCEPT" if name in BUILT_IN else None))


def _delete(chain: Chain, number: int, words: list[str]) -> None:
    if len(words) == 1 and words[0].isdigit():
        del chain.rules[int(words[0]) - 1 : int(words[0])]
        return
    wanted = _rule(number, "", words)
    for at, rule in enumerate(chain.rules):
        if (rule.asks, rule.target, rule.target_options) == (
            wanted.asks,
            wanted.target,
            wanted.target_options,
        ):
            del chain.rules[at]
            return


def _split(number: int, line: str) -> list[str]:
    if not _QUOTING.search(line):  # most lines: shlex takes a hundred times as long
        return line.split()
    try:
        return shlex.split(line)
    except ValueError as problem:
        raise RuleTextError(number, line, str(problem)) from problem


def _rule(number: int, text: str, words: Sequence[str]) -> Rule:
    asks: list[tuple[str, list[Option]]] = [("", [])]
    target, is_goto, target_options = "", False, dict[str, str]()
    for option in _options(number, text, words):
        if option.name == "-m":
            asks.append((option.value, []))
        elif option.name in ("-j", "-g"):
            target, is_goto = option.value, option.name == "-g"
            asks.append(("", []))
        elif target and not asks[-1][0]:
            target_options[option.name] = " ".join(option.values)
        elif option.name in ("-s", "-d", "-p", "-i", "-o", "-f"):
            asks[0][1].append(option)
        else:
            asks[-1][1].append(option)
    if not target and any(name == "-j" for name in words):
        raise RuleTextError(number, text, "a jump to nowhere")
    kept = tuple(Ask(name, tuple(options)) for name, options in asks if options or name)
    return Rule(text, number, kept, target, is_goto, target_options)


def _options(number: int, text: str, words: Sequence[str]) -> list[Option]:
    found: list[Option] = []
    is_inverted = False
    for word in words:
        if word == "!":
            is_inverted = True
        elif word.startswith("-") and len(word) > 1 and not word[1:].isdigit():
            name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            found.append(Option(_SHORT.get(name, name), (value,) if equals else (), is_inverted))
            is_inverted = False
        elif not found:
            raise RuleTextError(number, text, f"{word} without an option")
        else:
            last = found[-1]
            # `--dport ! 80`, the order of old versions.
            found[-1] = Option(last.name, (*last.values, word), last.is_inverted or is_inverted)
            is_inverted = False
    return found
