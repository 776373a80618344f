# SPDX-License-Identifier: Apache-2.0
"""When an attack reports that it is under way, and what it does when it is not."""

import asyncio
from pathlib import Path

import pytest

from daemonkit.tasks import Tasks
from tests.bench.attacks.attacker import SETUP_S, AttackTarget, SetUpError, many

pytestmark = pytest.mark.asyncio
NOWHERE = Path("unused")


def new_target() -> AttackTarget:
    return AttackTarget(
        "127.0.0.1", 1, "node-1", NOWHERE, NOWHERE, NOWHERE, "/containerLogs/web/a/app", NOWHERE
    )


async def test_an_attack_is_ready_once_all_connections_are(capsys: pytest.CaptureFixture[str]) -> None:
    """It once reported so after a second: 500 streams take several."""
    target, begun = new_target(), list[asyncio.Event]()

    async def connect(target: AttackTarget) -> None:
        may_begin = asyncio.Event()
        begun.append(may_begin)
        await may_begin.wait()
        target.begin()
        target.begin()  # each answer counts the same connection
        await asyncio.Event().wait()

    tasks = Tasks("test")
    tasks.spawn(many(target, 3, connect), "attack")
    await asyncio.sleep(SETUP_S / 2)
    for may_begin in begun[:2]:
        may_begin.set()
    await asyncio.sleep(1)
    assert capsys.readouterr().out == ""
    begun[2].set()
    await asyncio.sleep(1)
    assert capsys.readouterr().out == "ready\n"
    await tasks.close(1.0)


async def test_an_attack_without_its_connections_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """One of two is refused each time. The bench would measure a smaller attack."""
    target, refused = new_target(), list[object]()

    async def connect(target: AttackTarget) -> None:
        refused.append(asyncio.current_task())
        if refused[0] is asyncio.current_task():
            target.begin()
            raise ConnectionResetError
        target.begin()
        await asyncio.Event().wait()

    with pytest.raises(
        SetUpError, match=r"^1 of 2 connections are under way after 60 s: {'ConnectionResetErr"
    ):
        await many(target, 2, connect)
    assert capsys.readouterr().out == ""
