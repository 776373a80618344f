# SPDX-License-Identifier: Apache-2.0
import signal

import pytest

from daemonkit.run.service_manager import HAND_OVER_SIGNAL, ServiceManager, Supervision, supervision

NOTIFY = "/run/systemd/notify"
OWN, MAIN = 7, 6
LISTENER = 9
HANDED = {"HAND_OVER_PID": str(MAIN)}
KEPT = {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "tenants:status"}


class Recorder:
    """A manager with a main process, whose notices and signals are recorded."""

    is_reachable = True

    def __init__(self, found: Supervision) -> None:
        self.sent: list[tuple[str, int | None]] = []
        self.signals: list[tuple[int, signal.Signals]] = []
        self.parent_pid = MAIN
        self.manager = ServiceManager(
            found,
            send=lambda _address, message: self.sent.append((message.decode(), None)),
            send_descriptor=self._take,
            kill=lambda pid, number: self.signals.append((pid, number)),
            parent_pid=lambda: self.parent_pid,
        )

    def _take(self, _address: str, message: bytes, descriptor: int) -> bool:
        self.sent.append((message.decode(), descriptor))
        return self.is_reachable


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (HANDED, Supervision(main_pid=MAIN)),
        ({"HAND_OVER_PID": "1"}, Supervision()),
        ({"HAND_OVER_PID": "six"}, Supervision()),
        ({**KEPT, "LISTEN_PID": str(OWN)}, Supervision(listeners={"tenants": 3, "status": 4})),
        ({**KEPT, "LISTEN_PID": str(MAIN)}, Supervision()),
        (
            {**KEPT, "LISTEN_PID": str(MAIN), **HANDED},
            Supervision(listeners={"tenants": 3, "status": 4}, main_pid=MAIN),
        ),
        (KEPT, Supervision()),
        ({**KEPT, "LISTEN_PID": str(OWN), "LISTEN_FDS": "1"}, Supervision()),
        ({**KEPT, "LISTEN_PID": str(OWN), "LISTEN_FDS": "many"}, Supervision()),
        ({**KEPT, "LISTEN_PID": str(OWN), "LISTEN_FDS": "9" * 5000}, Supervision()),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(MAIN), **HANDED}, Supervision(None, 3.0, {}, MAIN)),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "5", **HANDED}, Supervision(None, None, {}, MAIN)),
    ],
)
def test_variables_of_the_main_process_count(environment: dict[str, str], expected: Supervision) -> None:
    assert supervision(environment, OWN, MAIN) == expected


def test_listener_is_kept_with_its_name() -> None:
    recorder = Recorder(Supervision(NOTIFY, main_pid=MAIN))
    recorder.manager.keep_listener("tenants", LISTENER)
    assert recorder.sent == [("FDSTORE=1\nFDNAME=tenants", LISTENER)]
    assert recorder.manager.can_hand_over


@pytest.mark.parametrize("found", [Supervision(), Supervision(NOTIFY), Supervision(main_pid=MAIN)])
def test_no_hand_over_without_manager_and_main_process(found: Supervision) -> None:
    recorder = Recorder(found)
    recorder.manager.keep_listener("tenants", LISTENER)
    recorder.manager.hand_over()
    assert (recorder.manager.can_hand_over, recorder.signals) == (False, [])


def test_no_hand_over_after_a_notice_that_failed() -> None:
    recorder = Recorder(Supervision(NOTIFY, main_pid=MAIN))
    recorder.is_reachable = False
    recorder.manager.keep_listener("tenants", LISTENER)
    assert not recorder.manager.can_hand_over


def test_no_hand_over_unless_each_listener_is_kept() -> None:
    recorder = Recorder(Supervision(NOTIFY, main_pid=MAIN))
    recorder.is_reachable = False
    recorder.manager.keep_listener("tenants", LISTENER)
    recorder.is_reachable = True
    recorder.manager.keep_listener("tokens-10551", LISTENER)
    assert not recorder.manager.can_hand_over


def test_no_hand_over_without_a_kept_listener() -> None:
    recorder = Recorder(Supervision(NOTIFY, main_pid=MAIN))
    recorder.manager.hand_over()
    assert recorder.signals == []


def test_hand_over_signals_once_and_ends_all_notices() -> None:
    recorder = Recorder(Supervision(NOTIFY, main_pid=MAIN))
    recorder.manager.keep_listener("tenants", LISTENER)
    recorder.sent.clear()
    recorder.manager.hand_over()
    recorder.manager.hand_over()
    recorder.manager.notify(b"WATCHDOG=1")
    assert (recorder.signals, recorder.sent) == ([(MAIN, HAND_OVER_SIGNAL)], [])


def test_daemon_without_its_main_process_is_abandoned() -> None:
    recorder = Recorder(Supervision(NOTIFY, main_pid=MAIN))
    assert not recorder.manager.is_abandoned()
    recorder.parent_pid = 1
    assert recorder.manager.is_abandoned()
    recorder.manager.keep_listener("tenants", LISTENER)
    recorder.manager.hand_over()
    assert not recorder.manager.is_abandoned()


def test_daemon_without_hand_over_is_never_abandoned() -> None:
    recorder = Recorder(Supervision(NOTIFY))
    recorder.parent_pid = 1
    assert not recorder.manager.is_abandoned()
