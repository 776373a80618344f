# SPDX-License-Identifier: Apache-2.0
"""The watches of the super cluster: VirtualClusters, ClusterVersions, and what the operator has made for
each.

One watch of a kind serves all tenants. Nothing in a tenant is watched.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence
from sys import intern
from typing import TypeAlias

import msgspec

from daemonkit.kube.freshness import Failure
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import CONFIG_MAPS, NODES, VIRTUAL_CLUSTERS, Key
from daemonkit.kube.store import Added, Change, Deleted, Modified
from daemonkit.tasks import Tasks
from tenancy import keys
from tenant_operator.core.live import LiveMeta, LiveObject, parse_live
from tenant_operator.defaults.desired import ManifestFile, config_map_files
from tenant_operator.edge.tenant_objects import KindStore, TenantObjects
from tenant_operator.model.cluster_keys import ClusterKeys
from tenant_operator.model.cluster_version import ClusterVersion
from tenant_operator.model.exposure import NodeAddresses, node_addresses
from tenant_operator.model.objects import CLUSTER_VERSIONS, OPERATOR, RESOURCES, Ref
from tenant_operator.model.virtual_cluster import Condition, VirtualCluster

SELECTOR = f"{keys.MANAGED_BY}={OPERATOR}"
OWNED_KINDS = (
    *("Namespace", "Secret", "ConfigMap", "Service", "ServiceAccount", "Deployment", "StatefulSet", "Job"),
    *("NetworkPolicy", "PodDisruptionBudget", "PersistentVolumeClaim"),
)
# Objects of a page: each is decoded, and most of a Deployment is what the API server notes about its writers.
_PAGE = Timing(page_size=25)


_SHARED_STATUS = (
    "phase",
    "message",
    "reason",
    "cluster_version",
    "previous_cluster_version",
    "kubernetes_version",
)


class DefaultsConfigMap(msgspec.Struct, frozen=True):
    """A ConfigMap of the operator's namespace, read as manifests once for all tenants."""

    metadata: LiveMeta
    files: tuple[ManifestFile, ...] = ()


class _Texts(msgspec.Struct, frozen=True):
    metadata: LiveMeta
    data: dict[str, str] = {}


def _parse_defaults(raw: msgspec.Raw | bytes) -> DefaultsConfigMap:
    found = msgspec.json.decode(raw, type=_Texts)
    return DefaultsConfigMap(found.metadata, config_map_files(found.metadata.name, found.data))


def _shared(cluster: VirtualCluster) -> VirtualCluster:
    """Without what others annotate, and with one copy of each text that VirtualClusters have in common."""
    found = cluster.without_foreign_annotations
    conditions = [Condition(*map(intern, msgspec.structs.astuple(each))) for each in found.status.conditions]
    return msgspec.structs.replace(
        found,
        metadata=msgspec.structs.replace(
            found.metadata,
            namespace=intern(found.metadata.namespace),
            finalizers=[intern(each) for each in found.metadata.finalizers],
            labels={},
        ),
        spec=msgspec.structs.replace(
            found.spec, cluster_version_name=intern(found.spec.cluster_version_name)
        ),
        status=msgspec.structs.replace(
            found.status,
            **{name: intern(getattr(found.status, name)) for name in _SHARED_STATUS},
            conditions=conditions,
        ),
    )


_AnyReflector: TypeAlias = (
    Reflector[VirtualCluster]
    | Reflector[ClusterVersion]
    | Reflector[DefaultsConfigMap]
    | Reflector[NodeAddresses]
    | Reflector[LiveObject]
)


async def _run_behind(reflector: Reflector[LiveObject], known: asyncio.Event) -> None:
    """Whose an object is shows by the VirtualClusters. And one kind after the other: each first list holds a
    page."""
    await known.wait()
    await reflector.run()


