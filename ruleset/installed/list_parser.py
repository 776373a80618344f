# SPDX-License-Identifier: Apache-2.0
"""Reads the output of `nft list table ip vcnode`.

nft 1.0.6 prints lines as documents have them, except elements: several on a line, in the order of a
hash. Elements with a timeout are clients of affinity and are left out. Without /etc/protocols, as in
small images, nft prints protocols as numbers. Other versions print the same rule in other words, as 1.1.3
`priority dstnat + 5` for -95, or add what is no part of it. So lines are read for what they mean, and
returned in the words of documents. A line that has no such words is returned as it is, and differs.
"""

import re

from ruleset.model import Family
from ruleset.syntax.nft import FAMILIES, duration, is_property, table

_OBJECT = re.compile(r"\t(chain|map|set) (\S+) \{")
_NAMES = {"6": "tcp", "17": "udp", "132": "sctp"}
# Between an address and a port, and after `l4proto`.
_NUMBER = re.compile(r"(?<= \. )(?:6|17|132)(?= \. )|(?<=l4proto )(?:[0-9]{1,3} |\{[0-9, ]{1,80}\})")
_DIGITS = re.compile(r"[0-9]{1,80}")

# A base chain's line, with what nft may leave out. (src/rule.c: `chain_print_declaration`.)
_BASE_CHAIN = re.compile(
    r"type (nat|filter|route) hook (\w{1,16}) priority ([a-z]{1,16})?"
    r" ?([+-])? ?([0-9]{1,10})?;(?: policy (accept|drop);)?"
)
# The standard priorities of the families ip and ip6 (src/rule.c: `std_prios`).
_PRIORITY = {"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}
# What nft may leave out: reject's default in our families, and the family of an address in its own table.
_REJECT = re.compile(r"\breject with icmp(?:v6|x)? (?:type )?port-unreachable$")
_TRANSLATION = re.compile(r"\bdnat (?:(ip6?) )?to (?=(\S))")
# nft 1.1.4 prints a set's count behind its size; `nft -a` prints handles. Neither is a part of a rule.
_COMMENT = re.compile(r"\s{1,8}# (?:count|handle) [0-9]{1,20}$")
_DURATION = re.compile(r"(?:[0-9]{1,10}(?:ms|[dhms])){1,5}")
_UNIT = re.compile(r"([0-9]{1,10})(ms|[dhms])")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0}
_PROPERTY_ORDER = ("type ", "size ", "flags ", "timeout ")


def read(text: str, family: Family) -> dict[str, tuple[str, ...]]:
    """The objects of our table; empty if the text lacks it."""
    objects: dict[str, tuple[str, ...]] = {}
    is_ours = False
    name = ""
    lines: list[str] = []
    elements: list[str] | None = None
    for raw in _named(text).split("\n"):
        line = _COMMENT.sub("", raw) if "#" in raw else raw
        if line.startswith("table "):
            is_ours = line == f"table {table(family)} {{"
        elif not is_ours:
            continue
        elif not name and (found := _OBJECT.fullmatch(line)):
            name, lines, elements = f"{found[1]} {found[2]}", [], None
        elif line == "\t}" and name:
            objects[name] = tuple(lines) if name.startswith("chain ") else _whole(lines, elements)
            name = ""
        elif name:
            body = line.strip()
            if body.startswith("elements = {") and not name.startswith("chain "):
                elements = []
                body = body.removeprefix("elements = {").strip()
            if elements is None:
                lines.append(_rule(body, family) if name.startswith("chain ") else body)
            else:
                elements += (part.strip() for part in body.removesuffix("}").split(",") if part.strip())
    return objects


def _named(text: str) -> str:
    """The text with protocols' names. Texts are long and rarely need it: most are scanned once."""
    if "l4proto { 6" not in text and not any(
        f" {number} . " in text or f"l4proto {number} " in text for number in _NAMES
    ):
        return text
    return _NUMBER.sub(lambda found: _DIGITS.sub(lambda each: _NAMES.get(each[0], each[0]), found[0]), text)


def _whole(lines: list[str], elements: list[str] | None) -> tuple[str, ...]:
    # Any other line, as a comment or a counter, is drift.
    properties = _properties(lines)
    if elements is None or any(line.startswith("flags ") and "dynamic" in line for line in lines):
        return tuple(properties)
    return (*properties, *sorted(elements))


def _rule(line: str, family: Family) -> str:
    """A chain's line in the words of documents."""
    if found := _BASE_CHAIN.fullmatch(line):
        return _base_chain(line, found)
    if "reject with icmp" in line:
        line = _REJECT.sub("reject", line)
    return (
        _TRANSLATION.sub(lambda found: _translation(found, FAMILIES[family]), line)
        if "dnat " in line
        else line
    )


def _base_chain(line: str, found: re.Match[str]) -> str:
    kind, hook, name, sign, number, policy = found.groups()
    if (name is None and number is None) or (name is not None and name not in _PRIORITY):
        return line
    if name is not None and (sign is None) is not (number is None):
        return line
    priority = _PRIORITY.get(name or "", 0) + int(number or "0") * (-1 if sign == "-" else 1)
    # Documents have the one name that nft 1.0.6 prints for our hook.
    return f"type {kind} hook {hook} priority {priority or 'filter'}; policy {policy or 'accept'};"


def _translation(found: re.Match[str], ours: str) -> str:
    """Documents name the family before a map, and not before an address."""
    named, first = found.groups()
    if named not in (None, ours):
        return found[0]
    return "dnat to " if first.isdigit() or first == "[" else f"dnat {ours} to "


def _properties(lines: list[str]) -> list[str]:
    """A set's or map's properties in the words and the order of documents."""
    worded = [_property(line) for line in lines]
    known = [one for prefix in _PROPERTY_ORDER for one in worded if one.startswith(prefix)]
    return [*known, *(one for one in worded if not is_property(one))]


def _property(line: str) -> str:
    what, _, value = line.partition(" ")
    if what == "flags":
        return f"flags {','.join(sorted(flag.strip() for flag in value.split(',')))}"
    if what == "timeout" and _DURATION.fullmatch(value):
        return f"timeout {duration(sum(int(each[1]) * _SECONDS[each[2]] for each in _UNIT.finditer(value)))}"
    return line
