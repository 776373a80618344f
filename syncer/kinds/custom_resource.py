# SPDX-License-Identifier: Apache-2.0
"""Custom resources that are named in the configuration, and need no code of their own. Pure."""

import enum

import msgspec

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Plan
from syncer.core.view import View
from syncer.kinds import upward
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.kinds.published import PublishedSync


class Direction(enum.StrEnum):
    """DOWN: tenants make them, and their status comes up. UP: the super cluster publishes them by label."""

    DOWN = "down"
    UP = "up"


class CustomResource(msgspec.Struct, frozen=True):
    """An entry of the configuration. DOWN is for namespaced kinds, UP for those of the whole cluster.

    `has_status`: whether the CustomResourceDefinition has the status subresource.
    """

    group: str
    version: str
    plural: str
    kind: str
    direction: Direction = Direction.DOWN
    has_status: bool = True

    @property
    def synced_kind(self) -> SyncedKind:
        is_namespaced = self.direction is Direction.DOWN
        return SyncedKind(Resource(self.group, self.version, self.plural, is_namespaced), self.kind)


def sync_of(entry: CustomResource) -> KindSync:
    """How such a kind is synced."""
    if entry.direction is Direction.UP:
        return PublishedSync(entry.synced_kind)
    return CustomResourceSync(entry)


class CustomResourceSync(SameName):
    """Custom resources of tenants: all fields but metadata and status go down, status comes up."""

    scope = Scope.NAMESPACED

    def __init__(self, entry: CustomResource) -> None:
        self._kind = entry.synced_kind
        self._has_status = entry.has_status

    @property
    def kind(self) -> SyncedKind:
        return self._kind

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_removal(self._kind, found, key[0], view)
        status = upward.status_of(tenant)
        if found is not None and self._has_status and (there := upward.status_of(found)) != status:
            status = upward.with_tenant_texts(there, tenant, view)
        up = () if found is None else upward.show(self._kind, tenant, found, status, view)
        desired = start(self._kind, tenant, view)
        return plan_down(self._kind, tenant, found, desired, view, owned=_owned, up=up)


def _owned(value: Object) -> Object:
    return {
        name: field
        for name, field in value.items()
        if name not in ("apiVersion", "kind", "metadata", "status")
    }
