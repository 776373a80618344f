# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import itertools
from collections.abc import Generator, Iterable
from types import SimpleNamespace
from typing import Any

from syncer.metrics import SyncerMetrics
from syncer.tenant.deletions import SyncKey
from syncer.work.patrol import Patrol


def _nothing(_: object) -> Generator[None, None, None]:
    yield from ()


class Judge:
    has_patrolled = True
    judgements = 0

    async def judge(self) -> None:
        self.judgements += 1


class Session:
    """A tenant with one object of each state."""

    def __init__(self) -> None:
        self.caches = self.compared = self
        self.deletion_judge = Judge()

    def unverified(self, most: int) -> Iterable[list[tuple[SyncKey, bool]]]:
        names = ("pair", "own-only"), ("changed", "super-only")
        for each in names:
            yield [(("Pod", "x", name), not name.endswith("-only")) for name in each]

    def check_api_server(self) -> None: ...


def test_pairs_wait_behind_what_lacks_a_side() -> None:
    session: Any = Session()
    queued: list[tuple[str, bool]] = []

    def add(_: object, item: SyncKey, *, is_low_priority: bool = False) -> None:
        queued.append((item[2], is_low_priority))

    queue: Any = SimpleNamespace(add=add)
    metrics = SyncerMetrics()
    patrol = Patrol(queue, metrics, {}, interval_s=60.0, patrolled=_nothing)
    assert asyncio.run(patrol.check(session)) == 4
    assert queued == [("own-only", False), ("super-only", False), ("pair", True), ("changed", True)]
    assert session.deletion_judge.judgements == 1


def test_a_patrol_looks_at_so_many_in_a_step() -> None:
    """Also at those of both sides, which came already: 10 000 of one kind took 19 ms at once."""
    looked = [0]

    class Large(Session):
        def unverified(self, most: int) -> Iterable[list[tuple[SyncKey, bool]]]:
            for _ in range(10_000 // most):
                looked[-1] += most
                yield []

    session: Any = Large()
    queue: Any = SimpleNamespace()
    patrol = Patrol(queue, SyncerMetrics(), {}, interval_s=60.0, patrolled=_nothing)
    steps = patrol.check(session)
    with contextlib.suppress(StopIteration):
        while True:
            steps.send(None)
            looked.append(looked[-1])
    assert looked[-1] == 10_000
    assert max(now - before for before, now in itertools.pairwise([0, *looked])) <= 500
