# SPDX-License-Identifier: Apache-2.0
"""After any history a stock guest holds the applied ruleset and all foreign rules."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.kata.fake_table_calls import FakeTableCalls
from devkit.kata.guest_tables import FakeTables
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestState
from tests.unit.kata_bridge.channels.stock.stock_guests import BOTH, EMPTY, V4, channel

pytestmark = pytest.mark.asyncio


RULESETS = [
    sample(1),
    sample(2, 3),
    sample(3, families=BOTH),
    sample(4, services=1, families=BOTH, affinity_s=60),
    EMPTY,
]


STEPS = st.one_of(
    st.integers(0, len(RULESETS) - 1),
    st.sampled_from(["restart", "flush nat", "flush OUTPUT", "flush filter", "mesh", "reboot"]),
)


@given(st.lists(STEPS, max_size=12))
async def test_any_history_keeps_our_ruleset_and_foreign_rules(
    steps: Sequence[int | str],
) -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    mesh: list[str] = []
    for number, step in enumerate(steps):
        match step:
            case int():
                await one.apply(RULESETS[step], ())
                pushes = len(guest.pushes)
                await one.apply(RULESETS[step], ())
                assert len(guest.pushes) == pushes
                assert await one.state() == GuestState(
                    RULESETS[step].generation, RULESETS[step].digest, False
                )
                assert await one.read_back() == RULESETS[step].documents
            case "restart":
                before = await one.state()
                one = channel(guest)
                after = await one.state()
                assert (after.has_drifted, before.digest.startswith(after.digest)) == (
                    before.has_drifted,
                    True,
                )
            case "mesh" if "*nat" in guest.tables.save(V4):
                mesh.append(f"-A OUTPUT -m mark --mark {number} -j RETURN")
                guest.tables.append(V4, "nat", "OUTPUT", mesh[-1].removeprefix("-A OUTPUT "))
            case "flush nat" | "flush OUTPUT" if "*nat" in guest.tables.save(V4):
                guest.tables.flush(V4, "nat", "OUTPUT" if step == "flush OUTPUT" else None)
                mesh.clear()
            case "flush filter" if "*filter" in guest.tables.save(V4):
                guest.tables.flush(V4, "filter")
            case "reboot":
                guest.tables = FakeTables()
                mesh.clear()
        printed = guest.tables.save(V4).splitlines()
        assert [line for line in printed if line.startswith("-A OUTPUT -m mark")] == mesh
