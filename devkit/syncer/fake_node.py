# SPDX-License-Identifier: Apache-2.0
"""A scheduler and the kubelets of some nodes, without containers: pods run because it says so.

It speaks to any API server, a fake one in the process as well as a real one.
"""

import asyncio
import ipaddress
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import NODES, PODS, Key, ObjectMeta
from daemonkit.kube.store import Added, Change, Modified
from devkit.kube.patches import STRATEGIC
from devkit.kube.times import at

Object = dict[str, Any]

RETRY_S = 1.0


class NodeClient(Transport, Protocol):
    """A `Client`, or a client in the process."""

    async def request(
        self,
        method: str,
        path: str,
        params: Any = None,
        body: bytes | None = None,
        *,
        content_type: str = ...,
        limit_bytes: int = ...,
        can_repeat: bool | None = ...,
    ) -> bytes: ...


class Container(msgspec.Struct, frozen=True):
    name: str
    image: str = ""


class SchedulingGate(msgspec.Struct, frozen=True):
    name: str = ""


class SpecForNode(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None


class StatusForNode(msgspec.Struct, frozen=True):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    """What a node looks at in a pod."""

    metadata: ObjectMeta
    spec: SpecForNode = SpecForNode()
    status: StatusForNode = StatusForNode()


@dataclass(frozen=True, slots=True)
class Bind:
    """Put the pod on a node."""


@dataclass(frozen=True, slots=True)
class Start:
    """Let the pod run."""


@dataclass(frozen=True, slots=True)
class End:
    """Remove the pod, which is being deleted."""


Step = Bind | Start | End


def next_step(pod: Pod, nodes: Sequence[str]) -> Step | None:
    """What is to be done about a pod. Pure."""
    is_ours = pod.spec.node_name in nodes
    if pod.metadata.deletion_timestamp is not None:
        return End() if is_ours else None
    if not pod.spec.node_name:
        return None if pod.spec.scheduling_gates else Bind()
    return Start() if is_ours and pod.status.phase in ("", "Pending") else None


def running(pod: Pod, host_ip: str, pod_ip: str, now: str) -> Object:
    """The status of a pod that runs. Pure."""
    ready = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    state = {"running": {"startedAt": now}}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    status: Object = {
        "phase": "Running",
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": now,
        "conditions": [_condition(kind, "True", now) for kind in ready],
        "containerStatuses": [_container(pod, each, state, is_ready=True) for each in pod.spec.containers],
    }
    if pod.spec.init_containers:
        initial = [_container(pod, each, ended, is_ready=True) for each in pod.spec.init_containers]
        status["initContainerStatuses"] = initial
    return status


def finished(pod: Pod, exit_code: int, now: str) -> Object:
    """The status of a pod whose containers have all exited. Pure."""
    reason = "Error" if exit_code else "Completed"
    state = {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": now, "finishedAt": now}}
    why = {"reason": "PodFailed" if exit_code else "PodCompleted"}
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": [_condition(kind, "False", now) | why for kind in ("Ready", "ContainersReady")],
        "containerStatuses": [_container(pod, each, state, is_ready=False) for each in pod.spec.containers],
    }


def _condition(kind: str, status: str, now: str) -> Object:
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}


def _container(pod: Pod, container: Container, state: Object, *, is_ready: bool) -> Object:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "containerID": f"containerd://{pod.metadata.uid}-{container.name}",
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    }


