# SPDX-License-Identifier: Apache-2.0
import math

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemonkit.config import yaml_values
from daemonkit.config.yaml_values import Value, YamlError, decode


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# only a comment\n", None),
        ("null", None),
        ("a:", {"a": None}),
        ("a: ~", {"a": None}),
        ("a: true", {"a": True}),
        ("a: FALSE", {"a": False}),
        ("a: 10250", {"a": 10250}),
        ("a: -1", {"a": -1}),
        ("a: 0.5", {"a": 0.5}),
        ("a: .5", {"a": 0.5}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: 'text'", {"a": "text"}),
        ('a: "\\x41"', {"a": "A"}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("a: >-\n  one\n  two\n", {"a": "one two"}),
        ("[1, [2, {a: []}], {}]", [1, [2, {"a": []}], {}]),
        ("a:\n- b: 1\n  c: 2\n- d\n", {"a": [{"b": 1, "c": 2}, "d"]}),
        ('{"json": [1, true, null, "x"]}', {"json": [1, True, None, "x"]}),
        ("1: x", {"1": "x"}),
        # Where YAML 1.1, which PyYAML's own loaders read, would surprise:
        ("a: no", {"a": "no"}),
        ("a: on", {"a": "on"}),
        ("a: 10:50", {"a": "10:50"}),
        ("a: 0777", {"a": "0777"}),
        ("a: 0x1F", {"a": "0x1F"}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: 2026-11-20", {"a": "2026-11-20"}),
        ("a: .inf", {"a": ".inf"}),
        ("a: '10'", {"a": "10"}),
        ("<<: x", {"<<": "x"}),
        ("a: 1234567890123456789", {"a": "1234567890123456789"}),
        ("a: 1.", {"a": 1.0}),
        ("a: 01", {"a": "01"}),
        ("a: 1e", {"a": "1e"}),
    ],
)
def test_a_document_becomes_plain_values(text: str, value: Value) -> None:
    decoded = decode(text)
    assert decoded == value
    assert repr(decoded) == repr(value)  # 1, 1.0 and True are equal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key 'a' is there twice"),
        ("a: {b: 1, b: 2}", "line 1, column 11: the key 'b' is there twice"),
        ("a: &x 1", "line 1, column 4: anchors and aliases are not read; write it out"),
        ("a: &x [1]", "line 1, column 4: anchors and aliases are not read; write it out"),
        ("a: *x", "line 1, column 4: anchors and aliases are not read; write it out"),
        ("a: !!str 1", "line 1, column 4: tags are not read; remove it"),
        ("a: ! 1", "line 1, column 4: tags are not read; remove it"),
        ("!x {a: 1}", "line 1, column 1: tags are not read; remove it"),
        ("? [a]\n: 1", "line 1, column 3: a key must be a string"),
        ("a: 1\n---\nb: 1\n", "line 2, column 1: a second document; keep one to a file"),
        ("[" * 40, "line 1, column 33: nested deeper than 32 levels"),
        ("a: [1\n", "line 2, column 1: not YAML: did not find expected ',' or ']'"),
        ("a: \x01", "not YAML: characters that YAML does not allow"),
    ],
)
def test_anchors_tags_and_duplicates_are_refused(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        decode(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "bad", ["key: 'MIIEsecret\n", "MIIEsecret: {", "a: b: MIIEsecret", "\tMIIEsecret: 1"]
)
def test_errors_quote_no_value(bad: str) -> None:
    with pytest.raises(YamlError) as caught:
        decode(bad)
    assert "MIIEsecret" not in str(caught.value)


# Line breaks of other alphabets (NEL and the like) end a line in YAML but not in JSON.
_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" \n\t"))
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES)
@example(0.0073194129671545725)
def test_documents_of_other_writers_are_read(value: Value) -> None:
    decoded = decode(msgspec.json.encode(value).decode())
    assert _same(decoded, value)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#,?\n 1~\t", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = decode(text)
    except YamlError:
        return
    assert _depth(value) <= yaml_values.MAX_DEPTH


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def _depth(value: Value) -> int:
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 0
