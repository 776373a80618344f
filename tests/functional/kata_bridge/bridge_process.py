# SPDX-License-Identifier: Apache-2.0
"""A bridge process beside fakes of a runtime's NRI and CRI, and its resource usage."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import grpc.aio

from bridge_api.client import BridgeClient
from bridge_api.messages import Capabilities, ResultCode
from daemonkit.protobuf import decode, encode
from daemonkit.status.server import fetch
from devkit.kata.fake_cri import FakeCri
from devkit.kata.fake_runtime import FakeRuntime
from guest_agent.api.messages import (
    ATTACH,
    AgentHello,
    AgentMessage,
    AgentResult,
    AgentResultCode,
    NodeRequest,
    RulesetState,
)
from kata_bridge.cri.messages import PodSandbox as Listed
from kata_bridge.cri.messages import PodSandboxMetadata as Metadata
from kata_bridge.guest_certificates import SERVER_NAME
from kata_bridge.nri.messages import LinuxNamespace, LinuxPodSandbox, PodSandbox
from ruleset.document import Ruleset
from tests.functional.kata_bridge.served_bridge import ruleset
from tests.functional.kata_bridge.test_life import running
from tests.waiting import until

DEADLINE_S = 60.0
# A refused connection's last moment, and the end of a status request's own connection, pass in it.
_SETTLING_S = 3.0
# The pools of asyncio and of gRPC grow with what happens at once, and need not have had their most.
_POOL_THREADS = 8


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """The bridge's resources. The last two are in its state directory."""

    descriptors: int
    threads: int
    tasks: int
    guests: int
    connections: int
    origins: int
    certificates: int
    notes: int

    def __le__(self, other: "ResourceUsage") -> bool:
        room = replace(other, threads=other.threads + _POOL_THREADS)
        return all(one <= two for one, two in zip(astuple(self), astuple(room), strict=True))


