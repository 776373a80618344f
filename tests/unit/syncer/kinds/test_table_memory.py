# SPDX-License-Identifier: Apache-2.0
"""The memory of a plan grows with what is planned, for every kind, and no faster: no product of two lists.

As `test_table_work.py`, with the peak of what is allocated in the place of steps: a copy of a list for each
entry of another one is few steps, and much memory.
"""

import pytest

from syncer.kinds.port import KindSync
from tests.pump import Sizes, peak_bytes, superlinear
from tests.unit.syncer.kinds.plan_world import (
    CONTAINER_LISTS,
    OTHERS,
    SYNCS,
    SizedView,
    key_of,
    pair,
    schema,
)

# Lists and maps grow by leaps: of those that are pumped together, all may leap at once.
_FIRST = 8
_NOISE = 64 << 10
_SITUATIONS = ("created", "changed")


@pytest.mark.parametrize("situation", _SITUATIONS)
@pytest.mark.parametrize("sync", SYNCS, ids=lambda sync: sync.kind.kind)
def test_the_memory_of_a_plan_is_no_product_of_two_lists(sync: KindSync, situation: str) -> None:
    places = schema(sync).places()
    lists = [each for each in CONTAINER_LISTS if each in places]
    others = () if lists else OTHERS
    apart = [each for each in places if each not in lists]

    def measure(sizes: Sizes) -> int:
        return _peak_bytes(sync, situation, sizes)

    assert superlinear(measure, [*apart, *others], first=_FIRST, noise=_NOISE) == []


@pytest.mark.parametrize("situation", _SITUATIONS)
@pytest.mark.parametrize("containers", CONTAINER_LISTS)
def test_the_memory_of_containers_is_that_of_what_they_get(containers: str, situation: str) -> None:
    """The keys of what they refer to, above all: of these each container's own are read."""
    sync = next(each for each in SYNCS if each.kind.kind == "Pod")
    above = {}
    for other in OTHERS:
        one, two, four = (
            _peak_bytes(sync, situation, {containers: size, other: size}) for size in (32, 64, 128)
        )
        above[other] = max(0, (four - two) - 2 * (two - one) - 4 * _NOISE)
    assert above == dict.fromkeys(OTHERS, 0)


def _peak_bytes(sync: KindSync, situation: str, sizes: Sizes) -> int:
    objects, view = pair(sync, situation, sizes), SizedView(sizes)
    return peak_bytes(lambda: sync.plan(key_of(sync), objects, view))
