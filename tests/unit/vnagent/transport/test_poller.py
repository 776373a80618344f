# SPDX-License-Identifier: Apache-2.0
"""What the poller does for deadlines, in how many steps. The loop's time is the test's."""

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from vnagent.transport.handler import NO_USAGE
from vnagent.transport.poll_groups import PolledSocket, PollGroup
from vnagent.transport.poller import CHECKED_PARTS, CLOSED_AT_ONCE, LOOKED_AT_ONCE, SocketPoller

NOW_S = 1_000.0
PERIOD_S = SocketPoller.PERIOD_S
CHECK_S = CHECKED_PARTS * PERIOD_S


class Timer:
    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s = at_s
        self.call = call

    def cancel(self) -> None:
        self.call = lambda: None


class SteppedLoop:
    """As much of a loop as the poller uses. Each call is a step; `looks` has the looks of each."""

    def __init__(self) -> None:
        self.now_s = NOW_S
        self.looks: list[int] = []
        self.look_count = 0
        self._soon: list[Callable[[], None]] = []
        self._timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def call_at(self, at_s: float, call: Callable[[], None]) -> Timer:
        timer = Timer(at_s, call)
        self._timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Iterate until so much later."""
        end_s = self.now_s + seconds
        while True:
            for call in self._take_soon():
                self._step(call)
            if self._soon:
                continue
            due = [timer for timer in self._timers if timer.at_s <= end_s]
            if not due:
                break
            first = min(due, key=lambda timer: timer.at_s)
            self._timers.remove(first)
            self.now_s = max(self.now_s, first.at_s)
            self._step(first.call)
        self.now_s = end_s

    def _take_soon(self) -> list[Callable[[], None]]:
        calls, self._soon = self._soon, []
        return calls

    def _step(self, call: Callable[[], None]) -> None:
        self.look_count = 0
        call()
        self.looks.append(self.look_count)


class LookedAt(PolledSocket):
    """A socket without a kernel. It counts the looks at its peer and when its deadline passed."""

    def __init__(self, loop: SteppedLoop, poller: SocketPoller, fd: int, group: PollGroup) -> None:
        super().__init__(group)
        self.fd = fd
        self.checks: list[float] = []
        self.expired: list[float] = []
        self.is_peer_gone = False
        self._loop = loop
        self._poller = poller
        poller.add(fd, self)

    def on_events(self, events: int) -> None:
        raise AssertionError(events)

    def expire(self) -> None:
        self.deadline = None
        self.expired.append(self._loop.now_s)

    def check_peer(self) -> None:
        self._loop.look_count += 1
        self.checks.append(self._loop.now_s)
        if self.is_peer_gone:
            self.abort()

    def fail(self) -> None:
        raise AssertionError(self.fd)

    def abort(self) -> None:
        self._poller.forget(self.fd)


class Setting:
    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.poller = SocketPoller(cast(asyncio.AbstractEventLoop, self.loop), clock=self.loop.time)

    def sockets(self, count: int, tenant: str | None = None) -> list[LookedAt]:
        group = self.poller.shared if tenant is None else self.poller.group_of(tenant, NO_USAGE)
        first = 1_000_000 + len(self.poller.by_fd)
        return [LookedAt(self.loop, self.poller, first + number, group) for number in range(count)]


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setattr(PollGroup, "start", lambda _: None)
    monkeypatch.setattr(PollGroup, "close", lambda group: group.epoll.close())
    made = Setting()
    made.poller.start()
    yield made
    made.poller.stop()


@pytest.mark.parametrize("factor", [1, 2, 8])
def test_peers_are_looked_at_in_steps(setting: Setting, factor: int) -> None:
    """All sockets were looked at in one step, four times a second: 4 ms for 20 000. Each is once in 16 s."""
    sockets = setting.sockets(factor * LOOKED_AT_ONCE)
    setting.loop.advance(CHECK_S - PERIOD_S)
    assert sum(setting.loop.looks) == 0
    setting.loop.advance(PERIOD_S)
    assert max(setting.loop.looks) == LOOKED_AT_ONCE
    assert sum(setting.loop.looks) == len(sockets)
    setting.loop.advance(10 * CHECK_S)
    assert {len(each.checks) for each in sockets} == {11}


@pytest.mark.parametrize("after_s", [0.3, 1.0, 9.0, 16.1, 180.0])
def test_a_deadline_passes_at_its_time(setting: Setting, after_s: float) -> None:
    (one,) = setting.sockets(1)
    one.deadline = NOW_S + after_s
    setting.loop.advance(200.0)
    (passed_s,) = one.expired
    assert 0.0 <= passed_s - (NOW_S + after_s) <= PERIOD_S
    # Its peer is still checked.
    assert len(one.checks) >= 11


def test_a_deadline_that_moves_passes_once(setting: Setting) -> None:
    """Each request moves its connection's: to none, to 180 s, and to a few seconds for the next head."""
    (one,) = setting.sockets(1)
    for _ in range(100):
        one.deadline = None
        one.deadline = setting.loop.now_s + 180.0
        setting.loop.advance(1.0)
    one.deadline = setting.loop.now_s + 9.0
    setting.loop.advance(5.0)
    one.deadline = setting.loop.now_s + 1.0
    passes_s = setting.loop.now_s + 1.0
    setting.loop.advance(400.0)
    (passed_s,) = one.expired
    assert 0.0 <= passed_s - passes_s <= PERIOD_S


def test_one_that_ends_is_not_looked_at_again(setting: Setting) -> None:
    """In a look, before its look, or within its deadline."""
    gone, closed, other = setting.sockets(3)
    gone.is_peer_gone = True
    closed.deadline = NOW_S + 5.0
    setting.loop.advance(1.0)
    closed.abort()
    closed.deadline = setting.loop.now_s + 1.0  # by who still has it
    setting.loop.advance(10 * CHECK_S)
    assert (gone.checks, closed.checks, closed.expired) == ([NOW_S + CHECK_S], [], [])
    assert len(other.checks) == 10
    assert list(setting.poller.by_fd.values()) == [other]


@pytest.mark.parametrize("factor", [1, 2, 8])
def test_groups_are_closed_in_steps(setting: Setting, factor: int) -> None:
    """Those of all tenants were looked at four times a second, and the empty ones were closed together."""
    count = factor * CLOSED_AT_ONCE
    (kept,) = setting.sockets(1, "kept")
    sockets = [each for number in range(count) for each in setting.sockets(1, f"ten-{number}")]
    setting.loop.advance(PERIOD_S * factor)
    assert setting.poller.tenant_count == count + 1
    for each in sockets:
        each.abort()
    left = []
    for _ in range(factor):
        setting.loop.advance(PERIOD_S)
        left.append(setting.poller.tenant_count - 1)
    assert left == [count - number * CLOSED_AT_ONCE for number in range(1, factor + 1)]
    kept.abort()


def test_a_group_that_was_never_used_is_closed(setting: Setting) -> None:
    setting.poller.group_of("ten-a", NO_USAGE)
    assert setting.poller.tenant_count == 1
    setting.loop.advance(PERIOD_S)
    assert setting.poller.tenant_count == 0
