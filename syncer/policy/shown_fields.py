# SPDX-License-Identifier: Apache-2.0
"""What a tenant sees of each field of the statuses that come up to it. Pure.

Only fields that are known here come up: what a newer Kubernetes puts into another is not known. Of each part
that comes up the table has every field of the Kubernetes that the tests run, and a test compares both. For
people, docs/spec/sync-policy.md#statuses is made of the table.
"""

import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syncer.core.objects import Object
from syncer.policy.type_table import fields_by_type

PARTS = ("PodStatus", "ServiceStatus", "PersistentVolumeClaimStatus", "IngressStatus")
"""The statuses of what went down, by their types. Events, volumes and vNodes are built field by field."""


class Shown(enum.StrEnum):
    """What becomes of a field. MAPPED: it has the tenant's own words."""

    COPIED = "copied"
    MAPPED = "mapped"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class ShownField:
    """One field of a type. `how` is for people; `type_name` is that of its value, empty for plain values."""

    verdict: Shown
    how: str
    type_name: str


# Of each type its fields; with a colon, the type of the field's value, or of its items.
_TYPES: Mapping[str, str] = {
    "Condition": "lastTransitionTime message observedGeneration reason status type",
    "ContainerState": (
        "running:ContainerStateRunning terminated:ContainerStateTerminated waiting:ContainerStateWaiting"
    ),
    "ContainerStateRunning": "startedAt",
    "ContainerStateTerminated": "containerID exitCode finishedAt message reason signal startedAt",
    "ContainerStateWaiting": "message reason",
    "ContainerStatus": (
        "allocatedResources allocatedResourcesStatus:ResourceStatus containerID image imageID "
        "lastState:ContainerState name ready resources:ResourceRequirements restartCount started "
        "state:ContainerState stopSignal user:ContainerUser volumeMounts:VolumeMountStatus"
    ),
    "ContainerUser": "linux:LinuxContainerUser",
    "HostIP": "ip",
    "IngressLoadBalancerIngress": "hostname ip ports:IngressPortStatus",
    "IngressLoadBalancerStatus": "ingress:IngressLoadBalancerIngress",
    "IngressPortStatus": "error port protocol",
    "IngressStatus": "loadBalancer:IngressLoadBalancerStatus",
    "LinuxContainerUser": "gid supplementalGroups uid",
    "LoadBalancerIngress": "hostname ip ipMode ports:PortStatus",
    "LoadBalancerStatus": "ingress:LoadBalancerIngress",
    "ModifyVolumeStatus": "status targetVolumeAttributesClassName",
    "PersistentVolumeClaimCondition": "lastProbeTime lastTransitionTime message reason status type",
    "PersistentVolumeClaimStatus": (
        "accessModes allocatedResourceStatuses allocatedResources capacity "
        "conditions:PersistentVolumeClaimCondition currentVolumeAttributesClassName "
        "modifyVolumeStatus:ModifyVolumeStatus phase"
    ),
    "PodCondition": "lastProbeTime lastTransitionTime message observedGeneration reason status type",
    "PodIP": "ip",
    "PodStatus": (
        "conditions:PodCondition containerStatuses:ContainerStatus "
        "ephemeralContainerStatuses:ContainerStatus extendedResourceClaimStatus hostIP hostIPs:HostIP "
        "initContainerStatuses:ContainerStatus message nominatedNodeName observedGeneration phase podIP "
        "podIPs:PodIP qosClass reason resize resourceClaimStatuses startTime"
    ),
    "PortStatus": "error port protocol",
    "ResourceClaim": "name request",
    "ResourceHealth": "health resourceID",
    "ResourceRequirements": "claims:ResourceClaim limits requests",
    "ResourceStatus": "name resources:ResourceHealth",
    "ServiceStatus": "conditions:Condition loadBalancer:LoadBalancerStatus",
    "VolumeMountStatus": "mountPath name readOnly recursiveReadOnly",
}

_TEXT = "without names of super namespaces, of other tenants and of their taints"
_CLAIMS = "ResourceClaims of the super cluster, which the tenant does not have"
_TEXTS = (
    *("Condition.message", "Condition.reason", "ContainerStateTerminated.message", "PodStatus.message"),
    *("ContainerStateTerminated.reason", "ContainerStateWaiting.message", "ContainerStateWaiting.reason"),
    *("PersistentVolumeClaimCondition.message", "PersistentVolumeClaimCondition.reason"),
    *("PodCondition.message", "PodCondition.reason", "PodStatus.reason", "PortStatus.error"),
    "IngressPortStatus.error",
)

