# SPDX-License-Identifier: Apache-2.0
"""Names are looked up beside the loop, and no stop waits for an answer."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from daemonkit.run.event_loop import MAX_LOOKUPS, DaemonLoop
from daemonkit.run.lifecycle import Lifecycle, run
from daemonkit.tasks import Tasks
from tests.waiting import wait_until

WITHIN_S = 15.0
ADDRESSES = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 443))]


class FakeResolver:
    """Answers once `answers` is set."""

    def __init__(self) -> None:
        self.answers, self.has_begun = threading.Event(), threading.Event()
        self.asked: list[str] = []
        self.answered = 0

    def getaddrinfo(self, host: str, *_: object) -> list[Any]:
        self.asked.append(host)
        self.has_begun.set()
        self.answers.wait(WITHIN_S)
        self.answered += 1
        if host == "unknown.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ADDRESSES


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeResolver]:
    made = FakeResolver()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.answers.set()


async def look_up(host: str) -> None:
    assert await asyncio.get_running_loop().getaddrinfo(host, 443) == ADDRESSES


def test_a_stop_waits_for_no_resolver(resolver: FakeResolver) -> None:
    async def body(_: Lifecycle) -> int:
        tasks = Tasks("test")
        tasks.spawn(look_up("api.example"), "lookup")
        await asyncio.to_thread(resolver.has_begun.wait, WITHIN_S)
        await tasks.close(WITHIN_S)
        return 7

    assert run(body) == 7
    assert resolver.answered == 0


def test_a_lookup_returns_and_raises_what_the_resolver_does(resolver: FakeResolver) -> None:
    resolver.answers.set()

    async def body() -> None:
        await look_up("api.example")
        with pytest.raises(socket.gaierror, match="not known"):
            await look_up("unknown.example")

    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        runner.run(body())


def test_lookups_at_once_are_bounded(resolver: FakeResolver) -> None:
    """Also those whose callers wait no more: their threads do."""

    async def body() -> None:
        abandoned, tasks = Tasks("test"), Tasks("test")
        for number in range(MAX_LOOKUPS):
            abandoned.spawn(look_up(f"{number}.example"), str(number))
        await asyncio.to_thread(wait_until, lambda: len(resolver.asked) == MAX_LOOKUPS, within_s=WITHIN_S)
        await abandoned.close(WITHIN_S)
        last = tasks.spawn(look_up("last.example"), "last")
        for _ in range(3):
            await asyncio.sleep(0)  # pace: it would begin
        assert sum(thread.name == "resolver" for thread in threading.enumerate()) == MAX_LOOKUPS
        resolver.answers.set()
        await last

    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        runner.run(body())
