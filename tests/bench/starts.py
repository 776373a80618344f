# SPDX-License-Identifier: Apache-2.0
"""How long tenants take to become Ready: `python -m tests.bench.starts [--tenants 1,2,20] [--wakes 3]`.

The operator's ring on this machine: three nodes with real kubelets and containerd, vc-operator and vc-syncer.
Needs root and the ring's programs. It is no test: CI does not run it.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tests.bench.bounded import BoundedRow, Figure, row, table, value
from tests.bench.usage import Others
from tests.k8s import build
from tests.k8s.operator import ground, releases, tenants
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.syncer.cluster import SUPER_DNS, start_synced_ring
from tests.k8s.syncer.daemon import SyncerDaemon

_RELEASE = "v1.34"
# Each reports this machine's processors. The requests of 20 control planes need more than two nodes of two.
_NODES = 3
_MOST_S = 900.0
# So long a tenant sleeps before it is woken: longer than the longest wait of vc-syncer for one that is away.
_ASLEEP_S = 40.0
# In seconds; for so many tenants at once, until the last one is Ready.
_GOALS_S = {1: 20.0, 2: 20.0, 20: 240.0}
_WAKE_GOAL_S = 8.0
_COMPONENTS = "/api/v1/pods?labelSelector=app.kubernetes.io%2Fcomponent"


@dataclass
class MeasuredRing:
    """The ring with both daemons. `made` counts tenants, whose names are never used twice."""

    ground: OperatorGround
    operator: OperatorDaemon
    made: int = 0

    def create(self) -> OperatedTenant:
        """Apply another one; does not wait."""
        self.made += 1
        name = f"t{self.made}"
        return tenants.create(self.ground, self.operator, name, clusterVersionName=_RELEASE)


def start(ring: MeasuredRing, count: int) -> list[OperatedTenant]:
    """So many VirtualClusters, applied one behind the other without a wait."""
    return [ring.create() for _ in range(count)]


def ready_s(made: Sequence[OperatedTenant]) -> list[float]:
    """When each became Ready, in seconds since the first was applied. Raises RingError."""
    first, found = min(each.applied_at for each in made), dict[str, float]()
    api, path = made[0].ground.api, made[0].path.rpartition("/")[0]

    def are_ready() -> bool:
        for each in api.get(path)["items"]:
            if _is_ready(each):
                found.setdefault(each["metadata"]["name"], time.monotonic() - first)
        return len(found) == len(made)

    wait_for(f"{len(made)} tenants are Ready", are_ready, timeout_s=_MOST_S)
    return sorted(found.values())


def _is_ready(virtual_cluster: JsonObject) -> bool:
    conditions = virtual_cluster.get("status", {}).get("conditions", [])
    return any((each.get("type"), each["status"]) == (tenants.READY, "True") for each in conditions)


def restarts(ring: MeasuredRing) -> int:
    """Of all containers of control planes."""
    pods = ring.ground.api.get(_COMPONENTS)["items"]
    return sum(
        each["restartCount"] for pod in pods for each in pod.get("status", {}).get("containerStatuses", ())
    )


def wake_s(tenant: OperatedTenant) -> tuple[float, float]:
    """From the request to wake until its API server answers, and until the tenant is Ready."""
    tenant.annotate(sleep_requested_at=_now())
    tenant.wait("it has no pod", lambda: not tenant.root_kubectl("get", "pods", "-o", "name").text.split())
    time.sleep(_ASLEEP_S)  # pace: what is away is asked ever later
    api, began = tenant.api(), time.monotonic()
    tenant.annotate(wake_requested_at=_now())
    tenant.wait("it answers", api.is_ready, timeout_s=_MOST_S)
    answers_s = time.monotonic() - began
    tenant.wait_condition(tenants.READY, timeout_s=_MOST_S)
    return answers_s, time.monotonic() - began


def remove(made: Sequence[OperatedTenant]) -> None:
    """All of these, and wait until they are gone."""
    for each in made:
        each.delete()
    for each in made:
        each.wait("it is gone", lambda each=each: not each.get(), timeout_s=_MOST_S)  # type: ignore[misc]


def measure(ring: MeasuredRing, counts: Sequence[int], wakes: int) -> list[BoundedRow]:
    """All rows. What is left of one step has gone before the next begins."""
    rows = []
    for count in counts:
        load = os.getloadavg()[0]
        made = start(ring, count)
        times = ready_s(made)
        plural = "tenant" if count == 1 else "tenants at once"
        rows += [
            value(Figure(f"{count} {plural}: the first is Ready", "s"), times[0]),
            value(Figure("  the last", "s", _GOALS_S.get(count)), times[-1]),
            value(Figure("  restarts of containers", ""), restarts(ring)),
            value(Figure("  load average before", ""), load),
        ]
        if count == 1 and wakes:
            slept = [wake_s(made[0]) for _ in range(wakes)]
            rows += [
                row(Figure("it answers after a request to wake", "s", _WAKE_GOAL_S), [[a for a, _ in slept]]),
                row(Figure("  it is Ready", "s"), [[r for _, r in slept]]),
            ]
        remove(made)
    return rows


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def main() -> int:
    """Start the ring, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.starts", description=__doc__)
    parser.add_argument("--tenants", default="1,2,20", help="how many at once, separated by commas")
    parser.add_argument("--wakes", type=int, default=3, help="how often a single tenant sleeps and wakes")
    arguments = parser.parse_args()
    counts = [int(each) for each in arguments.tenants.split(",")]
    return run(lambda ring: measure(ring, counts, arguments.wakes))


def run(measured: Callable[[MeasuredRing], Sequence[BoundedRow]]) -> int:
    """Start the ring, measure and print; returns the exit status."""
    binaries, missing = build.find_binaries(build.DEFAULT_CACHE, build.go_version() or "")
    if missing:
        sys.stderr.write(f"bench: not built: {', '.join(missing)}; run make programs\n")
        return 1
    others = Others()
    try:
        with ExitStack() as stack:
            synced = start_synced_ring(binaries, stack, nodes=_NODES, dns_address=SUPER_DNS)
            prepared = stack.enter_context(ground.prepared(synced))
            syncer = SyncerDaemon(synced)
            stack.callback(syncer.stop)
            syncer.start()
            operator = OperatorDaemon(prepared)
            stack.callback(operator.stop)
            operator.start()
            tenants.apply(prepared, tenants.cluster_version(_RELEASE, releases.CURRENT))
            rows = measured(MeasuredRing(prepared, operator))
    except (RingError, AssertionError) as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
    sys.stdout.write(f"{table(rows, ())}\n\nother processes had {others.share():.0%} of the processors\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