class SuperClusterCaches:
    """`cluster_changed` is called with the VirtualCluster that came or changed, `cluster_gone` with one that
    is deleted and its UID, `owned_changed` with the UID of the one that owns a changed object, and
    `versions_changed` after a change that concerns all: of a ClusterVersion, a list of defaults, or nodes'
    addresses."""

    def __init__(
        self,
        client: Transport,
        cluster_changed: Callable[[Key], None],
        cluster_gone: Callable[[Key, str], None],
        owned_changed: Callable[[str], None],
        versions_changed: Callable[[], None],
        namespace: str,
    ) -> None:
        self._cluster_changed = cluster_changed
        self._cluster_gone = cluster_gone
        self._cluster_keys = ClusterKeys()
        self._keys: dict[str, Key] = {}
        """Of VirtualClusters, by their UIDs."""
        self._objects = TenantObjects(OWNED_KINDS, self._cluster_of)
        self._owned_changed = owned_changed
        self.clusters = Reflector(
            client,
            VIRTUAL_CLUSTERS,
            VirtualCluster,
            transform=_shared,
            on_change=self._clusters_changed,
        )
        self.versions = Reflector(
            client, CLUSTER_VERSIONS, ClusterVersion, on_change=lambda _: versions_changed()
        )
        self.defaults = Reflector(
            client,
            CONFIG_MAPS,
            _parse_defaults,
            namespace=namespace,
            on_change=lambda _: versions_changed(),
        )
        self.nodes = Reflector(client, NODES, NodeAddresses, on_change=lambda _: self._nodes_changed())
        self.node_addresses: tuple[str, ...] = ()
        """Where node ports are reached."""
        self._versions_changed = versions_changed
        self._owned: dict[str, Reflector[LiveObject]] = {
            kind: Reflector(
                client,
                RESOURCES[kind],
                functools.partial(parse_live, kind),
                label_selector=SELECTOR,
                store=KindStore(self._objects, kind, at),
                timing=_PAGE,
                on_change=self._objects_changed,
            )
            for at, kind in enumerate(OWNED_KINDS)
        }

    @property
    def reflectors(self) -> Iterable[_AnyReflector]:
        """All watches."""
        return (self.clusters, self.versions, self.defaults, self.nodes, *self._owned.values())

    @property
    def has_synced(self) -> bool:
        """Whether every kind is known: before that nothing may be concluded from what is missing."""
        return all(each.synced.is_set() for each in self.reflectors)

    @property
    def failure(self) -> Failure | None:
        """Why a kind cannot be read now."""
        return next((each.failure for each in self.reflectors if each.failure is not None), None)

    @property
    def every_node_address(self) -> frozenset[str]:
        """By which nodes are reached from anywhere."""
        nodes = self.nodes.objects.values()
        return frozenset(each.address for node in nodes for each in node.status.addresses)

    def start(self, tasks: Tasks) -> None:
        """Watch until the tasks end."""
        for each in (self.clusters, self.versions, self.defaults, self.nodes):
            tasks.spawn(each.run(), each.name)
        known: asyncio.Event = self.clusters.synced
        for owned in self._owned.values():
            tasks.spawn(_run_behind(owned, known), owned.name)
            known = owned.synced

    def of(self, cluster: VirtualCluster) -> dict[Ref, LiveObject]:
        """What was made for a VirtualCluster, unpacked anew."""
        return self._objects.of(cluster)

    def left_of(self, uid: str) -> dict[Ref, LiveObject]:
        """What was made for the VirtualCluster of this UID, which may be deleted."""
        return self._objects.left_of(uid)

    def get(self, ref: Ref) -> LiveObject | None:
        """One owned object."""
        return self._objects.get(ref)

    def pack(self, cluster: VirtualCluster) -> None:
        """Its objects are not expected to change for now."""
        self._objects.pack(cluster)

    def _cluster_of(self, uid: str) -> VirtualCluster | None:
        key = self._keys.get(uid)
        return None if key is None else self.clusters.objects.get(key)

    def overlapping(self, cluster: VirtualCluster) -> Iterable[VirtualCluster]:
        """Those whose cluster keys overlap its own; it too."""
        if isinstance(cluster.key, str):
            for key in self._cluster_keys.overlapping(cluster.key):
                yield self.clusters.objects[key]

    def _clusters_changed(self, changes: Sequence[Change[VirtualCluster]]) -> None:
        for change in changes:
            if isinstance(change, Modified | Deleted) and isinstance(change.old.key, str):
                self._cluster_keys.remove(change.old.key, change.key)
            if isinstance(change, Deleted):
                self._keys.pop(change.old.metadata.uid, None)
                self._objects.release(change.old)
            if isinstance(change, Modified | Added):
                self._keys[change.value.metadata.uid] = change.key
                self._objects.claim(change.value)
                if isinstance(change.value.key, str):
                    self._cluster_keys.add(change.value.key, change.key)
        for change in changes:
            if isinstance(change, Deleted):
                self._cluster_gone(change.key, change.old.metadata.uid)
            else:
                self._cluster_changed(change.key)

    def _nodes_changed(self) -> None:
        """Most changes of a Node are of its conditions, which the operator does not use."""
        found = node_addresses(self.nodes.objects.values())
        if found != self.node_addresses:
            self.node_addresses = found
            self._versions_changed()

    def _objects_changed(self, changes: Sequence[Change[LiveObject]]) -> None:
        owners: dict[str, None] = {}
        for change in changes:
            if isinstance(change, Modified | Deleted):
                owners[change.old.metadata.owner_uid] = None
            if isinstance(change, Modified | Added):
                owners[change.value.metadata.owner_uid] = None
        for uid in owners:
            self._owned_changed(uid)
