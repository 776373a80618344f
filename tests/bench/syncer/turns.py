# SPDX-License-Identifier: Apache-2.0
"""Two syncers in turn between the same API servers, with the same pods, in many short rounds.

A machine is seldom as fast in one half of an hour as in the other, by more than what two syncers differ by.
Turns of a round are seconds apart, and the order changes from round to round.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import PODS
from tests.bench.syncer import missed_changes
from tests.bench.syncer.clients import remove
from tests.bench.syncer.clusters import BenchClusters, BenchTenant
from tests.bench.syncer.loader import NAMESPACE
from tests.bench.syncer.parts import REST_S, SyncerFigures
from tests.bench.syncer.subject import RunningSyncer, SyncerProgram

_REMOVERS = 16


class SyncerTurns:
    """Runs one syncer at a time and measures it. Before each turn there are `pods` pods."""

    def __init__(
        self,
        clusters: BenchClusters,
        programs: Sequence[SyncerProgram],
        pods: int,
        burst: int,
        log: Callable[[str], None],
    ) -> None:
        self._clusters = clusters
        self._observer = clusters.observer
        self._programs = programs
        self._pods = pods
        self._burst = burst
        self._log = log
        self._restarts = itertools.count(1)

    async def run(self, rounds: int) -> dict[str, list[SyncerFigures]]:
        """The figures of each syncer by its name, one for each round. Raises RunError."""
        await self._fill()
        taken: dict[str, list[SyncerFigures]] = {each.name: [] for each in self._programs}
        for number in range(rounds):
            self._log(f"round {number + 1} of {rounds}")
            for program in self._programs if number % 2 == 0 else reversed(self._programs):
                taken[program.name].append(await self._turn(program))
        return taken

    async def _fill(self) -> None:
        """Have the pods, and let each syncer do once what it does with another's objects."""
        self._log(f"{self._pods} pods first")
        wanted = self._pods
        for program in self._programs:
            syncer = self._start(program)
            try:
                await self._until_running(syncer, await self._clusters.load(wanted), wanted)
                await asyncio.sleep(REST_S)
            finally:
                await asyncio.to_thread(syncer.stop)
            wanted = len(self._clusters.tenants)

    def _start(self, program: SyncerProgram) -> RunningSyncer:
        return RunningSyncer(program, self._clusters.directory / f"{program.name}.log")

    async def _turn(self, program: SyncerProgram) -> SyncerFigures:
        """A start with changes that were missed, a burst of pods, and the end of as many pods."""
        missed = await missed_changes.make(self._clusters, next(self._restarts))
        tenants = len(self._clusters.tenants)
        first = await self._clusters.load(tenants)
        syncer = self._start(program)
        try:
            through_s = await self._until_running(syncer, first, tenants) - syncer.started_s
            repaired_s = await self._observer.until(missed.are_repaired, "what was missed to be repaired")
            found = {
                "restart through": through_s,
                "restart repaired": repaired_s - syncer.started_s,
                **await self._measure_burst(syncer),
            }
            await self._remove_surplus()
        finally:
            await asyncio.to_thread(syncer.stop)
        return SyncerFigures(found, {}, {"restart": self._pods, "throughput": self._burst})

    async def _measure_burst(self, syncer: RunningSyncer) -> dict[str, float]:
        await asyncio.sleep(REST_S)
        cpu_s, super_cpu_s, began_s = syncer.cpu_s(), self._clusters.super_cpu_s(), time.monotonic()
        prefix = await self._clusters.load(self._burst)
        ended_s = await self._until_running(syncer, prefix, self._burst)
        await asyncio.sleep(REST_S)
        thousands = self._burst / 1000
        return {
            "throughput pods/s": self._burst / (ended_s - began_s),
            "throughput cpu": (syncer.cpu_s() - cpu_s) / thousands,
            "throughput super cpu": (self._clusters.super_cpu_s() - super_cpu_s) / thousands,
            "throughput rss": syncer.memory().rss_mb,
        }

    async def _remove_surplus(self) -> None:
        """Delete pods in their tenants, and wait until they are gone on both sides."""
        existing = [
            (tenant, name)
            for tenant in self._clusters.tenants
            for _, name in list(self._observer.tenant_pods[tenant.key].objects)
        ]
        count = len(existing) - self._pods
        # Of all tenants alike.
        surplus = existing[:: len(existing) // count][:count] if count > 0 else []
        due = iter(surplus)
        async with asyncio.TaskGroup() as group:
            for _ in range(_REMOVERS):
                group.create_task(_remove_each(due))
        await self._observer.until(
            lambda: (
                not any(
                    self._observer.in_tenant(tenant.key, name)
                    or self._observer.in_super(tenant.namespace, name)
                    for tenant, name in surplus
                )
            ),
            "deleted pods to go",
        )

    async def _until_running(self, syncer: RunningSyncer, prefix: str, count: int) -> float:
        def all_run() -> bool:
            syncer.check()
            return self._observer.count_running(prefix) >= count

        return await self._observer.until(all_run, f"{count} pods {prefix}* to run in their tenants")


async def _remove_each(pods: Iterator[tuple[BenchTenant, str]]) -> None:
    for tenant, name in pods:
        try:
            await remove(tenant.client, PODS.path(NAMESPACE, name))
        except ApiError as error:
            if error.status.code != 404:
                raise
