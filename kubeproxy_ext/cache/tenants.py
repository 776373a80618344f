# SPDX-License-Identifier: Apache-2.0
"""The sync state of each tenant that has guests here, and its saved state. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from kubeproxy_ext.cache.object_cache import ObjectCache
from kubeproxy_ext.compute.objects import NamespaceObject, NodeObject, ServiceObject
from kubeproxy_ext.compute.packed_slices import PackedSlice
from kubeproxy_ext.compute.service_state import ServiceState
from kubeproxy_ext.compute.sync_rate import SyncRateLimiter

VERSION = 2
"""Of `SavedTenant`. Version 1 has the endpoints of slices one by one."""

SYNCED, LAST_KNOWN, DISTRUSTED, NOT_SYNCED = "synced", "lastKnown", "distrusted", "notSynced"
SYNC_STATES = (SYNCED, LAST_KNOWN, DISTRUSTED, NOT_SYNCED)


class SavedTenant(msgspec.Struct, rename="camel"):
    """The saved state of one tenant. The Node object is there for its zone."""

    tenant: str
    namespaces: list[NamespaceObject]
    services: list[ServiceObject]
    slices: list[PackedSlice]
    node: NodeObject | None = None
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class RestoredTenant:
    """A saved state that was loaded, and how many seconds ago it was last confirmed."""

    state: SavedTenant
    age_s: float


@dataclass(slots=True)
class TenantSync:
    """A tenant that has guests here. `limiter` decides when its rules are due.

    `has_synced` stays once all its namespaces have been listed; a namespace that comes later adds to
    them. `only_endpoints_since` is when its first lists had EndpointSlices and no Service.
    """

    since: float
    limiter: SyncRateLimiter = field(default_factory=SyncRateLimiter)
    service_cidrs: tuple[str, ...] = ()
    sync_duration_s: float = 0.0
    has_synced: bool = False
    only_endpoints_since: float | None = None
    is_restore_requested: bool = False
    restored: RestoredTenant | None = None
    restored_at: float = 0.0

    @property
    def sync_state(self) -> str:
        """One of `SYNC_STATES`: where the rules of new guests come from."""
        if self.has_synced:
            return SYNCED
        if self.only_endpoints_since is not None:
            return DISTRUSTED
        return NOT_SYNCED if self.restored is None else LAST_KNOWN


def put_restored(
    found: RestoredTenant,
    state: ServiceState,
    cache: ObjectCache,
    is_listed: Callable[[str], bool],
    now: float,
) -> None:
    """Put a tenant's saved objects where the API server has listed none.

    In a namespace that `is_listed` saved Services are distrusted removals of that list.
    """
    if found.state.node is not None:
        state.put_node(found.state.node)
    for namespace in found.state.namespaces:
        if namespace.metadata.name not in cache.namespaces:
            cache.put_namespace(namespace)
    for each in found.state.slices:
        if not is_listed(each.metadata.namespace):
            cache.put(each)
    unlisted: dict[str, list[ServiceObject]] = {}
    for service in found.state.services:
        if is_listed(service.metadata.namespace):
            unlisted.setdefault(service.metadata.namespace, []).append(service)
        else:
            cache.put(service)
    for services in unlisted.values():
        cache.distrust_absent(services, now)
