# SPDX-License-Identifier: Apache-2.0
"""How many Events may be written, and for whom: what one tenant's pods wait for is never unsaid because
another's pods are many.

There is one bucket for all, and a small one for each tenant that is drawn on where that is empty. So a
tenant alone has nearly all of it, and one whose neighbours make a storm still has its own.
"""

from dataclasses import dataclass, field

from daemonkit.token_bucket import TokenBucket

# A pod or two with what each waits for first and then; more as time goes by.
OWN_BURST, OWN_PER_S = 4.0, 0.1
# More than a node has pods. Whoever falls out comes back with a full bucket, which is what it had had
# by then but for those that a crowd of more tenants than this has driven out.
MAX_TENANTS = 1_000


@dataclass(slots=True)
class Budget:
    """`common` is everybody's; what more there may be is `OWN_BURST` and `OWN_PER_S` for each tenant."""

    common: TokenBucket
    _own: dict[str, TokenBucket] = field(default_factory=dict)

    def take(self, tenant: str, now_s: float) -> bool:
        """Whether an Event may be written for a pod of `tenant`; all that are no tenant's are as one."""
        if self.common.try_acquire(now_s):
            return True
        own = self._own.pop(tenant, None) or TokenBucket(OWN_BURST, OWN_PER_S, OWN_BURST, now_s)
        self._own[tenant] = own
        while len(self._own) > MAX_TENANTS:
            del self._own[next(iter(self._own))]
        return own.try_acquire(now_s)

    def __len__(self) -> int:
        return len(self._own)
