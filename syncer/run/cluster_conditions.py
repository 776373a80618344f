# SPDX-License-Identifier: Apache-2.0
"""What the VirtualCluster of each tenant has in its conditions: why it cannot be synced, and what is held."""

import hashlib
from collections.abc import Callable, Mapping

from daemonkit.kube.client import Requester
from daemonkit.kube.resources import Key
from syncer.core import held_condition
from syncer.core.plan import Side
from syncer.sources.conditions import ClusterCondition, ConditionWriter
from syncer.sources.directory import DirectorySource
from syncer.sources.port import UNUSABLE_REASONS, Unusable
from syncer.sources.virtual_cluster import true_condition
from syncer.sources.virtual_clusters import VirtualClusterSource
from syncer.tenant.session import TenantSession
from tenancy import keys

# As vc-operator compares it with the value in its Secret.
_DIGEST_CHARS = 32


class ClusterConditions:
    """A tenant of a directory has no VirtualCluster, and so no conditions."""

    def __init__(
        self,
        meta_cluster: Requester,
        source: DirectorySource | VirtualClusterSource,
        wall: Callable[[], float],
    ) -> None:
        self._source = source
        self._writer = ConditionWriter(meta_cluster, wall)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()

    def has(self, cluster: Key | None, reason: str) -> bool:
        """Whether a VirtualCluster's condition of this reason is True."""
        return self._message_of(cluster, reason) is not None

    def held_tokens(self, cluster: Key | None) -> Mapping[Side, str]:
        """The tokens of holds that the VirtualCluster's condition has."""
        message = self._message_of(cluster, held_condition.REASON)
        return {} if message is None else held_condition.tokens_in(message)

    def _message_of(self, cluster: Key | None, reason: str) -> str | None:
        """The message of a VirtualCluster's condition that is True."""
        if cluster is None or not isinstance(self._source, VirtualClusterSource):
            return None
        found = self._source.objects.get(cluster)
        return None if found is None else true_condition(found, reason)

    def note_problem(self, problem: Unusable) -> None:
        """A tenant cannot be synced: its VirtualCluster says so."""
        self._set(problem.virtual_cluster, ClusterCondition(problem.reason, problem.message))

    def note_resolved(self, problem: Unusable) -> None:
        """A tenant can be synced again, as far as this problem goes."""
        self._set(problem.virtual_cluster, ClusterCondition(problem.reason, is_true=False))

    def note_reachability(self, session: TenantSession, reason: str, message: str) -> None:
        """Why the API server of a tenant is not reached; without a message it is again."""
        self._show(session, reason, message)

    def note_credential(self, session: TenantSession) -> None:
        """By which certificate a tenant is read and written: the one before may be revoked."""
        certificate = session.api_server.access.certificate_pem
        if certificate is None:
            return
        digest = hashlib.sha256(certificate).hexdigest()[:_DIGEST_CHARS]
        if self._message_of(session.virtual_cluster, keys.CREDENTIAL_IN_USE) != digest:
            self._set(session.virtual_cluster, ClusterCondition(keys.CREDENTIAL_IN_USE, digest))

    def note_holds(self, session: TenantSession) -> None:
        """Other deletions of a tenant are held than before, or none any more."""
        self._show(session, held_condition.REASON, held_condition.message_of(session.deletions.holds()))

    def _show(self, session: TenantSession, reason: str, message: str) -> None:
        self._set(session.virtual_cluster, ClusterCondition(reason, message, is_true=bool(message)))

    def end_unusable(self, cluster: Key | None) -> None:
        """End what an earlier process wrote of a tenant that is usable now."""
        for reason in UNUSABLE_REASONS:
            if self.has(cluster, reason):
                self._set(cluster, ClusterCondition(reason, is_true=False))

    def _set(self, cluster: Key | None, condition: ClusterCondition) -> None:
        if cluster is not None:
            self._writer.set(cluster, condition)
