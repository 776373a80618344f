# SPDX-License-Identifier: Apache-2.0
"""The real daemons of a node, and what a scrape of each has."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from daemonkit.status.server import StatusError, fetch
from tests.functional.healthy_node import DAEMONS, HealthyNode
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """As many ports, each another one."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def socket_of(files: HealthyNode, daemon: str) -> Path:
    return files.directory / "run" / f"{daemon}.sock"


def page(files: HealthyNode, daemon: str, path: str = "/metrics") -> str:
    """The page in the text format. Raises OSError and StatusError."""
    status, body = fetch(socket_of(files, daemon), path, 10.0)
    if status != 200:
        raise StatusError(f"{daemon}: {path}: {status}")
    return body.decode()


def is_served(files: HealthyNode, daemon: str, path: str) -> bool:
    try:
        page(files, daemon, path)
    except (OSError, StatusError):
        return False
    return True


@contextlib.contextmanager
def running(
    files: HealthyNode, daemons: Sequence[str] = tuple(DAEMONS), *, until: str = "/healthz"
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start them, and wait until each serves the page `until` with 200; /readyz waits for readiness."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    log_file = files.directory / "daemons.log"
    with log_file.open("ab") as log:
        try:
            for name in daemons:
                command = [sys.executable, "-m", DAEMONS[name], "--config", str(files.config(name))]
                processes[name] = subprocess.Popen(command, cwd=ROOT, stderr=log)
            for name in daemons:
                wait_until(
                    lambda name=name: is_served(files, name, until),  # type: ignore[misc] # binds it
                    within_s=DEADLINE_S,
                    context=log_file.read_text,
                )
            yield processes
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
