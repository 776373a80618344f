# SPDX-License-Identifier: Apache-2.0
"""Counters are left out of a table's entries."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest_agent.kernel.xtables import XtablesError, all_but_counters
from ruleset.model import Family

HEAD = {Family.IPV4: (112, 90, 96), Family.IPV6: (168, 142, 152)}


def entry(family: Family, more: bytes, counters: int) -> bytes:
    size, next_offset, counters_at = HEAD[family]
    made = bytearray(size) + more
    made[next_offset : next_offset + 2] = len(made).to_bytes(2, sys.byteorder)
    made[counters_at : counters_at + 16] = counters.to_bytes(16)
    return bytes(made)


@pytest.mark.parametrize("family", list(Family))
@given(
    st.lists(
        st.tuples(st.binary(max_size=64), st.integers(0, 1 << 100), st.integers(0, 1 << 100)),
        min_size=1,
        max_size=5,
    )
)
def test_all_but_counters_are_compared(family: Family, rules: list[tuple[bytes, int, int]]) -> None:
    before = b"".join(entry(family, more, counters) for more, counters, _ in rules)
    after = b"".join(entry(family, more, counters) for more, _, counters in rules)
    form = all_but_counters(before, 0, family)
    assert form.size == len(before)
    assert form.unpack(before) == all_but_counters(after, 0, family).unpack(after)
    other = b"".join(entry(family, b"x" + more, 0) for more, _, _ in rules)
    assert b"".join(form.unpack(before)) != b"".join(all_but_counters(other, 0, family).unpack(other))
    behind = all_but_counters(b"some head" + before, 9, family)
    assert behind.unpack_from(b"some head" + before, 9) == form.unpack(before)


@pytest.mark.parametrize("family", list(Family))
@given(st.binary(min_size=1, max_size=300))
def test_any_entries_are_read_or_an_error(family: Family, data: bytes) -> None:
    try:
        assert all_but_counters(data, 0, family).size == len(data)
    except XtablesError:
        return


def test_an_empty_table_has_no_bytes() -> None:
    assert all_but_counters(b"", 0, Family.IPV4).size == 0
