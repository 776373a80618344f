# SPDX-License-Identifier: Apache-2.0
"""vn-agent as a process of its own in the node's network namespace, driven by its contract only."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from devkit.files import replace_file
from tests.k8s.ring import shipped
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.certs import CertificateFiles
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.node import KUBELET_PORT
from tests.k8s.ring.processes import RingProcess
from tests.k8s.ring.tenants import RingTenant

AGENT_PORT = 10550
_READY_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """The agent's certificates for tenants and for the kubelet, and the kubelet's authority."""

    serving: CertificateFiles
    kubelet_client: CertificateFiles
    kubelet_authority: Path


class VnAgentDaemon:
    """A vn-agent with a directory of tenants and the kubelet as the source of pods."""

    def __init__(
        self,
        node: str,
        namespace: NetworkNamespace,
        python: str,
        directory: Path,
        identity: AgentIdentity,
    ) -> None:
        self.namespace = namespace
        self.identity = identity
        self._directory = directory
        self._python = python
        self._config = directory / "vn-agent.yaml"
        self._tenants = directory / "tenants"
        self._status = directory / "vn-agent.sock"
        self.audit = directory / "audit.jsonl"
        self.daemon: RingProcess | None = None
        self._tenants.mkdir()
        (directory / "agent-state").mkdir()
        configuration = shipped.configuration(
            "vn-agent.yaml",
            {
                "nodeName": node,
                "listen.address": namespace.address,
                "listen.port": AGENT_PORT,
                "serving.certificateFile": str(identity.serving.certificate),
                "serving.keyFile": str(identity.serving.key),
                "kubelet.address": namespace.address,
                "kubelet.port": KUBELET_PORT,
                "kubelet.caFile": str(identity.kubelet_authority),
                "kubelet.serverName": node,
                "kubelet.clientCertificateFile": str(identity.kubelet_client.certificate),
                "kubelet.clientKeyFile": str(identity.kubelet_client.key),
                "tenants.directory": str(self._tenants),
                "injectedContainers": ["mesh-proxy"],
                "stateDirectory": str(directory / "agent-state"),
                "audit.file": str(self.audit),
                "status.socket": str(self._status),
                "pages.maxAgeSeconds": 0,
            },
        )
        # JSON is YAML.
        self._config.write_text(json.dumps(configuration, indent=1))

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.daemon = RingProcess(
            "vn-agent",
            [*self.namespace.enter, self._python, "-m", "vnagent", "--config", str(self._config)],
            self._directory / "vn-agent.log",
            directory=self._directory,
        )
        self.daemon.wait_until(lambda: self.status("/readyz")[0] == 200, timeout_s=_READY_TIMEOUT_S)

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self.daemon is not None:
            self.daemon.stop()

    def register(self, tenant: RingTenant, registration: JsonObject) -> None:
        """Write a tenant's file; the agent notices by itself."""
        self.register_text(tenant, json.dumps(registration).encode())

    def register_text(self, tenant: RingTenant, content: bytes) -> None:
        """Write these bytes as a tenant's file."""
        replace_file(self._tenants / f"{tenant.key}.yaml", content)

    def remove(self, tenant: RingTenant) -> None:
        """Take a tenant's file away."""
        (self._tenants / f"{tenant.key}.yaml").unlink()

    def status(self, path: str) -> tuple[int, str]:
        """A page of its status socket: HTTP status and body; 0 while it does not respond."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(5)
                connection.connect(str(self._status))
                connection.sendall(
                    f"GET {path} HTTP/1.1\r\nHost: status\r\nConnection: close\r\n\r\n".encode()
                )
                reply = bytearray()
                while chunk := connection.recv(65536):
                    reply += chunk
        except OSError:
            return 0, ""
        head, _, body = bytes(reply).partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), body.decode()

    def series(self, name: str) -> float:
        """The value of one series, written as on the page; 0 when it is not there."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.status("/metrics")[1], re.MULTILINE)
        return float(found.group(1)) if found else 0.0

    def audit_lines(self) -> list[JsonObject]:
        """Every decision that is written so far: the agent may buffer the last ones for a moment."""
        if not self.audit.exists():
            return []
        return [
            json.loads(line)
            for line in self.audit.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def kubelet_connections(self) -> set[int]:
        """Local ports of the agent's established connections to the kubelet.

        Read from the agent's own sockets: other clients of the kubelet are in the same table.
        """
        assert self.daemon is not None
        process = Path(f"/proc/{self.daemon.pid}")
        inodes = set()
        for link in (process / "fd").iterdir():
            try:
                target = str(link.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[len("socket:[") : -1])
        ports = set()
        for table in ("tcp", "tcp6"):
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                remote_port = int(fields[2].rpartition(":")[2], 16)
                is_established = fields[3] == "01"
                if is_established and remote_port == KUBELET_PORT and fields[9] in inodes:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
        return ports
