# SPDX-License-Identifier: Apache-2.0
"""After a restart the bridge nudges exactly the pods with a blocked container."""

import asyncio
import itertools
from pathlib import Path

import pytest

from bridge_api.messages import SetResolvConfRequest
from devkit.kata.fake_runtime import FakeRuntime
from kata_bridge.config import KataBridgeConfiguration, SuperClusterConfig
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.pod_notifier import PodNotifier
from kata_bridge.ttrpc.server import ENDING
from kata_bridge.ttrpc.status import TtrpcError
from tests.functional.kata_bridge.served_bridge import DEADLINE_S
from tests.functional.kata_bridge.start_gate.gated_node import NO_RESOLVER, TEXT, configuration, pod, serving

pytestmark = pytest.mark.asyncio

WAITS = "its network has no server"


@pytest.fixture
def config(short_dir: Path) -> KataBridgeConfiguration:
    """With an API server that is away: `PodNotifier` is patched."""
    return configuration(short_dir, super_cluster=SuperClusterConfig(short_dir / "absent", "worker-1"))


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def unblocked(_: PodNotifier, sandbox: Sandbox) -> None:
        found.append(sandbox.id)

    monkeypatch.setattr(PodNotifier, "unblocked", unblocked)
    return found


async def test_a_restart_nudges_only_pods_with_a_blocked_container(
    short_dir: Path, runtime: FakeRuntime, config: KataBridgeConfiguration, nudged: list[str]
) -> None:
    refused, never_refused, allowed = pod("s1"), pod("s2"), pod("s3")
    async with serving(config, short_dir, runtime) as node:
        for each in (refused, never_refused, allowed):
            await runtime.run_pod(each)
            await node.client.set_resolv_conf(SetResolvConfRequest(each.id, TEXT))
            await node.start(each)
            await node.client.set_resolv_conf(SetResolvConfRequest(each.id, TEXT, wait_message=WAITS))
        # A sidecar that ended and is created again.
        for each in (refused, allowed):
            assert WAITS in await node.why(each, "sidecar")
        assert nudged == []
        await node.client.set_resolv_conf(SetResolvConfRequest(allowed.id, TEXT))
        assert nudged == ["s3"]
        await node.start(allowed, "sidecar")
        await node.client.set_resolv_conf(SetResolvConfRequest(allowed.id, TEXT, wait_message=WAITS))
    for _ in range(2):  # a second restart keeps it too
        async with serving(config, short_dir, runtime):
            assert nudged == ["s3"]
    async with serving(config, short_dir, runtime) as node:
        for each in (refused, never_refused, allowed):
            await node.client.set_resolv_conf(SetResolvConfRequest(each.id, TEXT))
        assert nudged == ["s3", "s1"]
        await node.start(refused, "sidecar")
    # After its nudge it is not nudged again for an earlier wait.
    async with serving(config, short_dir, runtime) as node:
        for message in (WAITS, ""):
            await node.client.set_resolv_conf(SetResolvConfRequest(refused.id, TEXT, wait_message=message))
        assert nudged == ["s3", "s1"]


async def test_a_pod_blocked_during_shutdown_gets_the_message(
    short_dir: Path, runtime: FakeRuntime, config: KataBridgeConfiguration
) -> None:
    """Each of these pods is new, and its refusal starts a report."""
    messages: list[str] = []

    async def start_until_the_bridge_is_gone() -> None:
        for number in itertools.count():
            new = pod(f"s{number}", tenant=f"vc-{number}-123abc-shop")
            await runtime.run_pod(new)
            try:
                await node.start(new)
            except TtrpcError as refusal:
                messages.append(refusal.message)
            except ConnectionError:
                return
            else:
                assert runtime.plugin is None
                return

    async with (
        asyncio.timeout(DEADLINE_S),
        asyncio.TaskGroup() as group,
        serving(config, short_dir, runtime) as node,
    ):
        group.create_task(start_until_the_bridge_is_gone())
    assert messages
    assert {each for each in messages if each != ENDING and NO_RESOLVER not in each} == set()
