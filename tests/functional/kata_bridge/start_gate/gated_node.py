# SPDX-License-Identifier: Apache-2.0
"""The whole daemon with a fake runtime and a client, for the tests of the gate."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge_api.client import BridgeClient
from bridge_api.messages import ResultCode
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.service_manager import Supervision
from devkit.kata.fake_runtime import FakeRuntime
from devkit.kata.sample_rulesets import sample
from kata_bridge.config import (
    DrainConfig,
    DriftConfig,
    KataBridgeConfiguration,
    NamespacePolicy,
    NodeApiConfig,
    NriConfig,
    RuntimeRule,
    SandboxSources,
    StartGateConfig,
    StockConfig,
)
from kata_bridge.nri.messages import (
    Container,
    ContainerAdjustment,
    ContainerState,
    LinuxNamespace,
    LinuxPodSandbox,
    Mount,
    PodSandbox,
)
from kata_bridge.service import KataBridge
from kata_bridge.start_gate.core.decision import Policy
from kata_bridge.ttrpc.status import TtrpcError
from tenancy import keys
from tests.functional.kata_bridge.served_bridge import DEADLINE_S
from tests.metric_samples import samples_of
from tests.waiting import until

NETNS = LinuxPodSandbox((LinuxNamespace("network", "/run/netns/x"),))
TEXT, OTHER = "nameserver 10.1.0.10\n", "nameserver 10.1.0.11\n"
NO_RESOLVER = "the resolver of network default is not synced: dnsconfig has not submitted it yet"
RETRIES = "(the kubelet tries again)"


def configuration(short_dir: Path, **settings: object) -> KataBridgeConfiguration:
    """Guests have the handler `kata`; the namespaces `warned` and `open` have policies of their own."""
    rules = (NamespacePolicy(("warned",), Policy.WARN), NamespacePolicy(("open",), Policy.OFF))
    made = StartGateConfig(directory=short_dir / "pods", namespaces=rules)
    return KataBridgeConfiguration(
        state_directory=short_dir / "state",
        sandboxes=SandboxSources(nri=NriConfig(short_dir / "nri.sock")),
        listen=NodeApiConfig(short_dir / "bridge.sock"),
        lock_file=short_dir / "lock",
        runtimes=(RuntimeRule(("kata*",), ("stock",)), RuntimeRule(("*",), ())),
        stock=StockConfig(shim_directories=(short_dir / "sbs", short_dir / "kata")),
        drift=DriftConfig(0.3),
        drain=DrainConfig(0.5),
        gate=dataclasses.replace(made, **settings),  # type: ignore[arg-type]  # any setting
    )


@dataclass(slots=True)
class GatedNode:
    """A runtime, the daemon that is its plugin, and a client of the daemon."""

    short_dir: Path
    runtime: FakeRuntime
    bridge: KataBridge
    client: BridgeClient
    number: int = 0

    async def start(self, pod: PodSandbox, name: str = "main", *mounts: Mount) -> ContainerAdjustment:
        """Create a container; raises `TtrpcError` where it is blocked."""
        self.number += 1
        of_sandbox = Mount("/etc/resolv.conf", "bind", f"/var/lib/x/sandboxes/{pod.id}/resolv.conf", ("rw",))
        container = Container(
            f"{pod.id}-{name}-{self.number}",
            pod.id,
            name,
            ContainerState.CONTAINER_RUNNING,
            mounts=mounts or (of_sandbox,),
        )
        return await self.runtime.create_container(pod, container) or ContainerAdjustment()

    async def why(self, pod: PodSandbox, name: str = "main", *mounts: Mount) -> str:
        """The message with which a container is blocked."""
        with pytest.raises(TtrpcError) as caught:
            await self.start(pod, name, *mounts)
        return caught.value.message

    def blocked(self) -> list[dict[str, object]]:
        """The blocked pods of /status."""
        gate = self.bridge.status()["startGate"]
        assert isinstance(gate, dict)
        blocked: list[dict[str, object]] = gate["blocked"]
        return blocked

    async def push(self, *sandboxes: str, generation: int = 1) -> None:
        async with asyncio.timeout(DEADLINE_S):
            async for result in self.client.set_ruleset(sandboxes, sample(generation)):
                assert result.code in (ResultCode.APPLIED, ResultCode.UNCHANGED), result

    def mount(self, pod: PodSandbox) -> Mount:
        source = str(self.short_dir / "pods" / pod.id / "resolv.conf")
        return Mount("/etc/resolv.conf", "bind", source, ("rbind", "ro", "rprivate"))

    def metric(self, name: str) -> float:
        found = samples_of(self.bridge.registry).items()
        return sum(value for series, value in found if series.startswith(name))


@asynccontextmanager
async def serving(
    config: KataBridgeConfiguration, short_dir: Path, runtime: FakeRuntime
) -> AsyncIterator[GatedNode]:
    running = KataBridge(config)
    life = Lifecycle(Supervision(), send=lambda *_: None)
    before = runtime.registrations
    async with asyncio.TaskGroup() as group:
        group.create_task(running.run(life))
        await until(config.listen.socket.exists)
        try:
            async with BridgeClient(short_dir / "bridge.sock") as client:
                async with asyncio.timeout(DEADLINE_S):
                    await runtime.wait_registered(before + 1)
                yield GatedNode(short_dir, runtime, running, client)
        finally:
            life.stop()


@asynccontextmanager
async def gated(short_dir: Path) -> AsyncIterator[GatedNode]:
    """The daemon and its runtime, from one start to one stop."""
    async with (
        FakeRuntime(short_dir / "nri.sock") as runtime,
        serving(configuration(short_dir), short_dir, runtime) as node,
    ):
        yield node


def pod(
    name: str,
    handler: str = "",
    *,
    namespace: str = "enforced",
    tenant: str = "vc-a-123abc-shop",
    annotations: Mapping[str, str] | None = None,
    linux: LinuxPodSandbox | None = NETNS,
) -> PodSandbox:
    whose = {keys.CLUSTER: tenant, keys.NAMESPACE: "shop", keys.UID: f"tenants-{name}"} if tenant else {}
    more = whose | dict(annotations or {})
    return PodSandbox(name, f"pod-{name}", f"uid-{name}", namespace, {}, more, handler, linux, 7)


def content(mount: Mount) -> str:
    return Path(mount.source).read_text()


def inode_of(mount: Mount) -> int | None:
    """The inode of a mounted file; None if its directory was removed."""
    source = Path(mount.source)
    return source.stat().st_ino if source.parent.exists() else None
