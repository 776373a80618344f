# SPDX-License-Identifier: Apache-2.0
"""Asks probes beside the workers: a part that does not answer holds up no VirtualCluster, also not its own.

Those that have not answered several times, or not soon, wait for each other alone. Of a tenant's rotations
one is asked about at a time: each asks all that the tenant has.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from daemonkit import logs
from daemonkit.kube.resources import Key
from daemonkit.tasks import Tasks
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import RotationProbe, TenantProbe
from tenant_operator.run.queue import ReconcileQueue

# Probes at a time of parts that answer or are new, and as many of others.
AT_ONCE = 8
# From then on a part is one of the others.
FAILURES = 3
# So does one that took longer: a part that answers well does so within a moment.
SLOW_S = 2.0
# After an answer like the last one: the plan asks again when it is due.
SAME_S = 1.0

_log = logs.get(__name__)


class ProbeRunner(Protocol):
    """`tenant_operator.edge.probing.Prober`, or a fake."""

    async def run(self, probe: TenantProbe) -> ProbeResult: ...


class _Question(msgspec.Struct):
    """`results` gets the answer."""

    uid: str
    key: Key
    probe: TenantProbe
    results: dict[str, ProbeResult]
    is_failing: bool = False


def _is_failing(probe: TenantProbe, results: Mapping[str, ProbeResult]) -> bool:
    """Whether it waits for those that fail, or are slow. Questions about rotations are for the same parts."""
    kind = probe.name.partition("/")[0]
    known = (each for name, each in results.items() if name.partition("/")[0] == kind)
    return any(each.failures >= FAILURES or each.is_slow for each in known)


class ProbeQueue:
    """`start` and `close` follow each other any number of times; in between `ask` may be called.

    A question that waits is no task yet: a start has two for each VirtualCluster.
    """

    def __init__(self, prober: ProbeRunner, queue: ReconcileQueue, clock: Callable[[], float]) -> None:
        self._prober = prober
        self._queue = queue
        self._clock = clock
        self._tasks = Tasks("probes")
        self._asked: set[tuple[str, str]] = set()
        self._waiting: tuple[deque[_Question], deque[_Question]] = (deque(), deque())
        self._running = [0, 0]
        self._behind: dict[str, deque[_Question]] = {}
        """By the UID of who has a question about a rotation asked, those that come after it."""

    def start(self) -> None:
        """Take questions from now on."""
        self._tasks = Tasks("probes")
        self._running = [0, 0]

    async def close(self, timeout_s: float) -> None:
        """End what is asked."""
        for each in (*self._waiting, *self._behind.values()):
            self._asked -= {(question.uid, question.probe.name) for question in each}
            each.clear()
        self._behind = {}
        await self._tasks.close(timeout_s)

    def ask(self, uid: str, key: Key, probes: Iterable[TenantProbe], results: dict[str, ProbeResult]) -> None:
        """Put the answers into `results`, and have the VirtualCluster planned again. What is being asked is
        not asked twice."""
        for probe in probes:
            if (uid, probe.name) not in self._asked:
                self._asked.add((uid, probe.name))
                question = _Question(uid, key, probe, results)
                if not isinstance(probe, RotationProbe):
                    self._put(question)
                elif uid in self._behind:
                    self._behind[uid].append(question)
                else:
                    self._behind[uid] = deque()
                    self._put(question)

    def _put(self, question: _Question) -> None:
        question.is_failing = _is_failing(question.probe, question.results)
        self._waiting[question.is_failing].append(question)
        self._begin(is_failing=question.is_failing)

    def _begin(self, *, is_failing: bool) -> None:
        """Ask the next ones, as many as may be asked at a time."""
        waiting = self._waiting[is_failing]
        while waiting and self._running[is_failing] < AT_ONCE:
            question = waiting.popleft()
            self._running[is_failing] += 1
            self._tasks.spawn(
                self._ask(question),
                f"{question.probe.name} of {'/'.join(question.key)}",
                when_over=functools.partial(self._over, question, self._running, self._behind),
            )

    def _over(self, question: _Question, running: list[int], behind: dict[str, deque[_Question]]) -> None:
        self._asked.discard((question.uid, question.probe.name))
        running[question.is_failing] -= 1
        self._begin(is_failing=question.is_failing)
        if isinstance(question.probe, RotationProbe) and behind is self._behind:
            following = behind[question.uid]
            if following:
                self._put(following.popleft())
            else:
                del behind[question.uid]

    async def _ask(self, question: _Question) -> None:
        probe, results = question.probe, question.results
        before = results.get(probe.name)
        began_s = self._clock()
        found = await self._prober.run(probe)
        is_slow = self._clock() - began_s > SLOW_S
        is_same = before is not None and (before.is_ok, before.facts) == (found.is_ok, found.facts)
        failures = 0 if found.is_ok else 1 if before is None or not is_same else before.failures + 1
        repeats = 0 if before is None or not is_same else before.repeats + 1
        results[probe.name] = msgspec.structs.replace(
            found, failures=failures, repeats=repeats, is_slow=is_slow
        )
        if is_same:
            self._queue.add_after(question.key, SAME_S)
        else:
            self._queue.add_behind_backoff(question.key)
