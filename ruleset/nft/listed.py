# SPDX-License-Identifier: Apache-2.0
"""Reads what `nft list table ip vcnode` prints.

nft 1.0.6 prints lines as documents have them, but for elements: several on a line, in the order of
a hash. What has a timeout is what traffic leaves behind, and is left out.
"""

import re

from ruleset.model import Family
from ruleset.nft.language import table

_OBJECT = re.compile(r"\t(chain|map|set) (\S+) \{")


def read(text: str, family: Family) -> dict[str, tuple[str, ...]]:
    """The objects of our table; empty if the text has no such table."""
    objects: dict[str, tuple[str, ...]] = {}
    is_ours = False
    name = ""
    lines: list[str] = []
    elements: list[str] | None = None
    for line in text.split("\n"):
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


def _whole(lines: list[str], elements: list[str] | None) -> tuple[str, ...]:
    # A comment or a counter would be somebody else's doing, and is drift; so is any other line.
    if elements is None or any(line.startswith("flags ") and "dynamic" in line for line in lines):
        return tuple(lines)
    return (*lines, *sorted(elements))