@dataclass(slots=True)
class BridgeNode:
    """A node whose sandboxes tests add and remove."""

    directory: Path
    pid: int
    port: int
    runtime: FakeRuntime
    cri: FakeCri
    client: BridgeClient
    pods_added: int = 0

    def usage(self) -> ResourceUsage:
        status_code, page = fetch(self.directory / "status.sock", "/metrics", DEADLINE_S)
        assert status_code == 200
        samples = dict(line.rsplit(" ", 1) for line in page.decode().splitlines() if not line.startswith("#"))
        status = json.loads(fetch(self.directory / "status.sock", "/status", DEADLINE_S)[1])
        process = Path(f"/proc/{self.pid}")
        return ResourceUsage(
            descriptors=entries(process / "fd"),
            threads=entries(process / "task"),
            tasks=int(float(samples["vcnode_tasks"])),
            guests=len(status["guests"]),
            connections=status["agents"]["connections"],
            origins=status["agents"]["origins"],
            certificates=entries(self.directory / "state" / "sandboxes"),
            notes=entries(self.directory / "state" / "netns"),
        )

    def settled_usage(self) -> ResourceUsage:
        """The minimum of each value over some time: a reading is itself a connection, and may meet a list."""
        seen = [self.usage()]
        end = time.monotonic() + _SETTLING_S
        while time.monotonic() < end:
            seen.append(self.usage())
        return ResourceUsage(*(min(values) for values in zip(*map(astuple, seen), strict=True)))

    def excess_over(self, base: ResourceUsage) -> str:
        """Wait until the usage is back at `base`; empty, or what still exceeds it."""
        deadline = time.monotonic() + DEADLINE_S
        now = self.usage()
        least = list(astuple(now))
        while not ResourceUsage(*least) <= base:
            if time.monotonic() > deadline:
                return ", ".join(
                    f"{each.name}: {value} of {getattr(base, each.name)}"
                    for each, value in zip(fields(ResourceUsage), least, strict=True)
                )
            least = [min(one, two) for one, two in zip(least, astuple(self.usage()), strict=True)]
        return ""

    def resident_kib(self) -> int:
        """The process's anonymous memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))

    async def add_pod(self, name: str) -> PodSandbox:
        """Add a sandbox of a tenant, by NRI at once and in the lists."""
        self.pods_added += 1
        pod = PodSandbox(
            name,
            "web",
            f"uid-{name}",
            "vc-a-shop",
            runtime_handler="kata",
            linux=LinuxPodSandbox((LinuxNamespace("network", f"/run/netns/{name}"),)),
            pid=7,
            ips=(f"10.{self.pods_added >> 16}.{self.pods_added >> 8 & 255}.{self.pods_added & 255}",),
        )
        await self.runtime.run_pod(pod)
        metadata = Metadata("web", pod.uid, pod.namespace, 0)
        self.cri.sandboxes[name] = Listed(name, metadata, runtime_handler="kata")
        return pod

    async def remove_pod(self, pod: PodSandbox) -> None:
        await self.runtime.stop_pod(pod)
        del self.cri.sandboxes[pod.id]
        await self.runtime.remove_pod(pod)

    async def _set(self, name: str, desired: Ruleset) -> list[ResultCode]:
        return [each.code async for each in self.client.set_ruleset([name], desired)]

    async def run_guest(self, name: str, generation: int) -> None:
        """Add a guest, attach its agent, apply rules, and remove it while its stream is open."""
        pod = await self.add_pod(name)
        directory = self.directory / "state" / "sandboxes" / name
        await until(directory.is_dir)
        desired = ruleset(generation, services=20)
        async with dialled(f"127.0.0.1:{self.port}", directory) as call:
            hello = AgentHello(
                "", "1", name, Capabilities(backends=("iptables",), deltas=True), RulesetState()
            )
            await call.write(encode(AgentMessage(hello=hello)))
            results = asyncio.ensure_future(self._set(name, desired))  # noqa: TID251 - awaited below
            state = RulesetState()
            while state.digest != desired.digest:
                question = decode(NodeRequest, await call.read())
                if question.apply is not None:
                    state = RulesetState(desired.generation, desired.digest)
                outcome = AgentResult(AgentResultCode.DONE, "", state)
                await call.write(encode(AgentMessage(question.id, result=outcome)))
            # A ruleset that was set before the agent attached is applied afterwards.
            assert set(await results) <= {ResultCode.APPLIED, ResultCode.UNREACHABLE}
            await self.remove_pod(pod)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE


def entries(directory: Path) -> int:
    return len(list(directory.iterdir()))


@asynccontextmanager
async def dialled(target: str, credentials: Path) -> AsyncIterator[Any]:
    """A stream of an agent that is about to attach."""
    pems = [(credentials / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
    options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(
        target, grpc.ssl_channel_credentials(*pems), options=options
    ) as channel:
        yield channel.stream_stream(ATTACH.path)()


@asynccontextmanager
async def bridged(directory: Path, **settings: Any) -> AsyncIterator[BridgeNode]:
    """A bridge that takes agents by TCP on loopback, in a runtime without sandboxes."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    async with AsyncExitStack() as stack:
        cri = await stack.enter_async_context(FakeCri(directory / "cri.sock"))
        runtime = await stack.enter_async_context(FakeRuntime(directory / "nri.sock"))
        sandboxes = {
            "nri": {"socket": f"{directory}/nri.sock"},
            "cri": {"socket": f"{directory}/cri.sock", "intervalSeconds": 0.5},
        }
        # All guests connect from one address here, which no guest owns.
        agent = {"address": "127.0.0.1", "port": port, "gateways": ["127.0.0.0/8"]}
        rules = [{"handlers": ["kata"], "channels": ["agent"]}]
        process = await stack.enter_async_context(
            _started(directory, **{"sandboxes": sandboxes, "agent": agent, "runtimes": rules, **settings})
        )
        await runtime.wait_registered(within_s=DEADLINE_S)
        client = await stack.enter_async_context(
            BridgeClient(directory / "bridge.sock", timeout_s=DEADLINE_S)
        )
        yield BridgeNode(directory, process, port, runtime, cri, client)


@asynccontextmanager
async def _started(directory: Path, **settings: Any) -> AsyncIterator[int]:
    manager = running(directory, **settings)
    process = await asyncio.to_thread(manager.__enter__)
    try:
        yield process.pid
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)
