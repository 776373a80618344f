# SPDX-License-Identifier: Apache-2.0
"""Watches the super cluster: this node's pods, and the objects that their resolvers depend on.

Always the pods that are bound to this node, all Namespaces, and all VirtualClusters. For each tenant
with a pod here, the Services and Networks of its kube-system; with very many such tenants, those of
the whole cluster instead. The role that this needs: packaging/rbac/dnsconfig.yaml.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from daemonkit.kube.freshness import Freshness, freshness_of
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.relist_guard import is_distrusted
from daemonkit.kube.resources import NAMESPACES, PODS, SERVICES, VIRTUAL_CLUSTERS, Identity, is_excluded
from daemonkit.kube.store import Change, Deleted, Modified, UndecodableDeleted
from daemonkit.remedies import Hop, HopKind
from daemonkit.tasks import Tasks
from dnsconfig.cluster import transform
from dnsconfig.cluster.objects import (
    NETWORKS,
    NamespaceObject,
    NetworkObject,
    PodObject,
    ServiceObject,
    VirtualClusterObject,
    is_dns_service,
)
from dnsconfig.cluster.removed_kube_systems import RemovedKubeSystems
from dnsconfig.cluster.snapshot import NamespaceSnapshot, Snapshot, dns_namespaces, tenants_of
from dnsconfig.cluster.state import Absence, is_kube_system
from tenancy import keys

# A namespace costs two connections of 0.1 MB each. The whole cluster costs two connections in all,
# but the API server sends all Services for the few that are used.
MAX_NAMESPACES = 32
# How long a tenant is watched after its last pod has gone: jobs come and go.
LINGER_S = 120.0
PAGE_SIZE = 200
SUPER_CLUSTER = Hop(
    HopKind.API_SERVER, "super cluster", "superCluster.kubeconfigFile", "packaging/rbac/dnsconfig.yaml"
)

_ALL_NAMESPACES = ""


class _WatchPair:
    """The watches of Services and Networks in one namespace, or in the whole cluster."""

    def __init__(self, namespace: str, watch: "Watch") -> None:
        where = namespace or None
        self._on_changes = watch.on_changes
        # Namespaces without a DNS Service by a watch event, or by a relist that left other Services behind.
        self._confirmed_empty: set[str] = set()
        # Namespaces with a Service that kubeproxy-ext lists, readable or not.
        self._with_services: set[str] = set()
        # Namespaces whose Services only a relist lacks, and that have none since.
        self._lost: set[str] = set()
        self._contents: tuple[object, dict[str, NamespaceSnapshot]] = (None, {})
        self.services: Reflector[ServiceObject] = watch.reflector(
            SERVICES,
            ServiceObject,
            transform=transform.service,
            namespace=where,
            include=_is_dns_server,
            notes_filtered=lambda metadata: not is_excluded(metadata),
            on_change=self._on_service_changes,
        )
        self.networks: Reflector[NetworkObject] = watch.reflector(
            NETWORKS, NetworkObject, transform=transform.network, namespace=where
        )
        self.unused_since: float | None = None
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def has_synced(self) -> bool:
        return self.services.synced.is_set() and self.networks.synced.is_set()

    def contents(self, namespace: str) -> NamespaceSnapshot:
        """The objects of a namespace, grouped again only after a change.

        Every change of any pod asks for all namespaces, and a tenant chooses how much is in its own.
        """
        version = tuple((each.resource_version, each.lists) for each in (self.services, self.networks))
        if self._contents[0] != version:
            self._contents = version, self._grouped()
        found = self._contents[1].get(namespace)
        return found or NamespaceSnapshot(absence=self._absence(namespace))

    def _on_service_changes(self, changes: Sequence[Change[ServiceObject]]) -> None:
        # An object that became unreadable is deleted from the store, but not from the API server.
        with_dns = {namespace for namespace, _ in self.services.decode_failures}
        objects = self.services.objects.items()
        with_dns |= {namespace for (namespace, _), each in objects if not is_excluded(each.metadata)}
        self._confirmed_empty |= self.services.filtered.keys()
        if self.services.is_relisting:
            self._lost |= {change.key[0] for change in changes if _is_listed_deletion(change)}
        else:
            # An excluded Service's event reports its own deletion, but not what an earlier relist lacked.
            deleted = {
                change.key[0] for change in changes if isinstance(change, Deleted | UndecodableDeleted)
            }
            self._confirmed_empty |= deleted - self._lost
        self._confirmed_empty -= with_dns
        self._with_services = with_dns | self.services.filtered.keys()
        self._lost -= self._with_services
        self._on_changes(changes)

    def _grouped(self) -> dict[str, NamespaceSnapshot]:
        services, networks = _by_namespace(self.services), _by_namespace(self.networks)
        unreadable = {namespace for namespace, _ in self.services.decode_failures}
        return {
            namespace: NamespaceSnapshot(
                services.get(namespace, {}),
                networks.get(namespace, {}),
                self._absence(namespace),
            )
            for namespace in services.keys() | networks.keys() | unreadable
        }

    def _absence(self, namespace: str) -> Absence:
        # Any Service that kubeproxy-ext lists shows, here as there, that the list did not lose them all.
        is_unconfirmed = is_distrusted(
            by_relist=namespace not in self._confirmed_empty, has_remaining=namespace in self._with_services
        )
        return Absence.UNCONFIRMED if is_unconfirmed else Absence.CONFIRMED


def _is_dns_server(metadata: Identity) -> bool:
    return is_dns_service(metadata.name)


def _is_listed_deletion(change: Change[ServiceObject]) -> bool:
    """Whether a change removes a Service that kubeproxy-ext lists."""
    if isinstance(change, Deleted):
        return not is_excluded(change.old.metadata)
    return isinstance(change, UndecodableDeleted)


def _is_same(change: Change[Any]) -> bool:
    """Whether only the resource version changed of what the transform keeps."""
    if not isinstance(change, Modified):
        return False
    version = change.value.metadata.resource_version
    return bool(
        replace(change.old, metadata=replace(change.old.metadata, resource_version=version)) == change.value
    )


def _by_namespace(reflector: Reflector[Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (namespace, name), value in reflector.objects.items():
        found.setdefault(namespace, {})[name] = value
    return found


class Watch:
    """The watches of one node. `changed` is called after changes, and must not block."""

    def __init__(
        self,
        client: Transport,
        node_name: str,
        changed: Callable[[], None],
        tasks: Tasks,
        *,
        has_virtual_clusters: bool,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._changed = changed
        self._tasks = tasks
        self._timing = timing or Timing(page_size=PAGE_SIZE)
        self._clock = clock
        self._pods: Reflector[PodObject] = self.reflector(
            PODS, PodObject, transform=transform.pod, field_selector=f"spec.nodeName={node_name}"
        )
        self._namespaces: Reflector[NamespaceObject] = self.reflector(
            NAMESPACES,
            NamespaceObject,
            transform=transform.namespace,
            on_change=self._on_namespace_changes,
        )
        self._virtual_clusters: Reflector[VirtualClusterObject] | None = None
        if has_virtual_clusters:
            self._virtual_clusters = self.reflector(
                VIRTUAL_CLUSTERS,
                VirtualClusterObject,
                transform=transform.virtual_cluster,
                may_be_absent=True,
            )
        self._pairs: dict[str, _WatchPair] = {}
        self._dns_namespaces: frozenset[str] = frozenset()
        self._namespaces_of: dict[str, dict[str, NamespaceObject]] = {}
        self._removed = RemovedKubeSystems()

    def reflector(self, resource: Any, kind: Any, **options: Any) -> Any:
        """A reflector that reports to `on_changes`."""
        options.setdefault("on_change", self.on_changes)
        return Reflector(self._client, resource, kind, timing=self._timing, clock=self._clock, **options)

    def start(self) -> None:
        for each in self._always():
            self._tasks.spawn(each.run(), f"watch {each.name}")

    # ---- scope

    def follow(self, saved_pods: Mapping[Any, PodObject]) -> float | None:
        """Watch the tenants of this node's pods, or of `saved_pods` until pods are synced.

        Returns when to call this again, as a watch that is not needed any more ends.
        """
        pods = self._pods.objects if self._pods.synced.is_set() else saved_pods
        tenants = tenants_of(pods)
        namespaces = {
            name: item for tenant in tenants for name, item in self._namespaces_of.get(tenant, {}).items()
        }
        needed = self._dns_namespaces = dns_namespaces(namespaces, tenants)
        scopes = needed if len(needed) <= MAX_NAMESPACES else frozenset({_ALL_NAMESPACES})
        for namespace in sorted(scopes - self._pairs.keys()):
            self._start_pair(namespace)
        return self._stop_unused(scopes)

    @property
    def dns_namespaces(self) -> frozenset[str]:
        """The namespaces whose Services and Networks are needed."""
        return self._dns_namespaces

    def _start_pair(self, namespace: str) -> None:
        pair = self._pairs[namespace] = _WatchPair(namespace, self)
        where = f"in {namespace}" if namespace else "in all namespaces"
        for each in (pair.services, pair.networks):
            pair.tasks.append(self._tasks.spawn(each.run(), f"watch {each.name} {where}"))
        pair.tasks.append(self._tasks.spawn(self._report_synced(pair), f"lists {where}"))

    async def _report_synced(self, pair: _WatchPair) -> None:
        """Their change handlers are called shortly before `synced` is set."""
        await pair.services.synced.wait()
        await pair.networks.synced.wait()
        self._changed()

    def _stop_unused(self, scopes: frozenset[str]) -> float | None:
        now, ends = self._clock(), []
        for namespace, pair in list(self._pairs.items()):
            if namespace in scopes:
                pair.unused_since = None
                continue
            if pair.unused_since is None:
                pair.unused_since = now
            end = pair.unused_since + LINGER_S
            if end > now:
                ends.append(end)
                continue
            del self._pairs[namespace]
            for task in pair.tasks:
                task.cancel()
        return min(ends, default=None)

    # ---- changes

    def on_changes(self, changes: Sequence[Change[Any]]) -> None:
        """A watched object has changed, or a kind was listed for the first time."""
        # A pod's status is written all the time; the transform keeps next to nothing of it.
        if not changes or not all(_is_same(change) for change in changes):
            self._changed()

    def _on_namespace_changes(self, changes: Sequence[Change[NamespaceObject]]) -> None:
        found: dict[str, dict[str, NamespaceObject]] = {}
        present = set()
        for (_, name), item in self._namespaces.objects.items():
            tenant = item.metadata.annotations.get(keys.CLUSTER)
            if tenant:
                found.setdefault(tenant, {})[name] = item
                if is_kube_system(item):
                    present.add(tenant)
        self._namespaces_of = found
        self._removed.apply(changes, by_relist=self._namespaces.is_relisting, present=present)
        self._changed()

    # ---- what is known

    def snapshot(self) -> Snapshot:
        """The synced objects of the tenants that are watched."""
        pods = dict(self._pods.objects) if self._pods.synced.is_set() else None
        undecoded = dict(self._pods.decode_failures)
        namespaces = None
        if self._namespaces.synced.is_set():
            tenants = tenants_of(self._pods.objects)
            namespaces = {
                name: item for tenant in tenants for name, item in self._namespaces_of.get(tenant, {}).items()
            }
            # The annotations of an undecoded pod are unknown, but its Namespace names the tenant.
            for name, _ in undecoded:
                if (item := self._namespaces.objects.get(("", name))) is not None:
                    namespaces[name] = item
        virtual_clusters: Any = {}
        if self._virtual_clusters is not None:
            # Without the resource there are none, and each tenant has the default cluster domain.
            virtual_clusters = (
                dict(self._virtual_clusters.objects) if self._virtual_clusters.synced.is_set() else None
            )
        return Snapshot(
            namespaces,
            pods,
            virtual_clusters,
            self._contents(),
            self.unreadable(),
            undecoded,
            self._removed.absences,
        )

    def _contents(self) -> dict[str, NamespaceSnapshot]:
        found = {}
        for namespace in self._dns_namespaces:
            for scope in (namespace, _ALL_NAMESPACES):
                pair = self._pairs.get(scope)
                if pair is not None and pair.has_synced:
                    found[namespace] = pair.contents(namespace)
                    break
        return found

    def unreadable(self) -> dict[tuple[str, tuple[str, str]], str]:
        """Objects that exist and are not decoded, by kind and key, with the reason."""
        kinds: list[tuple[str, Reflector[Any]]] = [("Pod", self._pods), ("Namespace", self._namespaces)]
        if self._virtual_clusters is not None:
            kinds.append(("VirtualCluster", self._virtual_clusters))
        for each in self._pairs.values():
            kinds += [("Service", each.services), ("Network", each.networks)]
        return {(kind, key): reason for kind, each in kinds for key, reason in each.undecodable.items()}

    # ---- for reports

    def freshness(self) -> dict[str, Freshness]:
        """How current each kind is, as a whole."""
        kinds: dict[str, list[Reflector[Any]]] = {"pods": [self._pods], "namespaces": [self._namespaces]}
        if self._virtual_clusters is not None:
            kinds["virtualClusters"] = [self._virtual_clusters]
        pairs = [each for each in self._pairs.values() if each.unused_since is None]
        if pairs:
            kinds["services"] = [each.services for each in pairs]
            kinds["networks"] = [each.networks for each in pairs]
        now = self._clock()
        return {name: freshness_of(reflectors, now, SUPER_CLUSTER) for name, reflectors in kinds.items()}

    def ages(self) -> dict[str, float | None]:
        """Seconds since each kind was last confirmed as a whole; None before its first list."""
        return {name: each.age_s for name, each in self.freshness().items()}

    @property
    def count(self) -> int:
        """The number of watches."""
        return len(self._always()) + 2 * len(self._pairs)

    def _always(self) -> list[Reflector[Any]]:
        always: list[Reflector[Any]] = [self._pods, self._namespaces]
        return always if self._virtual_clusters is None else [*always, self._virtual_clusters]
