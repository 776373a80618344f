# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate.network_readiness_sync import sync_network_readiness
from tenancy import keys
from tests.functional.kata_bridge.start_gate.recording_server import OTHER_POD, POD, POD_PATH, Harness
from tests.waiting import until

pytestmark = pytest.mark.asyncio


async def test_annotations_are_read_by_an_empty_patch(harness: Harness) -> None:
    harness.server.annotations = {keys.NETWORK_READINESS: "false"}
    sync = sync_network_readiness(
        harness.super_cluster,
        lambda: harness.waiting,
        lambda sandbox, readiness: harness.readiness.append((sandbox, readiness)),
    )
    harness.waiting.append(POD)
    harness.tasks.spawn(sync, "readiness")
    await until(lambda: len(harness.readiness) > 1)
    assert set(harness.readiness) == {("s1", "false")}
    assert harness.server.of(POD_PATH)[0] == {"metadata": {"uid": "uid-1"}}
    harness.server.annotations = {}
    await until(lambda: harness.readiness[-1] == ("s1", None))
    harness.waiting[:] = [OTHER_POD]
    await until(lambda: harness.readings("s2") >= 1)
    count = harness.readings("s1")
    await until(lambda: harness.readings("s2") >= 3)
    assert harness.readings("s1") == count


async def test_annotations_of_a_removed_pod_are_read_once(harness: Harness) -> None:
    harness.server.statuses = [404]
    reads: list[int] = []

    def waiting() -> list[Sandbox]:
        reads.append(1)
        return [POD]

    harness.tasks.spawn(
        sync_network_readiness(harness.super_cluster, waiting, lambda _, __: None), "readiness"
    )
    await until(lambda: len(reads) >= 5)
    assert len(harness.server.of(POD_PATH)) == 1
