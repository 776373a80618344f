# SPDX-License-Identifier: Apache-2.0
"""Pods start while kata-bridge is ended again and again, and dnsconfig too; guests boot slowly, some go
deaf, some are never reached, and a network is ready only now and then. The first act of each
container is a connect and a lookup, the lookup at its network's own server.

`--gate-pods 210` starts over 200 of them; by default it is fewer, as each costs a second."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

import pytest

from tests.k8s.ring import gate_networks, gating, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon
from tests.k8s.ring.gate_networks import Network
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import AGENT, KATA, OWN_IP, STOCK, Node, say, serving, web_address
from tests.k8s.ring.tenants import Tenant

AT_ONCE = 14
# Of a guest that is never reached; they wait all the time.
LOST = 3
_ALL_S = 840.0
_TOLD_S = 20.0

# What a pod may say that waits: our words, and the runtime's where we are away or just went.
_REASONS = (
    "waiting: ",
    gating.LACKS_PLUGIN,
    "ttrpc: closed",
    "failed to find plugin",
)
_NOT_READY = "network blue is not ready"


@dataclass(frozen=True, slots=True)
class Place:
    """A node with all of us, and two networks of one tenant.

    A Service has the same address in both, and another page; each has a DNS server of its own.
    """

    node: Node
    names: NodeDaemon
    networks: dict[str, Network]
    pages: dict[str, str]

    def first_act(self, network: str) -> JsonObject:
        return gating.first_act(OWN_IP, self.networks[network].address, self.pages[network])


@pytest.fixture(scope="module")
def place(ring: Ring, acme: Tenant) -> Iterator[Place]:
    gate: JsonObject = {
        "directory": str(ring.directory / "pods-load"),
        **gating.allow_bridge(ring),
        "namespaces": [{"namespaces": ["*-unguarded"], "policy": "off"}],
    }
    with ExitStack() as stack:
        stack.callback(gating.start_dns_server(ring).stop)
        node = stack.enter_context(serving(ring, gate))
        other_web = web_address(ring, acme, "only-acme")
        stack.enter_context(services.service(ring, acme, other_web, own_ip=OWN_IP, network="blue"))
        names = stack.enter_context(gate_networks.naming(ring))
        networks = {
            name: stack.enter_context(gate_networks.network(ring, acme, name, gating.DNS_ADDRESS))
            for name in ("default", "blue")
        }
        yield Place(node, names, networks, {"default": "acme", "blue": "only"})


class Unrest:
    """Does something again and again while `with` lasts; what went wrong with that is raised at its end."""

    def __init__(
        self, act: Callable[[Callable[[float], object]], None], pause_s: Callable[[], float]
    ) -> None:
        """`act` gets what to wait with, for seconds; `pause_s` says how long nothing happens before it."""
        self.count = 0
        self._act, self._pause_s = act, pause_s
        self._is_over = threading.Event()
        self._threads = ThreadPoolExecutor(1, "unrest")
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
            self._act(self._is_over.wait)
            self.count += 1


def unrest(place: Place, luck: random.Random) -> tuple[Unrest, Unrest, Unrest]:
    """Ends of kata-bridge, ends of dnsconfig, and a network that is not ready for a while."""

    def end(daemon: NodeDaemon, away_s: list[float]) -> Callable[[Callable[[float], object]], None]:
        def act(wait: Callable[[float], object]) -> None:
            daemon.stop(luck.choice([signal.SIGTERM, signal.SIGKILL]))
            wait(luck.choice(away_s))
            daemon.start(is_ready=False)

        return act

    def close_network(wait: Callable[[float], object]) -> None:
        place.networks["blue"].set_phase("Pending", "it is still being made")
        wait(luck.uniform(2, 5))
        place.networks["blue"].set_phase("Ready")

    return (
        Unrest(end(place.node.bridge, [0.0, 0.5, 3.0]), lambda: luck.uniform(4, 10)),
        Unrest(end(place.names, [0.0, 1.0]), lambda: luck.uniform(8, 20)),
        Unrest(close_network, lambda: luck.uniform(3, 6)),
    )


@dataclass(slots=True)
class Seen:
    """One pod, as it was seen."""

    pod: services.Pod
    handler: str
    network: str
    began_s: float
    said: set[str] = field(default_factory=set)
    took_s: float = 0.0


def lists(ring: Ring, namespace: str) -> dict[str, JsonObject]:
    items = ring.super_cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {each["metadata"]["name"]: each["status"] for each in items}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_container_runs_before_its_rules_and_its_resolver_are_in(
    place: Place, acme: Tenant, request: pytest.FixtureRequest
) -> None:
    pods: int = request.config.getoption("--gate-pods")
    node, luck = place.node, random.Random(20)  # noqa: S311 - the order of a test
    namespace = acme.super_namespace("default")
    slow = {f"load-{number}": luck.choice([0.0, 1.0, 4.0]) for number in range(pods)}
    deaf = {f"load-{number}": luck.choice([0.0, 0.0, 2.0]) for number in range(pods)}
    node.stock.boot_s = lambda name: slow.get(name, 0.0)
    node.stock.deaf_s = lambda name: deaf.get(name, 0.0)
    waiting: dict[str, Seen] = {}
    ended: list[Seen] = []
    lost: list[Seen] = []
    fates: Counter[str] = Counter()
    failures: list[str] = []
    makes = iter(range(pods))
    end_s = time.monotonic() + _ALL_S
    restarts, other_restarts, closings = unrest(place, luck)
    with restarts, other_restarts, closings:
        for number in range(LOST):
            spec = place.first_act("default")
            made = gating.gated_pod(node.ring, acme, f"lost-{number}", AGENT, spec)
            lost.append(Seen(made, AGENT, "default", time.monotonic()))
        try:
            while len(ended) < pods and time.monotonic() < end_s:
                for number in itertools.islice(makes, AT_ONCE - len(waiting)):
                    handler = luck.choice([KATA, KATA, STOCK])
                    network = luck.choice(["default", "blue"])
                    spec = place.first_act(network)
                    made = gating.gated_pod(node.ring, acme, f"load-{number}", handler, spec, network=network)
                    waiting[made.name] = Seen(made, handler, network, time.monotonic())
                statuses = lists(node.ring, namespace)
                for seen in lost:
                    seen.said.add(gating.waiting(statuses[seen.pod.name]))
                for name, seen in list(waiting.items()):
                    status = statuses.get(name, {})
                    said = gating.waiting(status)
                    if said and not said.startswith(("ContainerCreating", "PodInitializing")):
                        seen.said.add(said)
                    if status.get("phase") not in ("Succeeded", "Failed"):
                        continue
                    seen.took_s = time.monotonic() - seen.began_s
                    (container,) = status["containerStatuses"]
                    complaint = container["state"]["terminated"].get("message", "")
                    fates[status["phase"]] += 1
                    if complaint or container["restartCount"] or status["phase"] != "Succeeded":
                        failures.append(f"{name} {seen.handler} {seen.network}: {complaint} {status}")
                    node.ring.super_cluster.api.delete(seen.pod.path)
                    ended.append(waiting.pop(name))
                time.sleep(0.2)
            stuck = {name: gating.waiting(lists(node.ring, namespace).get(name, {})) for name in waiting}
            never = [lists(node.ring, namespace)[seen.pod.name] for seen in lost]
        finally:
            for seen in [*waiting.values(), *lost]:
                node.ring.super_cluster.api.delete(seen.pod.path)
    held = [seen for seen in ended if seen.said]
    refused = {line["pod"] for line in node.bridge.lines("container held")}
    took = sorted(seen.took_s for seen in ended)
    say(
        f"{len(ended)} pods, {restarts.count} ends of kata-bridge, {other_restarts.count} of dnsconfig, "
        f"{closings.count} of a network's readiness; {len(refused)} pods refused, {len(held)} seen waiting; "
        f"p50 {took[len(took) // 2]:.1f} s, p99 {took[len(took) * 99 // 100]:.1f} s"
    )
    assert failures == []
    assert stuck == {}
    assert fates == {"Succeeded": pods}
    # Else nothing of all this has been tried.
    assert restarts.count > pods // 50
    assert other_restarts.count > 0
    assert closings.count > 0
    assert {seen.network for seen in ended} == set(place.networks)
    assert any(_NOT_READY in said for seen in held for said in seen.said)
    through = node.bridge.lines("a container runs of which the gate was not asked")
    assert [line for line in through if "/load-" in line["pod"] or "/lost-" in line["pod"]] == []
    # Everyone who waited named its reason.
    nameless = {said for seen in [*held, *lost] for said in seen.said if said and not names_a_reason(said)}
    assert not nameless
    wait_for(
        "an Event with a reason on each pod that was refused",
        lambda: refused <= told_why(node.ring, namespace),
        timeout_s=_TOLD_S,
    )
    for seen, status in zip(lost, never, strict=True):
        assert status["phase"] == "Pending"
        assert any("the pod's guest cannot be reached" in said for said in seen.said), seen.said


def test_the_first_act_notices_a_gate_that_is_open(place: Place, acme: Tenant) -> None:
    """Else the test above would say nothing."""
    node = place.node
    node.ring.syncer.create_namespace(acme, "unguarded")
    namespace = acme.super_namespace("unguarded")
    node.stock.boot_s = lambda _: 20.0
    place.networks["blue"].set_phase("Pending", "it is still being made")
    spec = place.first_act("blue")
    made = gating.gated_pod(node.ring, acme, "early", STOCK, spec, namespace=namespace, network="blue")
    try:
        made.wait("Succeeded")
        message = made.status()["containerStatuses"][0]["state"]["terminated"]["message"]
        assert "connect:" in message
        assert "lookup:" in message
        # The last word of all is the file that it had instead.
        assert f"nameserver {place.networks['blue'].address}\n" not in message
    finally:
        node.ring.super_cluster.api.delete(made.path)
        place.networks["blue"].set_phase("Ready")


def names_a_reason(said: str) -> bool:
    return said.startswith("ContainerCreating") or any(reason in said for reason in _REASONS)


def told_why(ring: Ring, namespace: str) -> set[str]:
    """The pods of which an Event says in our words what they wait for, also those that are gone."""
    items = ring.super_cluster.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    return {
        f"{namespace}/{each['involvedObject']['name']}" for each in items if "waiting: " in each["message"]
    }
