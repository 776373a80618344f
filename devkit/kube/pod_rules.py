# SPDX-License-Identifier: Apache-2.0
"""What an API server makes of the writes of pods.

Checked against kube-apiserver 1.34, as far as the syncer can observe it.
"""

from typing import Any

from daemonkit.kube.resources import PODS
from devkit.kube.storage import Object, conflict, copied, invalid

_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "serviceAccountName": "default",
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CONTAINER_DEFAULTS: Object = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_MAY_CHANGE_WHILE_GATED = ("nodeSelector", "affinity")


def complete(value: Object) -> None:
    """Set the defaults and the first status of a new pod."""
    spec = value.setdefault("spec", {})
    for name, default in copied(_DEFAULTS).items():
        spec.setdefault(name, default)
    spec["serviceAccount"] = spec["serviceAccountName"]
    _complete_containers(spec)
    _complete_tolerations(spec)
    value["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


def _complete_tolerations(spec: Object) -> None:
    tolerations = spec["tolerations"] = spec.get("tolerations") or []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(each.get("key") in (key, None) for each in tolerations):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append(toleration)


def _complete_containers(spec: Object) -> None:
    for field in _CONTAINERS:
        for container in spec.get(field) or ():
            for name, default in copied(_CONTAINER_DEFAULTS).items():
                container.setdefault(name, default)


def check_update(old: Object, new: Object) -> None:
    """Raise StatusError 422 where an update changes what it may not."""
    name = new["metadata"]["name"]
    _complete_containers(new["spec"])
    _complete_tolerations(new["spec"])
    gates = {gate["name"] for gate in old["spec"].get("schedulingGates") or ()}
    for gate in new["spec"].get("schedulingGates") or ():
        if gate["name"] not in gates:
            raise invalid(PODS, name, "spec.schedulingGates: Forbidden: only deletion is allowed")
    if _fixed(old["spec"], is_gated=bool(gates)) != _fixed(new["spec"], is_gated=bool(gates)):
        raise invalid(PODS, name, "spec: Forbidden: pod updates may not change fields other than a few")
    tolerations = new["spec"].get("tolerations") or []
    if any(each not in tolerations for each in old["spec"].get("tolerations") or ()):
        raise invalid(PODS, name, "spec.tolerations: Forbidden: existing toleration can not be modified")


def _fixed(spec: Object, *, is_gated: bool) -> Object:
    left_out = (*_MAY_CHANGE, *(_MAY_CHANGE_WHILE_GATED if is_gated else ()))
    fixed = {name: value for name, value in spec.items() if name not in left_out and value not in (None, [])}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [_without(each, "image") for each in fixed[field]]
    return fixed


def _without(value: Object, name: str) -> Object:
    return {each: value[each] for each in value if each != name}


def with_ephemeral_containers(old: Object, new: Object) -> Object:
    """The pod with the ephemeral containers of another state of it. Raises StatusError 422."""
    _complete_containers(new["spec"])
    wanted = new["spec"].get("ephemeralContainers") or []
    if any(each not in wanted for each in old["spec"].get("ephemeralContainers") or ()):
        why = "spec.ephemeralContainers: Forbidden: existing ephemeral containers may not be changed"
        raise invalid(PODS, old["metadata"]["name"], why)
    return old | {"spec": old["spec"] | {"ephemeralContainers": wanted}}


def with_resources(old: Object, new: Object) -> Object:
    """The pod with the resources that another state of it has for its containers."""
    spec = dict(old["spec"])
    for field in ("containers", "initContainers"):
        wanted = {each["name"]: each.get("resources", {}) for each in new["spec"].get(field) or ()}
        if field in spec:
            spec[field] = [
                each | {"resources": wanted.get(each["name"], each.get("resources", {}))}
                for each in spec[field]
            ]
    return old | {"spec": spec}


def bound(pod: Object, binding: Object, now: str) -> Object:
    """The pod on the node of a Binding. Raises StatusError 409."""
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    uid = binding.get("metadata", {}).get("uid")
    why = ""
    if uid and uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
    elif "deletionTimestamp" in metadata:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict(PODS, name, why, "binding")
    annotations = (metadata.get("annotations") or {}) | (binding.get("metadata", {}).get("annotations") or {})
    if annotations:
        metadata = metadata | {"annotations": annotations}
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return pod | {
        "metadata": metadata,
        "spec": pod["spec"] | {"nodeName": binding["target"]["name"]},
        "status": with_condition(pod.get("status", {}), condition),
    }


def with_condition(status: Object, condition: Object) -> Object:
    """The status with a condition of its type set."""
    others = [each for each in status.get("conditions") or () if each["type"] != condition["type"]]
    return status | {"conditions": [*others, condition]}


def gated(pod: Object, now: str) -> Object:
    """The condition that the API server sets on a pod with scheduling gates."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    return with_condition(pod["status"], condition)


def grace_s(pod: Object, asked: Any) -> int:
    """The seconds that a deletion gives a pod; 0 removes it at once."""
    spec, phase = pod.get("spec", {}), pod.get("status", {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    wanted = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return max(0, int(wanted))
