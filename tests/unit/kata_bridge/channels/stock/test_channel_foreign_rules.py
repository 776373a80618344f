# SPDX-License-Identifier: Apache-2.0
"""Other programs write into a stock guest's tables: their rules stay, and changes of ours are drift."""

import pytest

from devkit.kata.fake_table_calls import FakeTableCalls
from devkit.kata.guest_tables import FakeTables
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestState
from tests.unit.kata_bridge.channels.stock.stock_guests import MESH, V4, channel, mesh_first

pytestmark = pytest.mark.asyncio


async def test_rules_of_a_mesh_stay_first() -> None:
    guest = await mesh_first()
    one = channel(guest)

    await one.apply(sample(7), ())
    await one.apply(sample(8, 3), ())

    foreign = [line for line in guest.tables.save(V4).splitlines() if "VCN-" not in line and line[0] == "-"]
    assert foreign == [line for line in MESH.splitlines() if line[0] == "-"]
    assert guest.tables.rules(V4, "nat", "OUTPUT") == ("-p tcp -j ISTIO_OUTPUT", "-j VCN-SERVICES")
    assert all(text.count("*") == 2 and "*mangle" not in text for _, text in guest.pushes[2:])


async def test_later_rule_of_a_mesh_is_drift_and_becomes_first() -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables.append(V4, "nat", "OUTPUT", "-p tcp -j ACCEPT")

    assert await one.state() == GuestState(7, sample(7).digest, has_drifted=True)
    await one.apply(sample(7), ())

    assert await one.state() == GuestState(7, sample(7).digest, has_drifted=False)
    assert guest.tables.rules(V4, "nat", "OUTPUT") == ("-p tcp -j ACCEPT", "-j VCN-SERVICES")


@pytest.mark.parametrize("is_remembered", [True, False])
@pytest.mark.parametrize(
    ("table", "chain"),
    [("nat", None), ("filter", None), ("nat", "OUTPUT"), ("nat", "VCN-SERVICES"), ("filter", "VCN-SERVICES")],
)
async def test_flush_by_another_program_is_drift(
    table: str, chain: str | None, *, is_remembered: bool
) -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables.flush(V4, table, chain)
    observing = one if is_remembered else channel(guest)

    state = await observing.state()

    assert state.has_drifted
    assert sample(7).digest.startswith(state.digest)
    assert state.digest
    await observing.apply(sample(7), ())
    assert await observing.state() == GuestState(7, sample(7).digest, has_drifted=False)


async def test_guest_without_our_rules_has_no_digest() -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables = FakeTables()

    assert await one.state() == GuestState(0, "", has_drifted=False)


async def test_foreign_rule_in_our_chain_is_drift() -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables.append(V4, "nat", "VCN-SERVICES", '-m comment --comment "hello" -j RETURN')

    assert (await channel(guest).state()).has_drifted
    assert await one.read_back() != sample(7).documents
    assert not (await channel(guest).apply(sample(7), ())).has_drifted
    assert await one.read_back() == sample(7).documents
