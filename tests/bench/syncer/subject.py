# SPDX-License-Identifier: Apache-2.0
"""The measured syncer: ours, or another one that reads the same VirtualClusters."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from daemonkit.status.server import fetch
from tenancy import keys
from tests.bench import usage
from tests.bench.processes import RunError
from tests.bench.usage import MemoryUsage

_ROOT = Path(__file__).resolve().parents[3]
_STOP_S = 20.0
_PAGE_S = 10.0


@dataclass(frozen=True, slots=True)
class SyncerProgram:
    """How a syncer is started. `status` is the socket of ours, None for another."""

    name: str
    command: tuple[str, ...]
    status: Path | None = None


def ours(
    directory: Path, super_kubeconfig: Path, *, launcher: Path | None = None, profile: Path | None = None
) -> SyncerProgram:
    """Our syncer, from the sources or from an installed tree, with tenants from VirtualClusters."""
    status, config = directory / "status.sock", directory / "syncer.yaml"
    document = {
        "apiVersion": keys.API_VERSION,
        "kind": "SyncerConfiguration",
        "superCluster": {"kubeconfigFile": str(super_kubeconfig)},
        "tenants": {"virtualClusters": {}},
        "status": {"socket": str(status)},
    }
    config.write_text(yaml.safe_dump(document))
    if launcher is not None:
        command = [str(launcher)]
    else:
        profiler = [] if profile is None else ["-m", "cProfile", "-o", str(profile.resolve())]
        command = [sys.executable, *profiler, "-m", "syncer"]
    return SyncerProgram("ours", (*command, "--config", str(config)), status)


def peer(command: str, super_kubeconfig: Path) -> SyncerProgram:
    """Another syncer. Its command gets the path of the super cluster's kubeconfig as the last argument."""
    return SyncerProgram("peer", (*shlex.split(command), str(super_kubeconfig)))


class RunningSyncer:
    """All processes of one syncer: a command may be a script that starts others."""

    def __init__(self, program: SyncerProgram, log: Path) -> None:
        self.program = program
        self._log = log
        self.started_s = time.monotonic()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                program.command,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raises RunError if it has ended."""
        if self._process.poll() is not None:
            end = self._log.read_text(errors="replace")[-2000:]
            raise RunError(
                f"the syncer has ended with {self._process.returncode}; {self._log} ends with:\n{end}"
            )

    def stop(self) -> None:
        """Have it end, and wait for that."""
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def cpu_s(self) -> float:
        """CPU seconds so far of all its processes."""
        self.check()
        return usage.cpu_s(self._pids())

    def memory(self) -> MemoryUsage:
        """The sum of its processes."""
        self.check()
        parts = [usage.memory(pid) for pid in self._pids()]
        return MemoryUsage(
            sum(each.rss_mb for each in parts),
            sum(each.pss_mb for each in parts),
            sum(each.anonymous_mb for each in parts),
        )

    def is_ready(self) -> bool:
        """Whether `/readyz` is; another syncer's readiness is not asked for."""
        self.check()
        if self.program.status is None:
            return True
        with contextlib.suppress(OSError):
            return fetch(self.program.status, "/readyz", _PAGE_S)[0] == 200
        return False

    def metric(self, name: str) -> float | None:
        """The sum of a metric's samples; None of another syncer."""
        if self.program.status is None:
            return None
        _, page = fetch(self.program.status, "/metrics", _PAGE_S)
        return _sum_of(page.decode().splitlines(), name)

    def _pids(self) -> list[int]:
        """The processes of its session, itself first."""
        found = [self._process.pid]
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                pid, session = int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[3])
                if session == self._process.pid and pid != self._process.pid:
                    found.append(pid)
        return found


def _sum_of(lines: Sequence[str], name: str) -> float:
    samples = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in samples)
