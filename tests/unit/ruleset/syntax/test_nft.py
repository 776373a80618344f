# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruleset.model import Family
from ruleset.syntax.lines import BadDocument
from ruleset.syntax.nft import check, check_within, is_property, order, read, write

TEXT = """\
add table ip vcnode
delete table ip vcnode
table ip vcnode {
	set ranges {
		type ipv4_addr
		flags interval
		elements = {
			10.0.0.0/8,
			172.30.0.0/16,
		}
	}
	chain a {
		goto b
	}
	chain b {
	}
}
"""
OBJECTS = {
    "set ranges": ("type ipv4_addr", "flags interval", "10.0.0.0/8", "172.30.0.0/16"),
    "chain a": ("goto b",),
    "chain b": (),
}


def test_text_is_written_and_read_back() -> None:
    assert write(Family.IPV4, OBJECTS) == TEXT
    assert read(TEXT, Family.IPV4) == OBJECTS


def test_sets_come_before_the_chains_that_use_them() -> None:
    assert sorted(["chain a", "set z", "map m"], key=order) == ["map m", "set z", "chain a"]


@pytest.mark.parametrize(
    "line",
    [
        "} chain other { drop",
        "drop }",
        "{",
        'include "/etc/passwd"',
        "drop # not that",
        "$x",
        "drop \\",
        "drop,",
        "a\nb",
        "log prefix 'x'",
    ],
)
def test_lines_that_leave_their_block_are_refused(line: str) -> None:
    with pytest.raises(BadDocument):
        check_within(line)


@pytest.mark.parametrize(
    "line", ["elements = { a }", "type ipv4_addr; flags interval", "elements", "a : goto b { }"]
)
def test_lines_that_are_not_elements_are_refused(line: str) -> None:
    with pytest.raises(BadDocument):
        check("map m", (line,))


def test_a_property_behind_an_element_is_refused() -> None:
    """It would be written in front of it: another document (found by `make fuzz TARGETS=rulesets`)."""
    check("set s", ("type ipv4_addr", "10.0.0.1", "10.0.0.2"))
    for lines in (("10.0.0.1", "type ipv4_addr"), ("type ipv4_addr", "10.0.0.1", "flags interval")):
        with pytest.raises(BadDocument, match="a property behind an element"):
            check("set s", lines)
    check("chain c", ("drop", "type nat hook output priority -100;"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("type ipv6_addr", True),
        ("flags interval", True),
        ("timeout 3h", True),
        ("size 1024", True),
        ("fd00:: . tcp . 80 : drop", False),
        ("face::1", False),
    ],
)
def test_properties_differ_from_elements(line: str, expected: bool) -> None:
    assert is_property(line) is expected


@pytest.mark.parametrize(
    ("old", "new", "number"),
    [
        ("add table ip vcnode\n", "add table ip other\n", 1),
        ("delete table ip vcnode\n", "", 2),
        ("table ip vcnode {\n\t", "table inet vcnode {\n\t", 3),
        ("\tchain a {\n", "\tchain b {\n\t}\n\tchain b {\n", 14),
        ("\tchain a {\n", "\t}\n\tchain a {\n", 12),
        ("\t\tgoto b\n", "\t\tgoto b }\n", 13),
        ("\tchain b {\n", "", 15),
        ("\tchain b {\n", "table ip other {\n", 15),
        ("\t}\n}\n", "\t}\n", 17),
        ("\tchain b {\n\t}\n", "\tchain b {\n", 16),
    ],
)
def test_other_text_is_refused_with_its_line(old: str, new: str, number: int) -> None:
    head, _, tail = TEXT.rpartition(old)
    text = f"{head}{new}{tail}"
    with pytest.raises(BadDocument) as raised:
        read(text, Family.IPV4)
    assert raised.value.line_number == number


def test_text_of_the_other_family_is_refused() -> None:
    with pytest.raises(BadDocument):
        read(TEXT, Family.IPV6)


_NAMES = st.from_regex(r"(chain|map|set) [A-Za-z][a-z]{0,4}", fullmatch=True)
_LINES = st.lists(st.sampled_from(["1.2.3.4", "goto b", "a : drop", "update @s { ip saddr } drop"])).map(
    tuple
)


@given(st.dictionaries(_NAMES, _LINES), st.sampled_from(Family))
def test_read_is_the_inverse_of_write(objects: dict[str, tuple[str, ...]], family: Family) -> None:
    assert read(write(family, objects), family) == objects


@given(st.text(alphabet="{}\t\n,achin ", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    whole = TEXT.replace("\tchain a {\n", f"\tchain a {{\n{text}")
    try:
        objects = read(whole, Family.IPV4)
        for name, lines in objects.items():
            check(name, lines)
    except BadDocument:
        return
    assert set(OBJECTS) <= set(objects)
