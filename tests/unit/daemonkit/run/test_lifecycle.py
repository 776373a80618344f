# SPDX-License-Identifier: Apache-2.0
import asyncio
import io
import signal

import pytest

from daemonkit import logs
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.service_manager import Supervision, supervision

NOTIFY = "/run/systemd/notify"


class Manager:
    """A service manager that records its messages."""

    def __init__(self, *, watchdog_s: float | None = None) -> None:
        self.messages: list[str] = []
        self.life = Lifecycle(Supervision(NOTIFY, watchdog_s), send=self._take)

    def _take(self, address: str, message: bytes) -> None:
        assert address == NOTIFY
        self.messages.append(message.decode())


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Supervision(None, None)),
        ({"NOTIFY_SOCKET": NOTIFY}, Supervision(NOTIFY, None)),
        ({"NOTIFY_SOCKET": "@abstract"}, Supervision("@abstract", None)),
        ({"NOTIFY_SOCKET": "vsock:2:1"}, Supervision(None, None)),
        ({"NOTIFY_SOCKET": ""}, Supervision(None, None)),
        ({"WATCHDOG_USEC": "3000000"}, Supervision(None, 3.0)),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, Supervision(None, 3.0)),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, Supervision(None, None)),
        ({"WATCHDOG_USEC": "0"}, Supervision(None, None)),
        ({"WATCHDOG_USEC": "-1"}, Supervision(None, None)),
        ({"WATCHDOG_USEC": "soon"}, Supervision(None, None)),
        ({"WATCHDOG_USEC": "²"}, Supervision(None, None)),
    ],
)
def test_supervision_is_read_from_the_environment(environment: dict[str, str], expected: Supervision) -> None:
    assert supervision(environment, pid=7) == expected


def test_ready_and_stopping_are_sent_once() -> None:
    manager = Manager()
    manager.life.ready()
    manager.life.ready()
    manager.life.stop()
    manager.life.stop()
    manager.life.ready()
    assert manager.messages == ["READY=1", "STOPPING=1\nSTATUS=stopping"]
    assert manager.life.stopping.is_set()


def test_the_status_line_is_sent_when_it_changes() -> None:
    manager = Manager()
    manager.life.ready("not ready: away")
    for text in ("not ready: away", "ready", "ready", "two\nREADY=0", "x" * 600):
        manager.life.set_status(text)
    manager.life.stop()
    manager.life.set_status("ready")
    assert manager.messages == [
        "READY=1\nSTATUS=not ready: away",
        "STATUS=ready",
        "STATUS=two READY=0",
        f"STATUS={'x' * 500}",
        "STOPPING=1\nSTATUS=stopping",
    ]


def test_without_a_service_manager_no_notice_is_sent() -> None:
    def send(address: str, message: bytes) -> None:
        raise AssertionError(message)

    life = Lifecycle(Supervision(), send=send)
    life.ready()
    life.stop()
    assert life.stopping.is_set()


@pytest.mark.asyncio
async def test_the_watchdog_is_fed_at_half_its_interval_until_the_end() -> None:
    manager = Manager(watchdog_s=3)
    manager.life.start_watchdog()
    await asyncio.sleep(7)
    assert manager.messages == ["WATCHDOG=1"] * 5  # at 0, 1.5, 3, 4.5 and 6 s
    manager.life.stop_watchdog()
    await asyncio.sleep(7)
    assert len(manager.messages) == 5


@pytest.mark.asyncio
async def test_without_a_watchdog_none_is_fed() -> None:
    manager = Manager()
    manager.life.start_watchdog()
    await asyncio.sleep(7)
    manager.life.stop_watchdog()
    assert manager.messages == []


def test_a_failing_reload_callback_does_not_stop_others() -> None:
    stream = io.StringIO()
    logs.setup(is_json=False, stream=stream, clock=lambda: 0)
    called: list[str] = []
    manager = Manager()

    def fail() -> None:
        raise ValueError("bad")

    manager.life.on_reload(lambda: called.append("first"))
    manager.life.on_reload(fail)
    manager.life.on_reload(lambda: called.append("last"))
    manager.life.signal_reload()
    manager.life.signal_reload()
    assert called == ["first", "last"] * 2
    assert stream.getvalue().count('"reload failed" error="ValueError: bad"') == 2


def test_sighup_returns_to_the_configured_log_level() -> None:
    stream = io.StringIO()
    logs.setup(is_json=False, stream=stream, clock=lambda: 0)
    manager = Manager()
    manager.life.signal_reload()
    logs.set_level("debug")
    manager.life.signal_reload()
    assert logs.level_name() == "info"
    assert stream.getvalue().count('"log level restored" log_level=info') == 1


def test_a_second_signal_ends_the_process_by_that_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[str, object]] = []
    monkeypatch.setattr(signal, "signal", lambda number, what: raised.append((number.name, what)))
    monkeypatch.setattr(signal, "raise_signal", lambda number: raised.append((number.name, "raised")))
    logs.setup(stream=io.StringIO())
    manager = Manager()
    manager.life.signal_stop(signal.SIGTERM)
    assert raised == []
    assert manager.life.stopping.is_set()
    manager.life.signal_stop(signal.SIGINT)
    assert raised == [("SIGINT", signal.SIG_DFL), ("SIGINT", "raised")]
