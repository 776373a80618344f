# SPDX-License-Identifier: Apache-2.0
"""What comes up beside an object that went down: keys of metadata that go up, and its status. Pure."""

import re
from collections.abc import Collection

from syncer.core.objects import Object, SyncedKind, merge_patch, name_of, namespace_of, uid_of
from syncer.core.plan import Action, Patch, Side
from syncer.core.view import View
from syncer.kinds.metadata import transparent_patch


def show(kind: SyncedKind, tenant: Object, found: Object, status: Object, view: View) -> tuple[Action, ...]:
    """The actions that bring the super object's transparent keys, and this status, to the tenant's object."""
    meta = transparent_patch(tenant, found, view.tenant)
    if status != tenant.get("status"):
        status = with_tenant_texts(status, tenant, view)
    return (*_patch(kind, tenant, {"metadata": meta} if meta else {}), *show_status(kind, tenant, status))


def show_status(kind: SyncedKind, tenant: Object, status: Object) -> tuple[Action, ...]:
    """The action that gives the tenant's object this status, if it has another."""
    changes = merge_patch({"status": tenant.get("status") or {}}, {"status": status})
    return _patch(kind, tenant, changes, "status")


def tenant_text(text: str, own: Collection[str], view: View) -> str:
    """A message without names of the super cluster that are not the tenant's, and without others' taints."""
    return _TAINT.sub(_shown_taint, view.tenant_text(text, own))


def with_tenant_texts(status: Object, tenant: Object, view: View) -> Object:
    """A copy of a status, whose messages and reasons the tenant may read.

    Other fields are identifiers, and names that the tenant gave. All of them are of one object: what is
    beyond 64 KiB of messages is left out.
    """
    return _with_texts(status, (name_of(tenant), namespace_of(tenant)), view, [_MAX_MESSAGES])


_TAINT = re.compile(r"(untolerated taint(?:\(s\))?) \{([^{}]*)\}")
# Of nodes' states, which each pod tolerates or learns of.
_OPEN_TAINTS = ("node.kubernetes.io/", "node-role.kubernetes.io/")
_MAX_MESSAGES = 64 * 1024


def _shown_taint(found: re.Match[str]) -> str:
    return found.group() if found.group(2).startswith(_OPEN_TAINTS) else found.group(1)


def _with_texts(value: Object, own: Collection[str], view: View, left: list[int]) -> Object:
    made: Object = {}
    for name, each in value.items():
        if isinstance(each, str) and name in ("message", "reason"):
            left[0] -= len(each)
            made[name] = tenant_text(each, own, view) if left[0] >= 0 else ""
        elif isinstance(each, dict):
            made[name] = _with_texts(each, own, view, left)
        elif isinstance(each, list):
            made[name] = [
                _with_texts(item, own, view, left) if isinstance(item, dict) else item for item in each
            ]
        else:
            made[name] = each
    return made


def status_of(value: Object) -> Object:
    """The status; empty if there is none."""
    return dict(value.get("status") or {})


def _patch(kind: SyncedKind, tenant: Object, body: Object, subresource: str = "") -> tuple[Action, ...]:
    if not body:
        return ()
    where = namespace_of(tenant), name_of(tenant), uid_of(tenant)
    return (Patch(Side.TENANT, kind, *where, body, subresource=subresource),)
