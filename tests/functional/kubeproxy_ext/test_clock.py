# SPDX-License-Identifier: Apache-2.0
"""The wall clock jumps under the daemon, and between two of its lives."""

from functools import partial
from pathlib import Path

import pytest

from bridge_api.messages import ResultCode
from tests import moved_clock
from tests.functional.daemon_node import running
from tests.functional.kubeproxy_ext.node import RulesNode

YEAR_S = 86_400 * 365


@pytest.mark.asyncio
async def test_jumps_of_the_wall_clock_do_no_harm(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    made = RulesNode(tmp_path)
    moved_clock.move(clock, 0.0)
    made.program = ("-m", "tests.moved_clock", str(clock), "wall", "kubeproxy_ext")
    made.put_tenant("a")
    made.put_service("a", "web", "10.96.0.1", "10.1.0.1")
    async with running(made) as here:
        here.bridge.add("a1", "a")
        await here.until(lambda: here.has("a1", "10.1.0.1"))
        for number, jump_s in enumerate((YEAR_S, -YEAR_S, 0, -YEAR_S), 2):
            moved_clock.move(clock, jump_s)
            address = f"10.1.0.{number}"
            here.put_slice("a", "web", address)
            await here.until(partial(here.has, "a1", address))
        # After a restart in the past the first generation is too low, and kata-bridge reports its own.
        await here.stop()
        moved_clock.move(clock, -2 * YEAR_S)
        await here.start()
        here.put_slice("a", "web", "10.1.0.9")
        await here.until(lambda: here.has("a1", "10.1.0.9"))
        taken = [
            each for each in here.bridge.requests_for("a1") if each.result.code is not ResultCode.SUPERSEDED
        ]
        assert {each.result.code for each in taken} <= {ResultCode.APPLIED, ResultCode.UNCHANGED}
        generations = [each.ruleset.generation for each in taken]
        assert generations == sorted(generations)
        status = await here.status()
        assert all(source["ageSeconds"] >= 0 for source in status["sources"].values())
        assert await here.stop() == 0
