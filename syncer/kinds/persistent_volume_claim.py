# SPDX-License-Identifier: Apache-2.0
"""PersistentVolumeClaims go down, and the volume that they get and their status come up. Pure.

After the creation only the requested size and metadata go down: all else of a claim is immutable. The
tenant's own controller binds its claim to the volume that `persistent_volume` shows, which is named here. The
claim is not shown as bound before that, for the controller would take it back.
"""

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind, annotations_of, metadata, name_of, namespace_of, uid_of
from syncer.core.plan import NOTHING, Action, Patch, Plan, Refusal, Side, Wait
from syncer.core.view import View
from syncer.kinds import upward
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy import claims
from tenancy import keys

KIND = SyncedKind(Resource("", "v1", "persistentvolumeclaims"), "PersistentVolumeClaim")


class PersistentVolumeClaimSync(SameName):
    """PersistentVolumeClaims. The name of the volume comes up once the tenant has the volume."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, tenant: Object | None, found: Object | None, view: View) -> Plan:
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        up = () if found is None else _upward(tenant, found, view)
        return plan_down(KIND, tenant, found, _desired(tenant, view), view, owned=_owned, up=up, ends=_ends)


def _desired(tenant: Object, view: View) -> Object | Wait | tuple[Refusal, ...]:
    desired = start(KIND, tenant, view)
    if not isinstance(desired, dict):
        return desired
    return claims.refusals(tenant, view.policy) or desired


def _ends(tenant: Object) -> bool:
    """Whether its deletion goes down at once: nothing but the protection by its pods keeps it.

    Each cluster protects a claim by its own pods, and pods that are made later do not get one that is being
    deleted. What another finalizer keeps is still there, with its data.
    """
    return set(metadata(tenant).get("finalizers") or ()) <= {"kubernetes.io/pvc-protection"}


def _owned(value: Object) -> Object:
    requests = ((value.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return {"spec": {"resources": {"requests": {"storage": requests.get("storage")}}}}


def _upward(tenant: Object, found: Object, view: View) -> tuple[Action, ...]:
    status, shown = upward.status_of(found), upward.status_of(tenant)
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
    volume = view.in_tenant("PersistentVolume", "", name)
    if volume is None or keys.UID not in annotations_of(volume):
        return False
    claim = (volume.get("spec") or {}).get("claimRef") or {}
    return bool(claim.get("name") == name_of(found))


SYNC: KindSync = PersistentVolumeClaimSync()
