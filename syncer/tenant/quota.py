# SPDX-License-Identifier: Apache-2.0
"""Holds the quota of one whole tenant: the sum over its super objects, asked before one more goes down.

Counted only while the tenant's SyncPolicy has a quota. What the caches do not show yet is counted from the
moment when its creation was allowed.
"""

from collections.abc import Iterable

from syncer.caches.cached_object import CachedObject
from syncer.core.objects import Object
from syncer.core.plan import Create, Patch, Plan, Refusal, Side
from syncer.policy.quota import TenantUsage
from syncer.policy.sync_policy import SyncPolicy
from syncer.policy.usage import of_object
from syncer.tenant.deletions import SyncKey

COUNTED = ("Pod", "Service", "PersistentVolumeClaim", "ConfigMap", "Secret")


class TenantQuota:
    """`counts` is false for a tenant without a quota, and all else does nothing then."""

    def __init__(self) -> None:
        self._usage = TenantUsage()
        self.counts = False

    def start(self, policy: SyncPolicy | str, objects: Iterable[tuple[SyncKey, CachedObject]]) -> None:
        """Count all of the tenant's super objects anew, if the policy has a quota."""
        self._usage = TenantUsage()
        self.counts = isinstance(policy, SyncPolicy) and bool(policy.quota)
        if self.counts:
            for item, found in objects:
                self._usage.count(item, of_object(item[0], found.load()))

    def changed(self, item: SyncKey, found: CachedObject | None) -> None:
        """A super object changed, or was deleted."""
        if not self.counts or item[0] not in COUNTED:
            return
        if found is None:
            self._usage.remove(item)
        else:
            self._usage.count(item, of_object(item[0], found.load()))

    def refusal(self, item: SyncKey, plan: Plan, found: Object | None, policy: SyncPolicy) -> Refusal | None:
        """The limit that a plan would exceed; without one, what it creates counts from now on."""
        if not self.counts or item[0] not in COUNTED:
            return None
        for action in plan.actions:
            if isinstance(action, Create) and action.side is Side.SUPER:
                return self._usage.try_add(item, of_object(item[0], action.body), policy)
            if isinstance(action, Patch) and action.side is Side.SUPER and "spec" in action.body and found:
                patched = {**found, "spec": {**found.get("spec", {}), **action.body["spec"]}}
                return self._usage.try_add(item, of_object(item[0], patched), policy)
        return None
