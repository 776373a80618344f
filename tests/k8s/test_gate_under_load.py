# SPDX-License-Identifier: Apache-2.0
"""Pods start while kata-bridge is ended again and again, guests boot slowly, resolvers come late and
some guests are never reached. The first act of each container is a connect and a lookup.

`--gate-pods 210` starts over 200 of them; by default it is fewer, as each costs a second."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import pytest

from tests.k8s.ring import gating, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.serving import AGENT, KATA, OWN_IP, STOCK, Node, say, serving
from tests.k8s.ring.tenants import Tenant

AT_ONCE = 14
# Of a guest that is never reached; they wait all the time.
LOST = 3
_ALL_S = 840.0

# What a pod may say that waits: our words, and the runtime's where we are away or just went.
_REASONS = (
    "waiting: ",
    gating.LACKS_PLUGIN,
    "ttrpc: closed",
    "failed to find plugin",
)


@pytest.fixture(scope="module")
def node(ring: Ring) -> Iterator[Node]:
    server = gating.start_dns_server(ring)
    try:
        gate: JsonObject = {
            "directory": str(ring.directory / "pods-load"),
            "superCluster": gating.allow_bridge(ring),
            "namespaces": [{"namespaces": ["*-unguarded"], "policy": "off"}],
        }
        with serving(ring, gate) as made:
            yield made
    finally:
        server.stop()


class Restarts:
    """Ends kata-bridge again and again, in both ways, while `with` lasts."""

    def __init__(self, node: Node, luck: random.Random) -> None:
        self.count = 0
        self._node, self._luck = node, luck
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="restarts")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._luck.uniform(4, 10)):
            self._node.bridge.stop(self._luck.choice([signal.SIGTERM, signal.SIGKILL]))
            self.count += 1
            self._is_over.wait(self._luck.choice([0.0, 0.5, 3.0]))
            self._node.bridge.start(is_ready=False)


@dataclass(slots=True)
class Seen:
    """One pod, as it was seen."""

    pod: services.Pod
    handler: str
    began_s: float
    said: set[str] = field(default_factory=set)
    took_s: float = 0.0


def lists(ring: Ring, namespace: str) -> dict[str, JsonObject]:
    items = ring.super_cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {each["metadata"]["name"]: each["status"] for each in items}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_container_runs_before_its_rules_and_its_resolver_are_in(
    node: Node, acme: Tenant, request: pytest.FixtureRequest
) -> None:
    pods: int = request.config.getoption("--gate-pods")
    luck = random.Random(20)  # noqa: S311 - the order of a test
    namespace = acme.super_namespace("default")
    late = {f"load-{number}": luck.choice([0.0, 0.0, 0.3, 2.0]) for number in range(pods)}
    slow = {f"load-{number}": luck.choice([0.0, 1.0, 4.0]) for number in range(pods)}
    node.stock.boot_s = lambda name: slow.get(name, 0.0)
    waiting: dict[str, Seen] = {}
    ended: list[Seen] = []
    lost: list[Seen] = []
    fates: Counter[str] = Counter()
    failures: list[str] = []
    makes = iter(range(pods))
    end_s = time.monotonic() + _ALL_S
    with (
        gating.Resolvers(node.ring, namespace, lambda name: late.get(name, 0.0)),
        Restarts(node, luck) as chaos,
    ):
        for number in range(LOST):
            made = gating.gated_pod(node.ring, acme, f"lost-{number}", AGENT, gating.first_act(OWN_IP))
            lost.append(Seen(made, AGENT, time.monotonic()))
        try:
            while len(ended) < pods and time.monotonic() < end_s:
                for number in itertools.islice(makes, AT_ONCE - len(waiting)):
                    handler = luck.choice([KATA, KATA, STOCK])
                    spec = gating.first_act(OWN_IP)
                    made = gating.gated_pod(node.ring, acme, f"load-{number}", handler, spec)
                    waiting[made.name] = Seen(made, handler, time.monotonic())
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
                        failures.append(f"{name} {seen.handler}: {complaint} {status}")
                    node.ring.super_cluster.api.delete(seen.pod.path)
                    ended.append(waiting.pop(name))
                time.sleep(0.2)
            stuck = {name: gating.waiting(lists(node.ring, namespace).get(name, {})) for name in waiting}
            never = [lists(node.ring, namespace)[seen.pod.name] for seen in lost]
        finally:
            for seen in [*waiting.values(), *lost]:
                node.ring.super_cluster.api.delete(seen.pod.path)
    held = [seen for seen in ended if seen.said]
    took = sorted(seen.took_s for seen in ended)
    say(
        f"{len(ended)} pods, {chaos.count} ends of kata-bridge, {len(held)} pods seen waiting, "
        f"p50 {took[len(took) // 2]:.1f} s, p99 {took[len(took) * 99 // 100]:.1f} s"
    )
    assert failures == []
    assert stuck == {}
    assert fates == {"Succeeded": pods}
    assert chaos.count > pods // 50
    through = node.bridge.lines("a container runs of which the gate was not asked")
    assert [line for line in through if "/load-" in line["pod"] or "/lost-" in line["pod"]] == []
    # Everyone who waited named its reason.
    nameless = {said for seen in [*held, *lost] for said in seen.said if said and not names_a_reason(said)}
    assert not nameless
    assert held
    for seen, status in zip(lost, never, strict=True):
        assert status["phase"] == "Pending"
        assert any("the pod's guest cannot be reached" in said for said in seen.said), seen.said


def test_the_first_act_notices_a_gate_that_is_open(node: Node, acme: Tenant) -> None:
    """Else the test above would say nothing."""
    node.ring.syncer.create_namespace(acme, "unguarded")
    namespace = acme.super_namespace("unguarded")
    node.stock.boot_s = lambda _: 4.0
    made = gating.gated_pod(node.ring, acme, "early", STOCK, gating.first_act(OWN_IP), namespace)
    try:
        made.wait("Succeeded")
        message = made.status()["containerStatuses"][0]["state"]["terminated"]["message"]
        assert "connect:" in message
        assert f"nameserver {gating.DNS_ADDRESS}" not in message
    finally:
        node.ring.super_cluster.api.delete(made.path)


def names_a_reason(said: str) -> bool:
    return said.startswith("ContainerCreating") or any(reason in said for reason in _REASONS)
