# SPDX-License-Identifier: Apache-2.0
"""Patterns: one `*` stands for any text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.policy import patterns

CASES = [
    ("a.io/b", "a.io/b", True),
    ("a.io/b", "a.io/bc", False),
    ("a.io/*", "a.io/b", True),
    ("a.io/*", "xa.io/b", False),
    ("*-snippet", "server-snippet", True),
    ("*-snippet", "server-snippets", False),
    ("*.nri.io/*", "devices.nri.io/pod", True),
    ("*.nri.io/*", "nri.io/pod", False),
    ("*.nri.io/*", "notnri.io/pod", False),
    ("a/*-snippet", "a/server-snippet", True),
    ("a/*-snippet", "b/server-snippet", False),
    ("ab*ba", "aba", False),
    ("ab*ba", "abba", True),
    ("*", "", True),
    ("*", "anything", True),
    ("a.b", "axb", False),
]


@pytest.mark.parametrize(("pattern", "name", "is_match"), CASES)
def test_match(pattern: str, name: str, is_match: bool) -> None:
    assert patterns.of("other", pattern).match(name) == is_match
    assert patterns.is_pattern(pattern)


@pytest.mark.parametrize("text", ["", "**", "a*b*", "*a*b", "***", "a**"])
def test_texts_that_are_no_patterns(text: str) -> None:
    assert not patterns.is_pattern(text)


def test_empty_list_matches_nothing() -> None:
    assert not patterns.of().match("")
    assert not patterns.of().match("a")


def test_lists_of_the_same_entries_are_equal() -> None:
    assert patterns.of("a*", "b") == patterns.joined(patterns.of("a*"), ["b"])
    assert patterns.of("a") != patterns.of("a*")


_TEXT = st.text(alphabet="ab*", max_size=5)


@given(st.lists(_TEXT.filter(patterns.is_pattern), max_size=4), st.text(alphabet="ab", max_size=6))
def test_agrees_with_regular_expressions(entries: list[str], name: str) -> None:
    expected = any(re.fullmatch(".*".join(map(re.escape, each.split("*"))), name) for each in entries)
    assert patterns.of(*entries).match(name) == expected
