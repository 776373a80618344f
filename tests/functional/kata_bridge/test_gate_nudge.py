# SPDX-License-Identifier: Apache-2.0
"""Who is nudged when its gate opens after a restart of the bridge: exactly who was refused before."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kata_bridge.cluster_reports import ClusterReports
from kata_bridge.config import KataBridgeConfiguration, SuperCluster
from kata_bridge.core.sandboxes import Sandbox
from kata_bridge.testing.stand_in_runtime import StandInRuntime
from tests.functional.kata_bridge.gated_node import TEXT, configuration, pod, serving

pytestmark = pytest.mark.asyncio

WAITS = "its network has no server"


@pytest_asyncio.fixture
async def runtime(place: Path) -> AsyncIterator[StandInRuntime]:
    async with StandInRuntime(place / "nri.sock") as running:
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
    place: Path, runtime: StandInRuntime, config: KataBridgeConfiguration, nudged: list[str]
) -> None:
    refused, content, admitted = pod("s1"), pod("s2"), pod("s3")
    async with serving(config, place, runtime) as node:
        for each in (refused, content, admitted):
            await runtime.run_pod(each)
            await node.client.set_resolv_conf(each.id, TEXT)
            await node.start(each)
            await node.client.set_resolv_conf(each.id, TEXT, waits=WAITS)
        # A sidecar that ended and is made anew.
        for each in (refused, admitted):
            assert WAITS in await node.why(each, "sidecar")
        assert nudged == []
        await node.client.set_resolv_conf(admitted.id, TEXT)
        assert nudged == ["s3"]
        await node.start(admitted, "sidecar")
        await node.client.set_resolv_conf(admitted.id, TEXT, waits=WAITS)
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
            await node.client.set_resolv_conf(refused.id, TEXT, waits=waits)
        assert nudged == ["s3", "s1"]
