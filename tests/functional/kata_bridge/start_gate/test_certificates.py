# SPDX-License-Identifier: Apache-2.0
"""A pod's agent whose certificate cannot be made, at the gate."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bridge_api.messages import SetResolvConfRequest
from daemonkit.tasks import Tasks
from devkit.kata.fake_runtime import FakeRuntime
from kata_bridge.config import AgentConfig, RuntimeRule, SuperClusterConfig
from kata_bridge.guest_certificates import GuestCertificateError
from kata_bridge.nri.messages import Container, ContainerAdjustment, Mount, PodSandbox
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate import certificates
from kata_bridge.start_gate.core.decision import Blocker, Reason
from kata_bridge.start_gate.pod_notifier import PodNotifier
from tests.functional.kata_bridge.start_gate.gated_node import TEXT, GatedNode, configuration, pod, serving
from tests.waiting import until

pytestmark = pytest.mark.asyncio

AGENT = "vcnode-guest-agent"
WHY = (
    "waiting: the node cannot issue the certificate of the pod's guest agent, which applies the Services"
    " of network default (the kubelet tries again)"
)


class Reported:
    """The Events and conditions that the super cluster would get."""

    def __init__(self) -> None:
        self.blocked: list[tuple[str, tuple[Reason, ...]]] = []
        self.unblocked: list[str] = []


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Reported:
    found = Reported()

    def blocked(_: PodNotifier, sandbox: Sandbox, blockers: tuple[Blocker, ...]) -> None:
        found.blocked.append((sandbox.id, tuple(blocker.reason for blocker in blockers)))

    monkeypatch.setattr(PodNotifier, "blocked", blocked)
    monkeypatch.setattr(PodNotifier, "unblocked", lambda _, sandbox: found.unblocked.append(sandbox.id))
    return found


@pytest_asyncio.fixture
async def node(
    short_dir: Path, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[GatedNode]:
    """A disk that is full from the start; `reported` patches before the daemon starts."""
    monkeypatch.setattr(certificates, "RETRY_S", 0.02)
    config = dataclasses.replace(
        configuration(short_dir, super_cluster=SuperClusterConfig(short_dir / "absent", "worker-1")),
        runtimes=(RuntimeRule(("kata*",), ("agent",)),),
        agent=AgentConfig(socket=short_dir / "agent.sock"),
    )
    async with FakeRuntime(short_dir / "nri.sock") as runtime, serving(config, short_dir, runtime) as running:
        yield running


@pytest.fixture
def full_disk(short_dir: Path) -> pytest.MonkeyPatch:
    """In force until it is undone; a patch of its own, so that others stay."""
    patch = pytest.MonkeyPatch()

    def full(*_: object) -> None:
        raise GuestCertificateError(f"{short_dir}/state/sandboxes/s1: No space left on device")

    patch.setattr("kata_bridge.guest_certificates.GuestCertificates.issue", full)
    return patch


@pytest.fixture(autouse=True)
def room_again(full_disk: pytest.MonkeyPatch) -> object:
    yield
    full_disk.undo()


async def test_an_agent_without_certificate_is_blocked_and_nudged(
    node: GatedNode, reported: Reported, full_disk: pytest.MonkeyPatch
) -> None:
    web = pod("s1", "kata")
    await node.runtime.run_pod(web)
    await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))
    assert await node.why(web, AGENT) == WHY
    (status,) = node.blocked()
    assert (status["containers"], status["message"]) == ([AGENT], WHY)
    assert reported.blocked == [("s1", (Reason.RULES,))]
    assert node.metric('vcnode_katabridge_blocked_starts_total{reason="ServicesNotSynced"}') == 1
    assert reported.unblocked == []
    full_disk.undo()
    await until(lambda: reported.unblocked == ["s1"])
    adjustment = await node.start(web, AGENT)
    certificate = Mount(
        "/etc/vcnode-guest", "bind", str(node.short_dir / "state/sandboxes/s1"), ("rbind", "ro", "rprivate")
    )
    assert adjustment == ContainerAdjustment(mounts=(node.mount(web), certificate))
    # Its other containers wait for the rules that it applies.
    assert "are not applied" in await node.why(web)


async def test_a_stopped_sandbox_is_not_retried(
    node: GatedNode, reported: Reported, full_disk: pytest.MonkeyPatch
) -> None:
    pods = [pod(name, "kata") for name in ("s1", "s2")]
    for each in pods:
        await node.runtime.run_pod(each)
        await node.client.set_resolv_conf(SetResolvConfRequest(each.id, TEXT))
        assert await node.why(each, AGENT) == WHY
    await node.runtime.stop_pod(pods[0])
    full_disk.undo()
    await until(lambda: bool(reported.unblocked))
    assert reported.unblocked == ["s2"]


@pytest.mark.parametrize(
    "ungated",
    [
        pod("s1", "kata", tenant=""),
        pod("s1", "kata", namespace="open"),
        pod("s1", "kata", namespace="warned"),
    ],
)
async def test_where_nothing_is_blocked_the_agent_starts_without(
    node: GatedNode, ungated: PodSandbox, reported: Reported
) -> None:
    await node.runtime.run_pod(ungated)
    assert await node.start(ungated, AGENT) == ContainerAdjustment()
    assert reported.blocked == []


async def test_without_agents_on_the_node_its_name_is_ignored(short_dir: Path) -> None:
    """The default rule for Kata names the agent first, also on a node that no agent can dial."""
    config = dataclasses.replace(
        configuration(short_dir), runtimes=(RuntimeRule(("kata*",), ("agent", "stock")),)
    )
    async with FakeRuntime(short_dir / "nri.sock") as runtime, serving(config, short_dir, runtime) as node:
        web = pod("s1", "kata")
        await runtime.run_pod(web)
        await node.client.set_resolv_conf(SetResolvConfRequest("s1", TEXT))
        assert "the Services of network default are not applied" in await node.why(web, AGENT)


async def test_a_container_added_while_retries_end_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "RETRY_S", 0.01)
    made: list[str] = []

    async def certificate_of(_: PodSandbox, __: Container) -> tuple[Mount, ...]:
        return ()

    def on_issued(sandbox: str) -> None:
        made.append(sandbox)
        if sandbox == "s1":
            # After the last check of the retries, and before their task ends.
            asyncio.get_running_loop().call_soon(retries.retry, PodSandbox(id="s2"), Container())

    tasks = Tasks("test")
    retries = certificates.CertificateRetries(certificate_of, on_issued, tasks)
    retries.retry(PodSandbox(id="s1"), Container())
    await until(lambda: made == ["s1", "s2"])
    await tasks.close(timeout_s=1)
