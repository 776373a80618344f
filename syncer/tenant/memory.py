# SPDX-License-Identifier: Apache-2.0
"""What the process holds for one tenant, and why it may hold no more."""

from collections.abc import Callable

from daemonkit.kube.byte_budget import ByteBudget
from daemonkit.kube.freshness import Failure
from daemonkit.kube.shared_budget import SharedBudget
from daemonkit.remedies import Cause
from syncer.caches.cached_object import CachedObject

# How long a tenant counts as failed that had no memory: longer than a tenant is away before it is reported.
REMEMBERED_S = 60.0
# An item of the queue with its place there; a name may have 253 bytes, and a namespace beside it.
QUEUED_BYTES = 1 << 10


class TenantMemory:
    """`budget` counts what is held here, `stored_bytes` gives what the super cluster's caches have beside it.

    `ended` is called when another tenant has a claim to what is held for this one.
    """

    def __init__(
        self,
        shared: SharedBudget,
        max_bytes: int,
        stored_bytes: Callable[[], int],
        ended: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._shared = shared
        self._clock = clock
        self._problem: Failure | None = None
        self._queued = 0
        self.budget: ByteBudget[CachedObject] = ByteBudget(
            max_bytes,
            lambda each: each.size_bytes,
            shared=shared,
            elsewhere=stored_bytes,
            ended=ended,
            refused=self.note_problem,
        )

    def refusal(self, more_bytes: int) -> str:
        """Why no object of so many bytes may be written to the super cluster; empty if it may."""
        return self._shared.refusal(self.budget, more_bytes)

    def note_queued(self, count: int) -> None:
        """So many items of the tenant wait in the queue: what comes and goes leaves one each time."""
        if count != self._queued:
            self.budget.held_changed((count - self._queued) * QUEUED_BYTES)
            self._queued = count

    @property
    def problem(self) -> Failure | None:
        """Why the process has no memory for the tenant; None if it has."""
        problem = self._problem
        return problem if problem is not None and self._clock() - problem.since < REMEMBERED_S else None

    def note_problem(self, text: str) -> None:
        """Have the tenant counted as failed for a while.

        What was refused is given back and tried again, so that the failure itself comes and goes.
        """
        self._shared.refusals += 1
        self._problem = Failure(text, self._clock(), 0, Cause.OTHER, "")

    def close(self) -> None:
        """What was held is gone."""
        self.budget.close()
