# SPDX-License-Identifier: Apache-2.0
"""Which SyncPolicy each tenant has, and what begins where it is another: all is counted and planned again."""

from collections.abc import Mapping
from dataclasses import replace

from daemonkit.kube.reflector import Transport
from syncer.core.tenant_cluster import TenantCluster
from syncer.policy.sync_policy import PolicyUnusable, SyncPolicy
from syncer.sources.directory import DirectorySource
from syncer.sources.policies import DEFAULT_NAME, Policies
from syncer.sources.virtual_clusters import VirtualClusterSource
from syncer.tenant.session import TenantSession
from syncer.work.patrol import Patrol
from syncer.work.queue import WorkQueue
from syncer.work.vnode_sync import VNodeSync
from tenancy.super_namespaces import SuperNamespaceOwner


class TenantPolicies:
    """`sessions` are those of all tenants, by their keys. SyncPolicies are where the VirtualClusters are."""

    def __init__(
        self,
        meta_cluster: Transport,
        source: DirectorySource | VirtualClusterSource,
        sessions: Mapping[str, TenantSession],
        queue: WorkQueue,
        vnodes: VNodeSync,
        patrol: Patrol,
    ) -> None:
        self._source = source
        self._sessions = sessions
        self._queue = queue
        self._vnodes = vnodes
        self._patrol = patrol
        self._policies = Policies(meta_cluster, self._changed)

    async def run(self) -> None:
        """Watch SyncPolicies until cancelled."""
        await self._policies.reflector.run()

    # ---- which it is

    def of(self, tenant: TenantCluster) -> SyncPolicy | PolicyUnusable:
        """The policy of a tenant, or why there is none."""
        return self._policies.of(tenant)

    def of_objects(self, owner: SuperNamespaceOwner) -> SyncPolicy | PolicyUnusable:
        """By which policy the objects of a super namespace are judged, also of a tenant without a session."""
        session = self._sessions.get(owner.key)
        if session is not None and owner.is_of(session.tenant.key, session.tenant.uid):
            return session.last_known_policy
        if isinstance(self._source, DirectorySource):
            return self._policies.named(("", DEFAULT_NAME))
        where = self._source.policy_of(owner)
        return (
            PolicyUnusable("its VirtualCluster is unknown") if where is None else self._policies.named(where)
        )

    def are_applied(self, key: str) -> bool:
        """Whether plans of a tenant judge what it has: while no policy of it is known they leave that."""
        session = self._sessions.get(key)
        return (
            session is not None and session.is_attached and isinstance(session.last_known_policy, SyncPolicy)
        )

    # ---- what another one brings about

    def _changed(self) -> None:
        for session in self._sessions.values():
            if session.change_policy(self.of(session.tenant)) and session.is_attached:
                self._apply(session, "patrol after a policy's change")

    def tenant_changed(self, session: TenantSession, before: TenantCluster) -> None:
        """A weight, a policy, prefixes, a release or a restore of a tenant changed."""
        is_planned_anew = session.change_policy(self.of(session.tenant))
        if not session.is_attached:
            return
        self._queue.attach(session)
        if _planned_by(before) != _planned_by(session.tenant):
            session.forget_verified()
            is_planned_anew = True
        if is_planned_anew:
            self._apply(session, "patrol after a tenant's change")

    def _apply(self, session: TenantSession, task: str) -> None:
        self._vnodes.policy_changed(session)
        session.tasks.spawn(self._plan_all(session), task)

    async def _plan_all(self, session: TenantSession) -> None:
        """Count and plan again all that a tenant has."""
        await session.count_quota()
        await self._patrol.check(session)


def _planned_by(tenant: TenantCluster) -> TenantCluster:
    """What plans of objects depend on; the rest is read when it is needed."""
    return replace(tenant, weight=0, policy="", release="", restored="")
