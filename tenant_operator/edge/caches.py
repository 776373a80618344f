# SPDX-License-Identifier: Apache-2.0
"""The watches of the super cluster: VirtualClusters, ClusterVersions, and what the operator has made for
each.

One watch of a kind serves all tenants. Nothing in a tenant is watched.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from daemonkit.kube.freshness import Failure
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.resources import CONFIG_MAPS, NODES, VIRTUAL_CLUSTERS, Key
from daemonkit.kube.store import Added, Change, Deleted, Modified
from daemonkit.tasks import Tasks
from tenancy import keys
from tenant_operator.core.live import LiveMeta, LiveObject, parse_config_map, parse_object, parse_secret
from tenant_operator.defaults.desired import ManifestFile, config_map_files
from tenant_operator.model.cluster_version import ClusterVersion
from tenant_operator.model.exposure import NodeAddresses, node_addresses
from tenant_operator.model.objects import CLUSTER_VERSIONS, OPERATOR, RESOURCES, Ref
from tenant_operator.model.virtual_cluster import VirtualCluster

SELECTOR = f"{keys.MANAGED_BY}={OPERATOR}"
OWNED_KINDS = (
    *("Namespace", "Secret", "ConfigMap", "Service", "ServiceAccount", "Deployment", "StatefulSet", "Job"),
    *("NetworkPolicy", "PodDisruptionBudget", "PersistentVolumeClaim"),
)
_PARSERS: Mapping[str, Callable[[msgspec.Raw | bytes], LiveObject]] = {
    "Secret": parse_secret,
    "ConfigMap": parse_config_map,
}


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


class SuperClusterCaches:
    """`cluster_changed` is called with the VirtualCluster that changed, `owned_changed` with the UID of the
    one that owns a changed object, and `versions_changed` after a change that concerns all: of a
    ClusterVersion, a list of defaults, or nodes' addresses."""

    def __init__(
        self,
        client: Transport,
        cluster_changed: Callable[[Key], None],
        owned_changed: Callable[[str], None],
        versions_changed: Callable[[], None],
        namespace: str,
    ) -> None:
        self._cluster_changed = cluster_changed
        self._owned_changed = owned_changed
        self.clusters = Reflector(
            client,
            VIRTUAL_CLUSTERS,
            VirtualCluster,
            transform=lambda each: each.without_foreign_annotations,
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
                _PARSERS.get(kind, parse_object),
                label_selector=SELECTOR,
                on_change=functools.partial(self._objects_changed, kind),
            )
            for kind in OWNED_KINDS
        }
        self._by_owner: dict[str, dict[Ref, LiveObject]] = {}

    @property
    def reflectors(
        self,
    ) -> Iterable[
        Reflector[VirtualCluster]
        | Reflector[ClusterVersion]
        | Reflector[DefaultsConfigMap]
        | Reflector[NodeAddresses]
        | Reflector[LiveObject]
    ]:
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

    def start(self, tasks: Tasks) -> None:
        """Watch until the tasks end."""
        for each in self.reflectors:
            tasks.spawn(each.run(), each.name)

    def of(self, uid: str) -> Mapping[Ref, LiveObject]:
        """What was made for the VirtualCluster of this UID. Take a copy before the next await."""
        return self._by_owner.get(uid, {})

    def owners(self) -> Iterable[str]:
        """The UIDs for which there are objects."""
        return tuple(self._by_owner)

    def _clusters_changed(self, changes: Sequence[Change[VirtualCluster]]) -> None:
        for change in changes:
            self._cluster_changed(change.key)

    def _nodes_changed(self) -> None:
        """Most changes of a Node are of its conditions, which concern nobody here."""
        found = node_addresses(self.nodes.objects.values())
        if found != self.node_addresses:
            self.node_addresses = found
            self._versions_changed()

    def _objects_changed(self, kind: str, changes: Sequence[Change[LiveObject]]) -> None:
        for change in changes:
            ref = Ref(kind, *change.key)
            match change:
                case Added(_, value):
                    self._put(ref, value)
                case Modified(_, old, value):
                    if old.metadata.owner_uid != value.metadata.owner_uid:
                        self._drop(ref, old)
                    self._put(ref, value)
                case Deleted(_, old):
                    self._drop(ref, old)

    def _put(self, ref: Ref, value: LiveObject) -> None:
        uid = value.metadata.owner_uid
        self._by_owner.setdefault(uid, {})[ref] = value
        self._owned_changed(uid)

    def _drop(self, ref: Ref, old: LiveObject) -> None:
        uid = old.metadata.owner_uid
        objects = self._by_owner.get(uid)
        if objects is not None:
            objects.pop(ref, None)
            if not objects:
                del self._by_owner[uid]
        self._owned_changed(uid)