# What is not simply copied, with what becomes of it.
MAPPED: Mapping[str, str] = {
    **dict.fromkeys(_TEXTS, _TEXT),
    "Condition.type": "by the kind: those that Kubernetes defines",
    "ContainerStatus.image": "the image of the pod, where the runtime knows it by another name",
    "ContainerStatus.imageID": "with the repository of the pod's image",
    "ContainerStatus.name": "containers of the tenant's pod",
    "HostIP.ip": "the address of the vNode",
    "PersistentVolumeClaimCondition.type": "by the kind: those that Kubernetes defines",
    "PodCondition.observedGeneration": "the tenant's, once it is observed",
    "PodCondition.type": "those that Kubernetes defines",
    "PodStatus.hostIP": "the address of the vNode",
    "PodStatus.observedGeneration": "the tenant's, once it is observed",
    "PodStatus.qosClass": "the tenant's, as it is immutable",
    "VolumeMountStatus.name": "volumes of the tenant's pod",
}
LEFT_OUT: Mapping[str, str] = {
    "Condition.observedGeneration": "of another object's generation",
    "PodStatus.extendedResourceClaimStatus": _CLAIMS,
    "PodStatus.nominatedNodeName": "a node on which the pod may never run",
    "PodStatus.resourceClaimStatuses": _CLAIMS,
}

CONDITIONS: Mapping[str, frozenset[str]] = {
    "Condition": frozenset({"LoadBalancerPortsError"}),
    "PersistentVolumeClaimCondition": frozenset(
        {
            "ControllerResizeError",
            "FileSystemResizePending",
            "ModifyVolumeError",
            "ModifyingVolume",
            "NodeResizeError",
            "Resizing",
        }
    ),
    "PodCondition": frozenset(
        {
            "ContainersReady",
            "DisruptionTarget",
            "Initialized",
            "PodReadyToStartContainers",
            "PodResizeInProgress",
            "PodResizePending",
            "PodScheduled",
            "Ready",
        }
    ),
}
"""Of each type of conditions those that Kubernetes defines. Others are of the super cluster's programs."""


_same = functools.cache(ShownField)  # most are equal to others


def _field(path: str, below: str) -> ShownField:
    if path in LEFT_OUT:
        return _same(Shown.LEFT_OUT, LEFT_OUT[path], below)
    if path in MAPPED:
        return _same(Shown.MAPPED, MAPPED[path], below)
    return _same(Shown.COPIED, "", below)


SHOWN: Mapping[str, Mapping[str, ShownField]] = fields_by_type(_TYPES, _field)
"""By type and name."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What `shown_part` does with an object of a type, or with each item of a list of them."""

    names: frozenset[str]
    """The fields that come up."""
    changed: frozenset[str]
    """Those of them that do not come up as they are: texts, and those that have a type."""
    below: "Mapping[str, tuple[_Rules, frozenset[str] | None]]"
    """The fields that have a type, with its rules; of a list of conditions also the types that come up."""


@functools.cache
def _rules(type_name: str) -> _Rules:
    shown = {name: field for name, field in SHOWN[type_name].items() if field.verdict is not Shown.LEFT_OUT}
    return _Rules(
        frozenset(shown),
        frozenset(
            name for name, field in shown.items() if field.type_name or f"{type_name}.{name}" in _TEXTS
        ),
        {
            name: (_rules(field.type_name), CONDITIONS.get(field.type_name))
            for name, field in shown.items()
            if field.type_name
        },
    )


_RULES: Mapping[str, _Rules] = {part: _rules(part) for part in PARTS}


def shown_part(part: str, value: Object, text: Callable[[str], str]) -> Object:
    """A copy of a value of the type `part`, one of PARTS, with what comes up of it; `text` maps texts.

    Names, images, addresses and metadata that are mapped in other ways are as they are in the super cluster.
    """
    return _shown(_RULES[part], value, text)


def _shown(rules: _Rules, value: Object, text: Callable[[str], str]) -> Object:
    names = rules.names
    # Nearly all have no other fields: a copy takes a tenth of looking at each.
    made: Object = (
        dict(value) if value.keys() <= names else {each: value[each] for each in value if each in names}
    )
    # A value has few of the fields of its type.
    for name in rules.changed & value.keys():
        found = value[name]
        if name not in rules.below:
            made[name] = text(found) if isinstance(found, str) else found
            continue
        below, types = rules.below[name]
        if isinstance(found, dict):
            made[name] = _shown(below, found, text)
        elif isinstance(found, list):
            made[name] = [
                _shown(below, item, text)
                for item in found
                if isinstance(item, dict) and (types is None or _is_of(item.get("type"), types))
            ]
    return made


def _is_of(value: object, types: frozenset[str]) -> bool:
    return isinstance(value, str) and value in types
