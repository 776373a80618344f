# SPDX-License-Identifier: Apache-2.0
"""Events and nudges, by HTTP."""

from pathlib import Path

import pytest

from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate import pod_notifier
from kata_bridge.start_gate.core.decision import Blocker, Reason
from kata_bridge.start_gate.core.event_budget import TENANT_BURST
from kata_bridge.start_gate.pod_notifier import PodNotifier
from kata_bridge.start_gate.super_cluster_writer import SuperClusterWriter
from tenancy import keys
from tests.functional.kata_bridge.start_gate.recording_server import POD, POD_PATH, Harness
from tests.waiting import until

pytestmark = pytest.mark.asyncio

NO_RESOLVER = Blocker(Reason.RESOLVER, "the resolver of network blue is not synced")


async def test_a_nudge_patches_one_annotation_of_the_pod_with_that_uid(harness: Harness) -> None:
    harness.notifier.unblocked(POD)
    await until(lambda: harness.nudges == ["done"])
    ((method, path, kind, body),) = harness.server.requests
    assert (method, path, kind) == ("PATCH", POD_PATH, "application/merge-patch+json")
    at = body["metadata"]["annotations"].pop(keys.GATE_OPENED)
    assert body == {"metadata": {"uid": "uid-1", "annotations": {}}}
    assert len(at) == len("2026-01-01T00:00:00.000000Z")


@pytest.mark.parametrize(
    ("statuses", "result", "count"),
    [
        ([500, 429], "done", 3),
        ([503, 503, 503], "failed", 3),
        ([409], "gone", 1),
        ([404], "gone", 1),
        ([403], "refused", 1),
    ],
)
async def test_a_nudge_is_retried_where_that_may_help(
    harness: Harness, statuses: list[int], result: str, count: int
) -> None:
    harness.server.statuses = list(statuses)
    harness.notifier.unblocked(POD)
    await until(lambda: harness.nudges == [result])
    assert len(harness.server.requests) == count
    assert bool(harness.super_cluster.problem) == (result in ("failed", "refused"))


async def test_nudges_during_a_nudge_are_merged_into_one(harness: Harness) -> None:
    harness.server.delay_s = 0.05
    for _ in range(5):
        harness.notifier.unblocked(POD)
    await harness.idle()
    assert len(harness.nudges) == 2
    first, second = (
        body["metadata"]["annotations"][keys.GATE_OPENED] for body in harness.server.of(POD_PATH)
    )
    assert first < second


async def test_an_event_is_written_for_each_message_not_each_retry(harness: Harness) -> None:
    other = Blocker(Reason.RULES, "the Services of network blue are being applied in the pod's guest")
    for blockers in ((NO_RESOLVER,), (NO_RESOLVER,), (other, NO_RESOLVER), (NO_RESOLVER,)):
        harness.notifier.blocked(POD, blockers)
    path = "/api/v1/namespaces/vc-a-shop/events"
    await harness.idle()
    first, second = sorted(harness.server.of(path), key=lambda event: len(event["message"]))
    assert first["message"] == f"Its containers are not started yet: {NO_RESOLVER.message}."
    assert second["message"] == f"Its containers are not started yet: {other.message}; {NO_RESOLVER.message}."
    assert first["metadata"]["name"].startswith("web-0.")
    assert first["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "vc-a-shop",
        "name": "web-0",
        "uid": "uid-1",
    }
    assert (first["reason"], first["source"]) == (
        "ContainerStartBlocked",
        {"component": "kata-bridge", "host": "worker-1"},
    )
    assert (first["reportingComponent"], first["reportingInstance"]) == ("vcnode.io/kata-bridge", "worker-1")


async def test_a_tenants_storm_leaves_another_tenant_its_event(harness: Harness) -> None:
    for number in range(200):
        noisy = Sandbox(f"a{number}", "vc-a-shop", f"p{number}", f"uid-a{number}", tenant="vc-a")
        harness.notifier.blocked(noisy, (NO_RESOLVER,))
    harness.notifier.blocked(Sandbox("b", "vc-b-shop", "p", "uid-b", tenant="vc-b"), (NO_RESOLVER,))
    await harness.idle()
    most = pod_notifier.EVENTS_BURST + TENANT_BURST
    assert most <= len(harness.server.of("/api/v1/namespaces/vc-a-shop/events")) <= most + 2
    (event,) = harness.server.of("/api/v1/namespaces/vc-b-shop/events")
    assert (event["reason"], event["involvedObject"]["uid"]) == ("ContainerStartBlocked", "uid-b")


async def test_a_missing_kubeconfig_fails_the_nudge_and_is_a_problem(harness: Harness) -> None:
    writer = SuperClusterWriter(Path("/nonexistent/kubeconfig"), "worker-1")
    results: list[str] = []
    PodNotifier(writer, harness.tasks, results.append).unblocked(POD)
    await until(lambda: results == ["failed"])
    assert "kubeconfig" in writer.problem


async def test_reports_after_shutdown_are_dropped(harness: Harness) -> None:
    await harness.tasks.close(1.0)
    for _ in range(2):
        harness.notifier.blocked(POD, (NO_RESOLVER,))
        harness.notifier.unblocked(POD)
    await harness.idle()
    assert harness.server.of(POD_PATH) == []
