# SPDX-License-Identifier: Apache-2.0
"""All that decides about resolvers, as one value: objects by their names, and what has been heard."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from daemonkit.kube.resources import Key
from dnsconfig.cluster.objects import (
    AnyObject,
    NamespaceObject,
    NetworkObject,
    ServiceObject,
    VirtualClusterObject,
    decode_object,
)
from tenancy import keys, names

KUBE_SYSTEM = "kube-system"
"""Where, in a tenant's own words, the DNS servers of its networks are."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a super namespace is: a tenant's cluster key, and the tenant's name for it."""

    tenant: str
    namespace: str


class Absence(enum.Enum):
    """What it means that a namespace that has been heard has no Service of some name."""

    UNKNOWN = "unknown"  # it is what was saved: the API server may have one by now
    DOUBTED = "doubted"  # a list has none at all, as of a restored backup
    TOLD = "told"  # an event said that the last one was deleted, or the API server has others there


@dataclass(frozen=True, slots=True)
class World:
    """One moment of the super cluster, as far as this node's tenants are concerned.

    Objects are by (namespace, name) in the super cluster. `heard` are the namespaces whose Services
    and Networks are all here; elsewhere an absent one is unknown. `absences` say how sure it is that
    a Service that is not here is nowhere; UNKNOWN where nothing stands. `unreadable` has, by kind and key,
    why an object that exists cannot be used. `domains` are the cluster domains that an operator set.
    With `has_plain_dns` a Service `kube-dns` serves the default network where it has no other.
    """

    namespaces: Mapping[str, NamespaceObject] = field(default_factory=dict)
    services: Mapping[Key, ServiceObject] = field(default_factory=dict)
    networks: Mapping[Key, NetworkObject] = field(default_factory=dict)
    clusters: Mapping[Key, VirtualClusterObject] = field(default_factory=dict)
    unreadable: Mapping[tuple[str, Key], str] = field(default_factory=dict)
    heard: frozenset[str] = frozenset()
    absences: Mapping[str, Absence] = field(default_factory=dict)
    has_namespaces: bool = True
    has_clusters: bool = True
    default_domain: str = "cluster.local"
    domains: Mapping[str, str] = field(default_factory=dict)
    has_plain_dns: bool = False
    _dns_namespaces: dict[str, list[str]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _by_key: dict[str, list[VirtualClusterObject]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for name in sorted(self.namespaces):
            owner = self.owner(name)
            if owner is not None and owner.namespace == KUBE_SYSTEM:
                self._dns_namespaces.setdefault(owner.tenant, []).append(name)
        for cluster in self.clusters.values():
            meta, status = cluster.metadata, cluster.status
            key = names.cluster_key(meta.namespace, meta.name, meta.uid, status.cluster_namespace)
            if isinstance(key, str):
                self._by_key.setdefault(key, []).append(cluster)

    def owner(self, namespace: str) -> Owner | None:
        """Whose namespace it is; None for the super cluster's own and for one that is not known.

        Read from its annotations, never from its name: the join of key and name is ambiguous.
        """
        known = self.namespaces.get(namespace)
        annotations = {} if known is None else known.metadata.annotations
        tenant, name = annotations.get(keys.CLUSTER, ""), annotations.get(keys.NAMESPACE, "")
        return Owner(tenant, name) if tenant and name else None

    def dns_namespaces(self, tenant: str) -> tuple[str, ...]:
        """The super namespaces that say to be this tenant's kube-system: one, or something is wrong."""
        return tuple(self._dns_namespaces.get(tenant, ()))

    def clusters_of(self, tenant: str) -> tuple[VirtualClusterObject, ...]:
        """The VirtualClusters that have this key: one, none, or something is wrong."""
        return tuple(self._by_key.get(tenant, ()))


def world_of(items: Iterable[Mapping[str, Any]], *, cluster_domain: str = "cluster.local") -> World:
    """A world in which all has been heard, of JSON objects. Raises `UnreadableError`."""
    found: dict[type[AnyObject], dict[Key, Any]] = {}
    for item in items:
        value = decode_object(item)
        if value is not None:
            meta = value.metadata
            found.setdefault(type(value), {})[meta.namespace, meta.name] = value
    namespaces = {name: value for (_, name), value in found.get(NamespaceObject, {}).items()}
    return World(
        namespaces,
        found.get(ServiceObject, {}),
        found.get(NetworkObject, {}),
        found.get(VirtualClusterObject, {}),
        heard=frozenset(namespaces),
        absences=dict.fromkeys(namespaces, Absence.TOLD),
        default_domain=cluster_domain,
    )
