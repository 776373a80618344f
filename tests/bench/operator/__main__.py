# SPDX-License-Identifier: Apache-2.0
"""What vc-operator needs: `python -m tests.bench.operator [--only memory,idle,settled,pki]`.

Its memory with settled VirtualClusters, its requests for one of them in an hour, what reconciles of a settled
one write, and the processor time of a tenant's certificates. All API servers are fakes.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from daemonkit import logs
from daemonkit.kube.resources import NODES
from devkit.kube.apiserver import Seen
from tests.bench import certificates
from tests.bench.bounded import BoundedRow, Figure, row, table, value
from tests.bench.operator.ground import Ground
from tests.bench.operator.measured import MeasuredOperator, running
from tests.bench.processes import RunError
from tests.bench.usage import Others

PARTS = ("memory", "idle", "settled", "pki")
# Of resident memory, in MB.
_GOALS_MB = {10: 40.0, 100: 42.0, 1000: 55.0}
_HOUR_S, _STEP_S = 3600.0, 20.0
# Without a request for so long, nothing is under way.
_QUIET_S = 0.05
_IDLE_CLUSTERS = 10
_RECONCILES = 1000
# Reads of a metrics page until a reconcile shows there: about a millisecond each.
_POLLS = 10_000
_READS = ("get", "list", "watch")
_PKI_ROUNDS = 100


class RequestLog:
    """What is asked of the fake super cluster, as its authorization sees it."""

    def __init__(self, ground: Ground) -> None:
        self._seen: list[Seen] = []
        ground.server.authorize = self._note

    @property
    def count(self) -> int:
        """How many there were since the last call of `take`."""
        return len(self._seen)

    def take(self) -> list[Seen]:
        """Those since the last call."""
        found, self._seen = self._seen, []
        return found

    def _note(self, seen: Seen) -> bool:
        self._seen.append(seen)
        return True


async def memory(ground: Ground, directory: Path, counts: Sequence[int]) -> list[BoundedRow]:
    """A fresh process for each number of VirtualClusters, once it has found all of them settled."""
    rows = []
    for count in counts:
        made_s = await ground.grow(count)
        async with running(ground, directory / f"memory-{count}.log") as operator:
            await operator.settle(count)
            start_s, rss_mb, private_mb = operator.cpu_s(), operator.rss_mb(), operator.private_mb()
        figure = Figure(f"{count} VirtualClusters: resident", "MB", _GOALS_MB.get(count))
        rows += [
            value(figure, rss_mb),
            value(Figure("  of it private", "MB"), private_mb),
            value(Figure("  CPU of the start, until all are settled", "s"), start_s),
            value(Figure("  CPU of making those that are new, both sides", "s"), made_s),
        ]
    return rows


async def idle(ground: Ground, directory: Path) -> list[BoundedRow]:
    """An hour of settled VirtualClusters, by moved clocks.

    Lists and watches that serve all are left out. Nodes are listed for single ones, besides.
    """
    await ground.grow(_IDLE_CLUSTERS)
    requests = RequestLog(ground)
    async with running(ground, directory / "idle.log") as operator:
        await operator.settle(_IDLE_CLUSTERS)
        await _pass(operator, requests, _HOUR_S)
        requests.take()
        await _pass(operator, requests, _HOUR_S)
        found = requests.take()
    known = len(ground.clusters())
    calls = [each for each in found if _is_for_one(each)]
    writes = [each for each in calls if each.verb not in _READS]
    return [
        value(Figure("API calls of an idle VirtualCluster in an hour", "", 2.0), len(calls) / known),
        value(Figure("  of them writes", ""), len(writes) / known),
        value(Figure("  lists and watches, of all together", ""), float(len(found) - len(calls))),
    ]


def _is_for_one(each: Seen) -> bool:
    return each.verb not in ("list", "watch") or (each.verb, each.resource) == ("list", NODES)


async def settled(ground: Ground, directory: Path) -> list[BoundedRow]:
    """Reconciles of one VirtualCluster, each after a change that means nothing."""
    await ground.grow(_IDLE_CLUSTERS)
    requests = RequestLog(ground)
    async with running(ground, directory / "settled.log") as operator:
        await operator.settle(_IDLE_CLUSTERS)
        begun, begun_s, begun_mb = await operator.reconciles(), operator.cpu_s(), operator.rss_mb()
        requests.take()
        for number in range(_RECONCILES):
            before = await operator.reconciles("settled")
            ground.touch(0, str(number))
            await _until_more(operator, before)
        made = await operator.reconciles() - begun
        took_s, grown_mb = operator.cpu_s() - begun_s, operator.rss_mb() - begun_mb
        writes = [each for each in requests.take() if each.verb not in _READS]
    return [
        value(Figure(f"writes of {made:.0f} reconciles of a settled VirtualCluster", "", 0.0), len(writes)),
        value(Figure("  CPU of one, with the read of a metrics page", "ms"), took_s * 1000 / made),
        value(Figure("  resident memory that came to it", "MB"), grown_mb),
    ]


def pki() -> list[BoundedRow]:
    """The processor time of a tenant's certificates and keys."""
    return [row(Figure("CPU of a tenant's certificates", "ms", 10.0), [certificates.samples_ms(_PKI_ROUNDS)])]


async def _pass(operator: MeasuredOperator, requests: RequestLog, seconds: float) -> None:
    """Move the clocks in steps. What fell due is done before the next, by which its time would be over."""
    for _ in range(int(seconds / _STEP_S)):
        await operator.advance(_STEP_S)
        before = -1
        while before != requests.count:
            before = requests.count
            await asyncio.sleep(_QUIET_S)  # pace: of requests that are under way


async def _until_more(operator: MeasuredOperator, before: float) -> None:
    for _ in range(_POLLS):
        if await operator.reconciles("settled") > before:
            return
    raise RunError(f"no reconcile after a change, beside {before:.0f}")


async def measure(parts: Sequence[str], counts: Sequence[int]) -> list[BoundedRow]:
    """All rows of these parts. Parts with few VirtualClusters come first: there is one super cluster."""
    rows: list[BoundedRow] = []
    with tempfile.TemporaryDirectory(prefix="vcnode-bench-") as scratch:
        directory = Path(scratch)
        async with Ground(directory).opened() as ground:
            if "idle" in parts:
                rows += await idle(ground, directory)
            if "settled" in parts:
                rows += await settled(ground, directory)
            if "memory" in parts:
                rows += await memory(ground, directory, counts)
    return rows + (pki() if "pki" in parts else [])


def main() -> int:
    """Read the arguments, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operator", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--counts", default=",".join(map(str, _GOALS_MB)), help="VirtualClusters of `memory`")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    logs.setup(level="warning")
    others = Others()
    rows = asyncio.run(measure(parts, [int(each) for each in arguments.counts.split(",")]))
    sys.stdout.write(f"{table(rows, ())}\n\nother processes had {others.share():.0%} of the processors\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
