# SPDX-License-Identifier: Apache-2.0
"""A node with three guests, each with a kernel of its own, and the real kata-bridge."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from bridge_api.client import BridgeClient
from bridge_api.messages import Flow, GuestResult, ReadBackReply, SetResolvConfRequest
from daemonkit.status.server import StatusError, fetch
from ruleset.delta import RulesetDelta
from ruleset.document import Ruleset
from ruleset.model import Endpoint, ServiceRules
from tests import waiting
from tests.k8s.ring import shipped
from tests.lab.namespaces import Lab
from tests.lab_vm import image
from tests.lab_vm.kernels import GuestKernel
from tests.lab_vm.machine import Machine
from tests.lab_vm.network import GATEWAY, GATEWAY6, LINKS, NODE_ADDRESS, NodeNetworks
from tests.lab_vm.rules import ruleset

DEADLINE_S = 60.0
VSOCK_PORT = 51_033
_AGENTS_PORT = 10560
_LOCAL_CID = 1

ENDPOINTS = (
    Endpoint("10.0.0.21", 8080),
    Endpoint("10.0.0.22", 8080),
    Endpoint("fd00::21", 8080),
    Endpoint("fd00::22", 8080),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One guest: `host` is the last number of its addresses, `variant` its plain iptables.

    Its pod has its name, in the tenant's `namespace`; `uid` empty: the pod has none.
    """

    name: str
    tenant: str
    host: int
    variant: str
    is_vsock: bool
    network: str = "default"
    namespace: str = "default"
    uid: str = ""


# Two guests of one tenant and one of another, which has the address of the first.
PLANS = (
    Plan("a1", "vc-a", 11, "nft", is_vsock=False),
    Plan("a2", "vc-a", 12, "legacy", is_vsock=True),
    Plan("b1", "vc-b", 11, "legacy", is_vsock=True),
)


