# SPDX-License-Identifier: Apache-2.0
"""The daemon serves all guests while some stock guests send responses that are slow to parse."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from daemonkit.status.server import fetch
from devkit.kata.fake_agent import AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.guest_tables import FakeTables
from tests.functional.kata_bridge.bridge_process import bridged
from tests.functional.kata_bridge.served_bridge import ruleset
from tests.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

BAD = 4
# One such text delayed the daemon for minutes: 14 s for 10 KB, growing with the cube of the size.
HOSTILE = {
    "errors": AgentQuirks(hostile_error="tables-" * 9_000),
    "saves": AgentQuirks(hostile_save=b'*nat\n-A OUTPUT "' + b'\\"' * 1_000_000 + b"\n"),
    "versions": AgentQuirks(version="9" * (3 << 20)),
}


@pytest.mark.parametrize("quirks", HOSTILE.values(), ids=HOSTILE)
async def test_other_guests_are_served_beside_hostile_ones(short_dir: Path, quirks: AgentQuirks) -> None:
    rules = [{"handlers": ["kata"], "channels": ["stock"]}]
    stock = {"shimDirectories": [f"{short_dir}/sbs", f"{short_dir}/kata"]}
    async with AsyncExitStack() as stack:
        names = [f"bad{number}" for number in range(BAD)]
        katas = {
            name: await stack.enter_async_context(
                FakeKata(short_dir, FakeTables(), sandbox_id=name, quirks=quirks)
            )
            for name in names
        }
        good = await stack.enter_async_context(FakeKata(short_dir, FakeTables(), sandbox_id="good"))
        node = await stack.enter_async_context(bridged(short_dir, runtimes=rules, stock=stock))
        for name in names:
            await node.add_pod(name)
        await until(lambda: all(kata.agent.calls for kata in katas.values()), within_s=60)
        # All hostile guests are responding. Now a sandbox, its rules and the pages are served.
        await node.add_pod("good")
        results = [each async for each in node.client.set_ruleset(["good"], ruleset(1))]
        assert [each.guest for each in results] == ["good"]
        assert good.agent.pushes
        code, page = await asyncio.to_thread(fetch, short_dir / "status.sock", "/status", 20.0)
        assert code == 200
        assert len(page) < 10_000 * (BAD + 1)
        assert {each["id"] for each in json.loads(page)["guests"]} == {*names, "good"}
