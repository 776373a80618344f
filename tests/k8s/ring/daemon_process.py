# SPDX-License-Identifier: Apache-2.0
"""A daemon of ours as a process beside the control planes, driven by its contract only."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

from daemonkit.status.server import StatusError, fetch
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingProcess

_STATUS_S = 3.0
_READY_S = 40.0


class DaemonProcess:
    """One daemon with its configuration, status page and log."""

    def __init__(self, name: str, module: str, network: NetworkNamespace, directory: Path) -> None:
        """`module` is its package; `directory` is the ring's, in which it gets one of its own."""
        self.name = name
        self.directory = directory / name
        self.directory.mkdir()
        self.status_socket = self.directory / "status.sock"
        self.log = directory / f"{name}.log"
        self.process: RingProcess | None = None
        self._module = module
        self._network = network
        self._config = self.directory / "config.yaml"

    def write_configuration(self, document: dict[str, Any]) -> None:
        """Write its configuration, for its next start."""
        self._config.write_text(json.dumps(document, indent=1))  # JSON is YAML

    def start(self, *, is_ready: bool = True) -> None:
        """Start it and wait until it is ready, or at least alive."""
        self.process = RingProcess(
            self.name,
            [*self._network.enter, sys.executable, "-m", self._module, "--config", str(self._config)],
            self.log,
            directory=self.directory,
        )
        page = "/readyz" if is_ready else "/healthz"
        self.process.wait_until(lambda: self.page(page)[0] == 200, timeout_s=_READY_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """End it, if it runs; returns its exit code."""
        if self.process is None:
            return None
        self.process.stop(number)
        return self.process.exit_code

    def page(self, path: str) -> tuple[int, str]:
        """A status page; 0 while it does not respond."""
        try:
            code, body = fetch(self.status_socket, path, _STATUS_S)
        except (OSError, StatusError):
            return 0, ""
        return code, body.decode()

    def status(self) -> dict[str, Any]:
        """Its `/status`; empty while it does not respond."""
        text = self.page("/status")[1]
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def metric(self, family: str) -> float:
        """The sum of a family's series."""
        found = re.findall(rf"^{family}(?:{{[^}}]*}})? (\S+)$", self.page("/metrics")[1], re.MULTILINE)
        return sum(map(float, found))

    def tail(self) -> str:
        """The end of its log."""
        return self.process.tail() if self.process is not None else ""
