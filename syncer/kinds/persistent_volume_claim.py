# SPDX-License-Identifier: Apache-2.0
"""PersistentVolumeClaims go down, and the volume that they get and their status come up. Pure.

After the creation the requested size, the class of attributes and metadata go down, and a storage class that
the super claim lacks: a control plane sets it on claims that were made before there was a default. All else
of a claim is immutable. The tenant's own controller binds its claim to the volume that `persistent_volume`
shows, which is named here. The claim is not shown as bound before that: the controller would take it back.

A claim of a volume that the tenant made itself stays in the tenant: its controller writes its status, and the
super cluster has no such volume.
"""

from typing import Any

from msgspec.structs import replace

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind, annotations_of, metadata, name_of, namespace_of, uid_of
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Action, Change, Patch, Plan, Refusal, Side, Wait
from syncer.core.unknown import if_known
from syncer.core.view import View
from syncer.kinds import upward
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy import claims
from tenancy import keys

KIND = SyncedKind(Resource("", "v1", "persistentvolumeclaims"), "PersistentVolumeClaim")

# Beside the size: the first since 1.34, the second once, from none.
_CHANGING = ("volumeAttributesClassName", "storageClassName")


class PersistentVolumeClaimSync(SameName):
    """PersistentVolumeClaims. The name of the volume comes up once the tenant has the volume."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        desired = _desired(tenant, found, view)
        # The status of a claim that has a volume of its own is its own controller's.
        has_own = isinstance(desired, tuple) and _own_volume_refusal(tenant, view) is not None
        up = () if found is None or has_own else _upward(tenant, found, view)
        plan = plan_down(KIND, tenant, found, desired, view, owned=_owned, up=up, ends=_ends)
        if found is None:
            return plan
        changes = (*plan.down.changes, *_class_change(tenant, found))
        return replace(plan, down=replace(plan.down, changes=changes))


def _desired(tenant: Object, found: Object | None, view: View) -> Object | Wait | tuple[Refusal, ...]:
    desired = start(KIND, tenant, view)
    if not isinstance(desired, dict):
        return desired
    if (own_volume := _own_volume_refusal(tenant, view)) is not None:
        return (own_volume,)
    actual = _storage_class(found)
    if actual is not None:
        # Immutable once it is set, also by admission.
        desired.setdefault("spec", {})["storageClassName"] = actual
    return claims.refusals(tenant, view.policy) or desired


def _ends(tenant: Object) -> bool:
    """Whether its deletion goes down at once: nothing but the protection by its pods keeps it.

    Each cluster protects a claim by its own pods, and pods that are made later do not get one that is being
    deleted. What another finalizer keeps is still there, with its data.
    """
    return set(metadata(tenant).get("finalizers") or ()) <= {"kubernetes.io/pvc-protection"}


def _storage_class(claim: Object | None) -> Any:
    return ((claim or {}).get("spec") or {}).get("storageClassName")


def _class_change(tenant: Object, found: Object) -> tuple[Change, ...]:
    own, actual = _storage_class(tenant), _storage_class(found)
    if own is None or actual in (None, own):
        return ()
    return (Change("spec.storageClassName", "has no effect: the claim had another class when it was made"),)


def _own_volume_refusal(tenant: Object, view: View) -> Refusal | None:
    """Why a claim stays that names a volume which the tenant made."""
    name = str((tenant.get("spec") or {}).get("volumeName") or "")
    volume = if_known(view.in_tenant("PersistentVolume", "", name)) if name else None
    if volume is None or keys.UID in annotations_of(volume):
        return None
    what = f"PersistentVolume {name} was made in this cluster and exists here alone"
    return Refusal("spec.volumeName", f"{what}: pods cannot mount it; leave volumeName out to get one")


def _owned(value: Object) -> Object:
    spec = value.get("spec") or {}
    requests = (spec.get("resources") or {}).get("requests") or {}
    owned: Object = {"resources": {"requests": {"storage": requests.get("storage")}}}
    return {"spec": owned | {name: spec[name] for name in _CHANGING if name in spec}}


def _upward(tenant: Object, found: Object, view: View) -> tuple[Action, ...]:
    status = upward.shown_status("PersistentVolumeClaimStatus", found, tenant, view)
    shown = upward.status_of(tenant)
    volume = str((found.get("spec") or {}).get("volumeName") or "")
    own_volume = str((tenant.get("spec") or {}).get("volumeName") or "")
    actions: list[Action] = []
    if volume and not own_volume and _has_volume(volume, found, view):
        body: Object = {"spec": {"volumeName": volume}}
        where = namespace_of(tenant), name_of(tenant), uid_of(tenant)
        actions.append(Patch(Side.TENANT, KIND, *where, body))
        own_volume = volume
    if not status or (status.get("phase") == "Bound" and shown.get("phase") != "Bound" and not own_volume):
        status = shown
    return (*actions, *upward.show(KIND, tenant, found, status, view))


def _has_volume(name: str, found: Object, view: View) -> bool:
    """Whether the tenant has the volume that its claim got in the super cluster."""
    volume = if_known(view.in_tenant("PersistentVolume", "", name))
    if volume is None or keys.UID not in annotations_of(volume):
        return False
    claim = (volume.get("spec") or {}).get("claimRef") or {}
    return bool(claim.get("name") == name_of(found))


SYNC: KindSync = PersistentVolumeClaimSync()
