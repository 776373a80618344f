# SPDX-License-Identifier: Apache-2.0
"""What a pass came to, as a ConfigMap has it."""

import pytest

from tenant_operator.defaults.record import PassRecord, next_record, read_record, write_record

BEFORE = PassRecord("d1", 10.0, 3, ("no",))


def test_it_is_read_as_it_was_written() -> None:
    assert write_record(BEFORE) == '{"digest":"d1","atS":10.0,"attempts":3,"problems":["no"]}'
    assert read_record(write_record(BEFORE)) == BEFORE


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"attempts":"x"}', "[" * 60_000, " " * 70_000])
def test_another_text_is_an_empty_one(text: str | None) -> None:
    assert read_record(text) == PassRecord()


def test_attempts_count_until_a_pass_ends() -> None:
    assert next_record(BEFORE, "d1", 20.0, ("a",), is_done=False) == PassRecord("d1", 20.0, 4, ("a",))
    assert next_record(BEFORE, "d2", 20.0, ("a",), is_done=False) == PassRecord("d2", 20.0, 4, ("a",))
    assert next_record(BEFORE, "d1", 20.0, ("a",), is_done=True) == PassRecord("d1", 20.0, 0, ("a",))


def test_problems_are_bounded() -> None:
    found = next_record(BEFORE, "d1", 20.0, tuple(map(str, range(500))), is_done=False)
    assert found.problems == tuple(map(str, range(20)))


@pytest.mark.parametrize("character", ["x", '"', "\\", "\x1b", "\n", "\u00e9", "\U0001f600", "\x7f"])
@pytest.mark.parametrize("size", [0, 999, 1000, 200_000])
def test_a_long_text_does_not_lose_the_attempts(character: str, size: int) -> None:
    """Else each pass would be the first one, and due at once."""
    found = next_record(BEFORE, "d1", 20.0, (f"a{character * size}",) * 500, is_done=False)
    assert all(len(each) <= 1000 and each.isprintable() for each in found.problems)
    assert read_record(write_record(found)) == found
