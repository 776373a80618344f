# SPDX-License-Identifier: Apache-2.0
"""Objects of both sides, and plans for them, for the tests of kinds."""

import copy
from typing import Any

from daemonkit.kube.resources import Key
from devkit.syncer.fake_view import TENANT, FakeView
from syncer.core.objects import Object, name_of, namespace_of
from syncer.core.pair import Pair
from syncer.core.plan import Create, Delete, Patch, Plan, Side
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.view import View
from syncer.kinds.port import KindSync

KEY = "vcs-7aad2b-tenant-00"
SUPER_NAMESPACE = f"{KEY}-ns"
PREFIXED = TenantCluster(
    TENANT.key,
    TENANT.vc_namespace,
    TENANT.vc_name,
    TENANT.uid,
    transparent_prefixes=("transparent.example.com",),
    opaque_prefixes=("opaque.example.com",),
)

OWN_LABELS = {"tenancy.x-k8s.io/vcname": "tenant-00", "tenancy.x-k8s.io/vcnamespace": "vcs"}


def owner_annotations(uid: str = "t-1", namespace: str = "ns") -> dict[str, str]:
    return {
        "tenancy.x-k8s.io/cluster": KEY,
        "tenancy.x-k8s.io/uid": uid,
        "tenancy.x-k8s.io/namespace": namespace,
        "tenancy.x-k8s.io/ownerReferences": "null",
        "tenancy.x-k8s.io/vcname": "tenant-00",
        "tenancy.x-k8s.io/vcnamespace": "vcs",
    }


def tenant_object(
    kind: str, name: str = "a", namespace: str = "ns", /, uid: str = "t-1", **fields: Any
) -> Object:
    """An object of a tenant; `labels`, `annotations` and the like of metadata are in `meta`."""
    meta: Object = {"name": name, "uid": uid, "resourceVersion": "1", **fields.pop("meta", {})}
    if namespace:
        meta["namespace"] = namespace
    return {"kind": kind, "metadata": meta, **fields}


def super_object(
    kind: str, name: str = "a", /, uid: str = "s-1", owner: str = "t-1", **fields: Any
) -> Object:
    """The super object of the tenant's `a`, as it stands in its super namespace."""
    meta = fields.pop("meta", {})
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": SUPER_NAMESPACE,
            "uid": uid,
            "resourceVersion": "7",
            "labels": OWN_LABELS | meta.get("labels", {}),
            "annotations": owner_annotations(owner) | meta.get("annotations", {}),
        },
        **fields,
    }


def foreign_object(kind: str, name: str = "a", /, **fields: Any) -> Object:
    """A super object that no syncer made."""
    return {"kind": kind, "metadata": {"name": name, "namespace": SUPER_NAMESPACE, "uid": "s-9"}, **fields}


def deleting(value: Object) -> Object:
    found = copy.deepcopy(value)
    found["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z"
    return found


def plan(
    sync: KindSync, tenant: Object | None, found: Object | None, view: FakeView | None = None, name: str = "a"
) -> Plan:
    """The plan for an object of namespace `ns`, or of none for kinds without namespaces."""
    subject = tenant if tenant is not None else found
    assert subject is not None
    key = ("ns" if namespace_of(subject) else "", name_of(subject) or name)
    return plan_unchanged(sync, key, tenant, found, FakeView() if view is None else view)


def plan_unchanged(sync: KindSync, key: Key, tenant: Object | None, found: Object | None, view: View) -> Plan:
    """The plan for copies of both objects, which it does not change."""
    objects = Pair(tenant, found)
    given = copy.deepcopy(objects)
    result = sync.plan(key, given, view)
    assert given == objects, "the plan has changed an object"
    return result


def brief(result: Plan) -> list[str]:
    """A plan in words: what is done where, and why what is not."""
    lines = []
    for action in result.actions:
        match action:
            case Create():
                lines.append(f"create in {action.side} {name_of(action.body)}")
            case Patch():
                lines.append(f"patch {action.subresource or 'object'} in {action.side} {action.uid}")
            case Delete():
                lines.append(f"delete in {action.side} {action.uid}")
            case _:
                lines.append(type(action).__name__)
    lines += [f"refused {each.path}" for each in result.refusals]
    if result.wait is not None:
        lines.append(f"wait {result.wait.reason}")
    if result.conflict is not None:
        lines.append("conflict")
    return lines


def created(result: Plan) -> Object:
    """The body of the one creation."""
    (action,) = result.actions
    assert isinstance(action, Create)
    return action.body


def patched(result: Plan, side: Side = Side.SUPER, subresource: str = "") -> Object:
    """The body of the one patch on a side."""
    (found,) = [
        each
        for each in result.actions
        if isinstance(each, Patch) and (each.side, each.subresource) == (side, subresource)
    ]
    return found.body
