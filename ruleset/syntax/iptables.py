# SPDX-License-Identifier: Apache-2.0
"""The part of iptables-restore's syntax that our documents use.

Rules are written as `iptables-save` prints them, so that installed rules compare with a document. The
vocabulary is closed, and small so that old guests support it.
"""

import re
from collections import defaultdict

from ruleset.names import is_our_chain
from ruleset.syntax.lines import BadDocument, Objects, check_line

TABLES = ("filter", "nat")
HOOKS = frozenset({"filter/OUTPUT", "nat/OUTPUT"})

# `iptables-restore` runs as root and reads a rule as a command line, with `--modprobe PROGRAM` too. So
# only the options that the renderer writes are accepted. One expression covers the whole rule: a
# thousand Services are checked in milliseconds.
_WORD = (
    "(?:!|-[dpmj]|--(?:dport|to-destination|reject-with|ctstate|mode|probability"
    r"|rcheck|set|seconds|reap|name|mask|rsource)|[A-Za-z0-9.:/\[\],_][A-Za-z0-9.:/\[\],_-]*)"
)
_RULE = re.compile(f"{_WORD}(?: {_WORD})*")
_DECLARATION = re.compile(r":(\S+) - \[0:0\]")


def check(name: str, lines: tuple[str, ...]) -> None:
    """Raise `BadDocument` unless this is a chain or hook of ours with rules of the vocabulary."""
    table, _, chain = name.partition("/")
    if table not in TABLES or not (name in HOOKS or is_our_chain(chain)):
        raise BadDocument(0, name, "not a chain of ours")
    for line in lines:
        check_rule(line)


def check_rule(line: str) -> None:
    """Raise `BadDocument` unless `line` is a rule (without `-A CHAIN `) of the vocabulary."""
    check_line(line)
    if not _RULE.fullmatch(line):
        raise BadDocument(0, line, "a word outside of our vocabulary")


def write(objects: Objects) -> str:
    """The text for `iptables-restore --noflush` in a guest without our rules.

    iptables commits filter before nat: for a moment Services are rejected, and clients retry. In the
    other order packets would leave the guest untranslated and get no answer.
    """
    lines: list[str] = []
    for table in TABLES:
        there = f"{table}/"
        chains = sorted(name.removeprefix(there) for name in objects if name.startswith(there))
        if not chains:
            continue
        lines.append(f"*{table}")
        lines += [f":{chain} - [0:0]" for chain in chains if is_our_chain(chain)]
        for chain in chains:
            # A guest's agent writes the whole text for each digest, hence one join for all rules.
            append, rules = f"-A {chain} ", objects[f"{there}{chain}"]
            if rules:
                lines.append(append + f"\n{append}".join(rules))
        lines.append("COMMIT")
    lines.append("")
    return "\n".join(lines)


def read(text: str) -> Objects:
    """The inverse of `write`; raises `BadDocument`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line == "COMMIT":
            table = ""
        elif line[0] == "*" and not table:
            table = line[1:]
        elif not table:
            raise BadDocument(number, line, "outside a table")
        elif declared := _DECLARATION.fullmatch(line):
            name = f"{table}/{declared[1]}"
            if name in HOOKS:
                # `write` declares our chains alone: of a hook without a rule nothing would be written.
                raise BadDocument(number, line, "a hook is not declared")
            found[name]
        else:
            command, _, rest = line.partition(" ")
            chain, _, rule = rest.partition(" ")
            if command != "-A" or not rule:
                raise BadDocument(number, line, "neither a chain nor a rule")
            name = f"{table}/{chain}"
            if name not in HOOKS and name not in found:
                raise BadDocument(number, line, "a rule of an undeclared chain")
            _check_at(number, line, rule)
            found[name].append(rule)
    return {name: tuple(rules) for name, rules in found.items()}


def _check_at(number: int, line: str, rule: str) -> None:
    try:
        check_rule(rule)
    except BadDocument as error:
        raise BadDocument(number, line, error.why) from None
