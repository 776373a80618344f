# SPDX-License-Identifier: Apache-2.0
"""Writes the commands for `nft -f` that change our table, in one transaction.

Chains are emptied and filled again; maps and sets change by element. If an object's definition changes
(a map's type, a base chain's hook), the whole table must be replaced.
"""

from collections.abc import Iterator, Sequence

from ruleset.model import Family
from ruleset.syntax.lines import Objects
from ruleset.syntax.nft import is_property, table


def change(family: Family, before: Objects, after: Objects) -> str | None:
    """The commands from `before` to `after`, "" if they are equal; None if a definition changes."""
    changing = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    if any(
        _definition(name, before) != _definition(name, after)
        for name in changing
        if name in before and name in after
    ):
        return None
    return "".join(f"{line}\n" for line in _commands(table(family), changing, before, after))


def _commands(ours: str, changing: Sequence[str], before: Objects, after: Objects) -> Iterator[str]:
    """Referenced objects come first and go last: nft checks a transaction line by line."""
    chains = {name: name.removeprefix("chain ") for name in changing if name.startswith("chain ")}
    sets = {name: name.partition(" ")[2] for name in changing if name not in chains}
    for name in (*sets, *chains):
        if name not in before:
            kind, _, identifier = name.partition(" ")
            yield f"add {kind} {ours} {identifier}" + _block(_definition(name, after))
    for name, chain in chains.items():
        if name in before:
            yield f"flush chain {ours} {chain}"
    for name, identifier in sets.items():
        if gone := _elements(name, before) - _elements(name, after):
            keys = (element.partition(" : ")[0] for element in sorted(gone))
            yield f"delete element {ours} {identifier} {{ {', '.join(keys)} }}"
    for name, chain in chains.items():
        yield from (f"add rule {ours} {chain} {rule}" for rule in after.get(name, ()) if not _is_base(rule))
    for name, identifier in sets.items():
        if new := _elements(name, after) - _elements(name, before):
            yield f"add element {ours} {identifier} {{ {', '.join(sorted(new))} }}"
    for name in (*chains, *sets):
        if name not in after:
            yield f"delete {name.partition(' ')[0]} {ours} {name.partition(' ')[2]}"


def _is_base(line: str) -> bool:
    return line.startswith("type ")


def _definition(name: str, objects: Objects) -> tuple[str, ...]:
    """The lines that define an object, and cannot change while it exists."""
    of_this_kind = _is_base if name.startswith("chain ") else is_property
    return tuple(line for line in objects[name] if of_this_kind(line))


def _block(lines: tuple[str, ...]) -> str:
    return f" {{ {' '.join(line if line.endswith(';') else f'{line};' for line in lines)} }}" if lines else ""


def _elements(name: str, objects: Objects) -> frozenset[str]:
    return frozenset(line for line in objects.get(name, ()) if not is_property(line))