class FakeNode:
    """Schedules pods to its `nodes` in turn, and is the kubelet of each of them.

    A bound pod runs after `start_delay_s`, a deleted one is removed after `end_delay_s`. At most
    `max_requests` requests are under way.
    """

    def __init__(
        self,
        client: NodeClient,
        nodes: Sequence[str] = ("node-0",),
        *,
        start_delay_s: float = 0.0,
        end_delay_s: float = 0.0,
        max_requests: int = 16,
        pod_cidr: str = "10.244.0.0/16",
        host_ip: str = "192.0.2.1",
        clock: Callable[[], float] = time.time,
        timing: Timing | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self.steps = 0
        """How many steps were taken."""
        self._client = client
        self._delays_s = {Bind: 0.0, Start: start_delay_s, End: end_delay_s}
        self._concurrency = max_requests
        self._host_ip = host_ip
        self._clock = clock
        self._next_node = itertools.cycle(self.nodes)
        network = ipaddress.ip_network(pod_cidr)
        self._next_ip = (str(network[1 + n % (network.num_addresses - 2)]) for n in itertools.count())
        self._due: asyncio.Queue[tuple[Key, str, Step]] = asyncio.Queue()
        self._pending: set[tuple[str, Step]] = set()
        self._reflector = Reflector(client, PODS, Pod, on_change=self._plan_all, timing=timing)

    @property
    def synced(self) -> asyncio.Event:
        return self._reflector.synced

    async def register(self) -> None:
        """Create the Node objects that are not there."""
        for name in self.nodes:
            addresses = [
                {"type": "InternalIP", "address": self._host_ip},
                {"type": "Hostname", "address": name},
            ]
            resources = {"cpu": "64", "memory": "256Gi", "pods": "10000"}
            value = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {
                    "addresses": addresses,
                    "allocatable": resources,
                    "capacity": resources,
                    "conditions": [_condition("Ready", "True", self._now())],
                    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                },
            }
            try:
                await self._send("POST", NODES.path(), value)
            except ApiError as error:
                if error.status.reason != "AlreadyExists":
                    raise

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run(), name="pods of the fake node")
            for number in range(self._concurrency):
                group.create_task(self._work(), name=f"fake node worker {number}")

    async def finish(self, namespace: str, name: str, exit_code: int = 0) -> None:
        """Let the containers of a pod exit: what becomes of one whose restartPolicy is Never."""
        pod = self._reflector.objects[namespace, name]
        status = finished(pod, exit_code, self._now())
        await self._send("PATCH", PODS.path(namespace, name) + "/status", {"status": status}, STRATEGIC)

    def _plan_all(self, changes: Sequence[Change[Pod]]) -> None:
        for change in changes:
            if isinstance(change, Added | Modified):
                self._plan(change.key, change.value)

    def _plan(self, key: Key, pod: Pod, delay_s: float = 0.0) -> None:
        step = next_step(pod, self.nodes)
        if step is None or (pod.metadata.uid, step) in self._pending:
            return
        self._pending.add((pod.metadata.uid, step))
        due = (key, pod.metadata.uid, step)
        delay_s = max(delay_s, self._delays_s[type(step)])
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._due.put_nowait, due)
        else:
            self._due.put_nowait(due)

    async def _work(self) -> None:
        while True:
            key, uid, step = await self._due.get()
            pod = self._reflector.objects.get(key)
            retry_s = 0.0
            if pod is not None and pod.metadata.uid == uid and next_step(pod, self.nodes) == step:
                retry_s = await self._attempt(key, pod, step)
            self._pending.discard((uid, step))
            pod = self._reflector.objects.get(key)
            if retry_s and pod is not None:
                self._plan(key, pod, retry_s)

    async def _attempt(self, key: Key, pod: Pod, step: Step) -> float:
        """Take a step; return after how many seconds it must be tried again, 0 for never."""
        try:
            await self._take(key, pod, step)
        except ApiError as error:
            # The pod has changed, and the watch will say how. A patch for another UID is answered with 422.
            is_outdated = error.status.code in (404, 409, 422)
            return 0.0 if is_outdated else max(RETRY_S, error.retry_after_s)
        except UnreachableError:
            return RETRY_S
        self.steps += 1
        return 0.0

    async def _take(self, key: Key, pod: Pod, step: Step) -> None:
        path, uid = PODS.path(*key), pod.metadata.uid
        match step:
            case Bind():
                target = {"apiVersion": "v1", "kind": "Node", "name": next(self._next_node)}
                value: Object = {"metadata": {"name": key[1], "uid": uid}, "target": target}
                await self._send("POST", f"{path}/binding", {"apiVersion": "v1", "kind": "Binding"} | value)
            case Start():
                status = running(pod, self._host_ip, next(self._next_ip), self._now())
                patch = {"metadata": {"uid": uid}, "status": status}
                await self._send("PATCH", f"{path}/status", patch, STRATEGIC)
            case End():
                options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
                await self._send("DELETE", path, options)

    async def _send(
        self, method: str, path: str, value: Object, content_type: str = "application/json"
    ) -> None:
        body = msgspec.json.encode(value)
        await self._client.request(method, path, {}, body, content_type=content_type, can_repeat=True)

    def _now(self) -> str:
        return at(self._clock())
