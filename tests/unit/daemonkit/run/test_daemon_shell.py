# SPDX-License-Identifier: Apache-2.0
import asyncio
import gc
import io
import math
import signal

import pytest

from daemonkit import logs
from daemonkit.metrics import Registry
from daemonkit.run.daemon_shell import FOLLOW_S, DaemonShell, freeze_heap, wait_until_ready
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.service_manager import Supervision
from daemonkit.status.server import Readiness

NOT_SYNCED = Readiness(False, ("pods: not synced, age 3 s",), "pods not synced: connection refused")
READY = Readiness(True, ("pods: ok",))


def new_life() -> Lifecycle:
    return Lifecycle(Supervision(), send=lambda _address, _message: None)


class ReportedStart:
    """A daemon whose readiness the test sets, with what it reports to the service manager and to the log."""

    def __init__(self, readiness: Readiness) -> None:
        self.readiness = readiness
        self.notices: list[str] = []
        self.life = Lifecycle(
            Supervision("/notify"), send=lambda _, message: self.notices.append(message.decode())
        )
        self.shell = DaemonShell("dnsconfig", wall_clock=float)
        self.log = io.StringIO()
        logs.setup(stream=self.log, is_json=False, clock=lambda: 0)

    async def __aenter__(self) -> "ReportedStart":
        await self.shell.start(self.life, None, Registry(), readiness=self._asked, status=dict)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shell.end_tasks()
        await self.shell.stop()
        logs.reset()

    def _asked(self) -> Readiness:
        if self.readiness.reason == "a bug":
            raise ZeroDivisionError
        return self.readiness

    @property
    def lines(self) -> list[str]:
        return [line.partition("run.daemon_shell ")[2] for line in self.log.getvalue().splitlines()]


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


@pytest.mark.asyncio
async def test_a_synced_start_is_reported_as_such() -> None:
    async with ReportedStart(READY) as start:
        await start.shell.announce(10.0, lambda: {"node": "n1"})
        assert start.notices == ["READY=1\nSTATUS=ready"]
        assert start.lines == ['"started" node=n1']


@pytest.mark.asyncio
async def test_a_start_that_is_not_synced_says_so() -> None:
    """Boot goes on while the control plane is away, and nobody reads that all is well."""
    async with ReportedStart(NOT_SYNCED) as start:
        await start.shell.announce(10.0, lambda: {"node": "n1"})
        assert start.notices == ["READY=1\nSTATUS=not ready: pods not synced: connection refused"]
        assert start.lines == [
            '"started, not ready yet" reason="pods not synced: connection refused" node=n1'
        ]


@pytest.mark.asyncio
async def test_a_daemon_that_stops_has_not_started() -> None:
    async with ReportedStart(NOT_SYNCED) as start:
        start.life.signal_stop(signal.SIGTERM)
        await start.shell.announce(10.0, dict)
        assert start.notices == ["STOPPING=1\nSTATUS=stopping"]
        assert "started" not in start.log.getvalue()


@pytest.mark.asyncio
async def test_the_status_line_follows_readiness() -> None:
    async with ReportedStart(NOT_SYNCED) as start:
        await start.shell.announce(0.0, dict)
        for readiness in (NOT_SYNCED, READY, READY, NOT_SYNCED):
            start.readiness = readiness
            await asyncio.sleep(2 * FOLLOW_S)
        start.life.stop()
        start.readiness = READY
        await asyncio.sleep(2 * FOLLOW_S)
        assert start.notices[1:] == [
            "STATUS=ready",
            "STATUS=not ready: pods not synced: connection refused",
            "STOPPING=1\nSTATUS=stopping",
        ]
        assert start.lines[1:] == [
            '"ready"',
            '"not ready any more" reason="pods not synced: connection refused"',
        ]


@pytest.mark.asyncio
async def test_a_bug_in_readiness_does_not_stop_the_daemon() -> None:
    async with ReportedStart(READY) as start:
        await start.shell.announce(0.0, dict)
        start.readiness = Readiness(False, (), "a bug")
        await asyncio.sleep(3 * FOLLOW_S)
        assert not start.life.stopping.is_set()
        assert start.log.getvalue().count("readiness failed") == 1
        start.readiness = NOT_SYNCED
        await asyncio.sleep(2 * FOLLOW_S)
        assert start.notices[1:] == ["STATUS=not ready: pods not synced: connection refused"]


def test_a_collection_looks_at_few_new_objects() -> None:
    """By Python's defaults the eleventh one looked at 220 000: 39 ms in one step for 12 000 streams."""
    before = gc.get_threshold()
    try:
        freeze_heap()
        youngest, younger, _ = found = gc.get_threshold()
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
    assert youngest * (younger + 1) == 80_000
    # Those that look at all objects are as rare.
    assert math.prod(each + 1 for each in found) >= 0.95 * (youngest + 1) * 11 * 11
