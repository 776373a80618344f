# SPDX-License-Identifier: Apache-2.0
"""Our half of the bench: kata-bridge, kubeproxy-ext and guests with agents, as on a node."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from daemonkit.status.server import StatusError, fetch
from tests.bench.services import guests as making
from tests.bench.services.cluster import NODE, BenchCluster
from tests.bench.services.guests import BenchGuest, GuestFilter
from tests.k8s.ring.processes import SYSTEM_PATH, RingProcess, wait_for

ROOT = Path(__file__).parents[3]
API_VERSION = "vcnode.io/v1alpha1"
_READY_S = 60.0
_STATUS_S = 5.0


@dataclass(frozen=True, slots=True)
class Programs:
    """The command of each daemon: the sources as they are, or launchers of an installed tree."""

    bridge: list[str]
    proxy: list[str]
    agent: list[str]


def programs(tree: Path | None) -> Programs:
    if tree is None:
        modules = ("kata_bridge", "kubeproxy_ext", "guest_agent")
        return Programs(*([sys.executable, "-m", module] for module in modules))
    names = ("kata-bridge", "kubeproxy-ext", "vcnode-guest-agent")
    return Programs(*([str(tree.resolve() / "bin" / name)] for name in names))


def events(log: Path, message: str) -> Iterator[dict[str, Any]]:
    """The lines of a daemon's log with this `message`; `at` is their time, in seconds since 1970."""
    for line in log.read_text().splitlines():
        if f'"message":"{message}"' in line:
            event = json.loads(line)
            yield {**event, "at": datetime.fromisoformat(event["time"]).timestamp()}


class KataBridgeProcess:
    """kata-bridge with the files of its guests."""

    def __init__(self, cluster: BenchCluster, command: Programs, name: str) -> None:
        self.directory = cluster.directory / name
        self.directory.mkdir()
        self._files = self.directory / "guests"
        self._files.mkdir()
        self._cluster = cluster
        self._command = command
        self.socket = self.directory / "bridge.sock"
        self.agents = self.directory / "agents.sock"
        self._status = self.directory / "bridge-status.sock"
        self.daemon: RingProcess | None = None

    @property
    def pid(self) -> int:
        assert self.daemon is not None
        return self.daemon.pid

    @property
    def log(self) -> Path:
        return self.directory / "bridge.log"

    def start(self) -> None:
        config = self.directory / "bridge.yaml"
        document = {
            "apiVersion": API_VERSION,
            "kind": "KataBridgeConfiguration",
            "stateDirectory": str(self.directory / "state"),
            "lockFile": str(self.directory / "lock"),
            "listen": {"socket": str(self.socket)},
            "sandboxes": {"directory": str(self._files)},
            "agent": {"socket": str(self.agents)},
            "status": {"socket": str(self._status)},
        }
        config.write_text(yaml.safe_dump(document))
        self.daemon = _daemon("kata-bridge", self._cluster, [*self._command.bridge, "--config"], config)
        self.daemon.wait_until(lambda: _is_ready(self._status), timeout_s=_READY_S)

    def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.stop()

    def add_guest_file(self, guest: BenchGuest, tenant: str, **more: object) -> None:
        """Write a guest's file; kata-bridge reads the directory every 2 s."""
        path = self._files / f"{guest.id}.yaml"
        beside = self._files / f".{guest.id}.new"
        beside.write_text(making.file(guest, tenant, **more))
        beside.rename(path)

    def remove(self, guest: BenchGuest) -> None:
        (self._files / f"{guest.id}.yaml").unlink(missing_ok=True)

    def credentials(self, guest: BenchGuest) -> Path:
        return self.directory / "state" / "sandboxes" / guest.id

    def wait_for_credentials(self, guests: Iterable[BenchGuest]) -> None:
        for guest in guests:
            made = self.credentials(guest) / "tls.key"
            wait_for(f"credentials of {guest.id}", made.exists, timeout_s=_READY_S)

    def attached(self) -> dict[str, float]:
        """When the agent of each guest attached last, in seconds since 1970."""
        return {event["sandbox"]: event["at"] for event in events(self.log, "guest attached")}

    def guests(self) -> dict[str, dict[str, Any]]:
        """Each guest in /status."""
        found = json.loads(fetch(self._status, "/status", _STATUS_S)[1])
        return {guest["id"]: guest for guest in found["guests"]}

    def are_current(self, guests: Sequence[BenchGuest]) -> bool:
        known = self.guests()
        return all(known.get(guest.id, {}).get("state") == "current" for guest in guests)


