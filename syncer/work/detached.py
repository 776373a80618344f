# SPDX-License-Identifier: Apache-2.0
"""Tenants without plans, and how vc-syncer deletes what they may not have in the super cluster.

A tenant has none if its API server was away when vc-syncer started, or if its VirtualCluster does not run.
While no policy of a tenant has been known its plans judge nothing, and it counts as one without plans.
A check of what such tenants have deletes only what harms others. The next plan makes it anew, if it may be
there.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, CheckedRequester, UnreachableError
from daemonkit.kube.resources import Key, Resource
from syncer.caches.cached_object import CachedObject
from syncer.caches.super_cluster import SuperCaches
from syncer.core.objects import Object, annotations_of, is_deleting
from syncer.policy.sync_policy import PolicyUnusable, SyncPolicy
from syncer.sharding.fenced_client import FencedClient
from syncer.sharding.port import TenantOwnership
from tenancy import keys
from tenancy.super_namespaces import SuperNamespaceOwner

_log = logs.get(__name__)

PolicyOf = Callable[[SuperNamespaceOwner], SyncPolicy | PolicyUnusable]
"""Gives the SyncPolicy by which what a super namespace has is judged, or why none is known."""


class Check(Protocol):
    """Looks for what tenants without plans may not have."""

    async def patrol(self) -> None:
        """Look once."""


async def run_check(check: Check, super_cluster: SuperCaches, interval_s: float) -> None:
    """Have a check look at intervals, as soon as the caches are complete, until cancelled."""
    await super_cluster.wait_synced()
    while True:
        await asyncio.sleep(interval_s)
        await check.patrol()


class DetachedTenants:
    """`tenant_keys` are those of all tenants; `has_plans` says of a key whether plans judge what it has."""

    def __init__(
        self,
        client: CheckedRequester,
        super_cluster: SuperCaches,
        ownership: TenantOwnership,
        tenant_keys: Callable[[], Collection[str]],
        has_plans: Callable[[str], bool],
        policy_of: PolicyOf,
    ) -> None:
        self._client = client
        self._super = super_cluster
        self._ownership = ownership
        self._keys = tenant_keys
        self._has_plans = has_plans
        self._policy_of = policy_of

    def owner(self, super_namespace: str) -> SuperNamespaceOwner | None:
        """The tenant that a super namespace is of, if this process has it and makes no plans."""
        owner = self.any_owner(super_namespace)
        return None if owner is None or self._has_plans(owner.key) else owner

    def any_owner(self, super_namespace: str) -> SuperNamespaceOwner | None:
        """As `owner`, also of a tenant that has plans: none is made of what cannot be read."""
        owner = self._super.owners.by_namespace.get(super_namespace)
        if not isinstance(owner, SuperNamespaceOwner):
            return None
        return owner if owner.key in self._keys() and self._ownership.may_write(owner.key) else None

    def policies(self) -> PolicyOf:
        """What gives the policies for one patrol: each tenant's is looked for once."""
        found: dict[tuple[str, str], SyncPolicy | PolicyUnusable] = {}

        def policy_of(owner: SuperNamespaceOwner) -> SyncPolicy | PolicyUnusable:
            tenant = owner.key, owner.vc_uid
            if tenant not in found:
                found[tenant] = self._policy_of(owner)
            return found[tenant]

        return policy_of

    async def delete(self, key: str, resource: Resource, where: Key, cached: CachedObject, why: str) -> None:
        """Delete a tenant's super object, if it is still the cached one; `why` is for the log."""
        meta = cached.metadata
        conditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        await self.delete_if(conditions, key, resource, where, why)

    async def delete_if(
        self, conditions: Mapping[str, str], key: str, resource: Resource, where: Key, why: str
    ) -> None:
        """Delete a tenant's super object, if it has these preconditions."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
        client = FencedClient(self._client, self._ownership, key)
        about = {"tenant": key, "resource": str(resource), "object": "/".join(where), "why": why}
        try:
            await client.request("DELETE", resource.path(*where), {}, msgspec.json.encode(options))
        except (ApiError, UnreachableError) as error:
            _log.warning("an object without plans is not deleted yet", **about, reason=error)
        else:
            _log.warning("an object without plans was deleted", **about)


def is_of(value: Object, owner: SuperNamespaceOwner) -> bool:
    """Whether a super object is a tenant's to be deleted.

    What has other annotations is of a controller of the super cluster, which keeps it true.
    """
    notes = annotations_of(value)
    return notes.get(keys.CLUSTER) == owner.key and bool(notes.get(keys.UID)) and not is_deleting(value)
