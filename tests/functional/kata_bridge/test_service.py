# SPDX-License-Identifier: Apache-2.0
"""The whole daemon in this process, with a fake runtime, a guest of stock Kata and clients."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge_api.client import BridgeClient
from bridge_api.messages import GuestResult, ResultCode
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.run.service_manager import Supervision
from devkit.kata.fake_agent import AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.fake_runtime import FakeRuntime
from devkit.kata.guest_tables import FakeTables
from devkit.kata.sample_rulesets import sample
from kata_bridge.config import (
    AgentConfig,
    DrainConfig,
    DriftConfig,
    KataBridgeConfiguration,
    NodeApiConfig,
    NriConfig,
    RuntimeRule,
    SandboxSources,
    StockConfig,
)
from kata_bridge.nri.messages import (
    Container,
    ContainerAdjustment,
    LinuxNamespace,
    LinuxPodSandbox,
    Mount,
    PodSandbox,
)
from kata_bridge.service import KataBridge
from kata_bridge.ttrpc.status import TtrpcError
from ruleset.model import Family
from tenancy import keys
from tests.functional.kata_bridge.served_bridge import DEADLINE_S
from tests.waiting import until

pytestmark = pytest.mark.asyncio

NETNS = LinuxPodSandbox((LinuxNamespace("network", "/run/netns/x"),))


def configuration(short_dir: Path) -> KataBridgeConfiguration:
    return KataBridgeConfiguration(
        state_directory=short_dir / "state",
        sandboxes=SandboxSources(nri=NriConfig(short_dir / "nri.sock")),
        listen=NodeApiConfig(short_dir / "bridge.sock"),
        lock_file=short_dir / "lock",
        runtimes=(RuntimeRule(("kata*",), ("agent", "stock")), RuntimeRule(("none",), ())),
        agent=AgentConfig(socket=short_dir / "agents.sock"),
        stock=StockConfig(shim_directories=(short_dir / "sbs", short_dir / "kata")),
        drift=DriftConfig(0.3),
        drain=DrainConfig(0.5),
    )


@asynccontextmanager
async def serving(config: KataBridgeConfiguration) -> AsyncIterator[KataBridge]:
    service = KataBridge(config)
    life = Lifecycle(Supervision(), send=lambda *_: None)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(life))
        await until(config.listen.socket.exists)
        try:
            yield service
        finally:
            life.stop()


def pod(sandbox: str, handler: str = "kata", linux: LinuxPodSandbox | None = NETNS) -> PodSandbox:
    return PodSandbox(sandbox, f"pod-{sandbox}", f"uid-{sandbox}", "ns", {}, {}, handler, linux, 7)


async def push(client: BridgeClient, guest: str, generation: int) -> GuestResult:
    async with asyncio.timeout(DEADLINE_S):
        (result,) = [each async for each in client.set_ruleset([guest], sample(generation))]
    return result


async def test_a_stock_kata_guest_gets_its_rules_after_nri_reports_it(
    short_dir: Path, runtime: FakeRuntime
) -> None:
    tables = FakeTables()
    async with (
        FakeKata(short_dir, tables, sandbox_id="s1"),
        serving(configuration(short_dir)) as service,
        BridgeClient(short_dir / "bridge.sock") as client,
    ):
        await runtime.wait_registered()
        await runtime.run_pod(pod("s1"))
        await until(lambda: "s1" in service.guests.drivers)
        driver = service.guests.drivers["s1"]
        await until(lambda: driver.channel_name == "shim")
        assert (await push(client, "s1", 1)).code is ResultCode.APPLIED
        assert "VCN-SERVICES" in tables.save(Family.IPV4)
        tables.flush(Family.IPV4, "nat")
        await until(lambda: "-A OUTPUT -j VCN-SERVICES" in tables.save(Family.IPV4))
        await runtime.stop_pod(pod("s1"))
        await until(lambda: not service.guests.drivers)
        assert (await push(client, "s1", 2)).code is ResultCode.GONE


async def test_a_guest_whose_policy_refuses_is_not_injectable(short_dir: Path, runtime: FakeRuntime) -> None:
    quirks = AgentQuirks()
    async with (
        FakeKata(short_dir, FakeTables(), sandbox_id="s1", quirks=quirks) as kata,
        serving(configuration(short_dir)) as service,
        BridgeClient(short_dir / "bridge.sock") as client,
    ):
        await kata.shim.__aexit__(None, None, None)
        await runtime.wait_registered()
        await runtime.run_pod(pod("s1"))
        result = await push(client, "s1", 1)
        assert result.code is ResultCode.UNREACHABLE
        assert "agent: the guest's agent has not attached; stock: " in result.message
        assert service.guests.drivers["s1"].state == "unreachable"


async def test_which_sandboxes_stay_unmanaged(short_dir: Path, runtime: FakeRuntime) -> None:
    async with serving(configuration(short_dir)) as service:
        await runtime.wait_registered()
        await runtime.run_pod(pod("runc", ""))
        await runtime.run_pod(pod("host", "kata", None))
        await runtime.run_pod(pod("left", "none"))
        await runtime.run_pod(pod("kata"))
        await until(lambda: "kata" in service.guests.drivers)
        assert list(service.guests.drivers) == ["kata"]
        assert service.guests.unmanaged == 3


async def test_netns_state_of_removed_sandboxes_is_removed(short_dir: Path, runtime: FakeRuntime) -> None:
    """Those of sandboxes that ended while kata-bridge was away would stay for ever."""
    notes = short_dir / "state" / "netns"
    notes.mkdir(parents=True, mode=0o700)
    notes.parent.chmod(0o700)
    for name in ("living", "gone", ".gone.new"):
        (notes / name).write_text(f"1 1 {'a' * 64}\n")
    runtime.pods.append(pod("living"))
    async with serving(configuration(short_dir)) as service:
        await until(lambda: "living" in service.guests.drivers)
        await until(lambda: [each.name for each in notes.iterdir()] == ["living"])


async def test_a_late_shim_makes_a_guest_of_an_unlisted_handler(
    short_dir: Path, runtime: FakeRuntime
) -> None:
    async with serving(configuration(short_dir)) as service:
        await runtime.wait_registered()
        await runtime.run_pod(pod("s1", "my-vms"))
        await until(lambda: service.guests.unmanaged == 1)
        async with FakeKata(short_dir, FakeTables(), sandbox_id="s1"):
            await runtime.run_pod(pod("other", "my-vms"))
            await until(lambda: list(service.guests.drivers) == ["s1"])
            await until(lambda: service.guests.drivers["s1"].channel_name == "shim")


async def test_a_full_disk_is_reported_and_retried(
    short_dir: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(configuration(short_dir)) as service:
        await runtime.wait_registered()

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device", str(short_dir))

        monkeypatch.setattr("kata_bridge.guest_certificates.GuestCertificates._write", full)
        await runtime.run_pod(pod("s1"))
        await until(lambda: "s1" in service.guests.drivers)
        driver = service.guests.drivers["s1"]
        await until(lambda: "No space left on device" in driver.machine.message)
        monkeypatch.undo()
        await until((short_dir / "state" / "sandboxes" / "s1" / "tls.crt").exists)


async def created(runtime: FakeRuntime, sandbox: str, name: str) -> ContainerAdjustment | None:
    return await runtime.create_container(pod(sandbox), Container(f"{sandbox}-{name}", sandbox, name))


async def test_only_the_agents_container_gets_the_certificate(short_dir: Path, runtime: FakeRuntime) -> None:
    async with serving(configuration(short_dir)) as service:
        await runtime.wait_registered()
        await runtime.run_pod(pod("s1"))
        await runtime.run_pod(pod("left", "none"))
        await until(lambda: "s1" in service.guests.drivers)
        directory = short_dir / "state" / "sandboxes" / "s1"
        mount = Mount("/etc/vcnode-guest", "bind", str(directory), ("rbind", "ro", "rprivate"))
        assert await created(runtime, "s1", "vcnode-guest-agent") == ContainerAdjustment(mounts=(mount,))
        assert sorted(each.name for each in directory.iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
        assert await created(runtime, "s1", "app") == ContainerAdjustment()
        assert await created(runtime, "left", "vcnode-guest-agent") == ContainerAdjustment()
        assert await created(runtime, "unknown", "vcnode-guest-agent") == ContainerAdjustment()
        assert not (short_dir / "state" / "sandboxes" / "left").exists()


async def test_without_disk_space_a_tenants_agent_is_denied(
    short_dir: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its mount the agent would run and not attach. A pod without tenant is never denied."""
    whose = {keys.CLUSTER: "vc-a-1-a", keys.NAMESPACE: "shop", keys.UID: "tenants-s1"}
    tenants, nobodys = dataclasses.replace(pod("s1"), annotations=whose), pod("s2")

    async def start(each: PodSandbox) -> ContainerAdjustment | None:
        return await runtime.create_container(each, Container(f"{each.id}-a", each.id, "vcnode-guest-agent"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(short_dir))

    async with serving(configuration(short_dir)) as service:
        await runtime.wait_registered()
        monkeypatch.setattr("kata_bridge.guest_certificates.GuestCertificates._write", full)
        for each in (tenants, nobodys):
            await runtime.run_pod(each)
        await until(lambda: len(service.guests.drivers) == 2)
        with pytest.raises(TtrpcError) as caught:
            await start(tenants)
        assert caught.value.message == (
            "waiting: the node cannot issue the certificate of the pod's guest agent"
            " (the kubelet tries again)"
        )
        assert await start(nobodys) == ContainerAdjustment()
        monkeypatch.undo()
        adjustment = await start(tenants)
        assert adjustment is not None
        assert adjustment.mounts


async def test_without_agents_nri_sends_no_container(short_dir: Path, runtime: FakeRuntime) -> None:
    async with serving(dataclasses.replace(configuration(short_dir), agent=None)):
        await runtime.wait_registered()
        await runtime.run_pod(pod("s1"))
        assert await created(runtime, "s1", "vcnode-guest-agent") is None
