# SPDX-License-Identifier: Apache-2.0
"""What one object uses of a quota, by the rules of Kubernetes' own quotas. Pure.

docs/spec/sync-policy.md#quota has the names and the formula for pods.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from syncer.core.objects import Object
from syncer.policy import quantity

Usage = Mapping[str, int]
"""Billionths by name in a ResourceQuota."""

NOTHING_USED: Usage = MappingProxyType({})

_TERMINAL = ("Succeeded", "Failed")
_SIDES = ("requests", "limits")
# Kubernetes keeps no quota of other limits.
_LIMITED = frozenset({"cpu", "memory", "ephemeral-storage"})
# What `spec.resources` of a pod replaces.
_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def of_object(kind: str, value: Object) -> Usage:
    """What an object of this kind uses; nothing for kinds without a quota."""
    found = _KINDS.get(kind)
    return NOTHING_USED if found is None else found(value)


def of_pod(pod: Object) -> Usage:
    """Nothing once it has ended. Init containers run one by one, so the largest counts; sidecars stay."""
    if _fields(pod.get("status")).get("phase") in _TERMINAL:
        return NOTHING_USED
    found = {"pods": quantity.UNIT}
    for side in _SIDES:
        for name, amount in _of_pod_side(pod, side).items():
            if side == "requests" or name in _LIMITED:
                found[f"{side}.{name}"] = amount
    return found


def _of_pod_side(pod: Object, side: str) -> Mapping[str, int]:
    spec = _fields(pod.get("spec"))
    statuses = _statuses(pod)
    running: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for each in _items(spec.get("containers")):
        _add(running, _of_container(_fields(each), side, statuses))
    for each in _items(spec.get("initContainers")):
        container = _fields(each)
        if container.get("restartPolicy") == "Always":
            amounts = _of_container(container, side, statuses)
            _add(running, amounts)
            _add(sidecars, amounts)
        else:
            # What sidecars have of other names is in `running`: only these can be more beside them.
            for name, amount in _amounts(container, side).items():
                peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + amount)
    _raise(running, peak)
    running.update(_of_pod_level(spec, side, running))
    for name, value in _fields(spec.get("overhead")).items():
        # Of a limit that no operator set there is nothing more.
        if side == "requests" or running.get(name):
            running[name] = running.get(name, 0) + _amount(value)
    return running


def _of_pod_level(spec: Mapping[str, Any], side: str, running: Mapping[str, int]) -> Mapping[str, int]:
    """What `spec.resources` of the pod has instead of its containers' (defaults: SetDefaults_Pod).

    A request that only a limit states is that of the containers, or else the limit.
    """
    resources = _fields(spec.get("resources"))
    found = {name: _amount(value) for name, value in _fields(resources.get(side)).items()}
    if side == "requests":
        for name, value in _fields(resources.get("limits")).items():
            if name not in found and name not in running:
                found[name] = _amount(value)
    return {name: found[name] for name in found if name in _POD_LEVEL or name.startswith(_HUGE_PAGES)}


def _statuses(pod: Object) -> Mapping[str, Mapping[str, Any]]:
    """The statuses of containers, by name."""
    status = _fields(pod.get("status"))
    found = (*_items(status.get("containerStatuses")), *_items(status.get("initContainerStatuses")))
    return {str(_fields(each).get("name")): _fields(each) for each in found}


def _of_container(
    container: Mapping[str, Any], side: str, statuses: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, int]:
    """What a container asks for, or still has: a resize that makes it smaller ends with the kubelet's."""
    found = _amounts(container, side)
    status = statuses.get(str(container.get("name")))
    if status is None:
        return found
    # A status has what is so, and without it Kubernetes reads nothing of the container's.
    actual = _fields(status.get("resources"))
    if not actual:
        return found
    total = dict(found)
    of_status = [_fields(actual.get(side))]
    if side == "requests":
        of_status.append(_fields(status.get("allocatedResources")))
    for each in of_status:
        _raise(total, {name: _amount(value) for name, value in each.items()})
    return total


def reduced_part(pod: Object, resize: Object) -> Object:
    """The part of a resize of this pod that asks for less, as a patch like it; empty if nothing does."""
    made: dict[str, list[Object]] = {}
    for field, changes in _fields(resize.get("spec")).items():
        there = {
            _fields(each).get("name"): _fields(each) for each in _items(_fields(pod.get("spec")).get(field))
        }
        for change in _items(changes):
            actual = _fields(there.get(change["name"], NOTHING_USED).get("resources"))
            less = {
                side: {
                    name: value
                    for name, value in amounts.items()
                    if _amount(value) < _amount(_fields(actual.get(side)).get(name, 0))
                }
                for side, amounts in change["resources"].items()
            }
            if any(less.values()):
                resources = {side: amounts for side, amounts in less.items() if amounts}
                made.setdefault(field, []).append({"name": change["name"], "resources": resources})
    return {"spec": made} if made else {}


def of_service(service: Object) -> Usage:
    """A node port for each port, of a load balancer that allocates none for those that name one."""
    spec = _fields(service.get("spec"))
    found: dict[str, int] = {}
    is_balanced = spec.get("type") == "LoadBalancer"
    if is_balanced:
        found["services.loadbalancers"] = quantity.UNIT
    if is_balanced or spec.get("type") == "NodePort":
        ports = _items(spec.get("ports"))
        if is_balanced and spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [each for each in ports if _fields(each).get("nodePort")]
        found["services.nodeports"] = len(ports) * quantity.UNIT
    return found


def of_claim(claim: Object) -> Usage:
    """Its storage, and both by its storage class. What an expansion has allocated counts until it is undone.

    The annotation of the class comes before the field, as in Kubernetes (GetPersistentVolumeClaimClass).
    """
    spec = _fields(claim.get("spec"))
    asked = _fields(_fields(spec.get("resources")).get("requests")).get("storage")
    allocated = _fields(_fields(claim.get("status")).get("allocatedResources")).get("storage")
    storage = 0
    if asked is not None:
        storage = max(_amount(asked), 0 if allocated is None else _amount(allocated))
    # Whole bytes, as Kubernetes counts them (https://issue.k8s.io/94313).
    storage = -(-storage // quantity.UNIT) * quantity.UNIT
    found = {"requests.storage": storage}
    annotations = _fields(_fields(claim.get("metadata")).get("annotations"))
    name = annotations.get(_CLASS_ANNOTATION) or spec.get("storageClassName")
    if type(name) is str and name:
        found[f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims"] = quantity.UNIT
        found[f"{name}.storageclass.storage.k8s.io/requests.storage"] = storage
    return found


_KINDS: Mapping[str, Callable[[Object], Usage]] = MappingProxyType(
    {"Pod": of_pod, "Service": of_service, "PersistentVolumeClaim": of_claim}
)


def _fields(value: Any) -> Mapping[str, Any]:
    return value if type(value) is dict else NOTHING_USED


def _items(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _amounts(container: Mapping[str, Any], side: str) -> Mapping[str, int]:
    """The API server takes a limit for the request that is left out (SetDefaults_Pod)."""
    resources = _fields(container.get("resources"))
    stated = _fields(resources.get(side))
    if side == "requests":
        stated = {**_fields(resources.get("limits")), **stated}
    return {name: _amount(value) for name, value in stated.items()}


def _amount(value: Any) -> int:
    """What cannot be read counts as all there is: the API server of the tenant would have refused it."""
    found = quantity.parse(value)
    return quantity.MAX_NANOS if found is None else max(found, 0)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        if amount > total.get(name, 0):
            total[name] = amount
