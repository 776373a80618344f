# SPDX-License-Identifier: Apache-2.0
"""Watches the objects that resolvers of all tenants depend on, in the whole super cluster.

The role that this needs: packaging/webhook/rbac.yaml.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from daemonkit.kube.freshness import freshness_of
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.resources import NAMESPACES, SERVICES, VIRTUAL_CLUSTERS, Identity
from daemonkit.remedies import Hop, HopKind
from daemonkit.tasks import Tasks
from dnsconfig.cluster import transform
from dnsconfig.cluster.objects import (
    NETWORKS,
    NamespaceObject,
    NetworkObject,
    ServiceObject,
    VirtualClusterObject,
    is_dns_service,
)
from dnsconfig.cluster.state import ClusterState, ResolverSettings

SUPER_CLUSTER = Hop(
    HopKind.API_SERVER, "super cluster", "superCluster.kubeconfigFile", "packaging/webhook/rbac.yaml"
)


class ClusterWatches:
    """Nothing is saved for a restart: reviews are denied until the watches are synced."""

    def __init__(
        self,
        client: Transport,
        settings: ResolverSettings,
        *,
        has_virtual_clusters: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._namespaces = Reflector(
            client, NAMESPACES, NamespaceObject, transform=transform.namespace, clock=clock
        )
        self._services = Reflector(
            client, SERVICES, ServiceObject, transform=transform.service, include=_is_dns_server, clock=clock
        )
        self._networks = Reflector(client, NETWORKS, NetworkObject, transform=transform.network, clock=clock)
        self._virtual_clusters: Reflector[VirtualClusterObject] | None = None
        if has_virtual_clusters:
            self._virtual_clusters = Reflector(
                client,
                VIRTUAL_CLUSTERS,
                VirtualClusterObject,
                transform=transform.virtual_cluster,
                may_be_absent=True,
                clock=clock,
            )
        self._state: tuple[object, ClusterState] | None = None

    def start(self, tasks: Tasks) -> None:
        for each in self._all():
            tasks.spawn(each.run(), f"watch {each.name}")

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds that are not synced."""
        return tuple(each.name for each in self._all() if not each.synced.is_set())

    @property
    def wait_reasons(self) -> tuple[str, ...]:
        """Why each kind that is not synced is not, without ages."""
        now = self._clock()
        found = (
            freshness_of([each], now, SUPER_CLUSTER).wait_reason(each.resource.plural)
            for each in self._all()
            if not each.synced.is_set()
        )
        return tuple(filter(None, found))

    @property
    def problems(self) -> tuple[str, ...]:
        """A line for each kind that cannot be read now; its last objects stay in use."""
        now = self._clock()
        shown = [(each.resource.plural, freshness_of([each], now, SUPER_CLUSTER)) for each in self._all()]
        return tuple(each.line(kind) for kind, each in shown if each.fault is not None)

    @property
    def unreadable(self) -> dict[str, str]:
        """Objects that are not decodable or too large, by kind and name, with the reason."""
        return {
            f"{each.resource.plural} {namespace}/{name}": reason
            for each in self._all()
            for (namespace, name), reason in each.undecodable.items()
        }

    @property
    def state(self) -> ClusterState:
        """All synced objects, cached until one changes."""
        version = tuple((each.resource_version, each.synced.is_set(), each.lists) for each in self._all())
        if self._state is None or self._state[0] != version:
            self._state = version, self._build()
        return self._state[1]

    def _build(self) -> ClusterState:
        namespaces = {name: item for (_, name), item in self._namespaces.objects.items()}
        has_contents = self._services.synced.is_set() and self._networks.synced.is_set()
        kinds: list[tuple[str, Reflector[Any]]] = [
            ("Namespace", self._namespaces),
            ("Service", self._services),
            ("Network", self._networks),
        ]
        virtual_clusters: Mapping[Any, VirtualClusterObject] = {}
        if self._virtual_clusters is not None:
            kinds.append(("VirtualCluster", self._virtual_clusters))
            virtual_clusters = dict(self._virtual_clusters.objects)
        return ClusterState(
            namespaces,
            dict(self._services.objects),
            dict(self._networks.objects),
            virtual_clusters,
            {(kind, key): reason for kind, each in kinds for key, reason in each.undecodable.items()},
            synced_namespaces=frozenset(namespaces) if has_contents else frozenset(),
            has_namespaces=self._namespaces.synced.is_set(),
            has_virtual_clusters=self._virtual_clusters is None or self._virtual_clusters.synced.is_set(),
            settings=self._settings,
        )

    def _all(self) -> tuple[Reflector[Any], ...]:
        always = (self._namespaces, self._services, self._networks)
        return always if self._virtual_clusters is None else (*always, self._virtual_clusters)


def _is_dns_server(metadata: Identity) -> bool:
    return is_dns_service(metadata.name)
