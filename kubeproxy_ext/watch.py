# SPDX-License-Identifier: Apache-2.0
"""Watches the super cluster: the objects of the tenants of this node, and no more than planned.

There are always two watches, of Namespaces and of this Node, and two for each scope of the plan. When the
plan changes, new scopes are listed before old ones end, so nothing is missing in between.

The role that this needs: packaging/rbac/kubeproxy-ext.yaml.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from daemonkit.kube.freshness import Freshness, freshness_of
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import NAMESPACES, Identity, Key
from daemonkit.kube.store import Added, Change, DecodeFailed, Deleted, Modified, UndecodableDeleted
from daemonkit.remedies import Hop, HopKind
from daemonkit.tasks import Tasks
from kubeproxy_ext.cache import transform
from kubeproxy_ext.cache.object_cache import ObjectCache, tenant_of
from kubeproxy_ext.cache.watch_scope import TenantNamespaces, WatchPlan, WatchScope, plan_watches
from kubeproxy_ext.compute.objects import (
    ENDPOINT_SLICES,
    NODES,
    SELECTOR,
    SERVICES,
    EndpointSliceObject,
    NamespaceObject,
    NodeObject,
    ServiceObject,
)
from tenancy import keys

# How long a tenant is followed after its last guest has gone. Jobs come and go, and listing all objects
# of a tenant is the most expensive request of this daemon.
LINGER_S = 120.0
# A page is in memory as bytes and as objects; this bounds what a list of thousands needs.
PAGE_SIZE = 200
SUPER_CLUSTER = Hop(
    HopKind.API_SERVER, "super cluster", "superCluster.kubeconfigFile", "packaging/rbac/kubeproxy-ext.yaml"
)


class NodeTarget(Protocol):
    """The part of `ServiceState` that takes Nodes."""

    def put_node(self, item: NodeObject) -> None: ...
    def remove_node(self, name: str) -> None: ...


class WatchPair:
    """The two reflectors of one scope."""

    def __init__(self, scope: WatchScope, watch: "Watch") -> None:
        self.scope = scope
        self.tasks: list[asyncio.Task[None]] = []

        def reflect(resource: Any, kind: Any, transformed: Callable[[Any], Any]) -> Any:
            reflector: Reflector[Any] = watch.reflector(
                resource,
                kind,
                transform=transformed,
                namespace=scope.namespace or None,
                label_selector=",".join(filter(None, (SELECTOR, scope.labels))),
                include=None if scope.included is None else _in_any_of(scope.included),
                on_change=lambda changes: watch.on_changes(self, reflector, changes),
            )
            return reflector

        self.services: Reflector[ServiceObject] = reflect(SERVICES, ServiceObject, transform.service)
        self.slices: Reflector[EndpointSliceObject] = reflect(
            ENDPOINT_SLICES, EndpointSliceObject, transform.endpoint_slice
        )

    @property
    def has_synced(self) -> bool:
        return self.services.synced.is_set() and self.slices.synced.is_set()


def _in_any_of(namespaces: frozenset[str]) -> Callable[[Identity], bool]:
    return lambda metadata: metadata.namespace in namespaces


class Watch:
    """Watches for an `ObjectCache`. `changed` is called after each change, and after first lists.

    `on_slice` gets the tenant and the slice of each watch event, but not the slices of lists.
    """

    def __init__(
        self,
        client: Transport,
        node_name: str,
        cache: ObjectCache,
        nodes: NodeTarget,
        on_slice: Callable[[str, EndpointSliceObject], None],
        changed: Callable[[], None],
        tasks: Tasks,
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cache = cache
        self._nodes = nodes
        self._on_slice = on_slice
        self._changed = changed
        self._tasks = tasks
        self._timing = timing or Timing(page_size=PAGE_SIZE)
        self._clock = clock
        # The followed tenants, and until when; None: while they have guests.
        self._followed: dict[str, float | None] = {}
        self._plan = WatchPlan(frozenset(), {})
        self._planned_at = 0
        self._pairs: dict[WatchScope, WatchPair] = {}
        # The scopes that a namespace's objects are from. They change when the new ones have listed.
        self._sources: dict[str, frozenset[WatchScope]] = {}
        self._namespaces: Reflector[NamespaceObject] = self.reflector(
            NAMESPACES, NamespaceObject, transform=transform.namespace, on_change=self._on_namespaces
        )
        self._node: Reflector[NodeObject] = self.reflector(
            NODES,
            NodeObject,
            transform=transform.node,
            field_selector=f"metadata.name={node_name}",
            on_change=self._on_node,
        )

    def reflector(self, resource: Any, kind: Any, **options: Any) -> Reflector[Any]:
        """A reflector with the options that all have in common."""
        return Reflector(self._client, resource, kind, timing=self._timing, clock=self._clock, **options)

    def start(self) -> None:
        """Watch Namespaces and the Node."""
        first = (self._namespaces, self._node)
        for each in first:
            self._tasks.spawn(each.run(), f"watch {each.name}")
        self._tasks.spawn(self._when_synced(first, self._changed), "first lists")

    async def _when_synced(self, reflectors: Sequence[Reflector[Any]], then: Callable[[], None]) -> None:
        """Call `then` when all have listed once. Their handlers run a little before that."""
        for each in reflectors:
            await each.synced.wait()
        then()

    # ---- followed tenants

    def follow(self, tenants: Iterable[str]) -> None:
        """Follow exactly these tenants, and for `LINGER_S` those that were followed until now."""
        now = self._clock()
        until: dict[str, float | None] = dict.fromkeys(tenants)
        for tenant, known_end in self._followed.items():
            end = now + LINGER_S if known_end is None else known_end
            if tenant not in until and end > now:
                until[tenant] = end
        if until != self._followed:
            self._followed = until
            self._replan()

    @property
    def next_watch_stop_at(self) -> float | None:
        """When `follow` has to be called again, as a tenant need not be followed any more."""
        return min((end for end in self._followed.values() if end is not None), default=None)

    @property
    def followed(self) -> Collection[str]:
        return self._followed.keys()

    # ---- what has synced

    @property
    def has_base_synced(self) -> bool:
        """Whether Namespaces and the Node have been listed. Before that no tenant is known."""
        return self._namespaces.synced.is_set() and self._node.synced.is_set()

    def has_synced(self, tenant: str) -> bool:
        """Whether a tenant has namespaces and all of them have been listed."""
        if not self.has_base_synced:
            return False
        namespaces = self._cache.tenants.get(tenant, ())
        return bool(namespaces) and all(namespace in self._sources for namespace in namespaces)

    def is_listed(self, namespace: str) -> bool:
        """Whether the cached objects of a namespace are from a list, and not from saved state."""
        return namespace in self._sources

    @property
    def node(self) -> NodeObject | None:
        return next(iter(self._node.objects.values()), None)

    def freshness(self) -> dict[str, Freshness]:
        """How current each kind is, over all its watches."""
        pairs = [pair for scope, pair in self._pairs.items() if scope in self._plan.scopes]
        kinds: dict[str, list[Reflector[Any]]] = {
            "namespaces": [self._namespaces],
            "node": [self._node],
        }
        if pairs or self._followed:  # without tenants there is nothing to wait for
            kinds["services"] = [each.services for each in pairs]
            kinds["endpointSlices"] = [each.slices for each in pairs]
        now = self._clock()
        return {name: freshness_of(reflectors, now, SUPER_CLUSTER) for name, reflectors in kinds.items()}

    def ages(self) -> dict[str, float | None]:
        """Seconds since each kind was last confirmed by all its watches; None before that."""
        return {name: each.age_s for name, each in self.freshness().items()}

    @property
    def count(self) -> int:
        """How many watches there are."""
        return 2 + 2 * len(self._pairs)

    def undecodable(self) -> dict[str, str]:
        """Objects that do not decode, by kind and name, with the reason."""
        return {
            f"{each.name.partition(',')[0]} {namespace}/{name}": reason
            for each in self._all()
            for (namespace, name), reason in each.undecodable.items()
        }

    def too_large(self) -> dict[tuple[str, Key], str]:
        """Services and EndpointSlices that are too large, by plural and key, with the reason."""
        return {
            (each.resource.plural, key): failure.reason
            for each in self._all()
            if each.resource.is_namespaced
            for key, failure in each.decode_failures.items()
            if failure.is_too_large
        }

    def _all(self) -> list[Reflector[Any]]:
        pairs = [r for each in self._pairs.values() for r in (each.services, each.slices)]
        return [self._namespaces, self._node, *pairs]

    # ---- changes

    def _on_namespaces(self, changes: Sequence[Change[NamespaceObject]]) -> None:
        cache, now = self._cache, self._clock()
        gone = {change.key[1] for change in changes if isinstance(change, Deleted)}
        if self._namespaces.is_relisting:
            # No change reports that a Namespace of the saved state is gone.
            gone = cache.namespaces.keys() - {name for _, name in self._namespaces.objects}
        cache.remove_namespaces(sorted(gone), now, by_relist=self._namespaces.is_relisting)
        for change in changes:
            if isinstance(change, Added | Modified) and _is_a_tenants(change.value):
                cache.put_namespace(change.value)
            elif isinstance(change, Modified):
                cache.remove_namespaces([change.key[1]], now, by_relist=False)
        self._replan()
        self._changed()

    def _on_node(self, changes: Sequence[Change[NodeObject]]) -> None:
        for change in changes:
            if isinstance(change, Added | Modified):
                self._nodes.put_node(change.value)
            elif isinstance(change, Deleted):
                self._nodes.remove_node(change.key[1])
        self._changed()

    def on_changes(self, pair: WatchPair, reflector: Reflector[Any], changes: Sequence[Change[Any]]) -> None:
        """Pass a reflector's changes on, for the namespaces that its scope is a source of."""
        cache, now = self._cache, self._clock()
        # When the scope becomes a source, `_adopt_synced` takes what earlier changes led to. An undecodable
        # slice needs no mark, as it counts as deleted.
        used = [c for c in changes if pair.scope in self._sources.get(c.key[0], ())]
        gone = [change.key for change in used if isinstance(change, Deleted)]
        if reflector is pair.services:
            for change in used:
                if isinstance(change, DecodeFailed):
                    cache.mark_undecodable(change.key)
                elif isinstance(change, UndecodableDeleted):
                    cache.clear_undecodable(change.key)
            cache.remove_services(gone, now, by_relist=reflector.is_relisting)
        else:
            cache.remove_slices(gone)
        for change in used:
            if isinstance(change, Added | Modified):
                cache.put(change.value)
                if reflector is pair.slices and not reflector.is_relisting:
                    self._on_slice(cache.tenant(change.key[0]), change.value)
        if cache.namespace_changes != self._planned_at:
            self._replan()  # the removal of a Namespace was trusted
        if used:
            self._changed()

    # ---- the plan

    def _replan(self) -> None:
        """Start the watches that are wanted now. Unwanted ones end when the new ones have listed."""
        self._planned_at = self._cache.namespace_changes
        tenants = {tenant: self._namespaces_of(tenant) for tenant in self._followed}
        self._plan = plan_watches(tenants, self._plan)
        for scope in sorted(self._plan.scopes - self._pairs.keys(), key=str):
            pair = self._pairs[scope] = WatchPair(scope, self)
            where = f"in {scope.namespace}" if scope.namespace else scope.labels or "in all namespaces"
            both: tuple[Reflector[Any], ...] = (pair.services, pair.slices)
            pair.tasks = [self._tasks.spawn(each.run(), f"watch {each.name} {where}") for each in both]
            pair.tasks.append(self._tasks.spawn(self._when_synced(both, self._on_synced), f"lists {where}"))
        self._adopt_synced()

    def _on_synced(self) -> None:
        self._adopt_synced()
        self._changed()

    def _namespaces_of(self, tenant: str) -> TenantNamespaces:
        namespaces = frozenset(self._cache.tenants.get(tenant, ()))
        annotations = [self._cache.namespaces[name].metadata.annotations for name in namespaces]
        named = {(each.get(keys.VC_NAMESPACE, ""), each.get(keys.VC_NAME, "")) for each in annotations}
        # Where the Namespaces name different VirtualClusters, none counts.
        vc_namespace, vc_name = named.pop() if len(named) == 1 else ("", "")
        return TenantNamespaces(namespaces, vc_namespace, vc_name)

    def _adopt_synced(self) -> None:
        """Adopt the objects of new scopes that have all listed, and end unneeded watches."""
        planned = {
            namespace: frozenset(scope for scope in scopes if scope.covers(namespace))
            for tenant, scopes in self._plan.by_tenant.items()
            for namespace in self._cache.tenants.get(tenant, ())
        }
        for namespace, scopes in planned.items():
            pairs = [self._pairs[scope] for scope in scopes]
            if self._sources.get(namespace) != scopes and all(pair.has_synced for pair in pairs):
                self._sources[namespace] = scopes
                self._cache.adopt(
                    namespace,
                    _in(namespace, [pair.services for pair in pairs]),
                    _in(namespace, [pair.slices for pair in pairs]),
                    self._clock(),
                    undecodable=_undecodable_in(namespace, [pair.services for pair in pairs]),
                )
        for namespace in self._sources.keys() - planned.keys():
            del self._sources[namespace]
            self._cache.forget(namespace)
        needed = self._plan.scopes.union(*self._sources.values())
        for scope in self._pairs.keys() - needed:
            for task in self._pairs.pop(scope).tasks:
                task.cancel()


def _is_a_tenants(namespace: NamespaceObject) -> bool:
    return bool(tenant_of(namespace)) or keys.VC_ROOT_NAMESPACE in namespace.metadata.annotations


def _in(namespace: str, reflectors: Iterable[Reflector[Any]]) -> dict[str, Any]:
    return {
        name: value
        for each in reflectors
        for (where, name), value in each.objects.items()
        if where == namespace
    }


def _undecodable_in(namespace: str, reflectors: Iterable[Reflector[Any]]) -> frozenset[str]:
    return frozenset(
        name for each in reflectors for where, name in each.decode_failures if where == namespace
    )
