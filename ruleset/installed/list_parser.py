# SPDX-License-Identifier: Apache-2.0
"""Reads the output of `nft list table ip vcnode`.

nft 1.0.6 prints lines as documents have them, except elements: several on a line, in the order of a
hash. Elements with a timeout are clients of affinity and are left out. Without /etc/protocols, as in
small images, nft prints protocols as numbers.
"""

import re

from ruleset.model import Family
from ruleset.syntax.nft import table

_OBJECT = re.compile(r"\t(chain|map|set) (\S+) \{")
_NAMES = {"6": "tcp", "17": "udp", "132": "sctp"}
# Between an address and a port, and after `l4proto`.
_NUMBER = re.compile(r"(?<= \. )(?:6|17|132)(?= \. )|(?<=l4proto )(?:[0-9]{1,3} |\{[0-9, ]{1,80}\})")
_DIGITS = re.compile(r"[0-9]{1,80}")


def read(text: str, family: Family) -> dict[str, tuple[str, ...]]:
    """The objects of our table; empty if the text lacks it."""
    objects: dict[str, tuple[str, ...]] = {}
    is_ours = False
    name = ""
    lines: list[str] = []
    elements: list[str] | None = None
    for line in _named(text).split("\n"):
        if line.startswith("table "):
            is_ours = line == f"table {table(family)} {{"
        elif not is_ours:
            continue
        elif not name and (found := _OBJECT.fullmatch(line)):
            name, lines, elements = f"{found[1]} {found[2]}", [], None
        elif line == "\t}" and name:
            objects[name] = _whole(lines, elements)
            name = ""
        elif name:
            body = line.strip()
            if body.startswith("elements = {") and not name.startswith("chain "):
                elements = []
                body = body.removeprefix("elements = {").strip()
            if elements is None:
                lines.append(body)
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
    if elements is None or any(line.startswith("flags ") and "dynamic" in line for line in lines):
        return tuple(lines)
    return (*lines, *sorted(elements))
