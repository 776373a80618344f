# SPDX-License-Identifier: Apache-2.0
"""Deletes PodDisruptionBudgets of tenants without plans, if they hold up a drain for too long.

The bound is that of plans, of the built-in policy where none is known: budgets come again with the tenant.
"""

import asyncio

from syncer.caches.super_cluster import SuperCaches
from syncer.kinds.pod_disruption_budget import KIND, may_stay
from syncer.policy.sync_policy import known_or_default
from syncer.work.detached import DetachedTenants, is_of

# Objects that are looked at in one step.
_BATCH = 64


class BudgetCheck:
    """Of PodDisruptionBudgets that can be read."""

    def __init__(self, super_cluster: SuperCaches, detached: DetachedTenants) -> None:
        self._super = super_cluster
        self._detached = detached

    async def patrol(self) -> None:
        """Look once."""
        policy_of = self._detached.policies()
        for count, (where, cached) in enumerate(list(self._super.objects(KIND.kind).items()), 1):
            if count % _BATCH == 0:
                await asyncio.sleep(0)
            owner = self._detached.owner(where[0])
            if owner is None:
                continue
            policy = known_or_default(policy_of(owner))
            if not may_stay(policy, self._super.drain_seconds(where[0])) and is_of(cached.load(), owner):
                why = "budgets of its namespace hold up the drain of a node for longer than maxDrainSeconds"
                await self._detached.delete(owner.key, KIND.resource, where, cached, why)
