# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from vnagent.pages.exposition import (
    Comment,
    Sample,
    family_text,
    label_text,
    labels,
    lines,
    number,
    sample_text,
)
from vnagent.pages.page import PageError

PAGE = r"""# HELP a_total Words, with a \\ and \n in them.
# TYPE a_total counter
a_total 1
a_total{} 2
a_total{x="y"} 3.5 1395066363000
a_total {x="y",z="",} +4e-05	-7
#
# other words
#HELP x

# TYPE b_bytes gauge
b NaN
b{q="}{"} -Inf
b{q="a\\"} .5
"""


def test_lines() -> None:
    assert list(lines(PAGE.encode())) == [
        Comment("HELP", "a_total", "Words, with a \\\\ and \\n in them."),
        Comment("TYPE", "a_total", "counter"),
        Sample("a_total", "", "1", ""),
        Sample("a_total", "{}", "2", ""),
        Sample("a_total", '{x="y"}', "3.5", "1395066363000"),
        Sample("a_total", '{x="y",z="",}', "+4e-05", "-7"),
        Comment("TYPE", "b_bytes", "gauge"),
        Sample("b", "", "NaN", ""),
        Sample("b", '{q="}{"}', "-Inf", ""),
        Sample("b", '{q="a\\\\"}', ".5", ""),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        b"a 1",
        b"a\n",
        b"a{\n",
        b'a{x="y} 1\n',
        b'a{x="y"\n',
        b'a{x="y"}\n',
        b'a{x="y"} 1 2 3\n',
        b'a{x="y"} 1 1.5\n',
        b'a{x="y\\"} 1\n',
        b"a one\n",
        b"a 0x10\n",
        b"a 1_000\n",
        b"a \xd9\xa1\n".replace(b"\\", b""),
        b"a 1 " + b"9" * 20 + b"\n",
        b"a 1\r\n",
        b" a 1\n",
        b"1a 1\n",
        b"a-b 1\n",
        b"<html>\n",
        b'{"kind":"Status"}\n',
        b"a 1\x00\n",
        b'a{x="\xff"} 1\n',
        b"\x1f\x8b\x08\n",
        b"# TYPE a weird\n",
        # A blank of Unicode's, which scrapers take as part of the type (found by `make fuzz TARGETS=page`).
        b"# TYPE a \xc2\x85counter\n",
        b"# TYPE a\n",
    ],
)
def test_malformed_lines(bad: bytes) -> None:
    with pytest.raises(PageError):
        list(lines(b"good 1\n" + bad))


OPENMETRICS = r"""# TYPE a counter
# UNIT a seconds
# HELP a Words.
a_total{x="y # {"} 1 1395066363.25 # {trace="\"} 9"} 0.5 1395066363.1
a_total 2 # {} 1
a_created 1395066363 1.713900000123e+09 # {} 1 1.7e+09
# TYPE b info
b_info{v="1"} 1
# EOF
"""


def test_openmetrics_is_read_as_the_older_format() -> None:
    assert list(lines(OPENMETRICS.encode())) == [
        Comment("TYPE", "a", "counter"),
        Comment("HELP", "a", "Words."),
        Sample("a_total", '{x="y # {"}', "1", "1395066363250"),
        Sample("a_total", "", "2", ""),
        Sample("a_created", "", "1395066363", "1713900000123"),
        Comment("TYPE", "b", "untyped"),
        Sample("b_info", '{v="1"}', "1", ""),
    ]
    assert list(lines(b"# EOF\n")) == []


@pytest.mark.parametrize(
    "bad",
    [
        b"# EOF\na 1\n# EOF\n",
        b"a 1\n# EOF\n# EOF\n",
        b"# EOF\na 1\n",
        b"a 1 1.5.5\n# EOF\n",
        b"a 1 # 1\n# EOF\n",
        b"a 1 # {}\n# EOF\n",
        b"a 1 # {} 1 1 1\n# EOF\n",
        # An exemplar is of OpenMetrics alone.
        b"a 1 # {} 1\n",
        b"# TYPE a weird\n# EOF\n",
    ],
)
def test_malformed_openmetrics(bad: bytes) -> None:
    with pytest.raises(PageError):
        list(lines(bad))


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("{}", {}),
        ('{x="y"}', {"x": "y"}),
        ('{ x = "y" , z="" }', {"x": "y", "z": ""}),
        ('{x="y",}', {"x": "y"}),
        ('{x="y", }', {"x": "y"}),
        (r'{x="a\\b\"c\nd"}', {"x": 'a\\b"c\nd'}),
        (r'{x="\\n"}', {"x": "\\n"}),
        ('{x="},{=",namespace="n"}', {"x": "},{=", "namespace": "n"}),
        # The text of labels in a label is text.
        # Prometheus 3 quotes what is no name of old; a name of old in quotes is that name.
        ('{"x"="y"}', {"x": "y"}),
        ('{ "my.label" = "y" ,"namespace"="n"}', {"my.label": "y", "namespace": "n"}),
        (r'{"a\"b"="y"}', {'a"b': "y"}),
        (r'{image="a\",namespace=\"x",namespace="n"}', {"image": 'a",namespace="x', "namespace": "n"}),
        ('{x="\u00e9\u2028"}', {"x": "\u00e9\u2028"}),
    ],
)
def test_labels(block: str, found: dict[str, str]) -> None:
    assert labels(block) == found


