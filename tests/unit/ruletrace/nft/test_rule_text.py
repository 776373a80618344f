# SPDX-License-Identifier: Apache-2.0
"""Reading tables of nft."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruletrace.nft.rule_text import Chain, Collection, Element, Hook, Rule, RuleTextError, Table, read_tables

TEXT = """\
# a comment
add table ip vcnode
delete table ip vcnode
table ip vcnode { # handle 3
	comment "ours"
	counter hits {
		packets 0 bytes 0
	}
	map services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 172.30.0.41 . tcp . 80 : goto one,
				172.30.0.42 . tcp . 80 : goto two }
	}
	set clients {
		type ipv4_addr; flags dynamic,timeout
		timeout 3h
		elements = { 10.0.0.2 timeout 3h expires 2h, 10.0.0.0/24 }
	}
	chain output {
		type nat hook output priority dstnat + 5; policy drop;
		ip daddr != { 10.0.0.1,
				10.0.0.2 } comment "a; b } c" accept # handle 7
		tcp dport 80 drop; udp dport 53 accept
	}
}
table ip6 other {
}
"""


def test_tables() -> None:
    assert read_tables(TEXT) == [
        Table(
            "ip",
            "vcnode",
            {
                "output": Chain(
                    Hook("nat", "output", -95, "drop"),
                    [
                        Rule(
                            (
                                *("ip", "daddr", "!=", "{", "10.0.0.1", ",", "10.0.0.2", "}"),
                                *("comment", '"a; b } c"', "accept"),
                            )
                        ),
                        Rule(("tcp", "dport", "80", "drop")),
                        Rule(("udp", "dport", "53", "accept")),
                    ],
                )
            },
            {
                "services": Collection(
                    False,
                    [
                        Element(("172.30.0.41", "tcp", "80"), ("goto", "one")),
                        Element(("172.30.0.42", "tcp", "80"), ("goto", "two")),
                    ],
                ),
                "clients": Collection(True, [Element(("10.0.0.2",)), Element(("10.0.0.0/24",))]),
            },
        ),
        Table("ip6", "other"),
    ]


def test_the_text_of_a_rule() -> None:
    rule = read_tables(TEXT)[0].chains["output"].rules[0]
    assert rule.text == 'ip daddr != { 10.0.0.1, 10.0.0.2 } comment "a; b } c" accept'


@pytest.mark.parametrize(
    ("priority", "wanted"),
    [("-100", -100), ("dstnat", -100), ("filter - 10", -10), ("raw", -300), ("security + 1", 51)],
)
def test_priorities(priority: str, wanted: int) -> None:
    (table,) = read_tables(f"table ip t {{\nchain c {{\ntype nat hook output priority {priority};\n}}\n}}\n")
    assert table.chains["c"].hook == Hook("nat", "output", wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tabel ip t {", "line 1: not a table: tabel ip t {"),
        ("table ip t", "line 1: no {: table ip t"),
        ("table ip t {\n\tchian c {\n\t}\n}\n", "line 2: not of a table: \tchian c {"),
        ("table ip t {\n\tchain c {\n", "line 2: the text ends within a block: \tchain c {"),
        (
            "table ip t {\nchain c {\ntype nat hook output priority high\n}\n}\n",
            "line 3: 'high' is not a priority: type nat hook output priority high",
        ),
    ],
)
def test_what_is_not_of_the_language(text: str, wanted: str) -> None:
    with pytest.raises(RuleTextError) as raised:
        read_tables(text)
    assert str(raised.value) == wanted


@given(st.text(alphabet='{};,=#"@ \n.:tablechinmpsoyfd0-!', max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_tables(f"table ip t {{\nchain c {{\n{text}")
    except RuleTextError as error:
        assert error.line_number >= 1  # noqa: PT017 - either end is right
