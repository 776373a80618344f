# SPDX-License-Identifier: Apache-2.0
"""PersistentVolumes come up to the tenant whose claim is bound to them. Pure.

A tenant sees what it asked for: capacity, modes, class, reclaim policy. Where the volume is stays hidden: of
annotations that is what kubectl notes of the whole object as it was applied, of mount options an address or a
password.
The source becomes a CSI source whose handle is the name of the volume, and node affinity is left out. Nothing
in a tenant mounts it. A volume that a tenant made itself is left alone; upstream deletes it.
"""

from collections.abc import Mapping
from typing import Any

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import (
    Object,
    SyncedKind,
    annotations_of,
    is_deleting,
    labels_of,
    merge_patch,
    metadata,
    name_of,
    uid_of,
)
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Action, Conflict, Create, Delete, Half, Patch, Plan, Side
from syncer.core.unknown import if_known
from syncer.core.view import View
from syncer.kinds import upward
from syncer.kinds.downward import owns
from syncer.kinds.metadata import domain_of, goes_up, is_reserved
from syncer.kinds.port import KindSync, SameName, Scope
from tenancy import keys

KIND = SyncedKind(Resource("", "v1", "persistentvolumes", is_namespaced=False), "PersistentVolume")
_CLAIM = "PersistentVolumeClaim"

_SHOWN = (
    "capacity",
    "accessModes",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
)
# Fields of the specification that are neither a source nor shown.
_HIDDEN = ("claimRef", "mountOptions", "nodeAffinity")

# Of the keys of metadata with a domain, which are of the super cluster's own programs.
_SHOWN_KEYS = frozenset(
    {
        "pv.kubernetes.io/bound-by-controller",
        "pv.kubernetes.io/provisioned-by",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)


class PersistentVolumeSync(SameName):
    """PersistentVolumes. A volume is shown once both claims are there."""

    kind = KIND
    scope = Scope.CLAIMED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        is_ours = tenant is not None and keys.UID in annotations_of(tenant)
        if found is None:
            return _removal(tenant) if tenant is not None and is_ours else NOTHING
        if tenant is None:
            claim = None if is_deleting(found) else _claim_of(found, view)
            if claim is None:
                return NOTHING
            return Plan(up=Half((Create(Side.TENANT, KIND, _desired(found, claim, view)),), is_partial=True))
        if not is_ours:
            return Plan(up=Half(conflict=Conflict(f"the tenant has a PersistentVolume {key[1]} of its own")))
        if annotations_of(tenant)[keys.UID] != uid_of(found):
            return _removal(tenant)
        return NOTHING if is_deleting(tenant) else Plan(up=Half(_updates(tenant, found, view)))


def _claim_of(found: Object, view: View) -> Object | None:
    """The tenant's claim to which a volume is bound, if both claims are known and belong together."""
    ref = (found.get("spec") or {}).get("claimRef") or {}
    if upward.status_of(found).get("phase") != "Bound":
        return None
    namespace = view.tenant_namespace(str(ref.get("namespace", "")))
    if namespace is None or view.super_namespace(namespace) != ref.get("namespace"):
        return None
    super_claim = if_known(view.in_super(_CLAIM, namespace, str(ref.get("name", ""))))
    claim = if_known(view.in_tenant(_CLAIM, namespace, str(ref.get("name", ""))))
    if super_claim is None or claim is None or uid_of(super_claim) != ref.get("uid"):
        return None
    is_one = owns(super_claim, view, namespace) and annotations_of(super_claim)[keys.UID] == uid_of(claim)
    return claim if is_one else None


def _shown_keys(values: Mapping[str, str], view: View) -> dict[str, str]:
    """The labels or annotations that the tenant may read."""
    return {
        key: view.tenant_text(value)
        for key, value in values.items()
        if not is_reserved(key) and (not domain_of(key) or key in _SHOWN_KEYS or goes_up(key, view.tenant))
    }


def _desired(found: Object, claim: Object, view: View) -> Object:
    notes = _shown_keys(annotations_of(found), view) | {keys.UID: uid_of(found)}
    meta: Object = {"name": name_of(found), "annotations": notes}
    if labels := _shown_keys(labels_of(found), view):
        meta["labels"] = labels
    owner = {
        "apiVersion": "v1",
        "kind": _CLAIM,
        "namespace": metadata(claim)["namespace"],
        "name": name_of(claim),
        "uid": uid_of(claim),
    }
    spec = found.get("spec") or {}
    shown = _shown(found)["spec"] | _source(spec, name_of(found)) | {"claimRef": owner}
    return {"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": meta, "spec": shown}


def _source(spec: dict[str, Any], name: str) -> Object:
    """A CSI source with the driver of the true one, or with its type in the place of a driver."""
    for field, value in spec.items():
        if field in _SHOWN or field in _HIDDEN or not isinstance(value, dict):
            continue
        driver = value.get("driver") if field == "csi" else f"{field.lower()}.vcnode.io"
        return {"csi": {"driver": driver, "volumeHandle": name}}
    return {}


def _shown(value: Object) -> Object:
    spec = value.get("spec") or {}
    return {"spec": {field: spec[field] for field in _SHOWN if field in spec}}


def _hidden(tenant: Object, found: Object, view: View) -> Object:
    """The merge patch that takes away what an earlier version showed, or another syncer."""
    patch: Object = {}
    for field, own, there in (
        ("labels", labels_of(tenant), labels_of(found)),
        ("annotations", annotations_of(tenant), annotations_of(found)),
    ):
        shown = _shown_keys(there, view)
        if gone := {key: None for key in own if key in there and key not in shown and not is_reserved(key)}:
            patch.setdefault("metadata", {})[field] = gone
    if (tenant.get("spec") or {}).get("mountOptions"):
        patch["spec"] = {"mountOptions": None}
    return patch


def _updates(tenant: Object, found: Object, view: View) -> tuple[Action, ...]:
    """What may change follows. Source and claim are immutable: one that upstream made stays as it is."""
    actions: list[Action] = []
    body, hidden = merge_patch(_shown(tenant), _shown(found)), _hidden(tenant, found, view)
    if spec := body.get("spec", {}) | hidden.get("spec", {}):
        hidden["spec"] = spec
    if body := hidden:
        actions.append(Patch(Side.TENANT, KIND, "", name_of(tenant), uid_of(tenant), body))
    phase, shown = upward.status_of(found).get("phase"), upward.status_of(tenant)
    # Where the tenant has no controller that binds. If it has one, it comes to the same result.
    if phase == "Bound" and shown.get("phase") in (None, "Pending", "Available"):
        actions += upward.show_status(KIND, tenant, shown | {"phase": phase})
    return tuple(actions)


def _removal(tenant: Object) -> Plan:
    if is_deleting(tenant):
        return NOTHING
    return Plan(up=Half((Delete(Side.TENANT, KIND, "", name_of(tenant), uid_of(tenant)),)))


SYNC: KindSync = PersistentVolumeSync()
