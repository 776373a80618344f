# SPDX-License-Identifier: Apache-2.0
"""Scheduler and kubelet of the super cluster: `python -m tests.bench.syncer.fake_node KUBECONFIG`.

A process of its own, so that its CPU time is not the syncer's. It binds each pod and reports it as running at
once. It costs little: of a pod it decodes a few fields, and makes two requests.
"""

import argparse
import asyncio
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from daemonkit.kube.client import ApiError, Client
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.resources import NODES, PODS, NameOnly
from daemonkit.kube.store import Added, Change, Modified
from tests.bench.syncer.clients import MERGE_PATCH, Object, client_of, create, merge

NODE = "node-1"
STARTED_AT = "2026-01-01T00:00:00Z"
READY_LINE = "ready"
_WORKERS = 16
_AMOUNTS = {"cpu": "10000", "memory": "100Ti", "pods": "100000"}
_CONDITIONS = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
# The pod has gone, or has changed: its next event comes.
_OUTDATED = (404, 409)


class _NodePodMetadata(NameOnly, frozen=True, rename="camel"):
    deletion_timestamp: str | None = None


class _PodContainer(msgspec.Struct, frozen=True):
    name: str
    image: str


class _Gate(msgspec.Struct, frozen=True):
    name: str


class _NodePodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_PodContainer, ...]
    node_name: str = ""
    scheduling_gates: tuple[_Gate, ...] = ()


class _NodePodStatus(msgspec.Struct, frozen=True):
    phase: str = "Pending"


class NodePod(msgspec.Struct, frozen=True):
    """What the node reads of a pod."""

    metadata: _NodePodMetadata
    spec: _NodePodSpec
    status: _NodePodStatus = _NodePodStatus()


class FakeNode:
    """One node with room for all pods."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._due: asyncio.Queue[NodePod] = asyncio.Queue()
        self._addresses = itertools.count(1)
        self._pods: Reflector[NodePod] = Reflector(client, PODS, NodePod, on_change=self._changed)

    async def run(self) -> None:
        """Create the Node, print that it is ready, and serve pods until cancelled."""
        metadata = {
            "name": NODE,
            "labels": {
                "kubernetes.io/hostname": NODE,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        }
        await create(self._client, NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        await merge(self._client, f"{NODES.path()}/{NODE}/status", {"status": node_status()})
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(), name="pods")
            for number in range(_WORKERS):
                group.create_task(self._work(), name=f"worker {number}")
            await self._pods.synced.wait()
            sys.stdout.write(f"{READY_LINE}\n")
            sys.stdout.flush()

    def _changed(self, changes: Sequence[Change[NodePod]]) -> None:
        for change in changes:
            if isinstance(change, Added | Modified):
                self._due.put_nowait(change.value)

    async def _work(self) -> None:
        while True:
            pod = await self._due.get()
            try:
                await self._advance(pod)
            except ApiError as error:
                if error.status.code not in _OUTDATED:
                    sys.stderr.write(f"fake node: {pod.metadata.name}: {error}\n")

    async def _advance(self, pod: NodePod) -> None:
        path = PODS.path(pod.metadata.namespace, pod.metadata.name)
        if pod.metadata.deletion_timestamp is not None:
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
            await self._client.request("DELETE", path, {}, msgspec.json.encode(options))
        elif not pod.spec.node_name and not pod.spec.scheduling_gates:
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            }
            await create(self._client, f"{path}/binding", binding)
        elif pod.spec.node_name and pod.status.phase == "Pending":
            status = {"status": running_status(pod, next(self._addresses))}
            body = msgspec.json.encode(status)
            await self._client.request("PATCH", f"{path}/status", {}, body, content_type=MERGE_PATCH)


def node_status() -> Object:
    """The status of a node with room for all pods."""
    return {
        "capacity": _AMOUNTS,
        "allocatable": _AMOUNTS,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    }


def running_status(pod: NodePod, number: int) -> Object:
    """The status of a running pod, as a kubelet makes it. `number` is its place among all addresses."""
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "phase": "Running",
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": STARTED_AT,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": STARTED_AT} for kind in _CONDITIONS
        ],
        "containerStatuses": [
            {
                "name": each.name,
                "image": each.image,
                "imageID": each.image,
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": STARTED_AT}},
            }
            for each in pod.spec.containers
        ],
    }


async def _serve(kubeconfig: Path) -> None:
    async with client_of(kubeconfig) as client:
        await FakeNode(client).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.syncer.fake_node", description=__doc__)
    parser.add_argument("kubeconfig", type=Path, help="of the super cluster")
    asyncio.run(_serve(parser.parse_args().kubeconfig))
