# SPDX-License-Identifier: Apache-2.0
"""The status of a super pod as its tenant sees it. Pure."""

from collections.abc import Iterable
from typing import Any

from syncer.core.objects import Object, metadata, uid_of
from syncer.core.unknown import Unknown
from syncer.core.view import View
from syncer.kinds.pod.image_names import own_image_names
from syncer.kinds.upward import status_texts
from syncer.policy.shown_fields import CONDITIONS, shown_part

# Conditions of these types are written in the tenant, by the syncer, and are not the super pod's.
_OWN_CONDITIONS = "vcnode.io/"

_STATUS_OF = {
    "containers": "containerStatuses",
    "initContainers": "initContainerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}


# That the system writes, although a pod may name them as its readiness gates.
_SYSTEM_CONDITIONS = CONDITIONS["PodCondition"]

SCHEDULED = "PodScheduled"
DISRUPTION_TARGET = "DisruptionTarget"


def readiness_gates(pod: Object) -> frozenset[str]:
    """The types of conditions that the owner of the pod writes, and that its readiness waits for."""
    gates = pod["spec"].get("readinessGates")
    if not gates:
        return frozenset()
    types = frozenset(str(gate.get("conditionType")) for gate in gates) - _SYSTEM_CONDITIONS
    return frozenset(each for each in types if not each.startswith(_OWN_CONDITIONS))


def own_conditions(pod: Object) -> dict[str, Object]:
    """The conditions by type, as the two sides can compare them: without nulls and without generations.

    Without directives of a patch too, as `$patch`: they would change the conditions of the super cluster.
    """
    return {
        str(each.get("type")): {
            name: value
            for name, value in each.items()
            if value is not None and name != "observedGeneration" and not name.startswith("$")
        }
        for each in (pod.get("status") or {}).get("conditions") or ()
    }


def has_begun(pod: Object) -> bool:
    """Whether a kubelet has written the status of a pod: `startTime` is the first that it sets."""
    status = pod.get("status") or {}
    return "startTime" in status or status.get("phase") not in (None, "Pending")


def tenant_status(tenant: Object, found: Object, view: View, *, in_sync: bool) -> Object:
    """The whole status of the tenant's pod.

    `in_sync`: the super pod has all that the tenant's asks for. Only then does its generation say of the
    tenant's own generation that it was observed.
    """
    own = tenant.get("status") or {}
    # Before anything of the tenant's is in it. A copy, of which parts are changed below.
    status = shown_part("PodStatus", found.get("status") or {}, status_texts(tenant, view, uid_of(found)))
    if view.settings.hides_nodes:
        _show_vnode_addresses(status, own, found, view)
    generations = _Generations(tenant, found, in_sync)
    status["conditions"] = _conditions(tenant, found, status.get("conditions") or (), generations)
    generations.translate(status, own)
    for field, statuses in _STATUS_OF.items():
        if statuses in status:
            status[statuses] = _container_statuses(tenant, found, field, status[statuses] or ())
    if "qosClass" in own:
        # Immutable, and other than the tenant's where the super cluster added a container.
        status["qosClass"] = own["qosClass"]
    return status


def end_of(tenant: Object) -> Object:
    """The changes of the status of a pod whose super pod is gone without a last word.

    As a kubelet says of a container that it does not find any more (kuberuntime, ContainerStatusUnknown).
    """
    status, ended, has_failed = tenant.get("status") or {}, dict[str, Any](), False
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        found = [_ended(each) for each in status.get(field) or ()]
        if found and found != status[field]:
            ended[field] = found
        codes = [(each["state"].get("terminated") or {}).get("exitCode") for each in found]
        has_failed = has_failed or (field == "containerStatuses" and any(codes))
    has_run = bool(status.get("containerStatuses"))
    return ended | {"phase": "Succeeded" if has_run and not has_failed else "Failed"}


def _ended(status: Object) -> Object:
    state = status.get("state") or {}
    if state.get("terminated"):
        return status
    message = "The container could not be located when the pod was deleted."
    started = (state.get("running") or {}).get("startedAt")
    terminated: Object = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": message}
    if started:
        terminated["startedAt"] = started
    return {**status, "ready": False, "started": False, "state": {"terminated": terminated}}


class _Generations:
    """Translates `observedGeneration`, which counts changes of another object."""

    __slots__ = ("_observed", "_own", "_super")

    def __init__(self, tenant: Object, found: Object, in_sync: bool) -> None:
        self._own = metadata(tenant).get("generation")
        self._super = metadata(found).get("generation")
        self._observed = in_sync and self._own is not None and self._super is not None

    def translate(self, value: Object, own: Object) -> None:
        """One status or condition; it keeps the tenant's where the new one is not known to be observed."""
        seen = value.get("observedGeneration")
        if seen is None:
            return
        if self._observed and seen >= (self._super or 0):
            value["observedGeneration"] = self._own
        elif own.get("observedGeneration") is not None:
            value["observedGeneration"] = own["observedGeneration"]
        else:
            del value["observedGeneration"]


def _conditions(
    tenant: Object, found: Object, there: Iterable[Object], generations: _Generations
) -> list[Any]:
    """Those that the super pod has `there`; of readiness gates the tenant's stay, and none come up."""
    kept = readiness_gates(tenant)
    dropped = readiness_gates(found) | kept
    own = {str(each.get("type")): each for each in (tenant.get("status") or {}).get("conditions") or ()}
    conditions: dict[str, Object] = {}
    for each in there:
        kind = str(each.get("type"))
        if kind in dropped or kind.startswith(_OWN_CONDITIONS):
            continue
        mine = own.get(kind) or {}
        if kind == SCHEDULED and mine.get("status") == each.get("status") == "True":
            # The tenant's API server wrote it at the binding.
            conditions[kind] = mine
            continue
        generations.translate(each, mine)
        conditions[kind] = each
    conditions |= {
        kind: each for kind, each in own.items() if kind in kept or kind.startswith(_OWN_CONDITIONS)
    }
    # An eviction in the tenant writes it before it deletes the pod; a Job's failure policy asks for it.
    if DISRUPTION_TARGET in own:
        conditions.setdefault(DISRUPTION_TARGET, own[DISRUPTION_TARGET])
    if conditions == own:
        return list(own.values())  # in its own order
    return list(conditions.values())


def _show_vnode_addresses(status: Object, own: Object, found: Object, view: View) -> None:
    """A vNode has the addresses of vn-agent, and its pods have no others of the machine."""
    node = str((found.get("spec") or {}).get("nodeName") or "")
    status.pop("hostIP", None)
    status.pop("hostIPs", None)
    addresses = view.vnode_addresses(node) if node else None
    if isinstance(addresses, Unknown):  # it is not known to have others than before
        status.update({field: own[field] for field in ("hostIP", "hostIPs") if field in own})
    elif addresses:
        status["hostIP"] = addresses[0]
        status["hostIPs"] = [{"ip": each} for each in addresses]


def _container_statuses(
    tenant: Object, found: Object, field: str, statuses: Iterable[Object]
) -> list[Object]:
    """Those of the tenant's containers, with mounts of the tenant's volumes and its names of images."""
    spec = tenant["spec"]
    own = {each.get("name"): each.get("image") for each in spec.get(field) or ()}
    runs = {each.get("name"): each.get("image") for each in (found.get("spec") or {}).get(field) or ()}
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    shown = []
    for each in statuses:
        name = each.get("name")
        if name not in own:
            continue
        if mounts := each.get("volumeMounts"):
            each["volumeMounts"] = [mount for mount in mounts if mount.get("name") in volumes]
        images = str(runs.get(name) or ""), str(own[name] or "")
        shown.append(each | own_image_names(each, images))
    return shown
