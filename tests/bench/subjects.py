# SPDX-License-Identifier: Apache-2.0
"""The two proxies that are compared, and the kubelet behind both."""

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.bench.fixture import KEY_PREFIX, NODE, Fixture
from tests.bench.processes import START_TIMEOUT_S, Process

OURS, PEER = "vn-agent", "go"
_NO_LIMITS = """\
limits:
  tunnelsPerTenant: 0
  requestsPerSecondPerTenant: 0
"""


@dataclass(frozen=True, slots=True)
class BenchMachine:
    """The bench's programs, scratch directory and two cores on this machine."""

    programs: Path
    directory: Path
    proxy_core: int
    load_core: int


@dataclass(frozen=True, slots=True)
class RunningProxy:
    """A ready proxy. `start_s` is from the fork until it is ready."""

    process: Process
    address: str
    start_s: float


class MeasuredProxy(Protocol):
    """Something that can be started as the proxy in front of the kubelet."""

    name: str

    def start(self) -> RunningProxy:
        """Start and return when it is ready. Raises RunError."""
        ...


def start_upstream(machine: BenchMachine, files: Fixture, flags: Sequence[str] = ()) -> tuple[Process, str]:
    """Start the fake kubelet, with `flags` of its own; return it and its address."""
    process = Process(
        "upstream",
        [
            machine.programs / "upstream",
            *("-cert", files.kubelet.certificate, "-key", files.kubelet.key),
            *("-client-ca", files.super_ca, "-pods", files.pod_list),
            *("-resource", files.resource_page),
            *("-namespace-prefix", KEY_PREFIX),
            *flags,
        ],
        machine.load_core,
        machine.directory / "upstream.log",
    )
    return process, process.read_line(START_TIMEOUT_S)


@dataclass(slots=True)
class GoPeer:
    """The tuned reverse proxy of the Go standard library."""

    machine: BenchMachine
    files: Fixture
    upstream: str
    name: str = PEER

    def start(self) -> RunningProxy:
        begin = time.monotonic()
        files, directory = self.files, self.machine.directory
        process = Process(
            self.name,
            [
                self.machine.programs / "peer",
                *("-upstream", self.upstream, "-upstream-name", NODE, "-table", files.peer_table),
                *("-cert", files.serving.certificate, "-key", files.serving.key),
                *("-client-ca", files.all_tenant_cas),
                *("-kubelet-cert", files.kubelet_client.certificate),
                *("-kubelet-key", files.kubelet_client.key, "-kubelet-ca", files.super_ca),
                *("-audit", directory / f"audit-{self.name}.jsonl"),
            ],
            self.machine.proxy_core,
            directory / f"{self.name}.log",
        )
        address = process.read_line(START_TIMEOUT_S)
        return RunningProxy(process, address, time.monotonic() - begin)


@dataclass(slots=True)
class VnAgent:
    """Our daemon, as an operator starts it: `command`, with the configuration behind it.

    `has_limits`: with the default limits of a tenant. Otherwise without: one tenant makes all the load,
    and its limits are not measured.
    """

    machine: BenchMachine
    files: Fixture
    upstream: str
    command: Sequence[str]
    name: str = OURS
    has_limits: bool = False
    workers: int = 1

    def start(self) -> RunningProxy:
        directory = self.machine.directory
        port = free_port()
        status = directory / f"{self.name}.sock"
        config = directory / f"{self.name}.yaml"
        config.write_text(self._config(port, status))
        notices = directory / f"{self.name}.notify"
        notices.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(notices))
            begin = time.monotonic()
            process = Process(
                self.name,
                [*self.command, "--config", config],
                self.machine.proxy_core,
                directory / f"{self.name}.log",
                {"NOTIFY_SOCKET": str(notices)},
            )
            _wait_ready(process, manager)
            return RunningProxy(process, f"127.0.0.1:{port}", time.monotonic() - begin)

    def _config(self, port: int, status: Path) -> str:
        files, directory = self.files, self.machine.directory
        state = directory / f"state-{self.name}"
        state.mkdir(mode=0o700, exist_ok=True)
        limits = "" if self.has_limits else _NO_LIMITS
        return f"""\
apiVersion: vcnode.io/v1alpha1
kind: VnAgentConfiguration
nodeName: {NODE}
listen: {{address: 127.0.0.1, port: {port}}}
serving:
  certificateFile: {files.serving.certificate}
  keyFile: {files.serving.key}
kubelet:
  address: 127.0.0.1
  port: {self.upstream.rpartition(":")[2]}
  serverName: {NODE}
  caFile: {files.super_ca}
  clientCertificateFile: {files.kubelet_client.certificate}
  clientKeyFile: {files.kubelet_client.key}
tenants:
  directory: {files.tenants}
stateDirectory: {state}
audit:
  file: {directory / f"audit-{self.name}.jsonl"}
status:
  socket: {status}
workers: {self.workers}
{limits}"""


def free_port() -> int:
    """A port of loopback on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_ready(process: Process, manager: socket.socket) -> None:
    """Wait for READY=1 (sd_notify(3)), as systemd does. Raises RunError."""
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if not process.is_running():
            raise process.error("ended at its start")
        if select.select([manager], [], [], 0.1)[0] and b"READY=1" in manager.recv(4096).splitlines():
            return
    raise process.error(f"was not ready within {START_TIMEOUT_S:g} s")
