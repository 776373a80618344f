# SPDX-License-Identifier: Apache-2.0
"""What a tenant notices while its neighbour loses a part: `python -m tests.bench.losses [--rounds 5]`.

The ring of `starts.py`, two tenants on it. Before each loss the neighbour is asked just as long while nothing
is lost. Needs root and the ring's programs. It is no test: CI does not run it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from tests.bench.bounded import BoundedRow, Figure, p99, value
from tests.bench.starts import MeasuredRing, ready_s, run, start
from tests.k8s.operator import neighbours, tenants
from tests.k8s.operator.tenants import OperatedTenant

# What a neighbour's p99 may grow by.
_RATIO = 1.2
_LOST = ("etcd", "apiserver", "controller-manager")
_LEAST_S = 10.0
_MOST_S = 90.0


def measure(ring: MeasuredRing, lost: Sequence[str], rounds: int) -> list[BoundedRow]:
    """Three rows for each part that is lost."""
    tenant, neighbour = made = start(ring, 2)
    ready_s(made)
    rows = []
    for component in lost:
        calm, beside = list[float](), list[float]()
        for _ in range(rounds):
            tenant.wait_condition(tenants.READY)
            calm += _asked(tenant, neighbour, lambda: None)
            beside += _asked(tenant, neighbour, lambda component=component: _lose(tenant, component))  # type: ignore[misc]
        usual, then = p99(calm), p99(beside)
        rows += [
            value(Figure(f"{component} of a tenant lost {rounds} times: neighbour's p99", "ms"), then * 1e3),
            value(Figure("  while nothing is lost", "ms"), usual * 1e3),
            value(Figure("  ratio", "x", _RATIO), then / usual),
            value(Figure("  requests of both", ""), len(calm) + len(beside)),
        ]
    return rows


def _asked(tenant: OperatedTenant, neighbour: OperatedTenant, lose: Callable[[], None]) -> list[float]:
    """What the neighbour's requests took, until the tenant is Ready, for at least `_LEAST_S`."""
    began = time.monotonic()
    with neighbours.asked(neighbour) as times:
        lose()
        tenant.wait_condition(tenants.READY, timeout_s=_MOST_S)
        tenant.wait("a while is over", lambda: time.monotonic() - began >= _LEAST_S)
    times.check()
    return times.seconds


def _lose(tenant: OperatedTenant, component: str) -> None:
    """End a part without a grace period, and wait until its condition shows that."""
    selector = f"app.kubernetes.io/component={component}"
    tenant.root_kubectl("delete", "pod", "-l", selector, "--grace-period=0", "--force").check()
    tenant.wait_condition(tenants.READY, "False")


def main() -> int:
    """Start the ring, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.losses", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each part is lost")
    parser.add_argument("--lost", default=",".join(_LOST), help="which parts, separated by commas")
    arguments = parser.parse_args()
    return run(lambda ring: measure(ring, arguments.lost.split(","), arguments.rounds))


if __name__ == "__main__":
    sys.exit(main())
