# SPDX-License-Identifier: Apache-2.0
"""The bans of unit tests, enforced: no socket, process, privilege, sleep or real clock.

A ban raises `BannedError`, a BaseException, so that no handler under test can swallow it. The event
loop of a unit test runs on virtual time: it jumps to the next timer instead of waiting for it, so a test of a
ten-minute back-off takes no time and is deterministic.
"""

import asyncio
import gc
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from daemonkit import logs
from tests.packages import PACKAGES

# Collected tests and parsed sources are a million objects that stay. By the usual thresholds they are
# traversed again and again: `vocabulary.sources()` takes 13 s instead of 5.
gc.set_threshold(100_000, 50, 100)

# The time stamp of a log line decides nothing, and a module under test may log at any point.
_MAY_READ_THE_CLOCK = frozenset({"daemonkit.logs"})

_SOCKETS = ("connect", "connect_ex", "bind", "listen", "sendto", "sendmsg")
_NAMES = ("create_connection", "create_server", "getaddrinfo", "gethostbyname")
_PROCESSES = ("system", "fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve")
_PRIVILEGES = ("setuid", "setgid", "setgroups", "chroot", "chown", "fchown", "lchown", "mknod")
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns")

# A thread that a unit test started may take this long to wake the loop; nothing else can.
_THREAD_S = 5.0


class BannedError(BaseException):
    """A unit test did what only functional tests may."""


@pytest.fixture(autouse=True)
def _bans(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _SOCKETS:
        monkeypatch.setattr(socket.socket, name, _banned(f"socket.{name}"))
    for name in _NAMES:
        monkeypatch.setattr(socket, name, _banned(f"socket.{name}"))
    for name in (*_PROCESSES, *_PRIVILEGES):
        monkeypatch.setattr(os, name, _banned(f"os.{name}"))
    monkeypatch.setattr(subprocess.Popen, "__init__", _banned("subprocess"))
    monkeypatch.setattr(time, "sleep", _banned("time.sleep"))
    for name in _CLOCKS:
        monkeypatch.setattr(time, name, _not_for_us(name, getattr(time, name)))


def _banned(what: str) -> Callable[..., Any]:
    def raise_banned(*_args: object, **_kwargs: object) -> Any:
        raise BannedError(f"{what} in a unit test; make it a functional test or pass in a fake")

    return raise_banned


def _not_for_us(name: str, clock: Callable[[], Any]) -> Callable[[], Any]:
    """Keep a clock for the test runner and the libraries, and ban it for the code under test."""

    def read() -> Any:
        module = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - the caller's name
        if module.partition(".")[0] in PACKAGES and module not in _MAY_READ_THE_CLOCK:
            raise BannedError(f"time.{name} in {module} in a unit test; pass in a clock")
        return clock()

    return read


class _JumpingSelector(selectors.BaseSelector):
    """A selector that, when nothing is ready, lets the loop's clock jump instead of waiting."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None:
            self.now += timeout
            return []
        ready = self._real.select(_THREAD_S)
        if not ready:
            raise BannedError("the test waits for something that nothing here will ever do")
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which starts at 0 and moves only when everyone waits."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual-time": VirtualTimeLoop}


@pytest.fixture(autouse=True)
def _logs_as_at_the_start() -> Iterator[None]:
    """What one test sets up for its log lines must not swallow those of the next."""
    yield
    logs.reset()
