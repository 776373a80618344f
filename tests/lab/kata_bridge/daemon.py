# SPDX-License-Identifier: Apache-2.0
"""kata-bridge as a process, its guests described by files."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bridge_api.client import BridgeClient
from bridge_api.messages import GuestResult
from daemonkit.status.server import StatusError, fetch
from tests import waiting
from tests.lab.namespaces import LabNamespace

ROOT = Path(__file__).parents[3]
DEADLINE_S = 20.0
PROGRAM = (sys.executable, "-m", "kata_bridge")


@dataclass
class LabKataBridge:
    """A kata-bridge process and its files, in `directory`."""

    directory: Path
    process: subprocess.Popen[str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    program: Sequence[str] = PROGRAM

    @property
    def socket(self) -> Path:
        return self.directory / "bridge.sock"

    def guest(self, name: str, namespace: LabNamespace) -> None:
        self.file(name, netns=str(namespace.path))

    def file(self, name: str, **keys: object) -> None:
        document: dict[str, object] = {"apiVersion": "vcnode.io/v1alpha1", "kind": "Guest"}
        document |= {"namespace": "vc-a-x", "name": name, "tenant": "vc-a", "tenantNamespace": "x", **keys}
        (self.directory / "guests").mkdir(exist_ok=True)
        (self.directory / "guests" / f"{name}.yaml").write_text(yaml.safe_dump(document))

    def start(self, *, is_awaited: bool = True) -> None:
        config = self.directory / "config.yaml"
        document = {
            "apiVersion": "vcnode.io/v1alpha1",
            "kind": "KataBridgeConfiguration",
            "stateDirectory": str(self.directory / "state"),
            "lockFile": str(self.directory / "lock"),
            "listen": {"socket": str(self.socket)},
            "sandboxes": {"directory": str(self.directory / "guests")},
            "status": {"socket": str(self.directory / "status.sock")},
            "drift": {"checkSeconds": 0.5},
            **self.settings,
        }
        config.write_text(yaml.safe_dump(document))
        log = (self.directory / "log").open("a")
        self.process = subprocess.Popen(
            [*self.program, "--config", str(config)], cwd=ROOT, stderr=log, text=True
        )
        log.close()
        if is_awaited:
            self.until(lambda: self.is_ready)

    @property
    def is_ready(self) -> bool:
        try:
            return fetch(self.directory / "status.sock", "/readyz", 2.0)[0] == 200
        except (OSError, StatusError):
            return False

    def status(self) -> dict[str, dict[str, Any]]:
        """The guests of /status by id."""
        found = json.loads(fetch(self.directory / "status.sock", "/status", 2.0)[1])
        return {guest["id"]: guest for guest in found["guests"]}

    def series(self, name: str) -> float:
        """The value of one series, written as on the page; 0 when it is not there."""
        page = fetch(self.directory / "status.sock", "/metrics", 2.0)[1].decode()
        return sum(
            float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"{name} ")
        )

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, waiting.failure(condition, DEADLINE_S, self.log)
            assert self.process is None or self.process.poll() is None, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()


@contextmanager
def running(directory: Path, **settings: Any) -> Iterator[LabKataBridge]:
    daemon = LabKataBridge(directory, settings=settings)
    (directory / "guests").mkdir()
    try:
        yield daemon
    finally:
        if daemon.process is not None:
            daemon.process.kill()
            daemon.process.wait()


def push(daemon: LabKataBridge, guests: list[str], *rulesets: Any) -> list[dict[str, GuestResult]]:
    """Set rulesets one after another; the results of each by guest."""

    async def all_of(stream: AsyncIterator[GuestResult]) -> dict[str, GuestResult]:
        return {result.guest: result async for result in stream}

    async def run() -> list[dict[str, GuestResult]]:
        async with BridgeClient(daemon.socket, timeout_s=DEADLINE_S) as client:
            return [await all_of(client.set_ruleset(guests, ruleset)) for ruleset in rulesets]

    return asyncio.run(run())
