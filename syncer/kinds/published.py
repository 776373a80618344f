# SPDX-License-Identifier: Apache-2.0
"""The plan that all kinds share whose objects the super cluster publishes to all tenants by a label. Pure.

A tenant's copy carries the label too, and is kept equal, metadata included. It is deleted once the super
object is deleted or loses the label. An object without the label is the tenant's own: it is never changed.
"""

from collections.abc import Callable

from daemonkit.kube.resources import Key
from syncer.core.objects import (
    Object,
    SyncedKind,
    annotations_of,
    is_deleting,
    labels_of,
    merge_patch,
    name_of,
    uid_of,
    without_server_fields,
)
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Change, Conflict, Create, Delete, Half, Patch, Plan, Side
from syncer.core.view import View
from syncer.kinds.port import SameName, Scope
from tenancy import keys

# What kubectl notes of the object as it was applied in the super cluster.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# They name Secrets and Certificates of the super cluster, for its own cert-manager to read.
_INJECTS = "cert-manager.io/"


def is_published(value: Object) -> bool:
    return labels_of(value).get(keys.SUPER_PUBLIC) == "true"


Fitted = Callable[[Object, Object | None], tuple[Change, ...]]
"""Changes the copy for a tenant, in place, to what can work there; takes the tenant's object too, or None.

Returns what of the super object is not so in the tenant.
"""


class PublishedSync(SameName):
    """A kind whose objects come up, as `fit` makes them. A change of an `immutable` field takes a new object.

    These are paths of fields that the API server lets no client change.
    """

    scope = Scope.PUBLISHED

    def __init__(
        self,
        kind: SyncedKind,
        immutable: tuple[tuple[str, ...], ...] = (),
        fit: Fitted = lambda desired, tenant: (),
    ) -> None:
        self._kind = kind
        self._immutable = immutable
        self._fit = fit

    @property
    def kind(self) -> SyncedKind:
        return self._kind

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if found is None or not is_published(found) or is_deleting(found):
            return self._removal(tenant) if tenant is not None and is_published(tenant) else NOTHING
        desired = _copy(found)
        changes = self._fit(desired, tenant)
        if tenant is None:
            # What is otherwise is reported once the tenant has it.
            return Plan(up=Half((Create(Side.TENANT, self._kind, desired),), is_partial=bool(changes)))
        if not is_published(tenant):
            taken = f"the tenant has a {self._kind.kind} {key[1]} of its own"
            return Plan(up=Half(conflict=Conflict(taken)))
        if is_deleting(tenant):
            return NOTHING  # made again once it is gone
        actual = _copy(tenant)
        if any(_at(actual, path) != _at(desired, path) for path in self._immutable):
            return self._removal(tenant)
        body = merge_patch(actual, desired)
        if not body:
            return Plan(up=Half(changes=changes)) if changes else NOTHING
        patch = Patch(Side.TENANT, self._kind, "", name_of(tenant), uid_of(tenant), body)
        return Plan(up=Half((patch,), changes=changes))

    def _removal(self, tenant: Object) -> Plan:
        if is_deleting(tenant):
            return NOTHING
        return Plan(up=Half((Delete(Side.TENANT, self._kind, "", name_of(tenant), uid_of(tenant)),)))


def _copy(value: Object) -> Object:
    found = without_server_fields(value)
    labels, annotations = labels_of(value), annotations_of(value)
    annotations = {
        key: each
        for key, each in annotations.items()
        if key != _LAST_APPLIED and not key.startswith(_INJECTS)
    }
    meta: Object = {"name": name_of(value)}
    if labels:
        meta["labels"] = labels
    if annotations:
        meta["annotations"] = annotations
    found["metadata"] = meta
    return found


def _at(value: object, path: tuple[str, ...]) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value or None
