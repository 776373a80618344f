# SPDX-License-Identifier: Apache-2.0
"""A pod's agent whose certificate cannot be made, at the gate."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from daemonkit.tasks import Tasks
from devkit.kata.fake_runtime import FakeRuntime
from kata_bridge.config import Agent, RuntimeRule, SuperCluster
from kata_bridge.credentials import CredentialsError
from kata_bridge.nri.messages import Container, ContainerAdjustment, Mount, PodSandbox
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate import certificates
from kata_bridge.start_gate.core.decision import Reason
from kata_bridge.start_gate.pod_notifier import ClusterReports
from tests.functional.kata_bridge.start_gate.gated_node import TEXT, Node, configuration, pod, serving
from tests.waiting import until

pytestmark = pytest.mark.asyncio

AGENT = "vcnode-guest-agent"
WHY = (
    "waiting: the node cannot make the certificate of the pod's agent now, which is to put in the Services"
    " of network default (it is tried again by itself)"
)


class Told:
    """What the super cluster would be told."""

    def __init__(self) -> None:
        self.held: list[tuple[str, tuple[str, ...]]] = []
        self.opened: list[str] = []


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()

    def held(_: ClusterReports, sandbox: Sandbox, reasons: tuple[Reason, ...]) -> None:
        found.held.append((sandbox.id, tuple(reason.kind.value for reason in reasons)))

    monkeypatch.setattr(ClusterReports, "held", held)
    monkeypatch.setattr(ClusterReports, "opened", lambda _, sandbox: found.opened.append(sandbox.id))
    return found


@pytest_asyncio.fixture
async def node(place: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A disk that is full from the start; `told` is asked for so that it is there before the daemon."""
    monkeypatch.setattr(certificates, "RETRY_S", 0.02)
    config = dataclasses.replace(
        configuration(place, super_cluster=SuperCluster(place / "absent", "worker-1")),
        runtimes=(RuntimeRule(("kata*",), ("agent",)),),
        agent=Agent(socket=place / "agent.sock"),
    )
    async with FakeRuntime(place / "nri.sock") as runtime, serving(config, place, runtime) as running:
        yield running


@pytest.fixture
def full_disk(place: Path) -> pytest.MonkeyPatch:
    """In force until it is undone; of its own, so that nothing else is."""
    patch = pytest.MonkeyPatch()

    def full(*_: object) -> None:
        raise CredentialsError(f"{place}/state/sandboxes/s1: No space left on device")

    patch.setattr("kata_bridge.credentials.Credentials.issue", full)
    return patch


@pytest.fixture(autouse=True)
def room_again(full_disk: pytest.MonkeyPatch) -> object:
    yield
    full_disk.undo()


async def test_a_tenants_agent_waits_is_recorded_and_is_nudged(
    node: Node, told: Told, full_disk: pytest.MonkeyPatch
) -> None:
    web = pod("s1", "kata")
    await node.runtime.run_pod(web)
    await node.client.set_resolv_conf("s1", TEXT)
    assert await node.why(web, AGENT) == WHY
    (held,) = node.service.status()["gate"]["held"]  # type: ignore[index]  # JSON
    assert (held["containers"], held["why"]) == ([AGENT], WHY)
    assert told.held == [("s1", ("rules",))]
    assert node.metric('vcnode_gate_holds_total{kind="rules"}') == 1
    assert told.opened == []
    full_disk.undo()
    await until(lambda: told.opened == ["s1"])
    adjustment = await node.start(web, AGENT)
    certificate = Mount(
        "/etc/vcnode-guest", "bind", str(node.place / "state/sandboxes/s1"), ("rbind", "ro", "rprivate")
    )
    assert adjustment == ContainerAdjustment(mounts=(node.mount(web), certificate))
    # Its other containers wait for the rules that it is to put in.
    assert "are not in it" in await node.why(web)


async def test_a_sandbox_that_goes_while_its_agent_waits_is_not_asked_about_any_more(
    node: Node, told: Told, full_disk: pytest.MonkeyPatch
) -> None:
    pods = [pod(name, "kata") for name in ("s1", "s2")]
    for each in pods:
        await node.runtime.run_pod(each)
        await node.client.set_resolv_conf(each.id, TEXT)
        assert await node.why(each, AGENT) == WHY
    await node.runtime.stop_pod(pods[0])
    full_disk.undo()
    await until(lambda: bool(told.opened))
    assert told.opened == ["s2"]


@pytest.mark.parametrize(
    "let_be",
    [
        pod("s1", "kata", tenant=""),
        pod("s1", "kata", namespace="open"),
        pod("s1", "kata", namespace="warned"),
    ],
)
async def test_where_nothing_is_held_it_starts_without(node: Node, let_be: PodSandbox, told: Told) -> None:
    await node.runtime.run_pod(let_be)
    assert await node.start(let_be, AGENT) == ContainerAdjustment()
    assert told.held == []


async def test_a_container_of_that_name_waits_for_rules_where_no_agents_are_taken(place: Path) -> None:
    """The default rule for Kata names the agent first, also on a node that no agent can dial."""
    config = dataclasses.replace(
        configuration(place), runtimes=(RuntimeRule(("kata*",), ("agent", "stock")),)
    )
    async with FakeRuntime(place / "nri.sock") as runtime, serving(config, place, runtime) as node:
        web = pod("s1", "kata")
        await runtime.run_pod(web)
        await node.client.set_resolv_conf("s1", TEXT)
        assert "the Services of network default are not in it" in await node.why(web, AGENT)


async def test_one_that_comes_while_the_last_is_served_is_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "RETRY_S", 0.01)
    made: list[str] = []

    async def certificate_of(_: PodSandbox, __: Container) -> tuple[Mount, ...]:
        return ()

    def is_made(sandbox: str) -> None:
        made.append(sandbox)
        if sandbox == "s1":
            # Before anybody is told that the trying is over, and behind its last look.
            asyncio.get_running_loop().call_soon(waiting.wait, PodSandbox(id="s2"), Container())

    tasks = Tasks("test")
    waiting = certificates.Certificates(certificate_of, is_made, tasks)
    waiting.wait(PodSandbox(id="s1"), Container())
    await until(lambda: made == ["s1", "s2"])
    await tasks.close(timeout_s=1)
