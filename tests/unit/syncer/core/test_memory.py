# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from syncer.core import memory

MIB = 1 << 20


def test_what_is_configured_counts_before_what_was_found() -> None:
    assert memory.chosen_limit_bytes(512 * MIB, 300 * MIB) == 512 * MIB
    assert memory.chosen_limit_bytes(None, 300 * MIB) == 300 * MIB
    assert memory.chosen_limit_bytes(None, None) == memory.LIMIT_BYTES


def test_tenants_have_what_the_process_leaves() -> None:
    assert memory.budget_bytes(1024 * MIB) == 665 * MIB + 629145
    # A limit below the least is named at start. Tenants have something all the same.
    assert memory.budget_bytes(100 * MIB) == memory.budget_bytes(memory.MIN_LIMIT_BYTES)


def test_the_usual_limit_has_room_for_so_many_tenants() -> None:
    """docs/scale.md and the README name it."""
    assert memory.room(memory.LIMIT_BYTES) == 419


@given(st.integers(1, 100_000))
def test_the_limit_for_tenants_has_room_for_them(count: int) -> None:
    assert memory.room(memory.limit_for(count)) >= count
