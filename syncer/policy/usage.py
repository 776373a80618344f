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


def of_object(kind: str, value: Object) -> Usage:
    """What an object of this kind uses; nothing for kinds without a quota."""
    found = _KINDS.get(kind)
    return NOTHING_USED if found is None else found(value)


def of_pod(pod: Object) -> Usage:
    """Nothing once it has ended. Init containers run one by one, so the largest counts; sidecars stay."""
    if _fields(pod.get("status")).get("phase") in _TERMINAL:
        return NOTHING_USED
    spec = _fields(pod.get("spec"))
    found = {"pods": quantity.UNIT}
    for side in _SIDES:
        for name, amount in _of_pod_side(spec, side).items():
            if side == "requests" or name in _LIMITED:
                found[f"{side}.{name}"] = amount
    return found


def _of_pod_side(spec: Mapping[str, Any], side: str) -> Mapping[str, int]:
    running: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for each in _items(spec.get("containers")):
        _add(running, _amounts(_fields(each), side))
    for each in _items(spec.get("initContainers")):
        container = _fields(each)
        amounts = _amounts(container, side)
        if container.get("restartPolicy") == "Always":
            _add(running, amounts)
            _add(sidecars, amounts)
            _raise(peak, sidecars)
        else:
            total = dict(sidecars)
            _add(total, amounts)
            _raise(peak, total)
    _raise(running, peak)
    of_pod = _amounts(spec, side)
    running.update(
        {name: of_pod[name] for name in of_pod if name in _POD_LEVEL or name.startswith("hugepages-")}
    )
    for name, value in _fields(spec.get("overhead")).items():
        # Of a limit that nobody set there is nothing more.
        if side == "requests" or name in running:
            running[name] = running.get(name, 0) + _amount(value)
    return running


def of_service(service: Object) -> Usage:
    """A node port for each port, also of a load balancer that allocates them."""
    spec = _fields(service.get("spec"))
    found = {"services": quantity.UNIT}
    is_balanced = spec.get("type") == "LoadBalancer"
    if is_balanced:
        found["services.loadbalancers"] = quantity.UNIT
    if spec.get("type") == "NodePort" or (
        is_balanced and spec.get("allocateLoadBalancerNodePorts") is not False
    ):
        found["services.nodeports"] = len(_items(spec.get("ports"))) * quantity.UNIT
    return found


def of_claim(claim: Object) -> Usage:
    """A claim and its storage, together and by storage class."""
    spec = _fields(claim.get("spec"))
    requests = _fields(_fields(spec.get("resources")).get("requests"))
    storage = _amount(requests["storage"]) if "storage" in requests else 0
    found = {"persistentvolumeclaims": quantity.UNIT, "requests.storage": storage}
    if type(name := spec.get("storageClassName")) is str and name:
        found[f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims"] = quantity.UNIT
        found[f"{name}.storageclass.storage.k8s.io/requests.storage"] = storage
    return found


def _of_configmap(_: Object) -> Usage:
    return {"configmaps": quantity.UNIT}


def _of_secret(_: Object) -> Usage:
    return {"secrets": quantity.UNIT}


_KINDS: Mapping[str, Callable[[Object], Usage]] = MappingProxyType(
    {
        "Pod": of_pod,
        "Service": of_service,
        "PersistentVolumeClaim": of_claim,
        "ConfigMap": _of_configmap,
        "Secret": _of_secret,
    }
)


def _fields(value: Any) -> Mapping[str, Any]:
    return value if type(value) is dict else NOTHING_USED


def _items(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _amounts(container: Mapping[str, Any], side: str) -> Mapping[str, int]:
    resources = _fields(container.get("resources"))
    return {name: _amount(value) for name, value in _fields(resources.get(side)).items()}


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
