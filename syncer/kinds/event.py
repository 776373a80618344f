# SPDX-License-Identifier: Apache-2.0
"""Events of the super cluster come up if they are about an object of the tenant. Nothing goes down. Pure.

Counts come up too. Events are never deleted: they expire on both sides.
"""

from typing import Any

from daemonkit.kube.resources import Key, Resource
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
from syncer.core.plan import NOTHING, Create, Half, Patch, Plan, Side
from syncer.core.view import View
from syncer.kinds.downward import owns
from syncer.kinds.metadata import is_reserved
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.kinds.upward import without_super_names
from tenancy import keys

KIND = SyncedKind(Resource("", "v1", "events"), "Event")

_ABOUT = ("Pod", "Service", "PersistentVolumeClaim", "Ingress", "NetworkPolicy", "PodDisruptionBudget")
"""Kinds whose objects have one name on both sides, and whose Events tell a tenant something."""

_CHANGING = ("count", "firstTimestamp", "lastTimestamp", "message", "series", "type")


class EventSync(SameName):
    """Events."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, tenant: Object | None, found: Object | None, view: View) -> Plan:
        if found is None or is_deleting(found):
            return NOTHING
        desired = _desired(key, found, view)
        if desired is None:
            return NOTHING
        if tenant is None:
            return Plan(up=Half((Create(Side.TENANT, KIND, desired),)))
        if not _is_same(tenant, desired):
            return NOTHING  # one of the tenant's own, by chance of this name
        body = merge_patch(_changing(tenant), _changing(desired))
        if not body:
            return NOTHING
        return Plan(up=Half((Patch(Side.TENANT, KIND, *key, uid_of(tenant), body),)))


def _desired(key: Key, found: Object, view: View) -> Object | None:
    super_namespace = view.super_namespace(key[0])
    involved = _reference(found.get("involvedObject"), key[0], super_namespace, view)
    if super_namespace is None or involved is None:
        return None
    desired = without_server_fields(found)
    desired["metadata"] = {"name": name_of(found), "namespace": key[0]}
    for field, values in (("labels", labels_of(found)), ("annotations", annotations_of(found))):
        if passing := {name: value for name, value in values.items() if not is_reserved(name)}:
            desired["metadata"][field] = passing
    desired["involvedObject"] = involved
    if (related := desired.pop("related", None)) is not None:
        reference = _reference(related, key[0], super_namespace, view)
        if reference is not None:
            desired["related"] = reference
    if isinstance(message := desired.get("message"), str):
        desired["message"] = without_super_names(message, key[0], super_namespace, view)
    return desired


def _reference(ref: Any, namespace: str, super_namespace: str | None, view: View) -> Object | None:
    """The reference to the tenant's object; None if it has no such object."""
    if not isinstance(ref, dict) or ref.get("kind") not in _ABOUT or ref.get("namespace") != super_namespace:
        return None
    kind, name = str(ref["kind"]), str(ref.get("name", ""))
    tenant, found = view.in_tenant(kind, namespace, name), view.in_super(kind, namespace, name)
    if found is not None and ref.get("uid") and ref["uid"] != uid_of(found):
        return None  # about a former object of this name
    if tenant is not None:
        uid = uid_of(tenant)
    elif found is not None and owns(found, view, namespace):
        uid = annotations_of(found)[keys.UID]  # just deleted in the tenant
    else:
        return None
    made = {field: value for field, value in ref.items() if field != "resourceVersion"}
    return made | {"namespace": namespace, "uid": uid}


def _changing(value: Object) -> Object:
    return {name: value[name] for name in _CHANGING if name in value}


def _is_same(tenant: Object, desired: Object) -> bool:
    return bool(
        (tenant.get("involvedObject") or {}).get("uid") == desired["involvedObject"]["uid"]
        and tenant.get("reason") == desired.get("reason")
    )


SYNC: KindSync = EventSync()
