# SPDX-License-Identifier: Apache-2.0
"""A node under test: a real daemon process between a fake API server and a fake kata-bridge."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from daemonkit.status.server import StatusError, fetch
from devkit.fake_bridge import FakeBridge
from devkit.kube.apiserver import FakeApiserver
from devkit.pki import Authority
from tenancy import keys
from tests import waiting

NAME = "node-1"
DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[2]


class DaemonNode:
    """Everything lies in `directory`; the daemon's log is `log`.

    `settings` are those of its configuration that not every daemon has, its kind among them.
    """

    def __init__(
        self, directory: Path, user: str, program: tuple[str, ...], settings: dict[str, Any]
    ) -> None:
        self.directory = directory
        self.program = program
        self.bridge = FakeBridge()
        self.settings = settings
        authority = Authority.create("super-cluster")
        self._leaf = authority.issue(user, usages=["client"])
        self.apiserver = FakeApiserver(authority=authority, client_ca_pem=authority.cert_pem)
        self.socket = directory / "status.sock"
        self.bridge_socket = directory / "bridge.sock"
        self.log = directory / "daemon.log"
        self.process: asyncio.subprocess.Process | None = None

    def share(self, other: "DaemonNode") -> None:
        """Be on the node of `other`: with its API server and its kata-bridge."""
        self.apiserver, self._leaf = other.apiserver, other._leaf  # noqa: SLF001 - of another node of this class
        self.bridge, self.bridge_socket = other.bridge, other.bridge_socket

    def write_config(self) -> Path:
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(self.apiserver.kubeconfig(self._leaf), encoding="utf-8")
        document = {
            "apiVersion": keys.API_VERSION,
            "nodeName": NAME,
            "superCluster": {"kubeconfigFile": str(kubeconfig)},
            "bridge": {"socket": str(self.bridge_socket)},
            "stateDirectory": str(self.directory / "state"),
            "status": {"socket": str(self.socket)},
        }
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(document | self.settings), encoding="utf-8")
        return path

    async def start(self) -> None:
        """Start the process and wait until its status page is there."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, *self.program, "--config", str(self.write_config())),
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await self.until(self.is_up)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()

    async def is_up(self) -> bool:
        return (await self.get("/healthz"))[0] == 200

    async def is_ready(self) -> bool:
        return (await self.get("/readyz"))[0] == 200

    async def get(self, path: str) -> tuple[int, str]:
        """A status page; (0, reason) without a response."""
        try:
            status, body = await asyncio.to_thread(fetch, self.socket, path, 5.0)
        except (StatusError, OSError) as problem:
            return 0, str(problem)
        return status, body.decode()

    async def status(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((await self.get("/status"))[1])
        return value

    async def until(self, condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> None:
        """Wait for a condition, plain or awaited; fail with the log when it does not come true."""
        end = asyncio.get_running_loop().time() + deadline_s
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return
            ended = self.process is not None and self.process.returncode is not None
            if asyncio.get_running_loop().time() > end or ended:
                tail = self.log.read_text(encoding="utf-8")[-4000:] if self.log.exists() else ""
                seen = await waiting.awaited_failure(condition, deadline_s)
                pytest.fail(f"{seen}\nended: {ended}; the log ends:\n{tail}")
            await asyncio.sleep(0.01)


N = TypeVar("N", bound=DaemonNode)


@contextlib.asynccontextmanager
async def running(node: N, *, with_daemon: bool = True, with_servers: bool = True) -> AsyncIterator[N]:
    """The parts of the node, which always end. A node that shares another node's servers starts none."""
    if not with_servers:
        async with _daemon(node, with_daemon=with_daemon):
            yield node
        return
    await node.apiserver.start()
    await node.bridge.serve(node.bridge_socket)
    try:
        async with _daemon(node, with_daemon=with_daemon):
            yield node
    finally:
        await node.bridge.stop()
        await node.apiserver.stop()


@contextlib.asynccontextmanager
async def _daemon(node: DaemonNode, *, with_daemon: bool) -> AsyncIterator[None]:
    try:
        if with_daemon:
            await node.start()
        yield
    finally:
        if node.process is not None and node.process.returncode is None:
            node.process.kill()
            await node.process.wait()
