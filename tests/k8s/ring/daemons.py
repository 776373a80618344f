# SPDX-License-Identifier: Apache-2.0
"""kata-bridge, kubeproxy-ext and dnsconfig as processes on the ring's node, driven by their contract only."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from daemonkit.status.server import StatusError, fetch
from tests.k8s.ring import shipped
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.controlplane import Apiserver
from tests.k8s.ring.node import KATA_HANDLERS, RealNode
from tests.k8s.ring.processes import RingProcess
from tests.k8s.ring.tenants import RingTenant

# Where the agents in guests reach the node.
AGENT_PORT = 10560
SERVICE_CIDR = "10.96.0.0/16"
# Of both tenants: their own addresses may be the same.
TENANT_CIDR = "10.32.0.0/16"
_STATUS_S = 3.0
_READY_S = 20.0


class DaemonHost(Protocol):
    """A node of a ring: what daemons on it need. Their files are in `directory`."""

    @property
    def directory(self) -> Path: ...
    @property
    def node(self) -> RealNode: ...
    @property
    def super_cluster(self) -> Apiserver: ...
    @property
    def tenants(self) -> Sequence[RingTenant]: ...


class NodeDaemon:
    """One of our daemons in `directory`, with its status page and its log."""

    def __init__(
        self,
        name: str,
        module: str,
        ring: DaemonHost,
        python: str,
        wrapper: list[str],
        *,
        tree: Path | None = None,
    ) -> None:
        """`tree`: run its launcher in an installed tree, not the sources."""
        self.name = name
        self.directory = ring.directory / name
        self.directory.mkdir(exist_ok=True)
        self.status_socket = self.directory / "status.sock"
        self._log = ring.directory / f"{name}.log"
        self._config = self.directory / "config.yaml"
        program = [python, "-m", module] if tree is None else [str(tree / "bin" / name)]
        self._argv = [*wrapper, *program, "--config", str(self._config)]
        self._ring = ring
        self.process: RingProcess | None = None

    def configure(
        self, example: str, settings: Mapping[str, object], *, without: tuple[str, ...] = ()
    ) -> None:
        """Write its configuration for the next start: the shipped example with other paths."""
        here = {"status.socket": str(self.status_socket), **settings}
        document = shipped.configuration(example, here, without=without)
        self._config.write_text(json.dumps(document, indent=1))  # JSON is YAML

    def launch(self) -> RingProcess:
        """Start the process; does not wait for it."""
        return RingProcess(
            self.name, self._argv, self._log, directory=self.directory, enters_pid_namespace=True
        )

    def start(self, *, is_ready: bool = True) -> None:
        """Start it and wait until it is ready, or at least alive."""
        self.process = self.launch()
        page = "/readyz" if is_ready else "/healthz"
        self.process.wait_until(lambda: self.page(page)[0] == 200, timeout_s=_READY_S)

    def wait_ready(self) -> None:
        """Wait until the running process is ready."""
        assert self.process is not None
        self.process.wait_until(lambda: self.page("/readyz")[0] == 200, timeout_s=_READY_S)

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

    def guest(self, sandbox: str) -> dict[str, Any]:
        """One guest in its /status; empty for an unknown guest."""
        guests: list[dict[str, Any]] = self.status().get("guests", [])
        return next((guest for guest in guests if guest["id"] == sandbox), {})

    def metric(self, family: str) -> float:
        """The sum of a family's series."""
        found = re.findall(rf"^{family}(?:{{[^}}]*}})? (\S+)$", self.page("/metrics")[1], re.MULTILINE)
        return sum(map(float, found))

    def lines(self, message: str, **fields: object) -> list[dict[str, Any]]:
        """Its log lines with this message and these fields, in all its lives."""
        # A line that is being written has no end yet.
        complete = [line for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        parsed = [json.loads(line) for line in complete if line.startswith("{")]
        return [
            line
            for line in parsed
            if line["message"] == message and all(line.get(key) == value for key, value in fields.items())
        ]


def kata_bridge(
    ring: DaemonHost,
    python: str,
    gate: JsonObject | None = None,
    *,
    has_nri: bool = True,
    tree: Path | None = None,
) -> NodeDaemon:
    """kata-bridge as root in the node's namespaces, with a channel of its own for each handler."""
    daemon = NodeDaemon("kata-bridge", "kata_bridge", ring, python, ring.node.enter, tree=tree)
    directory = daemon.directory
    kata, agent, stock = KATA_HANDLERS
    # The kernel's vsock leads out of this machine.
    left_out = ["listen.group", "agent.vsockPort", *([] if has_nri else ["sandboxes.nri"])]
    if gate is None:
        left_out.append("gate")
    elif "superCluster.kubeconfigFile" not in gate:
        left_out.append("gate.superCluster")
    daemon.configure(
        "kata-bridge.yaml",
        {
            "stateDirectory": str(directory / "state"),
            "lockFile": str(directory / "lock"),
            "listen.socket": str(bridge_socket(ring)),
            "sandboxes.cri.intervalSeconds": 2 if has_nri else 0.5,
            "runtimes": [
                {"handlers": [agent], "channels": ["agent"]},
                {"handlers": [stock], "channels": ["stock"]},
                {"handlers": [kata], "channels": ["netns"]},
            ],
            "agent.address": ring.node.namespace.address,
            "agent.port": AGENT_PORT,
            "stock.shimDirectories": [str(root) for root in shim_roots(ring)],
            "drift.checkSeconds": 1,
            "drain.seconds": 1,
            **{f"gate.{key}": value for key, value in (gate or {}).items()},
        },
        without=tuple(left_out),
    )
    return daemon


def credentials_of(bridge: NodeDaemon) -> Path:
    """Where kata-bridge keeps the certificate of each sandbox."""
    return bridge.directory / "state" / "sandboxes"


def bridge_socket(ring: DaemonHost) -> Path:
    """Where kata-bridge listens."""
    return ring.directory / "bridge.sock"


def shim_roots(ring: DaemonHost) -> tuple[Path, Path]:
    """The directories of the fake shims' sockets, one for each of Kata's runtimes (Go, Rust)."""
    return ring.directory / "sbs", ring.directory / "kata"


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The settings of kubeproxy-ext that tests change."""

    last_known: str = "apply"
    has_state: bool = True
    canary: str = ""


# Nothing but what the tests' user may read, wherever the checkout is; and nothing else of root's.
_NO_PRIVILEGE = ("setpriv", "--bounding-set=-all,+dac_read_search", "--no-new-privs")


def kubeproxy_ext(ring: DaemonHost, python: str, *, tree: Path | None = None) -> NodeDaemon:
    """kubeproxy-ext beside it, without a privilege."""
    wrapper = [*ring.node.enter, *_NO_PRIVILEGE]
    daemon = NodeDaemon("kubeproxy-ext", "kubeproxy_ext", ring, python, wrapper, tree=tree)
    shipped.let_in(ring.super_cluster, "kubeproxy-ext", ring.node.name, daemon.directory)
    configure_proxy(ring, daemon, ProxySettings())
    return daemon


def dnsconfig(ring: DaemonHost, python: str, *, tree: Path | None = None) -> NodeDaemon:
    """dnsconfig on the node, with its shipped role and no privilege; it keeps its state."""
    wrapper = [*ring.node.enter, *_NO_PRIVILEGE]
    daemon = NodeDaemon("dnsconfig", "dnsconfig", ring, python, wrapper, tree=tree)
    kubeconfig = shipped.let_in(ring.super_cluster, "dnsconfig", ring.node.name, daemon.directory)
    daemon.configure(
        "dnsconfig.yaml",
        {
            "nodeName": ring.node.name,
            "superCluster.kubeconfigFile": str(kubeconfig),
            "bridge.socket": str(bridge_socket(ring)),
            "stateDirectory": str(daemon.directory / "state"),
        },
    )
    return daemon


def configure_proxy(ring: DaemonHost, daemon: NodeDaemon, settings: ProxySettings) -> None:
    """Write kubeproxy-ext's configuration, for its next start."""
    daemon.configure(
        "kubeproxy-ext.yaml",
        {
            "nodeName": ring.node.name,
            "superCluster.kubeconfigFile": str(daemon.directory / "user.kubeconfig"),
            "bridge.socket": str(bridge_socket(ring)),
            "serviceCIDRs": [SERVICE_CIDR],
            "tenants": [{"key": tenant.key, "serviceCIDRs": [TENANT_CIDR]} for tenant in ring.tenants],
            "lastKnown": settings.last_known,
            **({"stateDirectory": str(daemon.directory / "state")} if settings.has_state else {}),
            **({"canary": {"ipv4Address": settings.canary}} if settings.canary else {}),
        },
        without=() if settings.has_state else ("stateDirectory",),
    )


def restart_super_apiserver(ring: DaemonHost) -> None:
    """Start the super cluster's apiserver again, after `daemon.stop`."""
    daemon = ring.super_cluster.daemon
    if not daemon.is_running():
        daemon.start_again()
    ring.super_cluster.wait_ready()
