# SPDX-License-Identifier: Apache-2.0
"""systemd/hand-over, with a shell as the daemon: what systemd sees of it is its process and exit code."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[4] / "systemd/hand-over"
_DEADLINE_S = 20.0


@contextmanager
def _running(daemon: str) -> Iterator[subprocess.Popen[str]]:
    """The script with a daemon that prints its first line when its traps are set."""
    # As systemd starts it. A shell cannot trap what it inherits as ignored, such as SIGHUP below nohup.
    argv = ["env", "--default-signal", str(SCRIPT), "sh", "-c", daemon]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_ends_with_the_daemons_exit_code() -> None:
    with _running("exit 2") as process:
        assert process.wait(_DEADLINE_S) == 2


def test_daemon_learns_who_waits_for_it() -> None:
    with _running("echo $HAND_OVER_PID $PPID") as process:
        assert _line(process) == f"{process.pid} {process.pid}"


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGTERM, "TERM"), (signal.SIGHUP, "HUP"), (signal.SIGUSR1, "USR1")]
)
def test_signals_reach_the_daemon(number: signal.Signals, name: str) -> None:
    with _running(f"trap 'echo {name}; exit 5' {name}; echo set; while :; do sleep 0.05; done") as process:
        assert _line(process) == "set"
        process.send_signal(number)
        assert _line(process) == name
        assert process.wait(_DEADLINE_S) == 5


@pytest.mark.parametrize("delay_ms", range(8))
def test_a_stop_while_it_starts_leaves_no_daemon(delay_ms: int) -> None:
    """A signal before its trap ended the script alone; one that the new process took before it was the daemon
    was lost. Whenever it comes, both end."""
    for _ in range(5):
        with _running("trap 'exit 5' TERM; while :; do sleep 0.01; done") as process:
            time.sleep(delay_ms / 1_000)  # pace: any moment of the start is right
            process.send_signal(signal.SIGTERM)
            process.wait(_DEADLINE_S)
            assert process.stdout is not None
            # The daemon has it open as long as it lives.
            assert process.stdout.read() == ""


def test_the_start_has_no_moment_without_traps() -> None:
    """Such moments are too short to be hit by the test above on a quiet machine: their causes are order."""
    text = SCRIPT.read_text(encoding="utf-8")
    begin = text.index('\n{ kill -WINCH "$HAND_OVER_PID"; exec "$@"; } &\n')
    traps = [at for at in range(len(text)) if text.startswith("\ntrap ", at)]
    assert len(traps) == 5
    assert max(traps) < begin
    assert "daemon=$!" not in text[begin:]  # known once it has its own traps


def test_daemon_that_signals_at_once_is_answered() -> None:
    with _running("trap 'echo USR1; exit 5' USR1; kill -USR1 $PPID; while :; do sleep 0.05; done") as process:
        assert _line(process) == "USR1"
        assert process.wait(_DEADLINE_S) == 5


def test_it_ends_before_a_daemon_that_hands_over() -> None:
    daemon = (
        "trap 'kill -USR2 $PPID; read answer; echo outlived' TERM; echo set; while :; do sleep 0.05; done"
    )
    with _running(daemon) as process:
        assert _line(process) == "set"
        process.send_signal(signal.SIGTERM)
        assert process.wait(_DEADLINE_S) == 0
        # Its input is at its end, as that of a process in the background.
        assert _line(process) == "outlived"
