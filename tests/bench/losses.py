# SPDX-License-Identifier: Apache-2.0
"""What a tenant notices while its neighbour loses a part: `python -m tests.bench.losses [--rounds 3]`.

The ring of `starts.py` with two tenants, whose control planes are on different nodes. First the node of the
one that is asked has a processor of its own, as each machine has. Then all nodes share all processors, as two
control planes on one machine do. There the peer is an ordinary pod with the CPU request of a small API server
that computes for as long as the start of one. Before each loss the neighbour is asked for as long while
nothing is lost. Needs root and the ring's programs. It is no test: CI does not run it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from tests.bench import processors
from tests.bench.asking import Asked, asked
from tests.bench.bounded import BoundedRow, Figure, p99, value
from tests.bench.starts import MeasuredRing, ready_s, run, start
from tests.k8s.operator import tenants
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring import images
from tests.k8s.ring.api import KubernetesApi
from tests.k8s.ring.processes import RingError

# What a neighbour's p99 may grow by.
_RATIO = 1.2
_LOST = ("etcd", "apiserver", "controller-manager")
_LEAST_S = 10.0
_MOST_S = 90.0
# Each look is work of the super cluster, which shares the processors.
_LOOK_S = 0.5
_PODS = "/api/v1/namespaces/default/pods"
_PEER = "computing"
# What the start of a small API server takes, and what its container asks for.
_PEER_S, _PEER_CPU = 3, "100m"


def measure(ring: MeasuredRing, lost: Sequence[str], rounds: int) -> list[BoundedRow]:
    """The rows with nodes apart, and with shared processors."""
    _, own, *_ = nodes = ring.ground.ring.nodes
    others = [node for node in nodes if node is not own]
    api = ring.ground.api
    _let_in(api, {own.name}, {node.name for node in others})
    (neighbour,) = start(ring, 1)
    ready_s([neighbour])
    _let_in(api, {node.name for node in others}, {own.name})
    (tenant,) = start(ring, 1)
    ready_s([tenant])
    with processors.set_apart(own, others):
        rows = _rows("on another node", tenant, neighbour, lost, rounds, _RATIO)
    rows += _rows("on the same processors", tenant, neighbour, lost, rounds, None)
    calm, beside = Asked(), Asked()
    for _ in range(rounds):
        calm.add(_asked(tenant, neighbour, lambda: None))
        beside.add(_asked(tenant, neighbour, lambda: _compute(api)))
    return rows + _ratios(f"peer: a pod computes for {_PEER_S} s", calm, beside, None)


def _rows(
    where: str,
    tenant: OperatedTenant,
    neighbour: OperatedTenant,
    lost: Sequence[str],
    rounds: int,
    at_most: float | None,
) -> list[BoundedRow]:
    rows = list[BoundedRow]()
    for component in lost:
        calm, beside = Asked(), Asked()
        for _ in range(rounds):
            calm.add(_asked(tenant, neighbour, lambda: None))
            beside.add(_asked(tenant, neighbour, lambda component=component: _lose(tenant, component)))  # type: ignore[misc]
        rows += _ratios(f"{component} lost, {where}", calm, beside, at_most)
    return rows


def _ratios(label: str, calm: Asked, beside: Asked, at_most: float | None) -> list[BoundedRow]:
    rows = list[BoundedRow]()
    for kind, usual, then in (
        ("kept connections", calm.kept, beside.kept),
        ("new connections", calm.own, beside.own),
    ):
        rows += [
            value(Figure(f"{label}: p99 of {len(then)} requests on {kind}", "ms"), p99(then) * 1e3),
            value(Figure("  while nothing is lost", "ms"), p99(usual) * 1e3),
            value(Figure("  ratio", "x", at_most), p99(then) / p99(usual)),
        ]
    return rows


def _let_in(api: KubernetesApi, these: set[str], not_these: set[str]) -> None:
    """Which nodes get new pods."""
    for name in these | not_these:
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": name in not_these}})


def _asked(tenant: OperatedTenant, neighbour: OperatedTenant, lose: Callable[[], None]) -> Asked:
    """What the neighbour's requests took, until the tenant is Ready, for at least `_LEAST_S`."""
    _wait_ready(tenant, "True")
    began = time.monotonic()
    with asked(neighbour.kubectl()) as times:
        lose()
        _wait_ready(tenant, "True", least_s=_LEAST_S - (time.monotonic() - began))
    times.check()
    return times


def _wait_ready(tenant: OperatedTenant, status: str, *, least_s: float = 0.0) -> None:
    """Look until condition Ready has the status, and for `least_s`, also while nothing is lost.

    Raises:
        RingError: it does not become so.
    """
    began = time.monotonic()
    while True:
        is_so = tenant.condition(tenants.READY).get("status") == status
        passed_s = time.monotonic() - began
        if is_so and passed_s >= least_s:
            return
        if passed_s > _MOST_S:
            raise RingError(f"{tenant.name}: condition Ready is not {status} after {_MOST_S:g} s")
        time.sleep(_LOOK_S)  # pace: as often in both measurements


def _lose(tenant: OperatedTenant, component: str) -> None:
    """End a part without a grace period, and wait until its condition shows that."""
    api, pods = tenant.ground.api, f"/api/v1/namespaces/{tenant.key}/pods"
    for pod in api.get(f"{pods}?labelSelector=app.kubernetes.io%2Fcomponent%3D{component}")["items"]:
        api.delete(f"{pods}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    _wait_ready(tenant, "False")


def _compute(api: KubernetesApi) -> None:
    """A pod that starts, keeps one processor busy, and ends."""
    container = {
        "name": _PEER,
        "image": images.BUSYBOX,
        # As process 1 it would take no signal.
        "command": ["sh", "-c", f"timeout {_PEER_S} sh -c 'while :; do :; done'; true"],
        "resources": {"requests": {"cpu": _PEER_CPU}},
    }
    metadata, spec = {"name": _PEER}, {"containers": [container], "restartPolicy": "Never"}
    api.create(_PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    deadline = time.monotonic() + _MOST_S
    while (status := api.get(f"{_PODS}/{_PEER}")["status"]).get("phase") not in ("Succeeded", "Failed"):
        if time.monotonic() > deadline:
            raise RingError(f"pod {_PEER} has not ended after {_MOST_S:g} s: {status}")
        time.sleep(_LOOK_S)  # pace: as often as conditions are looked at
    api.delete(f"{_PODS}/{_PEER}?gracePeriodSeconds=0")


def main() -> int:
    """Start the ring, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.losses", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each part is lost")
    parser.add_argument("--lost", default=",".join(_LOST), help="which parts, separated by commas")
    arguments = parser.parse_args()
    return run(lambda ring: measure(ring, arguments.lost.split(","), arguments.rounds))


if __name__ == "__main__":
    sys.exit(main())
