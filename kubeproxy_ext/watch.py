# SPDX-License-Identifier: Apache-2.0
"""Follows the super cluster: what the tenants of this node have, and no more than `scope` says.

Two watches always, of Namespaces and of this Node; two for each part of the scope. When the scope
changes the new parts are listed before the old ones end, so that nothing is missing in between.

The role that this needs: packaging/rbac/kubeproxy-ext.yaml.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from daemonkit import logs
from daemonkit.kube.freshness import Freshness, freshness_of
from daemonkit.kube.reflector import Reflector, Timing, Transport
from daemonkit.kube.resources import NAMESPACES, Identity, Key
from daemonkit.kube.store import Added, Change, DecodeFailed, Deleted, Modified, UndecodableDeleted
from daemonkit.tasks import Tasks
from kubeproxy_ext.cache import transform
from kubeproxy_ext.cache.object_cache import ObjectCache, tenant_of
from kubeproxy_ext.cache.watch_scope import WatchScope, TenantNamespaces, WatchPlan, scope
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

# For how long a tenant is followed after its last guest has gone: jobs come and go, and a list of
# all that a tenant has is the most expensive thing that this daemon asks for.
LINGER_S = 120.0
# A page is in memory as bytes and as objects; this keeps what a list of thousands needs small.
PAGE_SIZE = 200

_log = logs.get(__name__)


class NodeTarget(Protocol):
    """The part of the world that this feeds past the `Feed`."""

    def put_node(self, item: NodeObject) -> None: ...
    def remove_node(self, name: str) -> None: ...


class WatchPair:
    """The two reflectors of one part."""

    def __init__(self, part: WatchScope, watch: "Watch") -> None:
        self.part = part
        self.ends: list[asyncio.Task[None]] = []

        def follow(resource: Any, kind: Any, shaped: Callable[[Any], Any]) -> Any:
            reflector: Reflector[Any] = watch.reflector(
                resource,
                kind,
                transform=shaped,
                namespace=part.namespace or None,
                label_selector=",".join(filter(None, (SELECTOR, part.labels))),
                include=None if part.kept is None else _keep(part.kept),
                on_change=lambda changes: watch.told(self, reflector, changes),
            )
            return reflector

        self.services: Reflector[ServiceObject] = follow(SERVICES, ServiceObject, transform.service)
        self.slices: Reflector[EndpointSliceObject] = follow(
            ENDPOINT_SLICES, EndpointSliceObject, transform.endpoint_slice
        )

    @property
    def is_synced(self) -> bool:
        return self.services.synced.is_set() and self.slices.synced.is_set()


def _keep(namespaces: frozenset[str]) -> Callable[[Identity], bool]:
    return lambda metadata: metadata.namespace in namespaces


class Watch:
    """The super cluster as far as this node's tenants are concerned, fed into a `Feed`.

    `changed` is called after whatever was fed, and when something has been heard for the first time.
    """

    def __init__(
        self,
        client: Transport,
        node_name: str,
        cache: ObjectCache,
        nodes: NodeTarget,
        changed: Callable[[], None],
        tasks: Tasks,
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._feed = cache
        self._nodes = nodes
        self._changed = changed
        self._tasks = tasks
        self._timing = timing or Timing(page_size=PAGE_SIZE)
        self._clock = clock
        self._wanted: dict[str, float | None] = {}
        self._scope = WatchPlan(frozenset(), {})
        self._planned_at = 0
        self._followed: dict[WatchScope, WatchPair] = {}
        # The part that counts for a namespace: once it has been listed, until another takes over.
        self._sources: dict[str, frozenset[WatchScope]] = {}
        self._namespaces: Reflector[NamespaceObject] = self.reflector(
            NAMESPACES, NamespaceObject, transform=transform.namespace, on_change=self._told_namespaces
        )
        self._node: Reflector[NodeObject] = self.reflector(
            NODES,
            NodeObject,
            transform=transform.node,
            field_selector=f"metadata.name={node_name}",
            on_change=self._told_node,
        )
        self.on_slice: Callable[[EndpointSliceObject], None] = lambda _: None

    def reflector(self, resource: Any, kind: Any, **options: Any) -> Reflector[Any]:
        """A reflector with what all of them have in common."""
        return Reflector(self._client, resource, kind, timing=self._timing, clock=self._clock, **options)

    def start(self) -> None:
        """Begin with Namespaces and the Node."""
        first = (self._namespaces, self._node)
        for each in first:
            self._tasks.spawn(each.run(), f"watch {each.name}")
        self._tasks.spawn(self._arrival(first, self._changed), "first lists")

    async def _arrival(self, reflectors: Sequence[Reflector[Any]], then: Callable[[], None]) -> None:
        """Tell when all of these have listed once: their handlers are called a little before that."""
        for each in reflectors:
            await each.synced.wait()
        then()

    # ---- what is wanted

    def want(self, tenants: Iterable[str]) -> None:
        """Follow exactly these tenants, and for a while those that were wanted until now."""
        now = self._clock()
        until: dict[str, float | None] = dict.fromkeys(tenants)
        for tenant, known_end in self._wanted.items():
            end = now + LINGER_S if known_end is None else known_end
            if tenant not in until and end > now:
                until[tenant] = end
        if until != self._wanted:
            self._wanted = until
            self._replan()

    @property
    def next_end(self) -> float | None:
        """When `want` has to be asked again, as a tenant need not be followed any more."""
        return min((end for end in self._wanted.values() if end is not None), default=None)

    # ---- what is heard

    @property
    def has_listed(self) -> bool:
        """Whether Namespaces and the Node have been heard of: nothing is known of anybody before."""
        return self._namespaces.synced.is_set() and self._node.synced.is_set()

    def is_heard(self, tenant: str) -> bool:
        """Whether all of a tenant's namespaces have been listed once, and it has any."""
        if not self.has_listed:
            return False
        namespaces = self._feed.tenants.get(tenant, ())
        return bool(namespaces) and all(namespace in self._sources for namespace in namespaces)

    def is_source_of(self, namespace: str) -> bool:
        """Whether what counts in a namespace has been listed, and is not of some saved state."""
        return namespace in self._sources

    @property
    def wanted(self) -> Collection[str]:
        """The tenants that are followed."""
        return self._wanted.keys()

    @property
    def node(self) -> NodeObject | None:
        return next(iter(self._node.objects.values()), None)

    def freshness(self) -> dict[str, Freshness]:
        """How current each kind is, as a whole."""
        parts = [followed for part, followed in self._followed.items() if part in self._scope.parts]
        kinds: dict[str, list[Reflector[Any]]] = {
            "namespaces": [self._namespaces],
            "node": [self._node],
            "services": [each.services for each in parts],
            "endpointSlices": [each.slices for each in parts],
        }
        now = self._clock()
        return {name: freshness_of(reflectors, now) for name, reflectors in kinds.items()}

    def ages(self) -> dict[str, float | None]:
        """Seconds since each kind was last confirmed as a whole; None before it was."""
        return {name: each.age_s for name, each in self.freshness().items()}

    @property
    def lists(self) -> int:
        """How many lists were asked for by the watches that are open."""
        return sum(each.lists for each in self._all())

    @property
    def count(self) -> int:
        """How many watches there are."""
        return 2 + 2 * len(self._followed)

    def unreadable(self) -> dict[str, str]:
        """Objects that exist and do not decode, by kind and name, with the reason."""
        return {
            f"{each.name.partition(',')[0]} {namespace}/{name}": reason
            for each in self._all()
            for (namespace, name), reason in each.unreadable.items()
        }

    def too_large(self) -> dict[tuple[str, Key], str]:
        """Services and EndpointSlices that are too large, by plural and key, with the reason."""
        return {
            (each.resource.plural, key): spoiled.reason
            for each in self._all()
            if each.resource.is_namespaced
            for key, spoiled in each.decode_failures.items()
            if spoiled.is_too_large
        }

    def _all(self) -> list[Reflector[Any]]:
        parts = [r for each in self._followed.values() for r in (each.services, each.slices)]
        return [self._namespaces, self._node, *parts]

    # ---- what is told

    def _told_namespaces(self, changes: Sequence[Change[NamespaceObject]]) -> None:
        cache, now = self._feed, self._clock()
        gone = {change.key[1] for change in changes if isinstance(change, Deleted)}
        if self._namespaces.is_relisting:
            # Of what was restored from saved state no change tells that it is gone.
            gone = cache.namespaces.keys() - {name for _, name in self._namespaces.objects}
        cache.remove_namespaces(sorted(gone), now, by_list=self._namespaces.is_relisting)
        for change in changes:
            if isinstance(change, Added | Modified) and _is_a_tenants(change.value):
                cache.put_namespace(change.value)
            elif isinstance(change, Modified):
                cache.remove_namespaces([change.key[1]], now, by_list=False)
        self._replan()
        self._changed()

    def _told_node(self, changes: Sequence[Change[NodeObject]]) -> None:
        for change in changes:
            if isinstance(change, Added | Modified):
                self._nodes.put_node(change.value)
            elif isinstance(change, Deleted):
                self._nodes.remove_node(change.key[1])
        self._changed()

    def told(self, source: WatchPair, reflector: Reflector[Any], changes: Sequence[Change[Any]]) -> None:
        """A part's reflector has news: pass on what counts of it."""
        cache, now = self._feed, self._clock()
        # What comes before the part counts is taken over as a whole when it does.
        counting = [c for c in changes if source.part in self._sources.get(c.key[0], ())]
        gone = [change.key for change in counting if isinstance(change, Deleted)]
        if reflector is source.services:
            for change in counting:
                if isinstance(change, DecodeFailed):
                    cache.spoil_service(change.key)
                elif isinstance(change, UndecodableDeleted):
                    cache.clear_service(change.key)
            cache.remove_services(gone, now, by_list=reflector.is_relisting)
        else:
            cache.remove_slices(gone)
        for change in counting:
            if isinstance(change, Added | Modified):
                cache.put(change.value)
                if reflector is source.slices and not reflector.is_relisting:
                    self.on_slice(change.value)
        if cache.namespace_changes != self._planned_at:
            self._replan()  # one that was held against a list is gone now
        if counting:
            self._changed()

    # ---- parts

    def _replan(self) -> None:
        """Start what is to be followed now; what is not any more ends when the rest has listed."""
        self._planned_at = self._feed.namespace_changes
        places = {tenant: self._place(tenant) for tenant in self._wanted}
        self._scope = scope(places, self._scope)
        for part in sorted(self._scope.parts - self._followed.keys(), key=str):
            followed = self._followed[part] = WatchPair(part, self)
            where = f"in {part.namespace}" if part.namespace else part.labels or "in all namespaces"
            both: tuple[Reflector[Any], ...] = (followed.services, followed.slices)
            followed.ends = [self._tasks.spawn(each.run(), f"watch {each.name} {where}") for each in both]
            followed.ends.append(self._tasks.spawn(self._arrival(both, self._arrived), f"lists {where}"))
        self._take_over()

    def _arrived(self) -> None:
        self._take_over()
        self._changed()

    def _place(self, tenant: str) -> TenantNamespaces:
        namespaces = frozenset(self._feed.tenants.get(tenant, ()))
        annotations = [self._feed.namespaces[name].metadata.annotations for name in namespaces]
        named = {(each.get(keys.VC_NAMESPACE, ""), each.get(keys.VC_NAME, "")) for each in annotations}
        # Namespaces that do not agree on their VirtualCluster say nothing.
        vc_namespace, vc_name = named.pop() if len(named) == 1 else ("", "")
        return TenantNamespaces(namespaces, vc_namespace, vc_name)

    def _take_over(self) -> None:
        """Let the new parts count where all of them have listed, and end what is not needed."""
        wanted = {
            namespace: frozenset(part for part in of_tenant if part.covers(namespace))
            for tenant, of_tenant in self._scope.by_tenant.items()
            for namespace in self._feed.tenants.get(tenant, ())
        }
        for namespace, parts in wanted.items():
            if self._sources.get(namespace) != parts and all(self._followed[p].is_synced for p in parts):
                self._sources[namespace] = parts
                self._feed.take_over(
                    namespace,
                    _in(namespace, [self._followed[p].services for p in parts]),
                    _in(namespace, [self._followed[p].slices for p in parts]),
                    self._clock(),
                    spoiled=_spoiled_in(namespace, [self._followed[p].services for p in parts]),
                )
        for namespace in self._sources.keys() - wanted.keys():
            del self._sources[namespace]
            self._feed.forget(namespace)
        needed = self._scope.parts.union(*self._sources.values())
        for part in self._followed.keys() - needed:
            for task in self._followed.pop(part).ends:
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


def _spoiled_in(namespace: str, reflectors: Iterable[Reflector[Any]]) -> frozenset[str]:
    return frozenset(
        name for each in reflectors for where, name in each.decode_failures if where == namespace
    )
