# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.start_gate.core.decision import Reason
from kata_bridge.start_gate.core.node_condition import BlockedPods
from kata_bridge.start_gate.node_condition_sync import sync_node_condition
from tests.functional.kata_bridge.start_gate.recording_server import Harness
from tests.waiting import until

pytestmark = pytest.mark.asyncio


async def test_the_node_condition_is_written_when_it_changes(harness: Harness) -> None:
    current = [BlockedPods()]
    reads: list[BlockedPods] = []

    def blocked_pods() -> BlockedPods:
        reads.append(current[0])
        return current[0]

    harness.tasks.spawn(sync_node_condition(harness.super_cluster, blocked_pods), "condition")
    path = "/api/v1/nodes/worker-1/status"
    await until(lambda: len(harness.server.of(path)) == 1)
    current[0] = BlockedPods(1, {Reason.RULES: 1})
    await until(lambda: len(harness.server.of(path)) == 2)
    # It reads again and again, and writes no more.
    count = len(reads)
    await until(lambda: len(reads) >= count + 5)
    written = [body["status"]["conditions"][0] for body in harness.server.of(path)]
    assert [(each["type"], each["status"], each["reason"]) for each in written] == [
        ("VcnodePodStartBlocked", "False", "NoPodBlocked"),
        ("VcnodePodStartBlocked", "True", "ServicesNotSynced"),
    ]
    assert harness.server.requests[0][2] == "application/strategic-merge-patch+json"
