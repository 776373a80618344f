# SPDX-License-Identifier: Apache-2.0
"""Stock guests whose responses are slow to parse, beside an honest one."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devkit.kata.fake_agent import AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.fake_shim import Flavour
from devkit.kata.guest_tables import FakeTables
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestState, Unreachable
from kata_bridge.channels.stock.channel import stock_channel
from kata_bridge.channels.stock.faults import MAX_STOCK_TEXT_CHARACTERS
from ruleset.installed import rules
from ruleset.restore import whole_tables

pytestmark = pytest.mark.asyncio

# ttrpc refuses a longer text than 64 KiB on our own serving side; a hostile one has 4 MiB.
ERRORS = ["tables-" * 9_000, "line " + "9" * 60_000, "rpc error: code = " * 3_000]
SAVES = [
    b'*nat\n-A OUTPUT "' + b'\\"' * 1_500_000 + b"\n",
    b"*nat\n" + b':VCN-A - [0:0]\n-A VCN-A "\n' * 100_000,
    b"*nat\n" * 500_000,
]


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("error", ERRORS)
async def test_hostile_error_text_is_cut(short_dir: Path, flavour: Flavour, error: str) -> None:
    async with FakeKata(
        short_dir, FakeTables(), flavour=flavour, quirks=AgentQuirks(hostile_error=error)
    ) as kata:
        with pytest.raises(Unreachable) as raised:
            await stock_channel(kata.sandbox_id, roots=kata.roots, timeout_s=20).probe()
    assert len(str(raised.value)) <= MAX_STOCK_TEXT_CHARACTERS


@pytest.mark.parametrize("save", SAVES)
async def test_hostile_save_is_parsed_off_the_loop(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, save: bytes
) -> None:
    """Everything that reads a large text runs in the thread for it, and the honest guest is served."""
    loop_thread, readers = threading.get_ident(), set[int]()

    def noting(parse: Callable[..., Any]) -> Callable[..., Any]:
        def read(text: str, *args: Any) -> Any:
            if len(text) > 1_000_000:
                readers.add(threading.get_ident())
            return parse(text, *args)

        return read

    monkeypatch.setattr("kata_bridge.channels.stock.channel.read_installed", noting(rules.read_installed))
    monkeypatch.setattr("kata_bridge.channels.stock.channel.whole_tables", noting(whole_tables.whole_tables))
    hostile = FakeKata(short_dir, FakeTables(), sandbox_id="bad", quirks=AgentQuirks(hostile_save=save))
    async with hostile as bad, FakeKata(short_dir, FakeTables(), sandbox_id="good") as good:
        ruleset = sample(7)
        one = stock_channel(bad.sandbox_id, roots=bad.roots, timeout_s=20)
        two = stock_channel(good.sandbox_id, roots=good.roots, timeout_s=20)
        failing = asyncio.gather(one.apply(ruleset, ()), return_exceptions=True)
        assert await two.apply(ruleset, ()) == GuestState(7, ruleset.digest, has_drifted=False)
        await failing
    assert readers
    assert loop_thread not in readers


async def test_version_is_one_short_word(short_dir: Path) -> None:
    """It is in /status, and in every event of the guest that a watcher gets: 3.9 MiB each time."""
    quirks = AgentQuirks(version="3." + "9" * (3 << 20))
    async with FakeKata(short_dir, FakeTables(), quirks=quirks) as kata:
        capabilities = await stock_channel(kata.sandbox_id, roots=kata.roots, timeout_s=20).probe()
    assert capabilities.version == "3." + "9" * 62
