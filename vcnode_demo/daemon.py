# SPDX-License-Identifier: Apache-2.0
"""A real daemon of the demo, in a process of its own, and its status pages."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from daemonkit.status.server import StatusError, fetch
from tenancy import keys
from vcnode.terminal import ToolError

_START_S = 15.0
_STOP_S = 10.0
_ASK_S = 5.0
_POLL_S = 0.02
_LOG_LINES = 15


class Daemon:
    """`start` waits until it is ready; `stop` lets it drain.

    Python runs `module`. `config` is its configuration without kind and status. `name` begins the names of
    its files. `start_by` is a prefix of its command. `run_by` is a module with its arguments that runs the
    other one, such as tests/moved_clock.py.
    """

    def __init__(
        self,
        name: str,
        module: str,
        directory: Path,
        kind: str,
        config: Mapping[str, Any],
        *,
        start_by: tuple[str, ...] = (),
        run_by: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.config_file = directory / f"{name}.yaml"
        self.log_file = directory / f"{name}.log"
        self.socket = directory / f"{name}.sock"
        self._module = module
        self._start_by = start_by
        self._run_by = run_by
        self._config = {
            "apiVersion": keys.API_VERSION,
            "kind": kind,
            **config,
            "status": {"socket": str(self.socket)},
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it and wait until it is ready. Raises ToolError."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        self.config_file.write_text(yaml.safe_dump(self._config, sort_keys=False))
        module = (*self._run_by, self._module)
        command = [*self._start_by, sys.executable, "-m", *module, "--config", str(self.config_file)]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603 - our own program

    def wait(self) -> None:
        """Wait until it is ready. Raises ToolError."""
        end_s = time.monotonic() + _START_S
        while not self._is_ready():
            if self._process is not None and self._process.poll() is not None:
                raise ToolError(f"{self.name} ended with exit code {self._process.returncode}")
            if time.monotonic() > end_s:
                raise ToolError(f"{self.name} was not ready within {_START_S:.0f} s")
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """Kill it, as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

    def stop(self) -> int:
        """Ask it to drain and end; return its exit code. May be called twice."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(_STOP_S)

    def readyz(self) -> tuple[int, bytes]:
        return fetch(self.socket, "/readyz", _ASK_S)

    def status_body(self) -> bytes:
        return fetch(self.socket, "/status", _ASK_S)[1]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.status_body())
        return found

    def metrics(self) -> list[str]:
        """The lines of /metrics without comments."""
        text = fetch(self.socket, "/metrics", _ASK_S)[1].decode()
        return [line for line in text.splitlines() if not line.startswith("#")]

    def metric(self, family: str) -> float:
        """The sum of a family's series. Raises ToolError for a family that the daemon does not have."""
        text = fetch(self.socket, "/metrics", _ASK_S)[1].decode()
        if f"\n# TYPE {family} " not in text:
            raise ToolError(f"{self.name} has no metric {family}")
        lines = (line for line in text.splitlines() if line.startswith((f"{family} ", f"{family}{{")))
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def exit_code(self) -> int | None:
        """Of its last process; None while that runs."""
        return self._process.poll() if self._process is not None else None

    def last_log_lines(self) -> list[str]:
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        except FileNotFoundError:
            return []
        return [f"{self.name} log: {line}" for line in lines]

    def _is_ready(self) -> bool:
        try:
            return self.readyz()[0] == 200
        except (OSError, StatusError):
            return False


class VnAgent(Daemon):
    """vn-agent, with its audit log, on a port that it chooses."""

    def __init__(self, directory: Path, config: Mapping[str, Any], *, run_by: tuple[str, ...] = ()) -> None:
        audit = config.get("audit") or {"file": str(directory / "audit.jsonl")}
        self.audit_file = Path(audit["file"])
        super().__init__(
            "vn-agent",
            "vnagent",
            directory,
            "VnAgentConfiguration",
            {**config, "audit": audit},
            run_by=run_by,
        )

    @property
    def port(self) -> int:
        """The port that it chose to listen on."""
        port = self.status()["listen"]["port"]
        if not isinstance(port, int):
            raise ToolError("vn-agent's status has no port")
        return port

    def audit(self) -> list[dict[str, Any]]:
        """The audit log so far."""
        return [json.loads(line) for line in self.audit_file.read_text("utf-8").splitlines()]
