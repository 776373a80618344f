# SPDX-License-Identifier: Apache-2.0
"""When a removal that only a relist reports is trusted. Pure: the time comes in.

A watch event reports that an object was deleted. A relist only lacks the object. So does the list of a
restored backup, of a broken cache, or of an API server that has half started. Those lack nearly
everything; a controller or a person leaves something behind. So:

- A removal is *distrusted* if only a relist reports it and the relist leaves nothing behind
  (`is_distrusted`). The objects stay in use.
- A distrusted removal is *trusted* as soon as an event confirms it or an object of the kind is there
  again. Else it is trusted `holdSeconds` after the first relist (`trusted_at`).

kubeproxy-ext distrusts relists that lack Services and Namespaces. dnsconfig does so for DNS servers
alone; any other Service of their namespace that kubeproxy-ext lists counts as left behind. While such a
relist is distrusted, a guest keeps a Service's rules and its address in resolv.conf, so both daemons take
the rule and its one setting from here. docs/decisions/0024-one-relist-guard.md names the exceptions.

How to use it: derive the daemon's configuration from `RelistGuardSettings`, which adds the key
`holdSeconds`. Ask `is_distrusted` for each removal. Keep the removals in a `RelistGuard`, or, where
the time of each loss is stored elsewhere, ask `trusted_at`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from daemonkit.config.binding import setting

HOLD_SECONDS = 600.0
"""Whatever copies Services from tenants (VirtualCluster's syncer) makes them again within minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelistGuardSettings:
    """The part of a daemon's configuration that the guard reads: top-level key `holdSeconds`."""

    hold_seconds: float = setting(
        HOLD_SECONDS,
        minimum=0.0,
        maximum=86400.0,
        doc="seconds for which a relist that lacks a Namespace or all its Services is distrusted; "
        "the same value for kubeproxy-ext and dnsconfig of a node",
    )


def is_distrusted(*, by_relist: bool, has_remaining: bool, is_contradicted: bool = True) -> bool:
    """Whether a removal is distrusted.

    `by_relist`: only a relist reports it. `has_remaining`: the relist returned at least one object of
    the same kind and namespace, readable or not. `is_contradicted`: other objects still speak for the
    removed ones, as EndpointSlices do for Services; True for a daemon that watches no such objects.
    """
    return by_relist and not has_remaining and is_contradicted


def trusted_at(since: float, hold_s: float) -> float:
    """When a removal that has been distrusted since `since` is trusted without confirmation."""
    return since + hold_s


class Lacking(NamedTuple):
    """What a relist lacks: all objects of a kind in a namespace, or, of kind Namespace, that namespace."""

    kind: str
    namespace: str


@dataclass(frozen=True, slots=True)
class DistrustedRemoval:
    """Objects that the relists since `since` lack and that stay in use: `names`, of one tenant."""

    lacking: Lacking
    tenant: str
    names: frozenset[str]
    since: float


class RelistGuard:
    """The removals that are distrusted now. Times are of one monotonic clock."""

    def __init__(self, hold_s: float) -> None:
        self.hold_s = hold_s
        self._removals: dict[Lacking, DistrustedRemoval] = {}

    @property
    def removals(self) -> tuple[DistrustedRemoval, ...]:
        return tuple(self._removals.values())

    @property
    def next_at(self) -> float | None:
        """When `trust_expired` has something to do."""
        return min((trusted_at(each.since, self.hold_s) for each in self._removals.values()), default=None)

    def get(self, lacking: Lacking) -> DistrustedRemoval | None:
        return self._removals.get(lacking)

    def distrust(self, lacking: Lacking, tenant: str, names: Iterable[str], now: float) -> None:
        """Distrust the removal of these names too. A further relist does not restart the time."""
        before = self._removals.get(lacking)
        if before is None:
            self._removals[lacking] = DistrustedRemoval(lacking, tenant, frozenset(names), now)
        else:
            known = before.names.union(names)
            self._removals[lacking] = DistrustedRemoval(lacking, before.tenant, known, before.since)

    def trust(self, lacking: Lacking) -> frozenset[str]:
        """End the distrust; returns the names whose removal is trusted now."""
        removal = self._removals.pop(lacking, None)
        return frozenset() if removal is None else removal.names

    def trust_expired(self, now: float) -> tuple[DistrustedRemoval, ...]:
        """End the distrust of removals that have been held for long enough, and return them."""
        due = tuple(each for each in self.removals if trusted_at(each.since, self.hold_s) <= now)
        for each in due:
            del self._removals[each.lacking]
        return due
