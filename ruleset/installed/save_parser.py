# SPDX-License-Identifier: Apache-2.0
"""Reads our rules from the output of `iptables-save`.

`iptables-save` 1.8 prints our rules as documents have them, with two exceptions. Counters are printed on
request. Weights are rounded: the kernel has a 31-bit fraction, so 0.3333333333 becomes 0.33333333349.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ruleset.names import PREFIX, is_our_chain
from ruleset.syntax.iptables import TABLES

# The guest controls this text. The longest honest rule has a comment of 256 characters, or a BPF filter
# of some 60 instructions; ours have 200 characters. Longer rules are foreign.
MAX_LINE_CHARACTERS = 4_096

# Possessive: without backtracking the time is linear in the text.
_LINE = re.compile(r"(?:\[[0-9]++:[0-9]++\] )?+-A (\S++) ?+(.*+)", re.DOTALL)
_JUMP = re.compile(rf"(?:^| )(?:-j|-g) {PREFIX}")
# An unterminated quote extends to the end of the line; looking for an end from each quote is quadratic.
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)', re.DOTALL)
_WEIGHT = re.compile(r"(?<=--probability )[0-9.]{1,32}")
_KERNEL_STEP = 1 / (1 << 31)


@dataclass(frozen=True, slots=True)
class Saved:
    """Our part of a save; see `ruleset.installed.rules.InstalledRules`."""

    objects: Mapping[str, tuple[str, ...]]
    hooks: Mapping[str, tuple[str, ...]]
    shadowed: frozenset[str]


def read(text: str) -> Saved:
    """Read our rules; skip lines that are not of a save."""
    objects: dict[str, list[str]] = {}
    hooks: dict[str, list[str]] = {}
    shadowed: set[str] = set()
    table = ""
    for line in text.split("\n"):
        if line.startswith("*"):
            table = line[1:].strip()
        elif table not in TABLES:
            continue
        elif line.startswith(":"):
            chain = line[1:].partition(" ")[0]
            if is_our_chain(chain):
                objects.setdefault(f"{table}/{chain}", [])
        elif found := parts(line):
            chain, rule = found
            name = f"{table}/{chain}"
            if is_our_chain(chain):
                # A rule that is too long for ours still differs from all of ours when it is cut.
                objects.setdefault(name, []).append(_WEIGHT.sub(_unrounded, rule[:MAX_LINE_CHARACTERS]))
            elif jumps_to_us(rule):
                hooks.setdefault(name, []).append(rule)
            elif name == "nat/OUTPUT" and name in hooks:
                # In filter the place does not matter: our hook only rejects.
                shadowed.add(name)
    return Saved(
        {name: tuple(rules) for name, rules in objects.items()},
        {name: tuple(rules) for name, rules in hooks.items()},
        frozenset(shadowed),
    )


def parts(line: str) -> tuple[str, str] | None:
    """The chain and the rule (of any length) of an `-A` line, without counters; None for other lines."""
    found = _LINE.fullmatch(line)
    return (found[1], found[2]) if found else None


def jumps_to_us(rule: str) -> bool:
    """Whether a rule jumps to a chain of ours; rules longer than our hooks do not."""
    return len(rule) <= MAX_LINE_CHARACTERS and _JUMP.search(_QUOTED.sub("", rule)) is not None


def _unrounded(found: re.Match[str]) -> str:
    """The weight 1/n that the kernel rounded to this; other texts as they are."""
    try:
        value = float(found[0])
    except ValueError:
        return found[0]
    if not _KERNEL_STEP / 2 <= value <= 1:
        return found[0]
    exact = 1 / round(1 / value)
    return f"{exact:.10f}" if abs(exact - value) <= _KERNEL_STEP else found[0]
