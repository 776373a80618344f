# SPDX-License-Identifier: Apache-2.0
"""The heap beside a list that is sorted, and what one operation looks at."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.core import pruned_heap
from syncer.core.pruned_heap import AT_ONCE, PrunedHeap

_Entry = tuple[int, int]
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 50)),
        st.tuples(st.just("end"), st.integers(0, 50)),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("prune"), st.just(0)),
    ),
    max_size=200,
)


@given(_STEPS, st.integers(1, 4), st.integers(0, 8))
def test_entries_come_in_their_order_but_void_ones(
    steps: list[tuple[str, int]], at_once: int, few: int
) -> None:
    live, number = set[_Entry](), 0
    heap: PrunedHeap[_Entry] = PrunedHeap(lambda entry: entry not in live)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruned_heap, "AT_ONCE", at_once)
        patch.setattr(pruned_heap, "_FEW_ENTRIES", few)
        for step, value in steps:
            if step == "push":
                number += 1
                live.add((value, number))
                heap.push((value, number), len(live))
            elif step == "end":
                live -= {each for each in live if each[0] == value}
            elif step == "prune":
                heap.prune(len(live))
            elif (first := heap.first()) is not None:
                assert first <= min(live, default=first)
                assert heap.pop() == first
                live.discard(first)
        found = list[_Entry]()
        while (first := heap.first()) is not None:
            assert heap.pop() == first
            found += [first] if first in live else []
        assert found == sorted(live)


def _worked(count: int) -> tuple[PrunedHeap[_Entry], Callable[[], int], set[_Entry]]:
    """A heap of so many entries, and how many entries were looked at since the last question."""
    live, looked = set[_Entry](), [0]

    def look_at(entry: _Entry) -> bool:
        looked[0] += 1
        return entry not in live

    heap: PrunedHeap[_Entry] = PrunedHeap(look_at)
    for number in range(count):
        live.add((number, number))
        heap.push((number, number), len(live))

    def since() -> int:
        found, looked[0] = looked[0], 0
        return found

    return heap, since, live


def test_an_operation_looks_at_few_entries_however_many_are_void() -> None:
    """Those of a tenant that ended were looked through in one step: 16 ms for 6 000."""
    heap, since, live = _worked(5_000)
    assert since() == 0
    live.clear()
    most, operations = 0, 0
    while len(heap):
        operations += 1
        live.add((operations, -1))
        heap.push((operations, -1), len(live))
        most = max(most, since())
        live.discard((operations, -1))
        heap.first()
        most = max(most, since())
    assert most <= AT_ONCE + 1
    assert operations < 5_000 / AT_ONCE + 100


def test_what_is_held_is_at_most_twice_what_counts() -> None:
    heap, _, live = _worked(10)
    for number in range(10_000):
        live.discard((number - 1, -1))
        live.add((number, -1))
        heap.push((number, -1), len(live))
        assert len(heap) <= 2 * len(live) + 64 + 1


def test_entries_of_which_none_is_void_are_not_looked_at() -> None:
    _, since, _ = _worked(10_000)
    assert since() == 0
