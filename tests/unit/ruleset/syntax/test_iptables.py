# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruleset.syntax.iptables import check, check_rule, read, write
from ruleset.syntax.lines import BadDocument


@pytest.mark.parametrize(
    "rule",
    [
        "-j VCN-SERVICES",
        "-d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::1]:80",
        "-m conntrack --ctstate NEW -m conntrack ! --ctstate DNAT -j RETURN",
    ],
)
def test_rules_of_the_vocabulary_are_accepted(rule: str) -> None:
    check_rule(rule)


@pytest.mark.parametrize(
    "rule",
    [
        "-j DROP --modprobe /tmp/evil",
        "-j DROP --modprobe=/tmp/evil",
        "-M /tmp/evil -j DROP",
        "-j DROP -A OUTPUT",
        "-t mangle -j DROP",
        "-j DROP\nCOMMIT",
        '-m comment --comment "a b" -j DROP',
        "-j  DROP",
        "-dj DROP",
        "-d10.0.0.1 -j DROP",
        "--jump DROP",
        "-j DROP #",
        "-j $(reboot)",
    ],
)
def test_other_rules_are_refused(rule: str) -> None:
    """`iptables-restore` reads a rule as a command line, as root."""
    with pytest.raises(BadDocument):
        check_rule(rule)


def test_long_rule_is_refused_in_time() -> None:
    with pytest.raises(BadDocument):
        check_rule("-j A " * 20000 + "?")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("-A OUTPUT -j VCN-SERVICES\n", 1),
        ("*nat\n-A VCN-SERVICES -j DROP\nCOMMIT\n", 2),
        ("*nat\n:VCN-SERVICES ACCEPT [0:0]\nCOMMIT\n", 2),
        ("*nat\n:VCN-SERVICES - [0:0]\n-A VCN-SERVICES\nCOMMIT\n", 3),
        ("*nat\n:VCN-SERVICES - [0:0]\n-I VCN-SERVICES -j DROP\nCOMMIT\n", 3),
        ("*nat\n:VCN-SERVICES - [0:0]\n-A VCN-SERVICES -t raw -j DROP\nCOMMIT\n", 3),
        ("*nat\n-X VCN-SERVICES\nCOMMIT\n", 2),
        ("*nat\n*filter\nCOMMIT\n", 2),
        # Of a hook without a rule nothing would be written (found by `make fuzz TARGETS=rulesets`).
        ("*nat\n:OUTPUT - [0:0]\nCOMMIT\n", 2),
        ("*nat\n:VCN-A - [0:0]\n:OUTPUT - [0:0]\n-A OUTPUT -j VCN-A\nCOMMIT\n", 3),
    ],
)
def test_other_text_is_refused_with_its_line(text: str, number: int) -> None:
    with pytest.raises(BadDocument) as raised:
        read(text)
    assert raised.value.line_number == number
    assert raised.value.line == text.split("\n")[number - 1]


@pytest.mark.parametrize("text", ["*raw\n:VCN-A - [0:0]\nCOMMIT\n", "*nat\n:MESH - [0:0]\nCOMMIT\n"])
def test_foreign_tables_and_chains_are_refused(text: str) -> None:
    ((name, rules),) = read(text).items()
    with pytest.raises(BadDocument):
        check(name, rules)


_RULES = st.lists(st.sampled_from(["-j DROP", "-p tcp -j VCN-A", "-m recent --set --name x -j DROP"])).map(
    tuple
)
_OBJECTS = st.dictionaries(st.from_regex(r"(nat|filter)/VCN-[A-Z]{1,5}", fullmatch=True), _RULES)


@given(_OBJECTS, st.booleans())
def test_read_is_the_inverse_of_write(objects: dict[str, tuple[str, ...]], is_hooked: bool) -> None:
    if is_hooked:
        objects |= {"nat/OUTPUT": ("-j VCN-A",)}
    assert read(write(objects)) == objects


@given(st.text(alphabet="*:-AVCN at\n[]0DROP", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text)
    except BadDocument as error:
        assert error.line_number >= 1  # noqa: PT017 - either outcome is right
