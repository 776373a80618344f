# SPDX-License-Identifier: Apache-2.0
import pytest

from syncer.core.pair import Pair
from syncer.core.plan import Side


@pytest.mark.parametrize(
    ("tenant", "found", "is_empty", "is_whole"),
    [(None, None, True, False), ("a", None, False, False), (None, "b", False, False), ("a", "", False, True)],
)
def test_what_is_on_both_sides(
    tenant: str | None, found: str | None, *, is_empty: bool, is_whole: bool
) -> None:
    pair = Pair(tenant, found)
    assert (pair.is_empty, pair.is_whole) == (is_empty, is_whole)
    assert (pair.of(Side.TENANT), pair.of(Side.SUPER)) == (tenant, found)
    assert (pair.other(Side.TENANT), pair.other(Side.SUPER)) == (found, tenant)


def test_one_side_is_replaced() -> None:
    pair = Pair("a", "b")
    assert (pair.replaced(Side.TENANT, "c"), pair.replaced(Side.SUPER, "c")) == (
        Pair("c", "b"),
        Pair("a", "c"),
    )
    assert pair == Pair("a", "b")