class Site:
    """The node and its guests; a context manager, since it must remove them."""

    def __init__(
        self,
        plans: Sequence[Plan] = PLANS,
        endpoints: Sequence[Endpoint] = ENDPOINTS,
        *,
        kernel: GuestKernel,
    ) -> None:
        """`endpoints` serve in each VPC; all guests run `kernel`."""
        self.kernel = kernel
        self._plans, self._endpoints = plans, endpoints
        self._stack = ExitStack()
        self.guests: dict[str, Machine] = {}
        self.figures: list[str] = []
        """The figures, for the end of the run's output."""

    def __enter__(self) -> Site:
        # Short: that of a unix socket has 107 bytes at most.
        made = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="vcvm"))
        self.directory = Path(made)
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _begin(self) -> None:
        self.lab = self._stack.enter_context(Lab(self.directory))
        shared = image.Image.build(self.directory / "image")
        vpcs = sorted({vpc(plan) for plan in self._plans})
        self.network = NodeNetworks(self.lab, vpcs)
        for name in vpcs:
            self.network.servers(name, self._endpoints)
        for directory in ("guests", "shims", "vsock"):
            (self.directory / directory).mkdir()
        self._start_vmms()
        for number, plan in enumerate(self._plans, 1):
            self._guest(number, plan, shared)
        self.start_bridge()
        for name in self.guests:
            until((self.credentials(name) / "tls.key").exists, f"{name} has a certificate", self)
            self.guests[name].share_credentials(self.credentials(name))
        for name in self.guests:
            self.wait_attached(name, 1)

    def _guest(self, number: int, plan: Plan, shared: image.Image) -> None:
        directory = self.directory / plan.name
        directory.mkdir()
        link_address = f"10.255.0.{10 + number}"
        variables = {
            "POD_ADDRESS": f"10.0.0.{plan.host}/24",
            "POD_ADDRESS6": f"fd00::{plan.host}/64",
            "POD_GATEWAY": GATEWAY,
            "POD_GATEWAY6": GATEWAY6,
            "NODE_LINK_ADDRESS": f"{link_address}/24",
            "NODE": f"vsock:{_LOCAL_CID}:{VSOCK_PORT}"
            if plan.is_vsock
            else f"tcp:{NODE_ADDRESS}:{_AGENTS_PORT}",
            "VSOCK_DEVICE": f"{VSOCK_PORT} {NODE_ADDRESS} {_device_port(number)}" if plan.is_vsock else "",
        }
        image.make_root(directory / "root", variables, variant=plan.variant)
        taps = self.network.taps(plan.name, vpc(plan))
        guest = Machine(
            plan.name,
            directory,
            self.kernel,
            shared,
            self.network.node,
            taps=taps,
            number=number,
            link_address=link_address,
        )
        self.guests[plan.name] = guest
        self._stack.callback(guest.stop)
        self.describe(plan)
        guest.start()

    def describe(self, plan: Plan) -> None:
        """Write a guest's description for the bridge."""
        document = {
            "apiVersion": "vcnode.io/v1alpha1",
            "kind": "Guest",
            "id": plan.name,
            "namespace": f"{plan.tenant}-{plan.namespace}",
            "name": plan.name,
            "uid": plan.uid,
            "tenant": plan.tenant,
            "tenantNamespace": plan.namespace,
            "networks": [plan.network],
            "ips": [f"10.0.0.{plan.host}"],
            "runtimeHandler": "kata",
            "channels": ["agent"],
        }
        (self.directory / "guests" / f"{plan.name}.yaml").write_text(yaml.safe_dump(document))

    def remove_description(self, plan: Plan) -> None:
        """Remove a guest's description: for the bridge its sandbox was stopped."""
        (self.directory / "guests" / f"{plan.name}.yaml").unlink()

    def credentials(self, sandbox: str) -> Path:
        """The bridge's credentials for a guest."""
        return self.directory / "state" / "sandboxes" / sandbox

    def _start_vmms(self) -> None:
        devices = [
            (
                plan.name,
                str(self.directory / "shims"),
                str(self.directory / "vsock" / plan.name),
                VSOCK_PORT,
                NODE_ADDRESS,
                _device_port(number),
                f"10.255.0.{10 + number}",
            )
            for number, plan in enumerate(self._plans, 1)
            if plan.is_vsock
        ]
        argv = [sys.executable, "-m", "tests.lab_vm.vmm", json.dumps(devices)]
        process = subprocess.Popen(
            self.network.node.command(*argv), cwd=image.SOURCE, stdout=subprocess.PIPE, text=True
        )
        self._stack.callback(_end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"

    # ---- the bridge

    def start_bridge(self) -> None:
        """Start kata-bridge in the node's namespace, and wait until it is ready."""
        config = self.directory / "config.yaml"
        document = shipped.configuration(
            "kata-bridge.yaml",
            {
                "stateDirectory": str(self.directory / "state"),
                "lockFile": str(self.directory / "lock"),
                "listen.socket": str(self.socket),
                "sandboxes.directory": str(self.directory / "guests"),
                "stock.shimDirectories": [str(self.directory / "shims")],
                "agent.address": NODE_ADDRESS,
                "agent.port": _AGENTS_PORT,
                "agent.vsockPort": VSOCK_PORT,
                # A link to the node has other addresses than the VPC, which the runtime reports.
                "agent.gateways": [LINKS],
                "status.socket": str(self.directory / "status.sock"),
                "drift.checkSeconds": 1.0,
            },
            without=("listen.group", "sandboxes.nri", "sandboxes.cri", "gate"),
        )
        config.write_text(yaml.safe_dump(document))
        with (self.directory / "log").open("a") as log:
            self._bridge = subprocess.Popen(
                self.network.node.command(sys.executable, "-m", "kata_bridge", "--config", str(config)),
                cwd=image.SOURCE,
                stderr=log,
                text=True,
            )
        self._stack.callback(_end, self._bridge)
        until(self._is_ready, "the bridge is ready", self)

    def stop_bridge(self) -> None:
        """Kill it, as a crash would."""
        _end(self._bridge)

    def _is_ready(self) -> bool:
        try:
            return fetch(self.directory / "status.sock", "/readyz", 2.0)[0] == 200
        except (OSError, StatusError):
            return False

    @property
    def socket(self) -> Path:
        return self.directory / "bridge.sock"

    def status(self) -> dict[str, dict[str, Any]]:
        """The guests of /status by id."""
        found = json.loads(fetch(self.directory / "status.sock", "/status", 2.0)[1])
        return {guest["id"]: guest for guest in found["guests"]}

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def log_lines(self, **fields: object) -> list[dict[str, Any]]:
        """The lines of the bridge's log that have these fields."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if fields.items() <= line.items()]

    def wait_attached(self, guest: str, times: int) -> float:
        """Wait until a guest's agent has attached so often; return the wait in seconds."""
        return self.guests[guest].until(
            lambda: len(self.log_lines(message="guest attached", sandbox=guest)) >= times, "attached"
        )

    def wait_current(self, guest: str) -> float:
        """Wait until the bridge reports a guest as current."""
        return self.guests[guest].until(lambda: self.status()[guest]["state"] == "current", "current")

    def ruleset(self, *services: ServiceRules) -> Ruleset:
        """These Services for guests, newer than all earlier ones."""
        known = [guest["desiredGeneration"] or guest["generation"] for guest in self.status().values()]
        return ruleset(max(known, default=0) + 1, *services, backend=self.kernel.backend)

    def figure(self, text: str) -> None:
        """Record a figure."""
        self.figures.append(f"{self.kernel.backend.value}: {text}")

    def read_back(self, guest: str) -> ReadBackReply:
        """A guest's installed and desired rules."""

        async def run() -> ReadBackReply:
            async with BridgeClient(self.socket, timeout_s=DEADLINE_S) as client:
                return await client.read_back(guest)

        return asyncio.run(run())

    def set_resolv_conf(self, guest: str, text: str) -> GuestResult:
        async def run() -> GuestResult:
            async with BridgeClient(self.socket, timeout_s=DEADLINE_S) as client:
                return await client.set_resolv_conf(SetResolvConfRequest(guest, text))

        return asyncio.run(run())

    def push(
        self, guests: Sequence[str], ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow] = ()
    ) -> Mapping[str, GuestResult]:
        """Set a ruleset; the results by guest."""

        async def run() -> dict[str, GuestResult]:
            async with BridgeClient(self.socket, timeout_s=DEADLINE_S) as client:
                results: AsyncIterator[GuestResult] = client.set_ruleset(guests, ruleset, flush)
                return {result.guest: result async for result in results}

        return asyncio.run(run())


def vpc(plan: Plan) -> str:
    """The bridge of a guest's network."""
    name = f"vpc-{plan.tenant.removeprefix('vc-')}"
    return name if plan.network == "default" else f"{name}-{plan.network}"


def until(condition: Callable[[], bool], what: str, site: Site) -> None:
    """Wait for a condition; fail with the bridge's log."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, (
            f"not: {what}; {waiting.failure(condition, DEADLINE_S)}\n{site.log()[-4000:]}"
        )
        time.sleep(0.02)


def _device_port(number: int) -> int:
    return 5_000 + number


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(DEADLINE_S)
    if process.stdout is not None:
        process.stdout.close()
