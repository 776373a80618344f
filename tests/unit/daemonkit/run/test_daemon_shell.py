# SPDX-License-Identifier: Apache-2.0
import asyncio
import io

import pytest

from daemonkit import logs
from daemonkit.metrics import Registry
from daemonkit.run.daemon_shell import DaemonShell, wait_until_ready
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.service_manager import Supervision
from daemonkit.status.server import Readiness


def new_life() -> Lifecycle:
    return Lifecycle(Supervision(), send=lambda _address, _message: None)


async def start(shell: DaemonShell, life: Lifecycle) -> None:
    await shell.start(life, None, Registry(), readiness=lambda: Readiness(True, ()), status=dict)


async def broken() -> None:
    raise ValueError("a fault of ours")


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.asyncio
async def test_a_failed_task_stops_the_daemon_if_configured(stops: bool) -> None:
    log = io.StringIO()
    logs.setup(stream=log, is_json=False)
    life, shell = new_life(), DaemonShell("dnsconfig", stops_on_failure=stops, wall_clock=float)
    await start(shell, life)
    task = shell.tasks.spawn(broken(), "sync")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert life.stopping.is_set() is stops
    assert ("stopping" in log.getvalue() and "task=dnsconfig.sync" in log.getvalue()) or not stops
    await shell.end_tasks()
    await shell.stop()
    logs.reset()


@pytest.mark.asyncio
async def test_the_start_waits_for_readiness() -> None:
    states = iter([False, False, True])
    await wait_until_ready(new_life(), lambda: Readiness(next(states), ()), within_s=60.0)
    assert list(states) == []


@pytest.mark.asyncio
async def test_the_start_continues_without_readiness_in_time() -> None:
    life = new_life()
    await wait_until_ready(life, lambda: Readiness(False, ()), within_s=0.0)
    assert not life.stopping.is_set()


@pytest.mark.asyncio
async def test_the_wait_for_readiness_ends_with_the_daemon() -> None:
    life = new_life()
    life.stop()
    await wait_until_ready(life, lambda: Readiness(False, ()), within_s=60.0)
