# SPDX-License-Identifier: Apache-2.0
"""Who is nudged when its gate opens after a restart of the bridge: exactly who was refused before."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devkit.kata.fake_runtime import FakeRuntime
from kata_bridge.config import KataBridgeConfiguration, SuperCluster
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.pod_notifier import ClusterReports
from kata_bridge.ttrpc.server import ENDING
from kata_bridge.ttrpc.status import TtrpcError
from tests.functional.kata_bridge.fake_guests import DEADLINE_S
from tests.functional.kata_bridge.start_gate.gated_node import NOBODY_SAID, TEXT, configuration, pod, serving

pytestmark = pytest.mark.asyncio

WAITS = "its network has no server"


@pytest_asyncio.fixture
async def runtime(place: Path) -> AsyncIterator[FakeRuntime]:
    async with FakeRuntime(place / "nri.sock") as running:
        yield running


@pytest.fixture
def config(place: Path) -> KataBridgeConfiguration:
    """With an API server that is away: what it would be told is looked at before it is sent."""
    return configuration(place, super_cluster=SuperCluster(place / "absent", "worker-1"))


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def opened(_: ClusterReports, sandbox: Sandbox) -> None:
        found.append(sandbox.id)

    monkeypatch.setattr(ClusterReports, "opened", opened)
    return found


async def test_a_container_beside_one_that_runs(
    place: Path, runtime: FakeRuntime, config: KataBridgeConfiguration, nudged: list[str]
) -> None:
    refused, content, admitted = pod("s1"), pod("s2"), pod("s3")
    async with serving(config, place, runtime) as node:
        for each in (refused, content, admitted):
            await runtime.run_pod(each)
            await node.client.set_resolv_conf(each.id, TEXT)
            await node.start(each)
            await node.client.set_resolv_conf(each.id, TEXT, wait_message=WAITS)
        # A sidecar that ended and is made anew.
        for each in (refused, admitted):
            assert WAITS in await node.why(each, "sidecar")
        assert nudged == []
        await node.client.set_resolv_conf(admitted.id, TEXT)
        assert nudged == ["s3"]
        await node.start(admitted, "sidecar")
        await node.client.set_resolv_conf(admitted.id, TEXT, wait_message=WAITS)
    for _ in range(2):  # not even a second restart forgets it
        async with serving(config, place, runtime):
            assert nudged == ["s3"]
    async with serving(config, place, runtime) as node:
        for each in (refused, content, admitted):
            await node.client.set_resolv_conf(each.id, TEXT)
        assert nudged == ["s3", "s1"]
        await node.start(refused, "sidecar")
    # And once it has been, nobody is for having waited once.
    async with serving(config, place, runtime) as node:
        for waits in (WAITS, ""):
            await node.client.set_resolv_conf(refused.id, TEXT, wait_message=waits)
        assert nudged == ["s3", "s1"]


async def test_who_is_refused_while_the_bridge_ends_reads_why(
    place: Path, runtime: FakeRuntime, config: KataBridgeConfiguration
) -> None:
    """Each of these pods is new, and a report of it is begun at its refusal."""
    said: list[str] = []

    async def ask_until_the_bridge_is_gone() -> None:
        for number in itertools.count():
            new = pod(f"s{number}", tenant=f"vc-{number}-123abc-shop")
            await runtime.run_pod(new)
            try:
                await node.start(new)
            except TtrpcError as refusal:
                said.append(refusal.message)
            except ConnectionError:
                return
            else:
                assert runtime.plugin is None
                return

    async with (
        asyncio.timeout(DEADLINE_S),
        asyncio.TaskGroup() as group,
        serving(config, place, runtime) as node,
    ):
        group.create_task(ask_until_the_bridge_is_gone())
    assert said
    assert {each for each in said if each != ENDING and NOBODY_SAID not in each} == set()
