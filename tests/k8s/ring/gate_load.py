# SPDX-License-Identifier: Apache-2.0
"""Many pods in two networks of one tenant, started while kata-bridge, dnsconfig and a network become
unavailable and return. Each container first connects and looks up a name in its own network.

A quarter of the pods are guests of our agent, half of these with it in their image and half as a sidecar.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.k8s.ring import gate_networks, gating, guests, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon, credentials_of
from tests.k8s.ring.gate_networks import TenantNetwork
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.serving import AGENT, KATA, OWN_IP, STOCK, ServingNode, serving, web_address
from tests.k8s.ring.tenants import RingTenant

AT_ONCE = 14
# Pods whose guest is never reached; they wait until they are deleted.
UNREACHABLE = 3

IMAGE, SIDECAR = "agent in its image", "agent as a sidecar"
AGENT_SHARE = 4
"""One pod of so many has our agent."""

# The messages that a waiting pod may have: ours, and containerd's while kata-bridge is away.
REASONS = ("waiting: ", gating.LACKS_PLUGIN)
# containerd's message for containers that it creates after kata-bridge ended and before it noticed. The
# kubelet shows it at the pod's next event, or else when it tries again, 10 to 15 s later (its backOffPeriod).
# It stays until the try after that.
CUT_OFF, CUT_OFF_S, END_SEEN_S = "ttrpc: closed", 20.0, 20.0

# The kubelet's messages before it creates the container.
_BEFORE = ("ContainerCreating", "PodInitializing")
# A pod takes about a second, on a busy machine three.
_POD_S, _FIRST_S = 4.0, 300.0
_CLEARED_S = 60.0


@dataclass(frozen=True, slots=True)
class LoadedNode:
    """A node with all our daemons, and two networks of one tenant.

    A Service has the same address in both, and a page of its own in each; each has its own DNS server.
    """

    node: ServingNode
    names: NodeDaemon
    agents: guests.GuestAgents
    networks: dict[str, TenantNetwork]
    pages: dict[str, str]
    resolv_confs: Path

    def first_connection(self, network: str, *, has_agent: bool = False) -> JsonObject:
        server = self.networks[network].address
        return gating.first_connection(OWN_IP, server, self.pages[network], has_agent=has_agent)


@contextmanager
def loaded_node(ring: Ring, tenant: RingTenant) -> Iterator[LoadedNode]:
    """The node with everything that pods need."""
    directory = ring.directory / "pods-load"
    gate: JsonObject = {
        "directory": str(directory),
        **gating.allow_bridge(ring),
        "namespaces": [{"namespaces": ["*-unguarded"], "policy": "off"}],
    }
    with ExitStack() as stack:
        stack.callback(gating.start_dns_server(ring).stop)
        node = stack.enter_context(serving(ring, gate))
        agents = stack.enter_context(guests.GuestAgents(ring, credentials_of(node.bridge)))
        other_web = web_address(ring, tenant, "only-acme")
        stack.enter_context(services.service(ring, tenant, other_web, own_ip=OWN_IP, network="blue"))
        names = stack.enter_context(gate_networks.naming(ring))
        networks = {
            name: stack.enter_context(gate_networks.network(ring, tenant, name, gating.DNS_ADDRESS))
            for name in ("default", "blue")
        }
        yield LoadedNode(node, names, agents, networks, {"default": "acme", "blue": "only"}, directory)


class Disruption:
    """Repeats a disruption while `with` lasts; raises its error at the end."""

    def __init__(
        self, disrupt: Callable[[Callable[[float], object]], None], pause_s: Callable[[], float]
    ) -> None:
        """`disrupt` gets a function that waits for seconds; `pause_s` is the time before each disruption."""
        self.count = 0
        self._disrupt, self._pause_s = disrupt, pause_s
        self._is_over = threading.Event()
        self._threads = ThreadPoolExecutor(1, "churn")
        self._ends: Future[None] | None = None

    def __enter__(self) -> Self:
        self._ends = self._threads.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._threads.shutdown()
        assert self._ends is not None
        self._ends.result()

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_s()):
            self._disrupt(self._is_over.wait)
            self.count += 1


def disruptions(
    loaded: LoadedNode, rng: random.Random, ends_s: list[float]
) -> tuple[Disruption, Disruption, Disruption]:
    """Stops of kata-bridge, stops of dnsconfig, and a network that is not ready for a while.

    `ends_s` gets the times at which kata-bridge was stopped.
    """

    def end(daemon: NodeDaemon, away_s: list[float]) -> Callable[[Callable[[float], object]], None]:
        def disrupt(wait: Callable[[float], object]) -> None:
            if daemon is loaded.node.bridge:
                ends_s.append(time.monotonic())
            daemon.stop(rng.choice([signal.SIGTERM, signal.SIGKILL]))
            wait(rng.choice(away_s))
            daemon.start(is_ready=False)

        return disrupt

    def close_network(wait: Callable[[float], object]) -> None:
        loaded.networks["blue"].set_phase("Pending", "it is still being made")
        wait(rng.uniform(2, 5))
        loaded.networks["blue"].set_phase("Ready")

    return (
        Disruption(end(loaded.node.bridge, [0.0, 0.5, 3.0]), lambda: rng.uniform(4, 10)),
        Disruption(end(loaded.names, [0.0, 1.0]), lambda: rng.uniform(8, 20)),
        Disruption(close_network, lambda: rng.uniform(3, 6)),
    )


@dataclass(slots=True)
class ObservedPod:
    """One pod, as observed. `kind` is its handler, or where its agent is from."""

    pod: services.TenantPod
    kind: str
    network: str
    began_s: float
    # By message: the spans of time in which it was observed.
    messages: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _current: set[str] = field(default_factory=set)
    took_s: float = 0.0

    def record(self, status: JsonObject) -> None:
        """Record its containers' wait messages."""
        now_s = time.monotonic()
        current = wait_messages(status)
        for message in current:
            spans = self.messages.setdefault(message, [])
            from_s = spans.pop()[0] if message in self._current else now_s
            spans.append((from_s, now_s))
        self._current = current


