# SPDX-License-Identifier: Apache-2.0
"""A small daemon, as a process of its own, under a service manager that is a socket."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

# Blocks the loop on the file `hang`, ignores the end until the file `drained` is there.
DAEMON = """
import asyncio, pathlib, sys, time
from dataclasses import dataclass
from daemonkit import logs
from daemonkit.config.binding import load, setting
from daemonkit.run.command_line import load_or_exit, parse_arguments
from daemonkit.run.lifecycle import run

@dataclass(frozen=True, slots=True)
class Config:
    work_directory: pathlib.Path
    port: int = setting(0, minimum=0, maximum=65535)

async def body(life):
    life.on_reload((WORK / "reloaded").touch)
    life.ready()
    while not life.stopping.is_set() or (WORK / "busy").exists():
        if (WORK / "hang").exists():
            time.sleep(3600)
        if (WORK / "fail").exists():
            raise ValueError("two\\nlines")
        await asyncio.sleep(0.01)
    return 7

arguments = parse_arguments("daemon", sys.argv[1:])
settings = load_or_exit(arguments, lambda path: load(path, Config, kind="Daemon"))
WORK = settings.work_directory
logs.setup()
sys.exit(run(body))
"""


class Daemon:
    """The process, its directory and its messages to the service manager."""

    def __init__(self, process: subprocess.Popen[bytes], work: Path, manager: socket.socket) -> None:
        self.process = process
        self.work = work
        self._manager = manager

    def next_message(self) -> str:
        """Wait for the next notice."""
        return self._manager.recv(4096).decode()

    def falls_silent(self) -> bool:
        """Receive the pending notices. Whether none follows for a second."""
        self._manager.settimeout(1)
        with contextlib.suppress(TimeoutError):
            for _ in range(1000):
                self.next_message()
            return False
        return True

    def end(self) -> tuple[int, list[dict[str, object]]]:
        """Wait for the end; return the exit code and the log."""
        out, err = self.process.communicate(timeout=20)
        assert out == b""
        return self.process.returncode, [json.loads(line) for line in err.splitlines()]


def write_config(directory: Path) -> Path:
    path = directory / "daemon.yaml"
    path.write_text("apiVersion: vcnode.io/v1alpha1\nkind: Daemon\nworkDirectory: .\n")
    return path


@contextlib.contextmanager
def started(work: Path, *, address: str | None = None, watchdog_usec: int | None = None) -> Iterator[Daemon]:
    address = address or str(work / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:] if address.startswith("@") else address)
        manager.settimeout(20)
        environment = {**os.environ, "NOTIFY_SOCKET": address}  # noqa: TID251 - of the process we start
        if watchdog_usec is not None:
            environment["WATCHDOG_USEC"] = str(watchdog_usec)
        process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, "--config", str(write_config(work))],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield Daemon(process, work, manager)
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_starts_reloads_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as daemon:
        assert daemon.next_message() == "READY=1"
        daemon.process.send_signal(signal.SIGHUP)
        wait_until((tmp_path / "reloaded").exists)
        daemon.process.send_signal(number)
        assert daemon.next_message() == "STOPPING=1\nSTATUS=stopping"
        code, log = daemon.end()
    assert code == 7
    assert [(line["message"], line["signal"]) for line in log] == [
        ("reloading", "SIGHUP"),
        ("stopping", number.name),
    ]


def test_notices_reach_an_abstract_socket(tmp_path: Path) -> None:
    with started(tmp_path, address=f"@vcnode-test-{os.getpid()}") as daemon:
        assert daemon.next_message() == "READY=1"


def test_a_second_sigterm_kills_at_once(tmp_path: Path) -> None:
    with started(tmp_path) as daemon:
        (tmp_path / "busy").touch()
        assert daemon.next_message() == "READY=1"
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.next_message() == "STOPPING=1\nSTATUS=stopping"
        assert daemon.process.poll() is None
        daemon.process.send_signal(signal.SIGTERM)
        code, log = daemon.end()
    assert code == -signal.SIGTERM
    assert log[-1]["message"] == "exiting at once after a second signal"


def test_the_watchdog_is_fed_while_the_loop_runs(tmp_path: Path) -> None:
    with started(tmp_path, watchdog_usec=100_000) as daemon:
        messages = [daemon.next_message() for _ in range(5)]
        assert sorted(set(messages)) == ["READY=1", "WATCHDOG=1"]
        (tmp_path / "hang").touch()
        assert daemon.falls_silent()


def test_a_failing_body_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with started(tmp_path) as daemon:
        assert daemon.next_message() == "READY=1"
        (tmp_path / "fail").touch()
        code, log = daemon.end()
    assert code == 1
    assert [line["message"] for line in log] == ["the daemon failed"]
    assert log[0]["error"] == "ValueError: two\nlines"
    assert "Traceback" in str(log[0]["traceback"])


def test_a_missing_service_manager_is_survived(tmp_path: Path) -> None:
    with started(tmp_path) as daemon:
        assert daemon.next_message() == "READY=1"
        (tmp_path / "notify").unlink()
        daemon.process.send_signal(signal.SIGTERM)
        code, log = daemon.end()
    assert code == 7
    assert log[-1]["message"] == "the service manager cannot be reached"


def test_the_start_imports_no_large_module() -> None:
    code = "import sys, daemonkit.run.command_line, daemonkit.run.daemon_shell; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert {"daemonkit.run.lifecycle", "asyncio", "ssl", "yaml", "msgspec"} <= loaded
    assert not loaded & {
        "aiohttp",
        "cryptography",
        "h11",
        "prometheus_client",
        "importlib.metadata",
        "email",
        "http",
    }
