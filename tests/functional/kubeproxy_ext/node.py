# SPDX-License-Identifier: Apache-2.0
"""A node under test: a real kubeproxy-ext process, a stand-in API server, a stand-in kata-bridge."""

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

from daemonkit.kube.resources import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES
from daemonkit.status import StatusError, fetch
from daemonkit.testing.kube_apiserver import KubeApiserver
from daemonkit.testing.pki import Authority
from kubeproxy_ext.testing.fake_bridge import FakeBridge
from tenancy import keys

NAME = "node-1"
DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[3]


class Node:
    """Everything lies in `directory`; the daemon's log is `log`."""

    def __init__(self, directory: Path, settings: dict[str, Any] | None = None) -> None:
        self.directory = directory
        self.settings = settings or {}
        authority = Authority.create("super-cluster")
        self._leaf = authority.issue("kubeproxy-ext", usages=["client"])
        self.apiserver = KubeApiserver(authority=authority, client_ca_pem=authority.cert_pem)
        self.bridge = FakeBridge()
        self.socket = directory / "status.sock"
        self.bridge_socket = directory / "bridge.sock"
        self.log = directory / "daemon.log"
        self.process: asyncio.subprocess.Process | None = None
        self.program: tuple[str, ...] = ("-m", "kubeproxy_ext")
        node = {"name": NAME, "labels": {"topology.kubernetes.io/zone": "z1"}}
        self.apiserver.storage.put(NODES, {"metadata": node})

    # ---- the super cluster

    def put_tenant(self, tenant: str, *namespaces: str) -> None:
        for name in namespaces or ("default",):
            annotations = {keys.CLUSTER: tenant, keys.NAMESPACE: name}
            metadata = {"name": f"{tenant}-{name}", "annotations": annotations}
            self.apiserver.storage.put(NAMESPACES, {"metadata": metadata})

    def put_service(self, tenant: str, name: str, ip: str, *endpoints: str, protocol: str = "TCP") -> None:
        """A Service in the tenant's default namespace, with one slice of these endpoints."""
        metadata = {"name": name, "namespace": f"{tenant}-default"}
        port = {"name": "p", "protocol": protocol, "port": 80}
        spec = {"clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"], "ports": [port]}
        self.apiserver.storage.put(SERVICES, {"metadata": metadata, "spec": spec})
        self.put_slice(tenant, name, *endpoints, protocol=protocol)

    def put_slice(self, tenant: str, service: str, *endpoints: str, protocol: str = "TCP") -> None:
        metadata = {
            "name": f"{service}-1",
            "namespace": f"{tenant}-default",
            "labels": {"kubernetes.io/service-name": service},
        }
        self.apiserver.storage.put(
            ENDPOINT_SLICES,
            {
                "metadata": metadata,
                "addressType": "IPv4",
                "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in endpoints],
                "ports": [{"name": "p", "protocol": protocol, "port": 8080}],
            },
        )

    # ---- the daemon

    def write_config(self) -> Path:
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(self.apiserver.kubeconfig(self._leaf), encoding="utf-8")
        document = {
            "apiVersion": keys.API_VERSION,
            "kind": "KubeproxyExtConfiguration",
            "nodeName": NAME,
            "superCluster": {"kubeconfigFile": str(kubeconfig)},
            "bridge": {"socket": str(self.bridge_socket)},
            "serviceCIDRs": ["10.96.0.0/16"],
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
                sys.executable,
                *self.program,
                "--config",
                str(self.write_config()),
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

    async def metric(self, name: str) -> float:
        """The sum of a family's series."""
        lines = (await self.get("/metrics"))[1].splitlines()
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)

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

    # ---- what guests have

    def rules(self, guest: str) -> str:
        """The IPv4 text that a guest has; empty if it has none."""
        held = self.bridge.held(guest)
        texts = [d.text() for d in held.documents if d.family.value == "ipv4"] if held is not None else []
        return "".join(texts)

    def has(self, guest: str, *texts: str) -> bool:
        return all(text in self.rules(guest) for text in texts)


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
