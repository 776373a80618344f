# SPDX-License-Identifier: Apache-2.0
"""The part of nft's syntax that our documents use.

One private table in each family has all our rules. A document replaces the whole table in one
transaction. Objects are chains, maps and sets. The lines of maps and sets are their properties
(`type ...`, `flags ...`), then their elements, one a line.
"""

import re

from ruleset.model import Family
from ruleset.names import NFT_TABLE
from ruleset.syntax.lines import BadDocument, Objects, check_line

FAMILIES = {Family.IPV4: "ip", Family.IPV6: "ip6"}

_NAME = re.compile(r"(chain|map|set) [A-Za-z][A-Za-z0-9-]{0,63}")
# No quotes (include), no $ (define), no # (comment) and no backslash.
_LINE = re.compile(r"[A-Za-z0-9 .:/\[\]{}@,;=&!_+-]+")
_PROPERTIES = ("type ", "flags ", "timeout ", "size ")


def check(name: str, lines: tuple[str, ...]) -> None:
    """Raise `BadDocument` unless this is an object of our table with lines of the vocabulary."""
    if not _NAME.fullmatch(name):
        raise BadDocument(0, name, "not a chain, map or set")
    is_chain = name.startswith("chain ")
    has_elements = False
    for line in lines:
        check_within(line)
        if not is_chain:
            if has_elements and is_property(line):
                raise BadDocument(0, line, "a property behind an element: it would be written before it")
            has_elements = has_elements or not is_property(line)
        if not is_chain and ("{" in line or ";" in line or line.startswith("elements")):
            raise BadDocument(0, line, f"not a property or element of a {name.partition(' ')[0]}")


def check_within(line: str) -> None:
    """Raise `BadDocument` unless `line` stays inside its block."""
    check_line(line)
    if not _LINE.fullmatch(line):
        raise BadDocument(0, line, "a character outside of our vocabulary")
    depth = 0
    for character in line:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            break
    if depth:
        raise BadDocument(0, line, "braces that do not match")
    if line.endswith(","):
        raise BadDocument(0, line, "a comma at the end")


def table(family: Family) -> str:
    """Our table, as commands name it: `ip vcnode`."""
    return f"{FAMILIES[family]} {NFT_TABLE}"


def duration(seconds: int) -> str:
    """A length of time as nft prints it: `3h`, `1d30m5s`."""
    text = ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def is_property(line: str) -> bool:
    """Whether a line of a map or set is a property, not an element."""
    return line.startswith(_PROPERTIES)


def order(name: str) -> tuple[bool, str]:
    """The sort key of objects in a text: nft 1.0.6 needs a set before the rule that uses it."""
    return name.startswith("chain "), name


def write(family: Family, objects: Objects) -> str:
    """The text for `nft -f` that replaces our table.

    `add table` comes first so that `delete table` succeeds: nft 1.0.6 lacks `destroy`.
    """
    ours = table(family)
    lines = [f"add table {ours}", f"delete table {ours}", f"table {ours} {{"]
    for name in sorted(objects, key=order):
        lines.append(f"\t{name} {{")
        lines += _body(name, objects[name])
        lines.append("\t}")
    lines.append("}")
    return "".join(f"{line}\n" for line in lines)


def _body(name: str, lines: tuple[str, ...]) -> list[str]:
    if name.startswith("chain "):
        return [f"\t\t{line}" for line in lines]
    elements = [f"\t\t\t{line}," for line in lines if not is_property(line)]
    properties = [f"\t\t{line}" for line in lines if is_property(line)]
    if not elements:
        return properties
    return [*properties, "\t\telements = {", *elements, "\t\t}"]


def read(text: str, family: Family) -> Objects:
    """The inverse of `write`; raises `BadDocument`."""
    lines = text.split("\n")
    ours = table(family)
    for number, expected in enumerate((f"add table {ours}", f"delete table {ours}", f"table {ours} {{")):
        if number >= len(lines) or lines[number] != expected:
            raise BadDocument(number + 1, lines[min(number, len(lines) - 1)], f"expected {expected!r}")
    if lines[-2:] != ["}", ""]:
        raise BadDocument(len(lines), lines[-1], "the table does not end")
    found: dict[str, list[str]] = {}
    name = ""
    for number, line in enumerate(lines[3:-2], 4):
        if line.startswith("\t") and not line.startswith("\t\t"):
            if line == "\t}" and name:
                name = ""
            elif line.endswith(" {") and not name and line[1:-2] not in found:
                name = line[1:-2]
                found[name] = []
            else:
                raise BadDocument(number, line, "neither the start nor the end of an object")
        elif not name or not line.startswith("\t\t"):
            raise BadDocument(number, line, "outside an object")
        elif name.startswith("chain ") or line not in ("\t\telements = {", "\t\t}"):
            found[name].append(_line_of(number, line))
    if name:
        raise BadDocument(len(lines) - 1, lines[-2], "the object does not end")
    return {name: tuple(body) for name, body in found.items()}


def _line_of(number: int, line: str) -> str:
    body = line.removeprefix("\t\t")
    if body.startswith("\t"):
        body = body[1:].removesuffix(",")
    try:
        check_within(body)
    except BadDocument as error:
        raise BadDocument(number, line, error.why) from None
    return body