class Proxy:
    """kubeproxy-ext; it can be restarted."""

    name = "kubeproxy-ext"

    def __init__(self, cluster: BenchCluster, command: Programs, bridge: KataBridgeProcess) -> None:
        self._cluster = cluster
        self._command = command
        self._bridge = bridge
        self._status = bridge.directory / "proxy-status.sock"
        self.daemon: RingProcess | None = None
        self.started_s = 0.0

    @property
    def pid(self) -> int:
        assert self.daemon is not None
        return self.daemon.pid

    @property
    def log(self) -> Path:
        return self._bridge.directory / "proxy.log"

    def start(self) -> None:
        """Start it; does not wait."""
        config = self._bridge.directory / "proxy.yaml"
        document = {
            "apiVersion": API_VERSION,
            "kind": "KubeproxyExtConfiguration",
            "nodeName": NODE,
            "superCluster": {"kubeconfigFile": str(self._cluster.kubeconfig)},
            "bridge": {"socket": str(self._bridge.socket)},
            "serviceCIDRs": ["10.96.0.0/16"],
            "status": {"socket": str(self._status)},
        }
        config.write_text(yaml.safe_dump(document))
        self.log.unlink(missing_ok=True)
        self.started_s = time.time()
        self.daemon = _daemon("kubeproxy-ext", self._cluster, [*self._command.proxy, "--config"], config)

    def wait_ready(self) -> None:
        assert self.daemon is not None
        self.daemon.wait_until(lambda: _is_ready(self._status), timeout_s=_READY_S)

    def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.stop()
            self.daemon = None

    def metric(self, name: str) -> float:
        """The sum of a family's series."""
        lines = fetch(self._status, "/metrics", _STATUS_S)[1].decode().splitlines()
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)


@dataclass(slots=True)
class BenchNode:
    """A kata-bridge with guests of one kind, and the kubeproxy-ext beside it."""

    cluster: BenchCluster
    command: Programs
    kind: GuestFilter
    tenant: str
    bridge: KataBridgeProcess
    proxy: Proxy
    guests: list[BenchGuest] = field(default_factory=list)
    _numbered: int = 0

    @classmethod
    def make(
        cls, cluster: BenchCluster, command: Programs, kind: GuestFilter, tenant: str, name: str
    ) -> "BenchNode":
        bridge = KataBridgeProcess(cluster, command, name)
        return cls(cluster, command, kind, tenant, bridge, Proxy(cluster, command, bridge))

    def stop(self) -> None:
        self.proxy.stop()
        making.delete(self.guests)
        self.guests.clear()
        self.bridge.stop()

    def add(self, count: int) -> list[BenchGuest]:
        """New guests with files for the bridge; their agents do not run yet."""
        numbers = range(self._numbered, self._numbered + count)
        self._numbered += count
        made = making.create(
            f"{self.cluster.prefix}-{self.kind.value}", numbers, self.kind, self.bridge.directory
        )
        self.guests += made
        for guest in made:
            self.bridge.add_guest_file(guest, self.tenant)
        self.bridge.wait_for_credentials(made)
        return made

    def start_agent(self, guest: BenchGuest) -> None:
        making.start_agent(
            guest,
            self.kind,
            self.command.agent,
            self.bridge.agents,
            self.bridge.credentials(guest),
            self.bridge.directory,
        )

    def remove(self, guest: BenchGuest) -> None:
        self.bridge.remove(guest)
        making.delete([guest])
        self.guests.remove(guest)

    def wait_attached(self, guests: Sequence[BenchGuest]) -> dict[str, float]:
        """When each agent attached, in seconds since 1970."""

        def found() -> dict[str, float]:
            attached = self.bridge.attached()
            return attached if all(guest.id in attached for guest in guests) else {}

        return wait_for("all agents attached", found, timeout_s=_READY_S)

    def wait_current(self) -> None:
        """Wait until every guest is current."""
        wait_for("all guests current", lambda: self.bridge.are_current(self.guests), timeout_s=_READY_S)


def _daemon(name: str, cluster: BenchCluster, command: list[str], config: Path) -> RingProcess:
    log = config.with_suffix(".log")
    path = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
    return RingProcess(name, [*cluster.node.enter, *command, str(config)], log, path=path, directory=ROOT)


def _is_ready(socket: Path) -> bool:
    with suppress(OSError, StatusError):
        return fetch(socket, "/readyz", _STATUS_S)[0] == 200
    return False
