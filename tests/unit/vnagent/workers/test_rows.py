# SPDX-License-Identifier: Apache-2.0
"""Which row of the usage table a tenant has, over removals and returns."""

from hypothesis import given
from hypothesis import strategies as st

from vnagent.workers.rows import QUARANTINE_S, Rows


def test_each_tenant_has_a_row_of_its_own() -> None:
    rows = Rows(10)
    rows.assign(["a", "b"], 0.0)
    rows.assign(["a", "b", "c"], 1.0)
    found = rows.of(["a", "b", "c", "unknown"])
    assert sorted(found) == ["a", "b", "c"]
    assert len(set(found.values())) == rows.row_count == 3


def test_a_tenant_that_returns_has_its_row() -> None:
    rows = Rows(10)
    rows.assign(["a", "b"], 0.0)
    before = rows.of(["a"])
    rows.assign(["b"], 1.0)
    assert not rows.of(["a"])
    rows.assign(["a", "b"], 2.0)
    assert rows.of(["a"]) == before
    assert not rows.has_removed


def test_a_row_is_free_after_its_quarantine() -> None:
    """Earlier a worker that hangs may still write to it."""
    rows = Rows(1)
    rows.assign(["a"], 0.0)
    rows.assign([], 10.0)
    assert rows.has_removed
    assert rows.free(lambda _: True, 10.0 + QUARANTINE_S - 1) == []
    assert rows.free(lambda _: False, 10.0 + QUARANTINE_S) == []
    assert rows.free(lambda _: True, 10.0 + QUARANTINE_S) == [0]
    rows.assign(["b"], 100.0)
    assert rows.of(["b"]) == {"b": 0}


def test_tenants_beyond_the_last_row_have_none() -> None:
    rows = Rows(2)
    rows.assign(["a", "b", "c"], 0.0)
    assert rows.of(["a", "b", "c"]) == {"a": 0, "b": 1}


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcdef")), st.booleans()), max_size=30))
def test_no_two_tenants_share_a_row(steps: list[tuple[set[str], bool]]) -> None:
    rows, now_s = Rows(8), 0.0
    for tenants, is_unused in steps:
        now_s += 40.0
        rows.assign(tenants, now_s)
        freed = range(8) if is_unused else ()
        rows.free(freed.__contains__, now_s)
        found = rows.of(tenants)
        assert len(set(found.values())) == len(found)
