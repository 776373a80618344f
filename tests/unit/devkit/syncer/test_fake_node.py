# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import NODES, PODS, ObjectMeta, Status
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.patches import MERGE
from devkit.kube.storage import Object, Selection, Storage
from devkit.syncer.fake_node import (
    Bind,
    Container,
    End,
    FakeNode,
    Pod,
    SchedulingGate,
    SpecForNode,
    Start,
    StatusForNode,
    Step,
    finished,
    next_step,
    running,
)

META = ObjectMeta(name="p", namespace="default", uid="u", resource_version="1")
DELETED = ObjectMeta(name="p", namespace="default", uid="u", resource_version="1", deletion_timestamp="x")
OURS = SpecForNode(node_name="n1")


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (Pod(META), Bind()),
        (Pod(META, SpecForNode(scheduling_gates=())), Bind()),
        (Pod(META, SpecForNode(scheduling_gates=(SchedulingGate("g"),))), None),
        (Pod(DELETED), None),
        (Pod(META, OURS), Start()),
        (Pod(META, OURS, StatusForNode("Pending")), Start()),
        (Pod(META, OURS, StatusForNode("Running")), None),
        (Pod(META, OURS, StatusForNode("Succeeded")), None),
        (Pod(DELETED, OURS, StatusForNode("Running")), End()),
        (Pod(META, SpecForNode(node_name="n9")), None),
        (Pod(DELETED, SpecForNode(node_name="n9")), None),
    ],
)
def test_each_pod_has_a_next_step(pod: Pod, expected: Step | None) -> None:
    assert next_step(pod, ("n1", "n2")) == expected


def test_statuses_are_those_of_a_kubelet() -> None:
    pod = Pod(META, SpecForNode(containers=(Container("a", "i"),), init_containers=(Container("b", "j"),)))
    found = running(pod, "192.0.2.1", "10.0.0.1", "T")
    assert (found["phase"], found["podIPs"], found["hostIP"]) == (
        "Running",
        [{"ip": "10.0.0.1"}],
        "192.0.2.1",
    )
    assert found["containerStatuses"] == [
        {
            "name": "a",
            "image": "i",
            "imageID": "",
            "containerID": "containerd://u-a",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "lastState": {},
            "state": {"running": {"startedAt": "T"}},
        }
    ]
    assert found["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert finished(pod, 0, "T")["phase"] == "Succeeded"
    assert finished(pod, 1, "T")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


class NodeScene:
    """A node of a cluster in the process."""

    def __init__(self, **options: Any) -> None:
        self.cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
        self.client = InProcessClient(self.cluster)
        self.node = FakeNode(self.client, ("n1", "n2"), clock=lambda: 0.0, **options)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.node.run())
            await self.node.synced.wait()
            yield
            task.cancel()

    def create(self, name: str, **spec: Any) -> None:
        metadata = {"name": name, "namespace": "default"}
        containers = [{"name": "a", "image": "b"}]
        self.cluster.create(PODS, {"metadata": metadata, "spec": {"containers": containers} | spec})

    def pods(self) -> list[Object]:
        return self.cluster.storage.select(Selection(PODS))

    def phases(self) -> list[tuple[str, str]]:
        return [(pod["spec"].get("nodeName", ""), pod["status"]["phase"]) for pod in self.pods()]


@pytest.mark.asyncio
async def test_pods_run_and_end() -> None:
    scene = NodeScene(start_delay_s=5.0, end_delay_s=10.0)
    async with scene.running():
        scene.create("a")
        scene.create("b")
        scene.create("c", schedulingGates=[{"name": "x"}])
        await asyncio.sleep(4.0)
        assert scene.phases() == [("n1", "Pending"), ("n2", "Pending"), ("", "Pending")]
        await asyncio.sleep(2.0)
        assert scene.phases() == [("n1", "Running"), ("n2", "Running"), ("", "Pending")]
        kinds = {each["type"] for each in scene.pods()[0]["status"]["conditions"]}
        assert kinds >= {"PodScheduled", "Ready", "Initialized"}
        scene.cluster.patch(PODS, "default", "c", "", MERGE, b'{"spec": {"schedulingGates": null}}')
        scene.cluster.delete(PODS, "default", "a")
        await asyncio.sleep(9.0)
        assert scene.phases() == [("n1", "Running"), ("n2", "Running"), ("n1", "Running")]
        await asyncio.sleep(2.0)
        assert scene.phases() == [("n2", "Running"), ("n1", "Running")]
        await scene.node.finish("default", "b")
        assert scene.phases() == [("n2", "Succeeded"), ("n1", "Running")]


@pytest.mark.asyncio
async def test_failed_requests_are_tried_again() -> None:
    scene = NodeScene()
    async with scene.running():
        scene.client.failures = [UnreachableError("gone"), ApiError(Status(code=429), 3.0)]
        scene.create("a")
        await asyncio.sleep(1.5)
        assert scene.phases() == [("", "Pending")]
        await asyncio.sleep(4.0)
        assert scene.phases() == [("n1", "Running")] or scene.phases() == [("n2", "Running")]


@pytest.mark.asyncio
async def test_thousands_of_pods_run() -> None:
    scene = NodeScene()
    for number in range(1000):
        scene.create(f"p{number}")
    async with scene.running():
        await asyncio.sleep(1.0)
        assert {phase for _, phase in scene.phases()} == {"Running"}
        assert len({pod["status"]["podIP"] for pod in scene.pods()}) == 1000
        for number in range(1000):
            scene.cluster.delete(PODS, "default", f"p{number}")
        await asyncio.sleep(1.0)
        assert scene.pods() == []
        assert scene.node.steps == 3000


@pytest.mark.asyncio
async def test_nodes_are_registered_once() -> None:
    scene = NodeScene()
    await scene.node.register()
    await scene.node.register()
    found = scene.cluster.storage.select(Selection(NODES))
    assert [node["metadata"]["name"] for node in found] == ["n1", "n2"]
    assert found[0]["status"]["addresses"][0] == {"type": "InternalIP", "address": "192.0.2.1"}
