# SPDX-License-Identifier: Apache-2.0
"""Asks probes beside the workers: a part that does not answer holds up no VirtualCluster, also not its own.

Those that have not answered several times wait for each other alone.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec

from daemonkit import logs
from daemonkit.kube.resources import Key
from daemonkit.tasks import Tasks
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import TenantProbe
from tenant_operator.run.queue import ReconcileQueue

# Probes at a time of parts that answer or are new, and as many of others.
AT_ONCE = 8
# From then on a part is one of the others.
FAILURES = 3
# After an answer like the last one: the plan asks again when it is due.
SAME_S = 1.0

_log = logs.get(__name__)


class ProbeRunner(Protocol):
    """`tenant_operator.edge.probing.Prober`, or a fake."""

    async def run(self, probe: TenantProbe) -> ProbeResult: ...


class ProbeQueue:
    """`start` and `close` follow each other any number of times; in between `ask` may be called."""

    def __init__(self, prober: ProbeRunner, queue: ReconcileQueue) -> None:
        self._prober = prober
        self._queue = queue
        self._tasks = Tasks("probes")
        self._asked: set[tuple[str, str]] = set()
        self._free = {is_failing: asyncio.Semaphore(AT_ONCE) for is_failing in (False, True)}

    def start(self) -> None:
        """Take questions from now on."""
        self._tasks = Tasks("probes")
        self._free = {is_failing: asyncio.Semaphore(AT_ONCE) for is_failing in (False, True)}

    async def close(self, timeout_s: float) -> None:
        """End what is asked."""
        await self._tasks.close(timeout_s)

    def ask(self, uid: str, key: Key, probes: Iterable[TenantProbe], results: dict[str, ProbeResult]) -> None:
        """Put the answers into `results`, and have the VirtualCluster planned again. What is being asked is
        not asked twice."""
        for probe in probes:
            place = uid, probe.name
            if place not in self._asked:
                self._asked.add(place)
                self._tasks.spawn(
                    self._ask(key, probe, results),
                    f"{probe.name} of {'/'.join(key)}",
                    when_over=lambda place=place: self._asked.discard(place),  # type: ignore[misc]
                )

    async def _ask(self, key: Key, probe: TenantProbe, results: dict[str, ProbeResult]) -> None:
        before = results.get(probe.name)
        async with self._free[before is not None and before.failures >= FAILURES]:
            found = await self._prober.run(probe)
        is_same = before is not None and (before.is_ok, before.facts) == (found.is_ok, found.facts)
        failures = 0 if found.is_ok else 1 if before is None or not is_same else before.failures + 1
        repeats = 0 if before is None or not is_same else before.repeats + 1
        results[probe.name] = msgspec.structs.replace(found, failures=failures, repeats=repeats)
        if is_same:
            self._queue.add_after(key, SAME_S)
        else:
            self._queue.add_behind_backoff(key)
