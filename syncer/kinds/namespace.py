# SPDX-License-Identifier: Apache-2.0
"""Namespaces go down under the super cluster's names. Nothing comes up. Pure.

Labels of a tenant go down under keys of our own, so that no webhook or policy of the super cluster selects by
them; namespaceSelectors are translated in the same way. The super cluster's own labels and annotations stay.
A super namespace is deleted once the tenant's is gone, not while it terminates: until then its pods end
gracefully one by one, and their end completes the tenant's.
"""

from msgspec.structs import replace

from daemonkit.kube.resources import NAMESPACES, Key
from syncer.core.objects import (
    Object,
    SyncedKind,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    uid_of,
)
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Change, Conflict, Create, Delete, Half, Patch, Plan, Refusal, Side, Wait
from syncer.core.view import View
from syncer.kinds import judgement
from syncer.kinds.metadata import LABEL_PREFIX, annotation_passes, rules_of, super_labels
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy import metadata_keys
from tenancy import keys, names

KIND = SyncedKind(NAMESPACES, "Namespace")
WAITS_FOR_TERMINATION = "NamespaceTerminating"


class NamespaceSync(SameName):
    """Namespaces."""

    kind = KIND
    scope = Scope.NAMESPACE

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        name = key[1]
        if tenant is None:
            return _removal(found, name) if found is not None and is_owned(found, name, view) else NOTHING
        target = view.tenant.super_namespace(name)
        if isinstance(target, names.Refused):
            return Plan(Half(refusals=(Refusal("metadata.name", target.reason),)))
        if what := metadata_keys.too_many_labels(labels_of(tenant)):
            return Plan(Half(refusals=(Refusal("metadata.labels", f"{what}: no SyncPolicy allows it"),)))
        if found is None:
            return NOTHING if is_deleting(tenant) else _creation(tenant, target, view)
        if not is_owned(found, name, view):
            return Plan(Half(conflict=Conflict(f"Namespace {target} is not the tenant's")))
        if annotations_of(found)[keys.UID] != uid_of(tenant):
            return _removal(found, name)
        if is_deleting(found):
            return Plan(Half(wait=_terminates(name)))
        update = _update(_desired(tenant, target, view), found)
        return Plan(replace(update.down, changes=_changes(tenant, view)))


def _creation(tenant: Object, target: str, view: View) -> Plan:
    """One that is there stays whose it is: another tenant's key may have come later."""
    if view.is_reserved_name(target):
        taken = "the name that it would have in the super cluster is not free; choose another name"
        return Plan(Half(refusals=(Refusal("metadata.name", taken),), is_partial=True))
    create = Create(Side.SUPER, KIND, _desired(tenant, target, view))
    return Plan(Half((create,), changes=_changes(tenant, view)))


def _changes(tenant: Object, view: View) -> tuple[Change, ...]:
    return judgement.changes(KIND.kind, tenant, view)


def is_owned(found: Object, namespace: str, view: View) -> bool:
    """Whether a super namespace is that of a namespace of this tenant, made for this VirtualCluster."""
    annotations = annotations_of(found)
    return (
        annotations.get(keys.CLUSTER) == view.tenant.key
        and annotations.get(keys.NAMESPACE) == namespace
        and annotations.get(keys.VC_UID) == view.tenant.uid
        and bool(annotations.get(keys.UID))
        and keys.VC_ROOT_NAMESPACE not in annotations
    )


def _desired(tenant: Object, target: str, view: View) -> Object:
    rules = rules_of(KIND.kind, tenant, view)
    passing = {
        key: value
        for key, value in annotations_of(tenant).items()
        if annotation_passes(key, rules, view.tenant)
    }
    own = {
        keys.CLUSTER: view.tenant.key,
        keys.NAMESPACE: name_of(tenant),
        keys.UID: uid_of(tenant),
        keys.VC_NAME: view.tenant.vc_name,
        keys.VC_NAMESPACE: view.tenant.vc_namespace,
        keys.VC_UID: view.tenant.uid,
    }
    meta: Object = {"name": target, "annotations": passing | own}
    if labels := super_labels(labels_of(tenant)):
        meta["labels"] = labels
    return {"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": meta}


def _update(desired: Object, found: Object) -> Plan:
    """Labels under our prefix follow the tenant's. Annotations are set, never removed: operators set some."""
    labels, actual = labels_of(desired), labels_of(found)
    changes: Object = {key: value for key, value in labels.items() if actual.get(key) != value}
    changes |= {key: None for key in actual if key.startswith(LABEL_PREFIX) and key not in labels}
    noted = annotations_of(found)
    notes = {key: value for key, value in annotations_of(desired).items() if noted.get(key) != value}
    meta = {field: value for field, value in (("labels", changes), ("annotations", notes)) if value}
    if not meta:
        return NOTHING
    return Plan(Half((Patch(Side.SUPER, KIND, "", name_of(found), uid_of(found), {"metadata": meta}),)))


def _removal(found: Object, name: str) -> Plan:
    if is_deleting(found):
        return Plan(Half(wait=_terminates(name)))
    return Plan(Half((Delete(Side.SUPER, KIND, "", name_of(found), uid_of(found)),)))


def _terminates(name: str) -> Wait:
    return Wait(
        WAITS_FOR_TERMINATION, f"the former namespace {name} is still terminating in the super cluster"
    )


SYNC: KindSync = NamespaceSync()