@pytest.mark.parametrize(
    "block",
    [
        "{x}",
        '{x"y"}',
        "{x=y}",
        '{x="y"z="w"}',
        '{x="y",,z="w"}',
        '{,x="y"}',
        "{,}",
        "{ }",
        '{1x="y"}',
        '{x-y="z"}',
        '{""="y"}',
        '{"x"}',
        '{"x",namespace="n"}',
        '{"x"="y",x="y"}',
        '{namespace="n","namespace"="m"}',
        '{x="y",x="y"}',
        '{x="y",x="z"}',
        r'{x="\t"}',
        r'{x="\u0041"}',
    ],
)
def test_malformed_label_blocks(block: str) -> None:
    with pytest.raises(PageError):
        labels(block)


names = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
values = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n{},= #'), max_size=12)


@given(
    st.dictionaries(names, values, max_size=4),
    st.floats(),
    st.none() | st.integers(-(10**15), 10**15),
)
def test_written_lines_are_parsed_back(found: dict[str, str], value: float, at: int | None) -> None:
    inner, time = label_text(found.items()), "" if at is None else str(at)
    text = sample_text("a", inner, number(value), time)
    (sample,) = lines(text.encode())
    assert isinstance(sample, Sample)
    assert (sample.name, sample.time) == ("a", time)
    assert repr(float(sample.value)) == repr(value if value else 0.0)
    assert (labels(sample.block) if sample.block else {}) == found
    # And another reader of the format sees the same.
    ((family,),) = ([each.samples for each in text_string_to_metric_families(text)],)
    assert [(each.name, each.labels) for each in family] == [("a", found)]


@given(st.binary(max_size=60) | st.text('ab_{}="\\,# 1.\t\n', max_size=30).map(str.encode))
def test_any_bytes_are_lines_or_an_error(page: bytes) -> None:
    try:
        found = list(lines(page))
        for line in found:
            if isinstance(line, Sample) and line.block:
                labels(line.block)
    except PageError:
        return
    assert page == b"" or page.endswith(b"\n")


@pytest.mark.parametrize("unit", ['"', '\\"', '{x="', "{", '"a"', "\\\\", 'x="y",'])
def test_a_hostile_line_costs_one_pass(unit: str) -> None:
    """Quadratic time in these would be minutes."""
    for line in ("a{" + unit * 200_000, 'a{x="' + unit * 200_000, 'a{x="' + unit * 200_000 + '"} 1 x'):
        with pytest.raises(PageError):
            list(lines(line.encode() + b"\n"))


def test_writing() -> None:
    assert sample_text("a", "", "1", "") == "a 1\n"
    assert sample_text("a", 'x="y"', "1", "7") == 'a{x="y"} 1 7\n'
    assert family_text("a", {"TYPE": "counter", "HELP": "Words."}) == "# HELP a Words.\n# TYPE a counter\n"
    assert family_text("a", {}) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-3.0, "-3"),
        (10.5, "10.5"),
        (9437184.0, "9437184"),
        (1e15, "1000000000000000.0"),
        (1e300, "1e+300"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("end", ["", "# EOF\n"])
def test_a_row_with_a_quoted_name_has_none_here(end: str) -> None:
    """The page of all tenants failed for a single one."""
    page = 'good 1\n{"my.family"} 2\n{"my.family",x="}"} 3\n# TYPE "my.family" counter\n'
    assert list(lines((page + end).encode())) == [
        Sample("good", "", "1", ""),
        Sample("", '{"my.family"}', "2", ""),
        Sample("", '{"my.family",x="}"}', "3", ""),
    ]
