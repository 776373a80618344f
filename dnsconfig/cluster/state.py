# SPDX-License-Identifier: Apache-2.0
"""What the super cluster contained at one moment, as far as resolvers depend on it."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from daemonkit.kube.resources import Key
from dnsconfig.cluster.objects import (
    NamespaceObject,
    NetworkObject,
    ServiceObject,
    VirtualClusterObject,
)
from tenancy import keys, names

KUBE_SYSTEM = "kube-system"


def is_kube_system(namespace: NamespaceObject) -> bool:
    """Whether a super namespace is annotated as a tenant's kube-system."""
    return namespace.metadata.annotations.get(keys.NAMESPACE) == KUBE_SYSTEM


"""The tenant's own name of the namespace that has its networks' DNS Services."""


@dataclass(frozen=True, slots=True)
class NamespaceOwner:
    """The tenant that owns a super namespace, and the tenant's name for it."""

    tenant: str
    namespace: str


class Absence(enum.Enum):
    """Whether a Service that a synced namespace lacks is confirmed deleted."""

    UNKNOWN = "unknown"  # the objects are saved ones: the API server may have the Service by now
    UNCONFIRMED = "unconfirmed"  # a relist lacks all Services, or the Namespace: daemonkit.kube.relist_guard
    CONFIRMED = "confirmed"  # an event reported the deletion, or the relist has other Services


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """The part of a configuration that resolvers depend on, under its names.

    `tenant_domains` are the cluster domains of `tenants`, by tenant; all others have their
    VirtualCluster's, else `cluster_domain`. With `plain_kube_dns`, Service `kube-dns` serves the
    default network while `kube-dns-default` is missing.
    """

    cluster_domain: str = "cluster.local"
    tenant_domains: Mapping[str, str] = field(default_factory=dict)
    plain_kube_dns: bool = True


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Objects by (namespace, name) in the super cluster.

    `synced_namespaces` are those whose Services and Networks are all listed; elsewhere a missing
    object is unknown. `absences` has whether a missing Service is confirmed deleted; default
    UNKNOWN. `dns_namespace_absences` has the same, by tenant, where the Namespace is gone with them.
    `unreadable` has, by kind and key, why an existing object cannot be used.
    """

    namespaces: Mapping[str, NamespaceObject] = field(default_factory=dict)
    services: Mapping[Key, ServiceObject] = field(default_factory=dict)
    networks: Mapping[Key, NetworkObject] = field(default_factory=dict)
    virtual_clusters: Mapping[Key, VirtualClusterObject] = field(default_factory=dict)
    unreadable: Mapping[tuple[str, Key], str] = field(default_factory=dict)
    synced_namespaces: frozenset[str] = frozenset()
    absences: Mapping[str, Absence] = field(default_factory=dict)
    dns_namespace_absences: Mapping[str, Absence] = field(default_factory=dict)
    has_namespaces: bool = True
    has_virtual_clusters: bool = True
    settings: ResolverSettings = ResolverSettings()
    _dns_namespaces: dict[str, list[str]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _by_key: dict[str, list[VirtualClusterObject]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for name in sorted(self.namespaces):
            owner = self.owner(name)
            if owner is not None and owner.namespace == KUBE_SYSTEM:
                self._dns_namespaces.setdefault(owner.tenant, []).append(name)
        for cluster in self.virtual_clusters.values():
            meta, status = cluster.metadata, cluster.status
            key = names.cluster_key(meta.namespace, meta.name, meta.uid, status.cluster_namespace)
            if isinstance(key, str):
                self._by_key.setdefault(key, []).append(cluster)

    def owner(self, namespace: str) -> NamespaceOwner | None:
        """The owner of a super namespace; None for the super cluster's own and for unknown ones.

        Read from the annotations, never from the name: a joined key and name can be split in two ways.
        """
        known = self.namespaces.get(namespace)
        annotations = {} if known is None else known.metadata.annotations
        tenant, name = annotations.get(keys.CLUSTER, ""), annotations.get(keys.NAMESPACE, "")
        return NamespaceOwner(tenant, name) if tenant and name else None

    def dns_namespaces(self, tenant: str) -> tuple[str, ...]:
        """The super namespaces annotated as this tenant's kube-system; valid only if there is one."""
        return tuple(self._dns_namespaces.get(tenant, ()))

    def virtual_clusters_of(self, tenant: str) -> tuple[VirtualClusterObject, ...]:
        """The VirtualClusters with this key; valid only if there is at most one."""
        return tuple(self._by_key.get(tenant, ()))
