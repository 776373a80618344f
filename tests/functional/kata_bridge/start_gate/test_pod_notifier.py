# SPDX-License-Identifier: Apache-2.0
"""What the start gate reports to the super cluster, by HTTP. The k8s ring has a real API server."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from daemonkit.tasks import Tasks
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.start_gate import pod_notifier, super_cluster, super_cluster_sync
from kata_bridge.start_gate.core.decision import Blocker, Reason
from kata_bridge.start_gate.core.event_budget import TENANT_BURST
from kata_bridge.start_gate.core.node_condition import BlockedPods
from kata_bridge.start_gate.pod_notifier import PodNotifier
from kata_bridge.start_gate.super_cluster import SuperClusterWriter
from kata_bridge.start_gate.super_cluster_sync import sync_node_condition, sync_readiness
from tenancy import keys
from tests.waiting import until

pytestmark = pytest.mark.asyncio

POD = Sandbox("s1", "vc-a-shop", "web-0", "uid-1", tenant="vc-a")
OTHER_POD = Sandbox("s2", "vc-a-shop", "web-1", "uid-2", tenant="vc-a")
POD_PATH = "/api/v1/namespaces/vc-a-shop/pods/web-0"
NO_RESOLVER = Blocker(Reason.RESOLVER, "the resolver of network blue is not synced")


@dataclass(slots=True)
class RecordingServer:
    """An API server that records requests and answers with `statuses`, then 200."""

    requests: list[tuple[str, str, str, Any]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(
            (request.method, request.path, request.content_type, json.loads(await request.read()))
        )
        await asyncio.sleep(self.delay_s)
        status = self.statuses.pop(0) if self.statuses else 200
        body = {"metadata": {"uid": "uid-1", "annotations": self.annotations}, "code": status}
        return web.json_response(body, status=status)

    def of(self, path: str) -> list[Any]:
        return [body for _, asked, _, body in self.requests if asked == path]


@dataclass(slots=True)
class Harness:
    server: RecordingServer
    super_cluster: SuperClusterWriter
    notifier: PodNotifier
    tasks: Tasks
    nudges: list[str]
    readiness: list[tuple[str, str | None]] = field(default_factory=list)
    waiting: list[Sandbox] = field(default_factory=list)

    async def idle(self) -> None:
        """Wait until no request is in flight or queued."""
        await until(lambda: not len(self.tasks))

    def readings(self, sandbox: str) -> int:
        """How often a sandbox's annotation was read."""
        return sum(each == sandbox for each, _ in self.readiness)


@pytest_asyncio.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    monkeypatch.setattr(super_cluster, "RETRIES_S", (0.01, 0.01))
    for name in ("READINESS_S", "CONDITION_S"):
        monkeypatch.setattr(super_cluster_sync, name, 0.02)
    server = RecordingServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    tasks = Tasks("reports")
    writer = SuperClusterWriter(kubeconfig, "worker-1")
    nudges: list[str] = []
    notifier = PodNotifier(writer, tasks, nudges.append)
    yield Harness(server, writer, notifier, tasks, nudges)
    await tasks.close(2.0)
    await writer.close()
    await runner.cleanup()


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


async def test_events_of_many_pods_are_limited(harness: Harness) -> None:
    for number in range(200):
        harness.notifier.blocked(Sandbox(f"s{number}", "ns", f"p{number}", f"uid-{number}"), (NO_RESOLVER,))
    await harness.idle()
    most = pod_notifier.EVENTS_BURST + TENANT_BURST
    assert most <= len(harness.server.requests) <= most + 2


async def test_a_tenants_storm_leaves_another_tenant_its_event(harness: Harness) -> None:
    for number in range(200):
        noisy = Sandbox(f"a{number}", "vc-a-shop", f"p{number}", f"uid-a{number}", tenant="vc-a")
        harness.notifier.blocked(noisy, (NO_RESOLVER,))
    harness.notifier.blocked(Sandbox("b", "vc-b-shop", "p", "uid-b", tenant="vc-b"), (NO_RESOLVER,))
    await harness.idle()
    (event,) = harness.server.of("/api/v1/namespaces/vc-b-shop/events")
    assert (event["reason"], event["involvedObject"]["uid"]) == ("ContainerStartBlocked", "uid-b")


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


async def test_annotations_are_read_by_an_empty_patch(harness: Harness) -> None:
    harness.server.annotations = {keys.NETWORK_READINESS: "false"}
    sync = sync_readiness(
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


async def test_annotations_of_a_gone_pod_are_read_once(harness: Harness) -> None:
    harness.server.statuses = [404]
    reads: list[int] = []

    def waiting() -> list[Sandbox]:
        reads.append(1)
        return [POD]

    harness.tasks.spawn(sync_readiness(harness.super_cluster, waiting, lambda _, __: None), "readiness")
    await until(lambda: len(reads) >= 5)
    assert len(harness.server.of(POD_PATH)) == 1


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
