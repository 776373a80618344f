# SPDX-License-Identifier: Apache-2.0
"""When the deletions of one tenant that no event confirmed are judged, and the report of what is held."""

import asyncio
from collections.abc import Generator, Mapping
from typing import Protocol

from daemonkit.fairness.steps import WorkStep, in_steps
from daemonkit.tasks import Tasks
from syncer.core.deletion_guard import Hold
from syncer.core.plan import Side
from syncer.tenant.deletions import Deletions, SyncKey
from syncer.tenant.owned_namespaces import HasTenant

# Unconfirmed deletions are judged together: a list that lacks one object may lack all.
GATHER_S = 1.0


class ObjectCounts(Protocol):
    """The part of `TenantCaches` by which a judgement is made."""

    @property
    def is_relisting(self) -> bool: ...
    def known(self, side: Side) -> Generator[None, None, Mapping[str, int]]: ...
    def contents(self, item: SyncKey) -> Mapping[str, int]: ...


class JudgeOwner(HasTenant, Protocol):
    """Whose deletions they are."""

    def plan_again(self, item: SyncKey) -> None:
        """A deletion that waited may be carried out now."""

    def holds_changed(self) -> None:
        """Other deletions are held than before, or none any more."""


class DeletionJudge:
    """`has_reported`: the VirtualCluster's condition has a hold, which is judged anew by this run."""

    def __init__(
        self,
        owner: JudgeOwner,
        deletions: Deletions,
        counts: ObjectCounts,
        tasks: Tasks,
        *,
        has_reported: bool,
    ) -> None:
        self._owner = owner
        self._deletions = deletions
        self._counts = counts
        self._tasks = tasks
        # What the condition has ends if nothing is held.
        self._reported: dict[Side, Hold] | None = None if has_reported else {}
        self._is_judging = False
        self.has_patrolled = False

    def end_first_patrol(self) -> None:
        """From now on also what only one side has may be deleted."""
        self.has_patrolled = True

    def may_delete(self, side: Side, item: SyncKey, *, is_sure: bool) -> bool:
        """Whether a plan's deletion on this side may be carried out now.

        The first patrol deletes nothing but what is sure: what the other side is deleting as well, or may
        not be there whatever the other side has. A deletion that follows from what a list lacks is judged a
        moment later, with the others of its kind.
        """
        deletions = self._deletions
        if deletions.is_unconfirmed(side, item):
            return deletions.may_delete(side, item)
        if is_sure or (self.has_patrolled and not deletions.is_suspected(side, item)):
            return True
        deletions.propose(side, item)
        self._judge_later()
        return False

    def _judge_later(self) -> None:
        if not self._is_judging:
            self._is_judging = True
            self._tasks.spawn(self._judge_soon(), "judge deletions")

    async def _judge_soon(self) -> None:
        await asyncio.sleep(GATHER_S)
        self._is_judging = False
        await self.judge()

    def judge_now(self) -> None:
        """As `judge`, in a task of its own."""
        self._tasks.spawn(self.judge(), "judge deletions now")

    async def judge(self) -> None:
        """Have the guard judge what is missing without an event, and plan again what it allows.

        What is missing is gathered in steps and judged in one, by what there is then.
        """
        if self._try_put_off():
            return
        for side in Side:
            if not self._deletions.has_unconfirmed(side) and side not in self._deletions.holds():
                continue
            await in_steps(self._deletions.gather(side, self._counts.contents))
            known = await in_steps(self._counts.known(side))
            # No await from here until it is judged.
            if self._try_put_off():
                return
            is_any_allowed = self._deletions.judge(
                side,
                known,
                is_first_patrol=not self.has_patrolled,
                release=self._owner.tenant.release,
                restored=self._owner.tenant.restored,
            )
            if is_any_allowed:
                await in_steps(self._plan_again(side))
        holds = self._deletions.holds()
        if holds != self._reported and (holds or self.has_patrolled):
            self._reported = holds
            self._owner.holds_changed()

    def _try_put_off(self) -> bool:
        """Judge later while a part of a list is known: what it lacks may seem few."""
        if self._counts.is_relisting:
            self._judge_later()
            return True
        return False

    def _plan_again(self, side: Side) -> Generator[None, None, None]:
        step = WorkStep()
        for item in (yield from self._deletions.allowed(side)):
            self._owner.plan_again(item)
            if step.count():
                yield
