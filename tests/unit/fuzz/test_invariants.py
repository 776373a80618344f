# SPDX-License-Identifier: Apache-2.0
"""The shared invariants fail for a reader that breaks them."""

import pytest

from tests.fuzz.invariants import divisions, only, same_however_divided


def test_data_is_divided_whole_bytewise_and_in_parts() -> None:
    found = list(divisions(b"abcdef"))
    assert found[:2] == [[b"abcdef"], [b"a", b"b", b"c", b"d", b"e", b"f"]]
    assert [b"".join(pieces) for pieces in found] == [b"abcdef"] * 4
    assert [len(pieces) for pieces in found[2:]] == [2, 3]


def test_a_reader_that_depends_on_division_is_found() -> None:
    assert same_however_divided(b"abc", b"".join) == b"abc"
    with pytest.raises(AssertionError, match="divided: 3"):
        same_however_divided(b"abc", len)


def test_only_documented_errors_are_an_outcome() -> None:
    assert only(ValueError, int, "1") == 1
    assert only(ValueError, int, "x") is None
    with pytest.raises(KeyError):
        only(ValueError, {"a": 1}.pop, "x")
