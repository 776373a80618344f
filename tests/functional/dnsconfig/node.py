# SPDX-License-Identifier: Apache-2.0
"""A node under test: a real dnsconfig process, a stand-in API server, a stand-in kata-bridge."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonkit.kube.resources import NAMESPACES, PODS, SERVICES, VIRTUAL_CLUSTERS, Resource
from daemonkit.status import StatusError, fetch
from daemonkit.testing.kube_apiserver import KubeApiserver
from daemonkit.testing.pki import Authority
from dnsconfig.core.wire import NETWORKS
from dnsconfig.testing.fake_bridge import FakeBridge
from tenancy import keys
from tests.unit.dnsconfig import objects

NAME = "node-1"
DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[3]

_RESOURCES = {
    "Namespace": NAMESPACES,
    "Pod": PODS,
    "Service": SERVICES,
    "Network": NETWORKS,
    "VirtualCluster": VIRTUAL_CLUSTERS,
}


class Node:
    """Everything lies in `directory`; the daemon's log is `log`."""

    def __init__(self, directory: Path, settings: dict[str, Any] | None = None) -> None:
        self.directory = directory
        self.settings = settings or {}
        authority = Authority.create("super-cluster")
        self._leaf = authority.issue("dnsconfig", usages=["client"])
        self.apiserver = KubeApiserver(authority=authority, client_ca_pem=authority.cert_pem)
        self.bridge = FakeBridge()
        self.socket = directory / "status.sock"
        self.bridge_socket = directory / "bridge.sock"
        self.log = directory / "daemon.log"
        self.resolv_conf = directory / "resolv.conf"
        self.resolv_conf.write_text("nameserver 192.0.2.1\nsearch example.org\n")
        self.process: asyncio.subprocess.Process | None = None

    # ---- the super cluster

    def put(self, *items: dict[str, Any]) -> None:
        for item in items:
            self.apiserver.storage.put(_RESOURCES[item["kind"]], item)

    def put_pod(self, tenant: str, name: str, **how: Any) -> str:
        """A pod of a tenant on this node; returns its UID."""
        item = objects.pod(tenant, name, nodeName=NAME, **how)
        uid: str = self.apiserver.storage.put(PODS, item)["metadata"]["uid"]
        return uid

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        self.apiserver.storage.delete(resource, namespace, name)

    # ---- the daemon

    def write_config(self) -> Path:
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(self.apiserver.kubeconfig(self._leaf), encoding="utf-8")
        document = {
            "apiVersion": keys.API_VERSION,
            "kind": "DnsConfigConfiguration",
            "nodeName": NAME,
            "superCluster": {"kubeconfigFile": str(kubeconfig)},
            "bridge": {"socket": str(self.bridge_socket)},
            "resolvConf": str(self.resolv_conf),
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
                *(sys.executable, "-m", "dnsconfig", "--config", str(self.write_config())),
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
        """A status page; (0, reason) when there is no answer."""
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
                pytest.fail(f"waited {deadline_s} s in vain (ended: {ended}); the log ends:\n{tail}")
            await asyncio.sleep(0.01)

    # ---- what pods have

    def text(self, uid: str) -> str:
        return self.bridge.texts.get(uid, "")

    def servers(self, uid: str) -> list[str]:
        lines = self.text(uid).splitlines()
        return [line.removeprefix("nameserver ") for line in lines if line.startswith("nameserver ")]

    def waits(self, uid: str) -> str:
        return self.bridge.waits.get(uid, "")


@contextlib.asynccontextmanager
async def running(
    node: Node, *, with_apiserver: bool = True, with_daemon: bool = True
) -> AsyncIterator[Node]:
    """The parts of the node, ended whatever happens."""
    # A port of its own, also for a start without it.
    await node.apiserver.start()
    if not with_apiserver:
        await node.apiserver.stop()
    await node.bridge.serve(node.bridge_socket)
    try:
        if with_daemon:
            await node.start()
        yield node
    finally:
        if node.process is not None and node.process.returncode is None:
            node.process.kill()
            await node.process.wait()
        await node.bridge.stop()
        await node.apiserver.stop()
