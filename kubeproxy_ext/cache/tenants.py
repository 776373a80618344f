# SPDX-License-Identifier: Apache-2.0
"""What is known of one tenant that has guests on this node, and how it gets known again from disk."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kubeproxy_ext.cache.object_cache import ObjectCache
from kubeproxy_ext.compute.objects import NamespaceObject, NodeObject, ServiceObject
from kubeproxy_ext.compute.packed_slices import PackedSlice
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.compute.sync_rate import SyncRateLimiter

VERSION = 2
"""Of `TenantState`. Version 1 has the endpoints of slices one by one."""


class SavedTenant(msgspec.Struct, rename="camel"):
    """What was known of one tenant, and the node's zone by its Node object."""

    tenant: str
    namespaces: list[NamespaceObject]
    services: list[ServiceObject]
    slices: list[PackedSlice]
    node: NodeObject | None = None
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class RestoredTenant:
    """What was saved, and how many seconds ago it was last confirmed."""

    state: SavedTenant
    age_s: float


@dataclass(slots=True)
class TenantSync:
    """What is known of a tenant that has guests here, and when it is due.

    `is_heard` stays once the API server has told of all its namespaces; one that comes later adds
    to what is known. `bare_since` is when it was first heard to have endpoints and no Service.
    """

    since: float
    pace: SyncRateLimiter = field(default_factory=SyncRateLimiter)
    ranges: tuple[str, ...] = ()
    took_s: float = 0.0  # what its last rules took to compute
    is_heard: bool = False
    bare_since: float | None = None
    is_asked_for: bool = False
    restored: RestoredTenant | None = None
    restored_at: float = 0.0

    @property
    def knowledge(self) -> str:
        if self.is_heard:
            return "heard"
        if self.bare_since is not None:
            return "held"
        return "unknown" if self.restored is None else "last known"


def put_restored(
    found: RestoredTenant, world: ServiceState, cache: ObjectCache, is_source_of: Callable[[str], bool], now: float
) -> None:
    """Put what was saved of a tenant where the API server has not told of it.

    `is_source_of` says whether a namespace's lists are known already; in such a namespace a saved
    Service is held as if that list had just taken it.
    """
    if found.state.node is not None:
        world.put_node(found.state.node)
    for namespace in found.state.namespaces:
        if namespace.metadata.name not in cache.namespaces:
            cache.put_namespace(namespace)
    for each in found.state.slices:
        if not is_source_of(each.metadata.namespace):
            cache.put(each)
    lacking: dict[str, list[ServiceObject]] = {}
    for service in found.state.services:
        if is_source_of(service.metadata.namespace):
            lacking.setdefault(service.metadata.namespace, []).append(service)
        else:
            cache.put(service)
    for services in lacking.values():
        cache.hold(services, now)
