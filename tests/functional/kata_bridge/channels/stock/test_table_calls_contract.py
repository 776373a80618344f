# SPDX-License-Identifier: Apache-2.0
"""The stock channel's contract with the fake table calls, and with those to shims and agents."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from devkit.kata.fake_kata import FakeKata
from devkit.kata.fake_shim import Flavour
from devkit.kata.fake_table_calls import FakeTableCalls
from devkit.kata.guest_tables import FakeTables
from kata_bridge.channels.stock.calls import StockCalls
from kata_bridge.channels.stock.channel import TableCalls
from ruleset.model import Family

pytestmark = pytest.mark.asyncio

NAT = "*nat\n:VCN-X - [0:0]\nCOMMIT\n"
FILTER = "*filter\n:VCN-Y - [0:0]\nCOMMIT\n"


@asynccontextmanager
async def _made(kind: str, short_dir: Path) -> AsyncIterator[TableCalls]:
    if kind == "fake":
        yield FakeTableCalls()
        return
    flavour = Flavour.RUST if kind == "rust" else Flavour.GO
    async with FakeKata(short_dir, FakeTables(), flavour=flavour) as kata:
        kata.shim.is_old = kind == "agent"
        yield StockCalls(kata.sandbox_id, roots=kata.roots, timeout_s=10, hold_s=60, policy=None)


@pytest_asyncio.fixture(params=["fake", "go", "rust", "agent"])
async def calls(request: pytest.FixtureRequest, short_dir: Path) -> AsyncIterator[TableCalls]:
    async with _made(request.param, short_dir) as made:
        yield made


async def test_fresh_guest_prints_no_tables(calls: TableCalls) -> None:
    assert [await calls.read(family) for family in Family] == ["", ""]


async def test_pushed_table_is_printed_for_its_family(calls: TableCalls) -> None:
    await calls.push(Family.IPV4, NAT)
    assert ":VCN-X - [0:0]\n" in await calls.read(Family.IPV4)
    assert await calls.read(Family.IPV6) == ""


async def test_push_replaces_the_tables_that_it_names(calls: TableCalls) -> None:
    await calls.push(Family.IPV4, NAT)
    await calls.push(Family.IPV4, FILTER)
    await calls.push(Family.IPV4, "*nat\nCOMMIT\n")
    printed = await calls.read(Family.IPV4)
    assert "VCN-X" not in printed
    assert "VCN-Y" in printed


async def test_route_is_known_after_a_call(calls: TableCalls) -> None:
    await calls.read(Family.IPV4)
    assert calls.route in ("shim", "ttrpc")
    assert await calls.version()
