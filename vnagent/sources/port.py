# SPDX-License-Identifier: Apache-2.0
"""What every source of tenants or pods looks like to the daemon."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tenancy.ownership import Owned
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant

if TYPE_CHECKING:
    from vnagent.tenants.virtualcluster import Rotation


@dataclass(frozen=True, slots=True)
class TenantsReading:
    """A complete reading of all tenants, by the name of their source (a file, an object).

    `deleted` are sources whose deletion is confirmed; what is in neither is only missing. `rotations` are the
    certificates in rotation of each source that has any, for the saved state. `client_lists` has for each
    source with a list of clients beside it what that list adds to the tenant, and `deleted_lists` the sources
    whose list is confirmed to be deleted.
    """

    tenants: Mapping[str, Tenant | Bad]
    deleted: frozenset[str] = frozenset()
    rotations: "Mapping[str, Rotation]" = field(default_factory=dict)
    client_lists: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    deleted_lists: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a source cannot be read, and for how long it could not."""

    message: str
    for_s: float


# False if nothing of the reading could be used.
PublishTenants = Callable[[TenantsReading], object]
# All of this node's tenant pods, and what is wrong with those that are left out.
PublishPods = Callable[[tuple[Owned, ...], tuple[str, ...]], None]


class Source(Protocol):
    """What is known of how current a source is."""

    def age_s(self) -> float | None:
        """Seconds since the source last confirmed what it published; None if it never did."""

    def failure(self) -> Failure | None:
        """Why the source cannot confirm it now; None while it can."""


class RunningSource(Source, Protocol):
    """A source that runs until it is cancelled and publishes whenever it has something new."""

    async def run(self) -> None: ...


class PodFeed(RunningSource, Protocol):
    """A source of pods that can be asked for news."""

    def can_refresh(self) -> bool:
        """Whether asking now could tell more than is known."""

    async def refresh(self) -> bool:
        """Wait until what there is from now on is published; False if that failed, or took too long. Several
        at once share one read."""


class Confirmation:
    """When a source last confirmed what it published, and why it cannot since. Times are of `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._confirmed_at: float | None = None
        self._failure = ""
        self._failing_since = 0.0

    def confirm(self) -> None:
        """What is published is what there is."""
        self._confirmed_at = self._clock()
        self._failure = ""

    def confirm_unchanged(self) -> None:
        """What was found last is still there. A failure stays one, and what was never read unconfirmed."""
        if self._confirmed_at is not None and not self._failure:
            self._confirmed_at = self._clock()

    def fail(self, message: str) -> None:
        if not self._failure:
            self._failing_since = self._clock()
        self._failure = message

    def age_s(self) -> float | None:
        return None if self._confirmed_at is None else self._clock() - self._confirmed_at

    def failure(self) -> Failure | None:
        return Failure(self._failure, self._clock() - self._failing_since) if self._failure else None
