# SPDX-License-Identifier: Apache-2.0
"""What comes up beside an object that went down: keys of metadata that go up, and its status. Pure."""

from syncer.core.objects import Object, SyncedKind, merge_patch, name_of, namespace_of, uid_of
from syncer.core.plan import Action, Patch, Side
from syncer.core.view import View
from syncer.kinds.metadata import transparent_patch


def show(kind: SyncedKind, tenant: Object, found: Object, status: Object, view: View) -> tuple[Action, ...]:
    """The actions that bring the super object's transparent keys, and this status, to the tenant's object."""
    meta = transparent_patch(tenant, found, view.tenant)
    return (*_patch(kind, tenant, {"metadata": meta} if meta else {}), *show_status(kind, tenant, status))


def show_status(kind: SyncedKind, tenant: Object, status: Object) -> tuple[Action, ...]:
    """The action that gives the tenant's object this status, if it has another."""
    changes = merge_patch({"status": tenant.get("status") or {}}, {"status": status})
    return _patch(kind, tenant, changes, "status")


def without_super_names(text: str, namespace: str, super_namespace: str, view: View) -> str:
    """A message without the names of the super cluster, as upstream takes them out."""
    key = view.tenant.key
    if key not in text and super_namespace not in text:
        return text
    return text.replace(super_namespace, namespace).replace(f"{key}-", "").replace(key, "")


def status_of(value: Object) -> Object:
    """The status; empty if there is none."""
    return dict(value.get("status") or {})


def _patch(kind: SyncedKind, tenant: Object, body: Object, subresource: str = "") -> tuple[Action, ...]:
    if not body:
        return ()
    where = namespace_of(tenant), name_of(tenant), uid_of(tenant)
    return (Patch(Side.TENANT, kind, *where, body, subresource=subresource),)
