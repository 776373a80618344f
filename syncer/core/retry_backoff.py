# SPDX-License-Identifier: Apache-2.0
"""When an item that failed is tried again. Pure.

Each item has a backoff of its own, and each tenant a token bucket of its own for all its retries. A tenant
whose items all fail delays no retry of another.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from daemonkit.backoff import backoff_s, spread_s
from daemonkit.token_bucket import TokenBucket

T = TypeVar("T", bound=Hashable)

# Tenants at rest are looked for when their number has doubled, but not below this.
_FEW_TENANTS = 64


class RetrySettings(msgspec.Struct, frozen=True):
    """How soon items are tried again, and how many of one tenant.

    `first_s` is short, because most failures are conflicts that the next try resolves. `longest_s` is half
    of upstream's patrol: what a full quota stopped goes on within it. After an outage in which 5 000 objects
    failed, burst and rate let them all be tried again within 40 s.
    """

    first_s: float = 0.02
    longest_s: float = 30.0
    burst: float = 1_000.0
    per_s: float = 100.0


class _TenantRetries(msgspec.Struct, Generic[T]):
    bucket: TokenBucket
    failures: dict[T, int] = msgspec.field(default_factory=dict)


class RetryBackoff(Generic[T]):
    """Counts the failures of each item until `forget`."""

    __slots__ = ("_settings", "_sweep_at", "_tenants")

    def __init__(self, settings: RetrySettings) -> None:
        self._settings = settings
        self._tenants: dict[str, _TenantRetries[T]] = {}
        self._sweep_at = _FEW_TENANTS

    def __len__(self) -> int:
        """How many tenants are remembered."""
        return len(self._tenants)

    def failures(self, tenant: str, item: T) -> int:
        """How often in a row an item has failed."""
        found = self._tenants.get(tenant)
        return found.failures.get(item, 0) if found is not None else 0

    def on_failure(self, tenant: str, item: T, now_s: float, jitter: float) -> float:
        """Count a failure; return the item's backoff in seconds. `jitter` is drawn from 0 to 1."""
        found = self._tenants.get(tenant)
        if found is None:
            found = self._add(tenant, now_s)
        failures = found.failures[item] = found.failures.get(item, 0) + 1
        ceiling_s = backoff_s(failures, first_s=self._settings.first_s, longest_s=self._settings.longest_s)
        return spread_s(ceiling_s, jitter)

    def reserve_s(self, tenant: str, now_s: float) -> float:
        """Take a token for a retry of the tenant; return the seconds to wait for it."""
        found = self._tenants.get(tenant)
        if found is None:
            found = self._add(tenant, now_s)
        return found.bucket.reserve(now_s)

    def forget(self, tenant: str, item: T) -> None:
        """An item did not fail: its next failure is a first one."""
        found = self._tenants.get(tenant)
        if found is not None:
            found.failures.pop(item, None)

    def remove_tenant(self, tenant: str) -> dict[T, int]:
        """Forget a tenant. Returns what held its failures, for the caller to let go of."""
        removed = self._tenants.pop(tenant, None)
        return {} if removed is None else removed.failures

    def _add(self, tenant: str, now_s: float) -> _TenantRetries[T]:
        if len(self._tenants) >= self._sweep_at:
            # A full bucket and no failures are what a tenant begins with.
            self._tenants = {
                name: one
                for name, one in self._tenants.items()
                if one.failures or not one.bucket.is_full(now_s)
            }
            self._sweep_at = max(_FEW_TENANTS, 2 * len(self._tenants))
        settings = self._settings
        bucket = TokenBucket(settings.burst, settings.per_s, settings.burst, now_s)
        added = self._tenants[tenant] = _TenantRetries(bucket)
        return added
