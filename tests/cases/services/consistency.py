# SPDX-License-Identifier: Apache-2.0
"""Whether a text for `iptables-restore` is consistent in itself."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_BUILT_IN = frozenset({"INPUT", "OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING"})
_TARGETS = frozenset({"ACCEPT", "DNAT", "DROP", "REDIRECT", "REJECT", "RETURN"})
_JUMP = re.compile(r"(?:^| )-[jg] (\S+)")


@dataclass(slots=True)
class _Table:
    name: str
    declared: set[str] = field(default_factory=set)
    rules: list[tuple[str, str]] = field(default_factory=list)


def problems(text: str, *, may_be_unused: str = "VCN-MARK-") -> tuple[str, ...]:
    """Every inconsistency of `text`.

    A chain is declared once, before its first rule. Each jump leads to a declared chain. Each declared
    chain is jumped to, except those whose name begins with `may_be_unused`. No chain has a rule twice.
    """
    found: list[str] = []
    tables: list[_Table] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("*"):
            tables.append(_Table(line[1:]))
        elif line.startswith(":"):
            chain, table = line[1:].split()[0], tables[-1]
            if chain in table.declared:
                found.append(f"line {number}: {table.name} {chain} is declared again")
            table.declared.add(chain)
        elif line.startswith("-A "):
            _, chain, rule = line.split(" ", 2)
            table = tables[-1]
            if chain not in table.declared | _BUILT_IN:
                found.append(f"line {number}: a rule of {table.name} {chain}, which is not declared")
            table.rules.append((chain, rule))
    return (*found, *(problem for table in tables for problem in _of_table(table, may_be_unused)))


def _of_table(table: _Table, may_be_unused: str) -> Iterator[str]:
    used = set[str]()
    for chain, rule in table.rules:
        jump = _JUMP.search(rule)
        target = jump[1] if jump is not None else ""
        used.add(target)
        if target and target not in table.declared | _TARGETS:
            yield f"{table.name} {chain}: a jump to {target}, which is not declared"
    for chain in sorted(table.declared - used - _BUILT_IN):
        if not chain.startswith(may_be_unused):
            yield f"{table.name} {chain}: declared, and no rule jumps to it"
    for (chain, rule), count in Counter(table.rules).items():
        if count > 1:
            yield f"{table.name} {chain}: {count} times the rule {rule!r}"
