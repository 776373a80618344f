# SPDX-License-Identifier: Apache-2.0
"""The parts of the bench, in the order in which they run. Pods stay: later parts find more of them."""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from daemonkit.kube.resources import NAMESPACES
from tests.bench.bounded import p50, p99
from tests.bench.processes import RunError
from tests.bench.syncer import missed_changes, request_counts
from tests.bench.syncer.clients import merge
from tests.bench.syncer.clusters import BenchClusters, BenchTenant, super_namespace
from tests.bench.syncer.observer import STALLED_S, PodTimes
from tests.bench.syncer.subject import RunningSyncer, SyncerProgram

PARTS = ("throughput", "idle", "steady", "hang", "restart", "fairness", "patrol", "growth", "tenants")
# Freed memory is returned, and the last echoes of writes are done with.
REST_S = 2.0
_READY_S = 120.0
_POLL_S = 0.1
_REQUESTS = 100
_MEASURED, _UNSYNCED = "bench.test/request", "default"

_MODEST_PODS = 20
# While a tenant hangs: pods of it that the syncer has to write about then.
_HANGING_PODS = 50

_Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BenchAmounts:
    """How much of everything. `steady_rate` is in pods a second, over all tenants."""

    throughput: int
    growth: int
    restart: int
    patrol: int
    greedy: int
    modest_tenants: int
    idle_tenants: int
    steady_s: float
    idle_s: float
    steady_rate: float = 40.0
    burst: int = 500
    """Pods of each turn."""


# At rest watches end and begin again after 75 s and more: in a shorter time all of a start's do, or none.
FULL = BenchAmounts(5_000, 12_330, 7_330, 10_000, 2_000, 8, 100, steady_s=30.0, idle_s=150.0)
QUICK = BenchAmounts(1_000, 0, 1_000, 1_000, 300, 2, 10, steady_s=10.0, idle_s=10.0, burst=100)


@dataclass(slots=True)
class SyncerFigures:
    """The figures of one syncer by name, and its requests a pod."""

    figures: dict[str, float] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)
    pods: dict[str, int] = field(default_factory=dict)
    """How many pods there were in each part."""


