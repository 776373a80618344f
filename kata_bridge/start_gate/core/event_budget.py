# SPDX-License-Identifier: Apache-2.0
"""How many Events kata-bridge writes, so that no tenant's crowd of pods uses up another tenant's share.

All pods share one token bucket. Where it is empty, each tenant has a small bucket of its own.
"""

from dataclasses import dataclass, field

from daemonkit.token_bucket import TokenBucket

# A pod or two with what each waits for first and then; more later.
TENANT_BURST, TENANT_PER_S = 4.0, 0.1
# More than a node has pods. An evicted tenant comes back with a full bucket.
MAX_TENANTS = 1_000


@dataclass(slots=True)
class EventBudget:
    """`shared` is for all pods; a tenant has `TENANT_BURST` and `TENANT_PER_S` besides."""

    shared: TokenBucket
    _by_tenant: dict[str, TokenBucket] = field(default_factory=dict)

    def try_acquire(self, tenant: str, now_s: float) -> bool:
        """Take a token for an Event of a pod of `tenant`, if there is one. "" is one tenant too."""
        if self.shared.try_acquire(now_s):
            return True
        own = self._by_tenant.pop(tenant, None) or TokenBucket(
            TENANT_BURST, TENANT_PER_S, TENANT_BURST, now_s
        )
        self._by_tenant[tenant] = own
        while len(self._by_tenant) > MAX_TENANTS:
            del self._by_tenant[next(iter(self._by_tenant))]
        return own.try_acquire(now_s)

    def __len__(self) -> int:
        return len(self._by_tenant)
