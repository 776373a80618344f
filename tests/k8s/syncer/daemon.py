# SPDX-License-Identifier: Apache-2.0
"""vc-syncer as a process beside the control planes, driven by its contract only."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

from daemonkit.status.server import StatusError, fetch
from tests.k8s.ring import shipped
from tests.k8s.ring.agent import AGENT_PORT
from tests.k8s.ring.processes import RingProcess
from tests.k8s.syncer.cluster import SyncedRing

_NAME = "vc-syncer"
_STATUS_S = 3.0
_READY_S = 40.0


def is_built() -> bool:
    """Whether there is a syncer to start."""
    return importlib.util.find_spec("syncer.__main__") is not None


class SyncerDaemon:
    """One syncer with its configuration, status page and log."""

    def __init__(
        self, ring: SyncedRing, settings: dict[str, Any] | None = None, *, name: str = _NAME
    ) -> None:
        """`settings` replace whole keys of the configuration."""
        self.name = name
        self.directory = ring.directory / name
        self.directory.mkdir()
        self.status_socket = self.directory / "status.sock"
        self.log = ring.directory / f"{name}.log"
        self._config = self.directory / "config.yaml"
        self._ring = ring
        self._kubeconfig = _let_in(ring, self.directory)
        self.process: RingProcess | None = None
        self.configure(settings or {})

    def configure(self, settings: dict[str, Any]) -> None:
        """Write its configuration, for its next start."""
        document = {
            "apiVersion": "vcnode.io/v1alpha1",
            "kind": "SyncerConfiguration",
            "superCluster": {"kubeconfigFile": str(self._kubeconfig)},
            "tenants": {"virtualClusters": {}},
            "vnAgent": {"port": AGENT_PORT, "address": "node"},
            "resources": ["ingress", "ingressclass", "priorityclass", "runtimeclass", "crd"],
            "status": {"socket": str(self.status_socket)},
            **settings,
        }
        self._config.write_text(json.dumps(document, indent=1))  # JSON is YAML

    def start(self, *, is_ready: bool = True) -> None:
        """Start it and wait until it is ready, or at least alive."""
        self.process = RingProcess(
            self.name,
            [*self._ring.control.enter, sys.executable, "-m", "syncer", "--config", str(self._config)],
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
        """The last error of each tenant, and the end of its log."""
        tenants = self.status().get("tenants", {})
        errors = [f"{each['key']}: {each['lastError']}" for each in tenants.values() if each.get("lastError")]
        return "\n".join([*errors, self.process.tail() if self.process is not None else ""])


def _let_in(ring: SyncedRing, directory: Path) -> Path:
    """Its kubeconfig: with the shipped role alone."""
    return shipped.let_in(ring.super_cluster, _NAME, "", directory)
