# SPDX-License-Identifier: Apache-2.0
"""What kata-bridge reports to the super cluster, on a real connection. The k8s ring has a real API server."""

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
from kata_bridge.start_gate import pod_notifier
from kata_bridge.start_gate.core.decision import Kind, Reason
from kata_bridge.start_gate.core.event_budget import OWN_BURST
from kata_bridge.start_gate.core.node_condition import Tally
from kata_bridge.start_gate.pod_notifier import ClusterReports
from tenancy import keys
from tests.waiting import until

pytestmark = pytest.mark.asyncio

POD = Sandbox("s1", "vc-a-shop", "web-0", "uid-1", tenant="vc-a")
OTHER_POD = Sandbox("s2", "vc-a-shop", "web-1", "uid-2", tenant="vc-a")
POD_PATH = "/api/v1/namespaces/vc-a-shop/pods/web-0"
REASON = Reason(Kind.RESOLVER, "nobody has said yet which DNS server network blue has")


@dataclass(slots=True)
class Recorder:
    """An API server that keeps what it is sent and answers with `statuses`, then 200."""

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
    server: Recorder
    reports: ClusterReports
    tasks: Tasks
    nudges: list[str] = field(default_factory=list)
    readiness: list[tuple[str, str | None]] = field(default_factory=list)

    async def idle(self) -> None:
        """Wait until no report is under way or queued."""
        await until(lambda: not len(self.tasks))

    def readings(self, sandbox: str) -> int:
        """How often a sandbox's annotation was read."""
        return sum(each == sandbox for each, _ in self.readiness)


@pytest_asyncio.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    for name in ("RETRIES_S", "READINESS_S", "CONDITION_S"):
        monkeypatch.setattr(pod_notifier, name, (0.01, 0.01) if name == "RETRIES_S" else 0.02)
    server = Recorder()
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
    made = Harness(server, ClusterReports(kubeconfig, "worker-1", tasks), tasks)
    made.reports.counted = made.nudges.append
    made.reports.read_readiness = lambda sandbox, readiness: made.readiness.append((sandbox, readiness))
    yield made
    await tasks.close(2.0)
    await made.reports.close()
    await runner.cleanup()


async def test_a_nudge_changes_one_annotation_of_that_very_pod(harness: Harness) -> None:
    harness.reports.opened(POD)
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
async def test_what_may_help_is_tried_again(
    harness: Harness, statuses: list[int], result: str, count: int
) -> None:
    harness.server.statuses = list(statuses)
    harness.reports.opened(POD)
    await until(lambda: harness.nudges == [result])
    assert len(harness.server.requests) == count
    assert bool(harness.reports.problem) == (result in ("failed", "refused"))


async def test_what_is_asked_for_while_one_is_under_way_is_done_once_afterwards(harness: Harness) -> None:
    harness.server.delay_s = 0.05
    for _ in range(5):
        harness.reports.opened(POD)
    await harness.idle()
    assert len(harness.nudges) == 2
    first, second = (
        body["metadata"]["annotations"][keys.GATE_OPENED] for body in harness.server.of(POD_PATH)
    )
    assert first < second


async def test_an_event_for_each_reason_and_not_for_each_try(harness: Harness) -> None:
    other = Reason(Kind.RULES, "the Services of network blue are being put into the pod's guest")
    for reasons in ((REASON,), (REASON,), (other, REASON), (REASON,)):
        harness.reports.held(POD, reasons)
    path = "/api/v1/namespaces/vc-a-shop/events"
    await harness.idle()
    first, second = sorted(harness.server.of(path), key=lambda event: len(event["message"]))
    assert first["message"] == f"Its containers are not started yet: {REASON.words}."
    assert second["message"] == f"Its containers are not started yet: {other.words}; {REASON.words}."
    assert first["metadata"]["name"].startswith("web-0.")
    assert first["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "vc-a-shop",
        "name": "web-0",
        "uid": "uid-1",
    }
    assert (first["reason"], first["source"]) == (
        "WaitsAtGate",
        {"component": "kata-bridge", "host": "worker-1"},
    )


async def test_events_of_many_pods_are_bounded(harness: Harness) -> None:
    for number in range(200):
        harness.reports.held(Sandbox(f"s{number}", "ns", f"p{number}", f"uid-{number}"), (REASON,))
    await harness.idle()
    most = pod_notifier.EVENTS_BURST + OWN_BURST
    assert most <= len(harness.server.requests) <= most + 2


async def test_a_tenant_whose_pods_are_many_takes_no_others_event(harness: Harness) -> None:
    for number in range(200):
        noisy = Sandbox(f"a{number}", "vc-a-shop", f"p{number}", f"uid-a{number}", tenant="vc-a")
        harness.reports.held(noisy, (REASON,))
    harness.reports.held(Sandbox("b", "vc-b-shop", "p", "uid-b", tenant="vc-b"), (REASON,))
    await harness.idle()
    (event,) = harness.server.of("/api/v1/namespaces/vc-b-shop/events")
    assert (event["reason"], event["involvedObject"]["uid"]) == ("WaitsAtGate", "uid-b")


async def test_the_nodes_condition_is_said_when_it_changes(harness: Harness) -> None:
    tallies = [Tally()]
    looks: list[Tally] = []

    def tally() -> Tally:
        looks.append(tallies[0])
        return tallies[0]

    harness.reports.tally = tally
    harness.reports.start()
    path = "/api/v1/nodes/worker-1/status"
    await until(lambda: len(harness.server.of(path)) == 1)
    tallies[0] = Tally(1, {Kind.RULES: 1})
    await until(lambda: len(harness.server.of(path)) == 2)
    # It looks again and again, each time after it has said what it had to, and says no more.
    seen = len(looks)
    await until(lambda: len(looks) >= seen + 5)
    said = [body["status"]["conditions"][0] for body in harness.server.of(path)]
    assert [(each["type"], each["status"], each["reason"]) for each in said] == [
        ("VcnodePodsHeld", "False", "GateOpen"),
        ("VcnodePodsHeld", "True", "ServicesMissing"),
    ]
    assert harness.server.requests[0][2] == "application/strategic-merge-patch+json"


async def test_annotations_are_read_by_a_patch_of_nothing(harness: Harness) -> None:
    harness.server.annotations = {keys.NETWORK_READINESS: "false"}
    harness.reports.start()
    harness.reports.not_ready(POD)
    await until(lambda: len(harness.readiness) > 1)
    assert set(harness.readiness) == {("s1", "false")}
    assert harness.server.of(POD_PATH)[0] == {"metadata": {"uid": "uid-1"}}
    harness.server.annotations = {}
    await until(lambda: harness.readiness[-1] == ("s1", None))
    harness.reports.forgotten(POD)
    count = harness.readings("s1")
    # Others' are read again and again, and its own no more.
    harness.reports.not_ready(OTHER_POD)
    await until(lambda: harness.readings("s2") >= 3)
    assert harness.readings("s1") == count


async def test_a_kubeconfig_that_is_not_there_yet_is_an_api_server_that_is_away(harness: Harness) -> None:
    reports = ClusterReports(Path("/nonexistent/kubeconfig"), "worker-1", Tasks("away"))
    results: list[str] = []
    reports.counted = results.append
    reports.opened(POD)
    await until(lambda: results == ["failed"])
    assert "kubeconfig" in reports.problem


async def test_reports_after_the_tasks_are_closed_are_dropped(harness: Harness) -> None:
    await harness.tasks.close(1.0)
    for _ in range(2):
        harness.reports.held(POD, (REASON,))
        harness.reports.opened(POD)
    await harness.idle()
    assert harness.server.of(POD_PATH) == []
