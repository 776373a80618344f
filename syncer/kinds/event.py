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
)
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Create, Half, Patch, Plan, Side
from syncer.core.unknown import if_known
from syncer.core.view import View
from syncer.kinds.downward import owns
from syncer.kinds.metadata import domain_of
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.kinds.upward import tenant_text
from tenancy import keys

KIND = SyncedKind(Resource("", "v1", "events"), "Event")

_ABOUT = ("Pod", "Service", "PersistentVolumeClaim", "Ingress", "NetworkPolicy", "PodDisruptionBudget")
"""Kinds whose objects have one name on both sides, and whose Events tell a tenant something."""

_SHOWN = (
    *("apiVersion", "kind", "reason", "message", "type", "count", "action", "eventTime"),
    *("firstTimestamp", "lastTimestamp", "reportingComponent", "reportingInstance"),
)
_MOST_KEYS = 16
"""Of labels and of annotations. Those with a domain are of the super cluster's own controllers."""

_SHOWN_BELOW = {"source": ("component", "host"), "series": ("count", "lastObservedTime")}
_TEXTS = ("reason", "message", "action", "reportingComponent", "reportingInstance")

_CHANGING = ("count", "firstTimestamp", "lastTimestamp", "message", "series", "type")


class EventSync(SameName):
    """Events."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
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
    super_namespace = if_known(view.super_namespace(key[0]))
    involved = _reference(found.get("involvedObject"), key[0], super_namespace, view)
    if super_namespace is None or involved is None:
        return None
    desired: Object = {name: found[name] for name in _SHOWN if name in found}
    for name, fields in _SHOWN_BELOW.items():
        if isinstance(below := found.get(name), dict):
            desired[name] = {field: below[field] for field in fields if field in below}
    own = (name_of(found), key[0], str(involved.get("name", "")))
    for name in _TEXTS:
        if isinstance(text := desired.get(name), str):
            desired[name] = tenant_text(text, own, view)
    desired["metadata"] = {"name": name_of(found), "namespace": key[0]} | _shown_keys(found, own, view)
    desired["involvedObject"] = involved
    if (related := found.get("related")) is not None:
        reference = _reference(related, key[0], super_namespace, view)
        if reference is not None:
            desired["related"] = reference
    return desired


def _shown_keys(found: Object, own: tuple[str, ...], view: View) -> Object:
    """The labels and annotations that no controller of the super cluster is known by."""
    shown: Object = {}
    for field, values in (("labels", labels_of(found)), ("annotations", annotations_of(found))):
        plain = sorted(name for name in values if not domain_of(name))[:_MOST_KEYS]
        if plain:
            shown[field] = {name: tenant_text(values[name], own, view) for name in plain}
    return shown


def _reference(ref: Any, namespace: str, super_namespace: str | None, view: View) -> Object | None:
    """The reference to the tenant's object; None if it has no such object."""
    if not isinstance(ref, dict) or ref.get("namespace") != super_namespace:
        return None
    if ref.get("kind") not in _ABOUT and ref.get("kind") not in view.settings.custom_resources:
        return None
    kind, name = str(ref["kind"]), str(ref.get("name", ""))
    tenant = if_known(view.in_tenant(kind, namespace, name))
    found = if_known(view.in_super(kind, namespace, name))
    if found is not None and ref.get("uid") and ref["uid"] != uid_of(found):
        return None  # about a former object of this name
    if tenant is not None:
        uid = uid_of(tenant)
    elif found is not None and owns(found, view, namespace):
        uid = annotations_of(found)[keys.UID]  # just deleted in the tenant
    else:
        return None
    made = {field: ref[field] for field in ("apiVersion", "kind", "name", "fieldPath") if field in ref}
    return made | {"namespace": namespace, "uid": uid}


def _changing(value: Object) -> Object:
    return {name: value[name] for name in _CHANGING if name in value}


def _is_same(tenant: Object, desired: Object) -> bool:
    return bool(
        (tenant.get("involvedObject") or {}).get("uid") == desired["involvedObject"]["uid"]
        and tenant.get("reason") == desired.get("reason")
    )


SYNC: KindSync = EventSync()
