# SPDX-License-Identifier: Apache-2.0
"""The port of a source of tenants or pods."""

from collections.abc import Callable
from typing import Protocol

from daemonkit.remedies import Fault
from tenancy.ownership import Owned
from vnagent.core.source_status import Failure
from vnagent.tenants.reading import TenantsReading

# Returns False if trust could not be built from the reading.
PublishTenants = Callable[[TenantsReading], object]
# All of this node's tenant pods, and the problems of those that are left out.
PublishPods = Callable[[tuple[Owned, ...], tuple[str, ...]], None]


class Source(Protocol):
    """How current a source is."""

    def age_s(self) -> float | None:
        """Seconds since the source last confirmed its published objects; None if it never did."""

    def failure(self) -> Failure | None:
        """Why the source cannot confirm them now; None while it can."""


class RunningSource(Source, Protocol):
    """A source that runs until it is cancelled and publishes whenever it has something new."""

    async def run(self) -> None: ...


class PodsOnDemand(Protocol):
    """The node's pods, which can be read on demand."""

    async def refresh(self) -> bool:
        """Wait until a read that begins from now on is published; False if it failed or took too long.
        Several callers share one read."""


class RefreshablePods(RunningSource, PodsOnDemand, Protocol):
    """A source of pods that can be read on demand."""


class Confirmation:
    """When a source last confirmed its objects, and why it has failed since. Times are of `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._confirmed_at: float | None = None
        self._fault: Fault | None = None
        self._failing_since = 0.0

    def confirm(self) -> None:
        """The published objects are current."""
        self._confirmed_at = self._clock()
        self._fault = None

    def confirm_unchanged(self) -> None:
        """The last read is still current. A source that failed, or was never read, stays unconfirmed."""
        if self._confirmed_at is not None and self._fault is None:
            self._confirmed_at = self._clock()

    def fail(self, fault: Fault) -> None:
        if self._fault is None:
            self._failing_since = self._clock()
        self._fault = fault

    def age_s(self) -> float | None:
        return None if self._confirmed_at is None else self._clock() - self._confirmed_at

    def failure(self) -> Failure | None:
        return None if self._fault is None else Failure(self._fault, self._clock() - self._failing_since)
