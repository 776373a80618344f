# SPDX-License-Identifier: Apache-2.0
"""What one source knows of the super cluster: the watches, or the saved state."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from daemonkit.kube.resources import Key
from daemonkit.kube.store import DecodeFailed
from dnsconfig.cluster.objects import (
    NamespaceObject,
    NetworkObject,
    PodObject,
    ServiceObject,
    VirtualClusterObject,
)
from dnsconfig.cluster.state import Absence, ClusterState, ResolverSettings, is_kube_system
from tenancy import keys

T = TypeVar("T")

# core/v1 PodPhase: no container of such a pod starts again.
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
    """The Services and Networks of one namespace, by name; `absence` is that of missing Services."""

    services: Mapping[str, ServiceObject] = field(default_factory=dict)
    networks: Mapping[str, NetworkObject] = field(default_factory=dict)
    absence: Absence = Absence.UNKNOWN


@dataclass(frozen=True, slots=True)
class Snapshot:
    """None stands for a kind that is not synced, as does a namespace that `contents` lacks."""

    namespaces: Mapping[str, NamespaceObject] | None = None
    pods: Mapping[Key, PodObject] | None = None
    virtual_clusters: Mapping[Key, VirtualClusterObject] | None = None
    contents: Mapping[str, NamespaceSnapshot] = field(default_factory=dict)
    unreadable: Mapping[tuple[str, Key], str] = field(default_factory=dict)
    undecoded_pods: Mapping[Key, DecodeFailed] = field(default_factory=dict)
    """Pods of this node that exist and were not decoded: they keep what they have."""
    dns_namespace_absences: Mapping[str, Absence] = field(default_factory=dict)

    @property
    def has_synced(self) -> bool:
        """Whether all kinds are synced that are watched in any case."""
        return None not in (self.namespaces, self.pods, self.virtual_clusters)

    def completed_from(self, saved: "Snapshot") -> "Snapshot":
        """This snapshot, with unsynced parts taken from saved state."""
        return replace(
            self,
            namespaces=saved.namespaces if self.namespaces is None else self.namespaces,
            pods=saved.pods if self.pods is None else self.pods,
            virtual_clusters=(
                saved.virtual_clusters if self.virtual_clusters is None else self.virtual_clusters
            ),
            contents={**saved.contents, **self.contents},
        )

    def cluster_state(self, settings: ResolverSettings) -> ClusterState:
        contents = self.contents.items()
        return ClusterState(
            self.namespaces or {},
            _ByKey({namespace: each.services for namespace, each in contents}),
            _ByKey({namespace: each.networks for namespace, each in contents}),
            self.virtual_clusters or {},
            self.unreadable,
            synced_namespaces=frozenset(self.contents),
            absences={namespace: each.absence for namespace, each in contents},
            dns_namespace_absences=self.dns_namespace_absences,
            has_namespaces=self.namespaces is not None,
            has_virtual_clusters=self.virtual_clusters is not None,
            settings=settings,
        )

    def live_pods(self) -> dict[Key, PodObject]:
        """The pods whose containers may still start."""
        pods = (self.pods or {}).items()
        return {key: pod for key, pod in pods if pod.status.phase not in _TERMINAL_PHASES}


class _ByKey(Mapping[Key, T]):
    """Objects by (namespace, name), looked up in place: nothing is copied for each sync."""

    def __init__(self, by_namespace: Mapping[str, Mapping[str, T]]) -> None:
        self._by_namespace = by_namespace

    def __getitem__(self, key: Key) -> T:
        return self._by_namespace[key[0]][key[1]]

    def __iter__(self) -> Iterator[Key]:
        return ((namespace, name) for namespace, objects in self._by_namespace.items() for name in objects)

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))


def tenants_of(pods: Mapping[Key, PodObject]) -> frozenset[str]:
    """The tenants in the annotations of these pods."""
    found = (pod.metadata.annotations.get(keys.CLUSTER, "") for pod in pods.values())
    return frozenset(filter(None, found))


def dns_namespaces(namespaces: Mapping[str, NamespaceObject], tenants: Collection[str]) -> frozenset[str]:
    """The super namespaces that contain the DNS Services of these tenants."""
    return frozenset(
        name
        for name, item in namespaces.items()
        if is_kube_system(item) and item.metadata.annotations.get(keys.CLUSTER) in tenants
    )
