# SPDX-License-Identifier: Apache-2.0
"""What every source of tenants or pods looks like to the daemon."""

from collections.abc import Callable, Mapping
from typing import Protocol

from tenancy.ownership import Owned
from tenancy.registry import Bad
from tenancy.tenant import Tenant

# All tenants by the name of their source (a file, an object). Complete: what is missing is gone.
PublishTenants = Callable[[Mapping[str, Tenant | Bad]], object]
# All of this node's tenant pods, and what is wrong with those that are left out.
PublishPods = Callable[[tuple[Owned, ...], tuple[str, ...]], None]


class Source(Protocol):
    """A source runs until it is cancelled and publishes whenever it has something new."""

    async def run(self) -> None: ...

    def age_s(self) -> float | None:
        """Seconds since the source last confirmed what it published; None if it never did."""


class PodFeed(Source, Protocol):
    """A source of pods that can be asked for news."""

    def can_refresh(self) -> bool:
        """Whether asking now could tell more than is known."""

    async def refresh(self) -> None:
        """Ask, publish, return; also when the asking failed. Several at once share one read."""