def wait_messages(status: JsonObject) -> set[str]:
    """The wait messages of a pod's containers, the sidecar included."""
    found = set()
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(kind, []):
            message = gating.waiting({"containerStatuses": [each]})
            if message and not message.startswith(_BEFORE):
                found.add(message)
    return found


def pod_statuses(ring: Ring, namespace: str) -> dict[str, JsonObject]:
    """The status of each pod of a namespace."""
    items = ring.super_cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {each["metadata"]["name"]: each["status"] for each in items}


class Load:
    """Starts pods in waves and watches each until it ends."""

    def __init__(self, loaded: LoadedNode, tenant: RingTenant, rng: random.Random) -> None:
        self.ended: list[ObservedPod] = []
        self.unreachable: list[ObservedPod] = []
        self.failures: list[str] = []
        self.stuck: dict[str, set[str]] = {}
        self.phases: Counter[str] = Counter()
        self.ends_s: list[float] = []
        """When kata-bridge was stopped."""
        self.rng = rng
        self._place, self._tenant = loaded, tenant
        self._ring = loaded.node.ring
        self._boot_s: dict[str, float] = {}
        self._unreachable_s: dict[str, float] = {}
        self._in_image: set[str] = set()
        loaded.node.stock.boot_s = lambda name: self._boot_s.get(name, 0.0)
        loaded.node.stock.unreachable_s = lambda name: self._unreachable_s.get(name, 0.0)
        loaded.agents.boot_s = lambda name: self._boot_s[name] if name in self._in_image else None
        loaded.agents.is_crashing = lambda name: self._unreachable_s[name] > 0

    @property
    def namespace(self) -> str:
        """Where all its pods are, in the super cluster."""
        return self._tenant.super_namespace("default")

    @contextmanager
    def with_unreachable(self) -> Iterator[Sequence[ObservedPod]]:
        """Pods whose guests are never reached: they must wait until they are deleted."""
        loaded = self._place
        for number in range(UNREACHABLE):
            spec = loaded.first_connection("default")
            made = gating.gated_pod(self._ring, self._tenant, f"unreachable-{number}", AGENT, spec)
            self.unreachable.append(ObservedPod(made, AGENT, "default", time.monotonic()))
        try:
            yield self.unreachable
        finally:
            for seen in self.unreachable:
                self._ring.super_cluster.api.delete(seen.pod.path)

    def run(self, numbers: Sequence[int]) -> None:
        """Start the pods of these numbers, `AT_ONCE` at once, and wait until all have ended, or are stuck."""
        ring = self._ring
        waiting: dict[str, ObservedPod] = {}
        makes = iter(numbers)
        remaining = len(numbers)
        end_s = time.monotonic() + _FIRST_S + _POD_S * len(numbers)
        try:
            while remaining and time.monotonic() < end_s:
                for number in itertools.islice(makes, AT_ONCE - len(waiting)):
                    waiting[f"load-{number}"] = self._start(number)
                statuses = pod_statuses(ring, self.namespace)
                for seen in self.unreachable:
                    seen.record(statuses[seen.pod.name])
                for name, seen in list(waiting.items()):
                    status = statuses.get(name, {})
                    seen.record(status)
                    if status.get("phase") in ("Succeeded", "Failed"):
                        self._end(waiting.pop(name), status)
                        remaining -= 1
                time.sleep(0.2)  # pace: samples; `stuck` has what the rest waits for
            statuses = pod_statuses(ring, self.namespace)
            self.stuck = {name: wait_messages(statuses.get(name, {})) for name in waiting}
        finally:
            for seen in waiting.values():
                ring.super_cluster.api.delete(seen.pod.path)

    def _start(self, number: int) -> ObservedPod:
        name, rng = f"load-{number}", self.rng
        self._boot_s[name] = rng.choice([0.0, 1.0, 4.0])
        self._unreachable_s[name] = rng.choice([0.0, 0.0, 2.0])
        kind = rng.choice([KATA, KATA, STOCK])
        if number % AGENT_SHARE == 0:
            kind = SIDECAR if number % (2 * AGENT_SHARE) else IMAGE
        network = rng.choice(["default", "blue"])
        has_agent = kind in (SIDECAR, IMAGE)
        spec = self._place.first_connection(network, has_agent=has_agent)
        if kind == SIDECAR:
            spec = guests.with_agent(self._ring, spec)
        if kind == IMAGE:
            self._in_image.add(name)
        handler = AGENT if has_agent else kind
        made = gating.gated_pod(self._ring, self._tenant, name, handler, spec, network=network)
        return ObservedPod(made, kind, network, time.monotonic())

    def _end(self, seen: ObservedPod, status: JsonObject) -> None:
        seen.took_s = time.monotonic() - seen.began_s
        (container,) = status["containerStatuses"]
        error_text = container["state"]["terminated"].get("message", "")
        self.phases[status["phase"]] += 1
        if error_text or container["restartCount"] or status["phase"] != "Succeeded":
            self.failures.append(f"{seen.pod.name} {seen.kind} {seen.network}: {error_text} {status}")
        self._ring.super_cluster.api.delete(seen.pod.path)
        self.ended.append(seen)

    def unexpected_messages(self, seen: ObservedPod) -> list[str]:
        """A pod's messages that are neither expected nor caused for one try by a stop of kata-bridge."""
        return [
            f"{seen.pod.name}: {message}, for {last_s - first_s:.1f} s"
            for message, spans in seen.messages.items()
            for first_s, last_s in spans
            if not any(reason in message for reason in REASONS)
            and not (
                CUT_OFF in message
                and last_s - first_s < CUT_OFF_S
                and any(0 <= first_s - end_s < END_SEEN_S for end_s in self.ends_s)
            )
        ]

    def blocked(self) -> set[str]:
        """The pods that kata-bridge has blocked, by its log."""
        return {line["pod"] for line in self._place.node.bridge.lines("container start blocked")}

    def started_ungated(self) -> list[str]:
        """Pods with a container that started ungated."""
        lines = self._place.node.bridge.lines("container started ungated")
        return [line["pod"] for line in lines if "/load-" in line["pod"] or "/unreachable-" in line["pod"]]


