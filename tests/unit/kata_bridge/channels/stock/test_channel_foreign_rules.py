# SPDX-License-Identifier: Apache-2.0
"""A stock guest's tables are not ours alone: meshes keep their rules, and whoever undoes ours is seen."""

import pytest

from devkit.kata.guest_tables import FakeTables
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestState
from tests.unit.kata_bridge.channels.stock.stock_guests import MESH, V4, Guest, channel, mesh_first

pytestmark = pytest.mark.asyncio


async def test_a_meshs_rules_keep_their_places_and_come_first() -> None:
    guest = await mesh_first()
    one = channel(guest)

    await one.apply(sample(7), ())
    await one.apply(sample(8, 3), ())

    foreign = [line for line in guest.tables.save(V4).splitlines() if "VCN-" not in line and line[0] == "-"]
    assert foreign == [line for line in MESH.splitlines() if line[0] == "-"]
    assert guest.tables.rules(V4, "nat", "OUTPUT") == ("-p tcp -j ISTIO_OUTPUT", "-j VCN-SERVICES")
    assert all(text.count("*") == 2 and "*mangle" not in text for _, text in guest.pushes[2:])


async def test_a_mesh_that_comes_later_is_let_go_first() -> None:
    guest = Guest()
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
async def test_a_stranger_who_flushes_is_seen(table: str, chain: str | None, *, is_remembered: bool) -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables.flush(V4, table, chain)
    asked = one if is_remembered else channel(guest)

    state = await asked.state()

    assert state.has_drifted
    assert sample(7).digest.startswith(state.digest)
    assert state.digest
    await asked.apply(sample(7), ())
    assert await asked.state() == GuestState(7, sample(7).digest, has_drifted=False)


async def test_a_guest_that_lost_everything_says_nothing_of_a_digest() -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables = FakeTables()

    assert await one.state() == GuestState(0, "", has_drifted=False)


async def test_a_line_in_our_chain_that_cannot_be_ours_is_drift() -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables.append(V4, "nat", "VCN-SERVICES", '-m comment --comment "hello" -j RETURN')

    assert (await channel(guest).state()).has_drifted
    assert await one.read_back() != sample(7).documents
    assert not (await channel(guest).apply(sample(7), ())).has_drifted
    assert await one.read_back() == sample(7).documents
