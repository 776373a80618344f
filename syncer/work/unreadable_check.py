# SPDX-License-Identifier: Apache-2.0
"""Deletes super objects that cannot be read and may not stay without being judged.

Nothing is known of them but whose they are. Endpoints and EndpointSlices may lead to another tenant's pod by
now, and a PodDisruptionBudget may hold up the drain of a node. Other kinds stay as they are, and their tenant
reads that. What was deleted is made anew by its plan, if it can be read then.
"""

import asyncio
from collections.abc import Mapping

from daemonkit.kube.resources import Resource
from syncer.caches.cached_object import OwnedObject
from syncer.caches.super_cluster import SuperCaches
from syncer.kinds import endpoint_slice, endpoints, pod_disruption_budget
from syncer.policy.sync_policy import known_or_default
from syncer.work.detached import DetachedTenants

# Objects that are looked at in one step.
_BATCH = 64
_BUDGET = pod_disruption_budget.KIND.kind
_KINDS: Mapping[str, Resource] = {
    each.kind: each.resource for each in (endpoints.KIND, endpoint_slice.KIND, pod_disruption_budget.KIND)
}


class UnreadableCheck:
    """Of Endpoints, EndpointSlices and PodDisruptionBudgets that cannot be read."""

    def __init__(self, super_cluster: SuperCaches, tenants: DetachedTenants) -> None:
        self._super = super_cluster
        self._tenants = tenants

    async def patrol(self) -> None:
        """Look once."""
        policy_of = self._tenants.policies()
        for kind, resource in _KINDS.items():
            failures = self._super.reflectors[kind].decode_failures
            for count, (where, failed) in enumerate(list(failures.items()), 1):
                if count % _BATCH == 0:
                    await asyncio.sleep(0)
                owner, kept = self._tenants.any_owner(where[0]), failed.kept
                notes = kept.metadata.annotations if isinstance(kept, OwnedObject) else None
                if owner is None or notes is None:
                    continue
                if notes.cluster != owner.key or not notes.uid:
                    continue  # of a controller of the super cluster
                if kind == _BUDGET:
                    policy = known_or_default(policy_of(owner))
                    if pod_disruption_budget.may_stay(policy, self._super.drain_seconds(where[0])):
                        continue
                why = f"it cannot be read: {failed.reason}"
                await self._tenants.delete_if({"uid": failed.uid}, owner.key, resource, where, why)
