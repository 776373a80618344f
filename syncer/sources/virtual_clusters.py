# SPDX-License-Identifier: Apache-2.0
"""The running VirtualClusters of a cluster as the source of tenants.

A VirtualCluster that runs is a tenant. One that was deleted, or is not served any more, is no longer synced,
and keeps what it has in the super cluster. Secrets are selected by name, which RBAC can limit; each
name that an annotation gives is a watch.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from daemonkit import logs
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import SECRETS, VIRTUAL_CLUSTERS, Key
from daemonkit.kube.store import Change, DecodeFailed, Deleted
from daemonkit.remedies import Hop, HopKind
from daemonkit.tasks import Tasks
from syncer.core.orphans import KnownClusters
from syncer.sources.port import PublishTenants, TenantState, Unusable
from syncer.sources.virtual_cluster import (
    SECRET,
    KubeconfigSecret,
    TenantStates,
    VirtualCluster,
    is_served,
    key_of,
    policy_name_of,
    secret_of,
)
from tenancy.super_namespaces import SuperNamespaceOwner

# Each is a watch.
MAX_SECRET_NAMES = 64

_log = logs.get(__name__)

_META_CLUSTER = Hop(
    HopKind.API_SERVER,
    "cluster of VirtualClusters",
    "tenants.virtualClusters.kubeconfigFile or superCluster.kubeconfigFile",
    "packaging/syncer/rbac.yaml",
)


class VirtualClusterSource:
    """Publishes all tenants when a VirtualCluster or its credentials change.

    `super_server` is the super cluster's address, which no tenant's kubeconfig may have.
    """

    def __init__(
        self,
        meta_cluster: Transport,
        root_cluster: Transport,
        super_server: Callable[[], str],
        publish: PublishTenants,
        tasks: Tasks,
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root_cluster = root_cluster
        self._super_server = super_server
        self._publish = publish
        self._tasks = tasks
        self._timing = timing
        self._clock = clock
        self._changed = asyncio.Event()
        self._states = TenantStates()
        self._published: dict[str, TenantState] = {}
        self._clusters = Reflector(
            meta_cluster,
            VIRTUAL_CLUSTERS,
            VirtualCluster,
            on_change=self._clusters_changed,
            timing=timing,
            clock=clock,
        )
        self._secrets: dict[str, Reflector[KubeconfigSecret]] = {}
        self._deleted: dict[str, Key] = {}
        self.cluster_deleted = asyncio.Event()
        """Set when a watch reported the deletion of a VirtualCluster."""

    @property
    def objects(self) -> Any:
        """The VirtualClusters, by namespace and name."""
        return self._clusters.objects

    @property
    def has_synced(self) -> bool:
        return self._clusters.synced.is_set()

    @property
    def problem(self) -> str:
        """Why VirtualClusters cannot be read now; empty if they can."""
        failure = self._clusters.failure
        if failure is None:
            return ""
        fault = failure.fault(_META_CLUSTER, self._clusters.name)
        return f"{fault.text}; {fault.remedy}"

    def known(self) -> KnownClusters:
        """All VirtualClusters, whether they are served or not."""
        uids = {where: each.metadata.uid for where, each in self._clusters.objects.items()}
        return KnownClusters(uids, frozenset(self._clusters.undecodable))

    @property
    def keys(self) -> frozenset[str]:
        """The cluster keys of all that can be read, whether they are served or not."""
        found = (key_of(each) for each in self._clusters.objects.values())
        return frozenset(each for each in found if isinstance(each, str))

    def policy_of(self, owner: SuperNamespaceOwner) -> Key | None:
        """The namespace and name of its tenant's SyncPolicy, whether that is served or not.

        None if no VirtualCluster that can be read is that tenant's.
        """
        found = [
            (each.metadata.namespace, policy_name_of(each))
            for each in self._clusters.objects.values()
            if isinstance(key := key_of(each), str) and owner.is_of(key, each.metadata.uid)
        ]
        return found[0] if len(found) == 1 else None

    @property
    def deleted_uids(self) -> frozenset[str]:
        """The UIDs of VirtualClusters whose deletion a watch reported."""
        return frozenset(self._deleted)

    def forget_deleted(self, uids: Collection[str]) -> None:
        """Forget the reported deletions of these UIDs, and of those that are there."""
        present = {each.metadata.uid for each in self._clusters.objects.values()}
        self._deleted = {
            uid: where for uid, where in self._deleted.items() if uid not in uids and uid not in present
        }

    def _clusters_changed(self, changes: Sequence[Change[VirtualCluster]]) -> None:
        for change in changes:
            if isinstance(change, Deleted) and not self._clusters.is_relisting:
                self._deleted[change.old.metadata.uid] = change.key
                self.cluster_deleted.set()
            elif isinstance(change, DecodeFailed):
                # It exists: what precedes this was no deletion.
                self._deleted = {uid: each for uid, each in self._deleted.items() if each != change.key}
        self._changed.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        self._tasks.spawn(self._clusters.run(), "virtual clusters")
        self._watch_secrets(SECRET)
        await self._clusters.synced.wait()
        while True:
            await self._changed.wait()
            self._changed.clear()
            for cluster in list(self._clusters.objects.values()):
                if is_served(cluster) and (ref := secret_of(cluster)) is not None:
                    self._watch_secrets(ref.name)
            for reflector in list(self._secrets.values()):
                await reflector.synced.wait()
            self._publish_all()

    def _publish_all(self) -> None:
        served = filter(is_served, self._clusters.objects.values())
        found = self._states.of(((each, self._secret(each)) for each in served), self._super_server())
        for where, message in self._clusters.undecodable.items():
            # It exists, so its tenant stays as it was.
            for source, state in self._published.items():
                if state.virtual_cluster == where and source not in found:
                    found[source] = state
            if not any(state.virtual_cluster == where for state in found.values()):
                found[f"{where[0]}/{where[1]}/"] = Unusable("", "VirtualClusterUnusable", message, where)
        self._published = found
        self._publish(found)

    def _secret(self, cluster: VirtualCluster) -> KubeconfigSecret | str | None:
        ref = secret_of(cluster)
        if ref is None:
            return None
        reflector = self._secrets.get(ref.name)
        if reflector is None:
            return "too many different names of Secrets"
        where = (ref.namespace, ref.name)
        return reflector.objects.get(where) or reflector.undecodable.get(where)

    def _watch_secrets(self, name: str) -> None:
        if name in self._secrets:
            return
        if len(self._secrets) >= MAX_SECRET_NAMES:
            _log.warning("Secrets of this name are not watched: too many names", secret=name)
            return
        reflector = Reflector(
            self._root_cluster,
            SECRETS,
            KubeconfigSecret,
            field_selector=f"metadata.name={name}",
            on_change=lambda _: self._changed.set(),
            timing=self._timing,
            clock=self._clock,
        )
        self._secrets[name] = reflector
        self._tasks.spawn(reflector.run(), f"secrets {name}")
