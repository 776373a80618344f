# SPDX-License-Identifier: Apache-2.0
"""A rule is read alike in whatever words a version of nft prints it, and another rule never like it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruleset.document import Document
from ruleset.installed.list_parser import read
from ruleset.model import Family, GuestRules
from ruleset.names import Backend
from ruleset.render.nft import render
from ruleset.syntax.nft import FAMILIES, is_property, table
from tests.unit.ruleset.models import everything, services

_GOLDEN = Path(__file__).parents[1] / "golden"
_MODELS: tuple[Callable[[Family], GuestRules], ...] = (
    everything,
    lambda family: services(4, 2, family, affinity_s=93_785, refused=[1]),
    lambda family: services(3, 12, family),
    lambda family: GuestRules(family, ()),
)
_NUMBERS = {"tcp": "6", "udp": "17", "sctp": "132"}
_OFFSETS = {"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}


@dataclass(frozen=True, slots=True)
class Style:
    """How a version prints: `priority` is the name that it counts from, "" for plain numbers."""

    priority: str
    policy: bool
    numbers: bool
    remarks: str
    explicit_reject: str
    dnat_family: str
    elements_in_line: int
    timeout: str
    properties: tuple[int, ...]
    flags_reversed: bool


_STYLES = st.builds(
    Style,
    priority=st.sampled_from(["", *_OFFSETS]),
    policy=st.booleans(),
    numbers=st.booleans(),
    remarks=st.sampled_from(["", "handle", "count"]),
    explicit_reject=st.sampled_from(
        ["", "icmp port-unreachable", "icmp type port-unreachable", "icmpx port-unreachable"]
    ),
    dnat_family=st.sampled_from(["as written", "always", "never"]),
    elements_in_line=st.integers(1, 3),
    timeout=st.sampled_from(["as written", "seconds", "milliseconds"]),
    properties=st.permutations(range(4)).map(tuple),
    flags_reversed=st.booleans(),
)


def _printed(document: Document, style: Style) -> str:
    """The listing of our table as nft would print it in that style."""
    lines = [f"table {table(document.family)} {{" + (" # handle 7" if style.remarks == "handle" else "")]
    for name, body in document.objects.items():
        lines.append(f"\t{name} {{" + (" # handle 12" if style.remarks == "handle" else ""))
        if name.startswith("chain "):
            lines += [f"\t\t{_rule(line, document.family, style)}" for line in body]
        else:
            lines += [f"\t\t{line}" for line in _set(body, style)]
        lines += ["\t}", ""]
    return "\n".join([*lines[:-1], "}", ""])


def _rule(line: str, family: Family, style: Style) -> str:
    if found := re.fullmatch(r"(type \w+ hook \w+ priority) (\S+); policy (\w+);", line):
        number = 0 if found[2] == "filter" else int(found[2])
        is_shown = style.policy or found[3] != "accept"  # the default alone may be left out
        return f"{found[1]} {_priority(number, style)};" + (f" policy {found[3]};" if is_shown else "")
    if style.explicit_reject and line == "reject":
        line = f"reject with {style.explicit_reject}"
    if style.dnat_family == "always":
        line = re.sub(r"\bdnat to ", f"dnat {FAMILIES[family]} to ", line)
    elif style.dnat_family == "never":
        line = re.sub(r"\bdnat ip6? to ", "dnat to ", line)
    if style.numbers:
        line = re.sub(
            r"(?<=l4proto )\{ [a-z, ]+ \}|(?<=l4proto )[a-z]+(?= )",
            lambda part: re.sub("[a-z]+", lambda word: _NUMBERS.get(word[0], word[0]), part[0]),
            line,
        )
    return f"{line} # handle 5" if style.remarks == "handle" else line


def _priority(number: int, style: Style) -> str:
    if not style.priority:
        return str(number)
    offset = number - _OFFSETS[style.priority]
    return f"{style.priority} {'+' if offset > 0 else '-'} {abs(offset)}" if offset else style.priority


def _set(body: tuple[str, ...], style: Style) -> list[str]:
    properties = [_property(line, style) for line in body if is_property(line)]
    order = [number for number in style.properties if number < len(properties)]
    elements = [line for line in body if not is_property(line)]
    if style.numbers:
        elements = [
            re.sub(r"(?<= \. )(?:tcp|udp|sctp)(?= \. )", lambda word: _NUMBERS[word[0]], line)
            for line in elements
        ]
    made = [properties[number] for number in order]
    if not elements:
        return made
    rows = [
        ", ".join(elements[start : start + style.elements_in_line])
        for start in range(0, len(elements), style.elements_in_line)
    ]
    return [*made, *f"elements = {{ {',@'.join(rows)} }}".replace("@", "\n\t\t\t     ").split("\n")]


def _property(line: str, style: Style) -> str:
    what, _, value = line.partition(" ")
    if what == "size" and style.remarks == "count":
        return f"{line}\t# count 3"
    if what == "flags" and style.flags_reversed:
        return f"flags {', '.join(reversed(value.split(',')))}"
    if what == "timeout" and style.timeout != "as written":
        units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
        seconds = sum(int(count) * units[unit] for count, unit in re.findall(r"(\d+)([dhms])", value))
        return f"timeout {seconds}s" if style.timeout == "seconds" else f"timeout {seconds}s0ms"
    return line


def _canonical(document: Document) -> dict[str, tuple[str, ...]]:
    return {name: tuple(lines) for name, lines in document.objects.items()}


@given(st.sampled_from(_MODELS), st.sampled_from(Family), _STYLES)
def test_every_style_is_read_as_the_document(
    model: Callable[[Family], GuestRules], family: Family, style: Style
) -> None:
    document = render(model(family))
    assert read(_printed(document, style), family) == _canonical(document)


@given(st.sampled_from(Family), _STYLES, st.data())
def test_another_rule_is_not_read_as_the_document(family: Family, style: Style, data: st.DataObject) -> None:
    """One word of one line is another, printed in any style."""
    document = render(everything(family))
    lines = [(name, number) for name, body in document.objects.items() for number in range(len(body))]
    name, number = data.draw(st.sampled_from(lines))
    body = list(document.objects[name])
    change = data.draw(st.sampled_from(_CHANGES))
    body[number] = change(body[number])
    changed = Document(family, Backend.NFT, {**document.objects, name: tuple(body)})
    if changed != document:
        assert read(_printed(changed, style), family) != _canonical(document)


_CHANGES: tuple[Callable[[str], str], ...] = (
    lambda line: line.replace("priority -95", "priority -96"),
    lambda line: line.replace("priority filter", "priority 1"),
    lambda line: line.replace("policy accept", "policy drop"),
    lambda line: line.replace("hook output", "hook input"),
    lambda line: (
        "reject with tcp reset" if line == "reject" else line.replace("tcp reset", "icmp host-prohibited")
    ),
    lambda line: line.replace("tcp", "udp"),
    lambda line: re.sub(r"timeout (\d)", r"timeout 1\1", line),
    lambda line: re.sub(r"^size .*", "size 9", line),
    lambda line: line.replace("8080", "8081"),
    lambda line: line.replace("! dnat", "dnat"),
    lambda line: line.replace("goto ", "jump "),
)


@pytest.mark.parametrize("family", Family)
def test_nft_1_1_3(family: Family) -> None:
    """As Debian 13 prints it, with clients of affinity."""
    listed = (_GOLDEN / f"everything-{family.value}.nft-1.1.3.listed").read_text()
    found = read(listed, family)
    marks = {name: lines for name, lines in found.items() if "VCN-MARK-" in name}
    assert list(marks.values()) == [()]
    assert {name: lines for name, lines in found.items() if name not in marks} == _canonical(
        render(everything(family))
    )


@pytest.mark.parametrize(
    "line",
    [
        "type nat hook output priority elsewhere; policy accept;",
        "type nat hook output priority dstnat +; policy accept;",
        "type nat hook output priority dstnat 5; policy accept;",
        "type nat hook output priority ; policy accept;",
        "reject with icmp host-unreachable",
        "reject # anything",
    ],
)
def test_other_lines_are_returned_as_they_are(line: str) -> None:
    text = f"table ip vcnode {{\n\tchain nat-output {{\n\t\t{line}\n\t}}\n}}\n"
    assert read(text, Family.IPV4) == {"chain nat-output": (line,)}
