# SPDX-License-Identifier: Apache-2.0
"""What comes up beside an object that went down: keys of metadata that go up, and its status. Pure."""

import re
from collections.abc import Callable, Collection
from typing import Any

from syncer.core.objects import Object, SyncedKind, merge_patch, name_of, namespace_of, uid_of
from syncer.core.plan import Action, Patch, Side
from syncer.core.view import View
from syncer.kinds.metadata import transparent_patch
from syncer.policy.shown_fields import shown_part


def show(kind: SyncedKind, tenant: Object, found: Object, status: Object, view: View) -> tuple[Action, ...]:
    """The actions that bring the super object's transparent keys, and this status, to the tenant's object."""
    meta = transparent_patch(tenant, found, view.tenant)
    return (*_patch(kind, tenant, {"metadata": meta} if meta else {}), *show_status(kind, tenant, status))


def shown_status(part: str, found: Object, tenant: Object, view: View) -> Object:
    """What comes up of the super object's status, of the type `part` (`syncer.policy.shown_fields`)."""
    return shown_part(part, status_of(found), status_texts(tenant, view))


def status_texts(tenant: Object, view: View, super_uid: str = "") -> Callable[[str], str]:
    """What maps the messages and reasons of one status; a message may have the super object's UID.

    All of them are of one object: what is beyond 64 KiB is left out.
    """
    own, left = (name_of(tenant), namespace_of(tenant)), _MAX_MESSAGES

    def mapped(text: str) -> str:
        nonlocal left
        left -= len(text)
        if left < 0:
            return ""
        return tenant_text(text.replace(super_uid, uid_of(tenant)) if super_uid else text, own, view)

    return mapped


def show_status(kind: SyncedKind, tenant: Object, status: Object) -> tuple[Action, ...]:
    """The action that gives the tenant's object this status, if it has another."""
    changes = merge_patch({"status": tenant.get("status") or {}}, {"status": status})
    return _patch(kind, tenant, changes, "status")


def tenant_text(text: str, own: Collection[str], view: View) -> str:
    """A message without names of the super cluster that are not the tenant's, and without others' taints."""
    return _TAINT.sub(_shown_taint, view.tenant_text(text, own))


def with_tenant_texts(status: Object, tenant: Object, view: View) -> Object:
    """A copy of a custom resource's status that the tenant may read: its fields are the operator's to choose.

    All texts have the tenant's names of namespaces; messages and reasons are bounded, and have no taints.
    """
    own = name_of(tenant), namespace_of(tenant)
    return _with_texts(status, status_texts(tenant, view), lambda text: view.tenant_text(text, own))


_TAINT = re.compile(r"(untolerated taint(?:\(s\))?) \{([^{}]*)\}")
# Of nodes' states, which each pod tolerates or learns of.
_OPEN_TAINTS = ("node.kubernetes.io/", "node-role.kubernetes.io/")
_MAX_MESSAGES = 64 * 1024


def _shown_taint(found: re.Match[str]) -> str:
    return found.group() if found.group(2).startswith(_OPEN_TAINTS) else found.group(1)


def _with_texts(value: Object, message: Callable[[str], str], plain: Callable[[str], str]) -> Object:
    def mapped(name: str, each: Any) -> Any:
        if isinstance(each, str):
            return message(each) if name in ("message", "reason") else plain(each)
        if isinstance(each, dict):
            return _with_texts(each, message, plain)
        # Lists directly in lists have no names of fields.
        return [mapped(name, item) for item in each] if isinstance(each, list) else each

    return {name: mapped(name, each) for name, each in value.items()}


def status_of(value: Object) -> Object:
    """The status; empty if there is none."""
    return dict(value.get("status") or {})


def _patch(kind: SyncedKind, tenant: Object, body: Object, subresource: str = "") -> tuple[Action, ...]:
    if not body:
        return ()
    where = namespace_of(tenant), name_of(tenant), uid_of(tenant)
    return (Patch(Side.TENANT, kind, *where, body, subresource=subresource),)