def pods_with_events(ring: Ring, namespace: str) -> set[str]:
    """The pods with an Event that has our message, also those that are gone."""
    items = ring.super_cluster.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    return {
        f"{namespace}/{each['involvedObject']['name']}" for each in items if "waiting: " in each["message"]
    }


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources of the kata-bridge process."""

    pid: int
    rss_kib: int
    descriptors: int
    tasks: int

    @classmethod
    def of(cls, loaded: LoadedNode) -> Footprint:
        """The current ones; the daemon must run."""
        bridge = loaded.node.bridge
        assert bridge.process is not None
        process = Path(f"/proc/{bridge.process.pid}")
        lines = (line.split() for line in (process / "status").read_text().splitlines())
        sizes = {words[0]: words[1] for words in lines if len(words) > 1}
        descriptors = len(list((process / "fd").iterdir()))
        tasks = int(bridge.metric("vcnode_tasks"))
        return cls(bridge.process.pid, int(sizes["VmRSS:"]), descriptors, tasks)


def files_of_deleted_pods(loaded: LoadedNode) -> list[Path]:
    """The files of the load's sandboxes that kata-bridge still has; all of these pods are deleted."""
    deleted = {
        pod.id
        for what, pod in loaded.agents.events
        if what == "run" and not pod.name.startswith("unreachable-")
    }
    state = credentials_of(loaded.node.bridge).parent
    directories = credentials_of(loaded.node.bridge), loaded.resolv_confs, state / "netns"
    return [path for each in directories for path in each.iterdir() if path.name.partition(".")[0] in deleted]


def wait_cleared(loaded: LoadedNode) -> None:
    """Wait until no files of deleted pods are left. Raises `RingError`."""
    try:
        wait_for("no files of sandboxes", lambda: not files_of_deleted_pods(loaded), timeout_s=_CLEARED_S)
    except RingError as error:
        raise RingError(f"{error}: {files_of_deleted_pods(loaded)[:5]}") from None