class SyncerBench:
    """Measures one syncer."""

    def __init__(
        self, clusters: BenchClusters, program: SyncerProgram, amounts: BenchAmounts, log: _Log
    ) -> None:
        self._clusters = clusters
        self._program = program
        self._amounts = amounts
        self._log = log
        self._observer = clusters.observer
        self._pods = 0
        self._syncer_log = clusters.directory / f"{program.name}.log"
        self._syncer = RunningSyncer(program, self._syncer_log)
        self.results = SyncerFigures()

    async def run(self, parts: Sequence[str]) -> SyncerFigures:
        """Run some parts. Raises RunError."""
        try:
            await self._until_ready(self._namespaces())
            self._note_memory("base")
            requests_s = await self._requests_s()
            for name in PARTS:
                if name in parts:
                    self._log(f"{self._program.name}: {name}")
                    await getattr(self, f"_{name}")()
            requests_s += await self._requests_s()
            request_s = p50(requests_s)
            self.results.figures |= {"request ms": request_s * 1000, "request s": request_s}
        finally:
            await asyncio.to_thread(self._syncer.stop)
        return self.results

    # ---- parts

    async def _throughput(self) -> None:
        count = self._amounts.throughput
        await self._measure_throughput("throughput", count)
        self._note_memory("throughput")

    async def _growth(self) -> None:
        more = self._amounts.growth - self._pods
        if more > 0:
            await self._measure_throughput("growth", more)
            self._note_memory("growth")

    async def _measure_throughput(self, part: str, count: int) -> None:
        """Create pods as fast as the API servers let us, until all run in their tenants."""
        figures = self.results.figures
        counts = await self._clusters.request_counts()
        own_requests = self._syncer.metric("vcnode_syncer_requests_total")
        cpu_s, super_cpu_s, began_s = self._syncer.cpu_s(), self._clusters.super_cpu_s(), time.monotonic()
        prefix = await self._load(count)
        ended_s = await self._until_running(prefix, count)
        await asyncio.sleep(REST_S)
        thousands = count / 1000
        figures[f"{part} pods/s"] = count / (ended_s - began_s)
        figures[f"{part} cpu"] = (self._syncer.cpu_s() - cpu_s) / thousands
        figures[f"{part} super cpu"] = (self._clusters.super_cpu_s() - super_cpu_s) / thousands
        if own_requests is not None:
            made = self._syncer.metric("vcnode_syncer_requests_total") or 0.0
            figures[f"{part} own requests"] = (made - own_requests) / count
        requests = request_counts.of_syncer(counts, await self._clusters.request_counts(), count)
        figures[f"{part} requests"] = sum(requests.values())
        self.results.requests = self.results.requests or requests
        self.results.pods[part] = self._pods

    async def _idle(self) -> None:
        await self._ensure(self._amounts.throughput)
        await asyncio.sleep(REST_S)
        figures = self.results.figures
        cpu_s, super_cpu_s = self._syncer.cpu_s(), self._clusters.super_cpu_s()
        await asyncio.sleep(self._amounts.idle_s)
        figures["idle cores"] = (self._syncer.cpu_s() - cpu_s) / self._amounts.idle_s
        figures["idle super cores"] = (self._clusters.super_cpu_s() - super_cpu_s) / self._amounts.idle_s

    async def _steady(self) -> None:
        own_ms = await self._steady_load(self._clusters.tenants)
        self.results.figures["steady p50"] = p50(own_ms)
        self.results.figures["steady p99"] = p99(own_ms)

    async def _steady_load(self, tenants: Sequence[BenchTenant]) -> list[float]:
        """Create pods at the steady rate; returns the syncer's own milliseconds of each."""
        rate = self._amounts.steady_rate
        count = int(rate * self._amounts.steady_s)
        prefix = await self._load(count, tenants, rate=rate)
        await self._until_running(prefix, count, tenants)
        return [each.own_ms for each in self._observer.with_prefix(prefix)]

    async def _hang(self) -> None:
        """One tenant's API server stands still, with writes to it under way and in the queue."""
        hanging, *others = self._clusters.tenants
        if not others:
            return
        figures = self.results.figures
        before_ms = await self._steady_load(others)
        late = await self._load(_HANGING_PODS, [hanging])
        hanging.pause()
        try:
            during_ms = await self._steady_load(others)
        finally:
            hanging.resume()
        await self._until_running(late, _HANGING_PODS, [hanging])
        figures["hang p99 before"], figures["hang p99"] = p99(before_ms), p99(during_ms)
        figures["hang ratio"] = p99(during_ms) / p99(before_ms)

    async def _restart(self) -> None:
        """Stop it, change what it does not see, start it: how long until each change is through."""
        await self._ensure(self._amounts.restart)
        await asyncio.to_thread(self._syncer.stop)
        missed = await missed_changes.make(self._clusters)
        prefix = await self._load(len(self._clusters.tenants))
        self.results.pods["restart"] = self._pods
        self._syncer = RunningSyncer(self._program, self._syncer_log)
        began_s = self._syncer.started_s
        through_s = await self._until_running(prefix, len(self._clusters.tenants))
        repaired_s = await self._observer.until(missed.are_repaired, "what was missed to be repaired")
        figures = self.results.figures
        figures["restart through"] = through_s - began_s
        figures["restart repaired"] = repaired_s - began_s

    async def _fairness(self) -> None:
        """A backlog of modest tenants, alone and behind a greedy one: the syncer stops while it is made."""
        amounts, figures = self._amounts, self.results.figures
        greedy, *others = self._clusters.tenants
        modest = others[: amounts.modest_tenants]
        if not modest:
            return
        alone = await self._release(modest, None)
        beside = await self._release(modest, greedy)
        ways: dict[str, Callable[[PodTimes, float], float]] = {
            "super": lambda times, released_s: times.in_super_s - released_s,
            "run": lambda times, released_s: times.running_s - released_s,
            "own": _own_s,
        }
        for name, take in ways.items():
            waited_alone, waited = alone.waited(take), beside.waited(take)
            figures[f"fairness {name} done"] = max(waited)
            figures[f"fairness {name} p99 alone"] = p99(waited_alone)
            figures[f"fairness {name} p99"] = p99(waited)
            figures[f"fairness {name} ratio"] = p99(waited) / p99(waited_alone)
        figures["fairness tenants"] = len(modest)

    async def _release(self, modest: Sequence[BenchTenant], greedy: BenchTenant | None) -> "Backlog":
        """Queue pods while the syncer is stopped, the greedy tenant's first, and let it go on."""
        count = _MODEST_PODS * len(modest)
        self._syncer.signal(signal.SIGSTOP)
        try:
            first = None if greedy is None else await self._load(self._amounts.greedy, [greedy])
            prefix = await self._load(count, modest)
        finally:
            released_s = time.monotonic()
            self._syncer.signal(signal.SIGCONT)
        await self._until_running(prefix, count, modest)
        if greedy is not None and first is not None:
            await self._until_running(first, self._amounts.greedy, [greedy])
        return Backlog(released_s, self._observer.with_prefix(prefix, [each.key for each in modest]))

    async def _patrol(self) -> None:
        """CPU time of one patrol of all tenants, by our own metric."""
        if self._program.status is None:
            return
        await self._ensure(self._amounts.patrol)
        await asyncio.sleep(REST_S)
        sum_name, count_name = (f"vcnode_syncer_patrol_duration_seconds_{each}" for each in ("sum", "count"))
        sum_s, count = self._metric(sum_name), self._metric(count_name)
        tenants = len(self._clusters.tenants)
        end_s = time.monotonic() + STALLED_S
        while self._metric(count_name) < count + tenants:
            if time.monotonic() > end_s:
                raise RunError("no patrol came")
            await asyncio.sleep(_POLL_S)  # pace: of reading a page
        patrols = self._metric(count_name) - count
        self.results.figures["patrol cpu"] = (self._metric(sum_name) - sum_s) * tenants / patrols
        self.results.pods["patrol"] = self._pods

    async def _tenants(self) -> None:
        """Memory and idle CPU time of more tenants, whose API servers are stand-ins."""
        count, figures = self._amounts.idle_tenants, self.results.figures
        before = await self._rested_memory()
        servers = self._clusters.spawn("tests.bench.syncer.idle_tenants", "--count", str(count))
        assert servers.stdout is not None
        kubeconfigs = json.loads(await asyncio.to_thread(servers.stdout.readline))
        keys = [
            await self._clusters.add_virtual_cluster(f"idle-{number}", text)
            for number, text in enumerate(kubeconfigs)
        ]
        await self._until_ready([super_namespace(key) for key in keys])
        after = await self._rested_memory()
        cpu_s = self._syncer.cpu_s()
        await asyncio.sleep(self._amounts.idle_s)
        figures["tenants rss"] = (after - before) / count
        figures["tenants cores"] = (self._syncer.cpu_s() - cpu_s) / self._amounts.idle_s
        base = figures.get("base rss")
        if base is not None:
            figures["tenants 1000"] = base + 1000 * figures["tenants rss"]

    # ---- steps

    async def _load(
        self, count: int, tenants: Sequence[BenchTenant] | None = None, *, rate: float = 0.0
    ) -> str:
        prefix = await self._clusters.load(count, tenants, rate=rate)
        self._pods += count
        return prefix

    async def _ensure(self, count: int) -> None:
        """Have at least so many pods."""
        more = count - self._pods
        if more > 0:
            self._log(f"{more} more pods first")
            await self._until_running(await self._load(more), more)

    async def _until_running(
        self, prefix: str, count: int, tenants: Sequence[BenchTenant] | None = None
    ) -> float:
        keys = None if tenants is None else [each.key for each in tenants]

        def all_run() -> bool:
            self._syncer.check()
            return self._observer.count_running(prefix, keys) >= count

        return await self._observer.until(all_run, f"{count} pods {prefix}* to run in their tenants")

    async def _requests_s(self) -> list[float]:
        """The seconds of one small write after another in the super cluster: the yardstick of times."""
        path, taken_s = NAMESPACES.path(None, _UNSYNCED), []
        for number in range(_REQUESTS):
            began_s = time.monotonic()
            await merge(
                self._clusters.super_client, path, {"metadata": {"annotations": {_MEASURED: str(number)}}}
            )
            taken_s.append(time.monotonic() - began_s)
        return taken_s

    def _namespaces(self) -> list[str]:
        return [each.namespace for each in self._clusters.tenants]

    async def _until_ready(self, namespaces: Sequence[str]) -> None:
        """Until each tenant's namespace is in the super cluster."""
        end_s = time.monotonic() + _READY_S
        missing = list(namespaces)
        while missing or not self._syncer.is_ready():
            if time.monotonic() > end_s:
                raise RunError(
                    f"not ready within {_READY_S} s: {', '.join(missing[:3])} ({len(missing)} missing)"
                )
            missing = [each for each in missing if not await self._clusters.super_namespace_exists(each)]
            await asyncio.sleep(_POLL_S)  # pace: of asking again

    async def _rested_memory(self) -> float:
        await asyncio.sleep(REST_S)
        return self._syncer.memory().rss_mb

    def _note_memory(self, name: str) -> None:
        found = self._syncer.memory()
        self.results.figures[f"{name} rss"], self.results.figures[f"{name} pss"] = found.rss_mb, found.pss_mb

    def _metric(self, name: str) -> float:
        return self._syncer.metric(name) or 0.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Pods that waited for a stopped syncer, and when it went on."""

    released_s: float
    pods: Sequence[PodTimes]

    def waited(self, take: Callable[[PodTimes, float], float]) -> list[float]:
        """The seconds of each pod; `take` gets the time of the release."""
        return [max(0.0, take(each, self.released_s)) for each in self.pods]


def _own_s(times: PodTimes, released_s: float) -> float:
    """The syncer's share: without the scheduler and the node, whose queue the greedy pods fill too."""
    return times.in_super_s - released_s + max(0.0, times.running_s - times.super_running_s)
