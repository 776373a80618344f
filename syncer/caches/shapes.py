# SPDX-License-Identifier: Apache-2.0
"""The shape of the fields that plans read, kind by kind: asked once, when an object comes into a cache.

An API server gives its objects their shape, as the OpenAPI documents of Kubernetes say. A tenant's may be any
program. So plans need not ask of each field what it is, and its author reads which one is wrong. Fields that
are not named here pass as they are.
"""

import functools
from collections.abc import Mapping
from types import NoneType
from typing import Any

import msgspec

from syncer.core.objects import Object

Shape = Any
"""A type, `{field: shape}` for an object, `[shape]` for a list, a `_Map`, or a `_Required` field."""


class _Map:
    """An object with any keys."""

    def __init__(self, values: Shape) -> None:
        self.values = values


class _NotNull:
    """A text that is no null where it is there."""


class _Required:
    """A field without which there is no such object."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


class _Types:
    """The types to which msgspec converts. Each field may be missing.

    Of a shape that many fields have there is one: a type takes 3 KB.
    """

    def __init__(self) -> None:
        self._made: list[tuple[Shape, Any]] = []

    def of(self, shape: Shape) -> Any:
        if isinstance(shape, _Map):
            return dict[str, self.of(shape.values)]  # type: ignore[misc] # a type that is computed
        if isinstance(shape, list):
            return list[self.of(shape[0])]  # type: ignore[misc] # a type that is computed
        if not isinstance(shape, dict):
            return shape
        for known, found in self._made:
            if known == shape:
                return found
        fields = [self._field(f"f{number}", below) for number, below in enumerate(shape.values())]
        renamed = {f"f{number}": field for number, field in enumerate(shape)}
        made = msgspec.defstruct("Shape", fields, rename=renamed, frozen=True, gc=False, kw_only=True)
        self._made.append((shape, made))
        return made

    def _field(self, field: str, shape: Shape) -> tuple[str, Any] | tuple[str, Any, Any]:
        """Go writes null for a list, a map or a pointer without a value, but never for a structure or a
        name."""
        if isinstance(shape, _Required):
            return field, self.of(shape.shape)
        if shape is _NotNull:
            return field, str, ""
        if isinstance(shape, dict):
            return field, self.of(shape) | msgspec.UnsetType, msgspec.UNSET
        return field, self.of(shape) | NoneType, None


_QUANTITY = str | int | float
_TEXTS = _Map(str)
_NAMED = {"name": str}
_SELECTOR = {
    "matchLabels": _TEXTS,
    "matchExpressions": [{"key": str, "operator": str, "values": [str]}],
}
_METADATA = {
    **dict.fromkeys(("name", "namespace", "uid", "resourceVersion"), _NotNull),
    **dict.fromkeys(("generateName", "deletionTimestamp"), str),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), int),
    **dict.fromkeys(("labels", "annotations"), _TEXTS),
    "finalizers": [str],
    "ownerReferences": [{"kind": str, "name": str, "uid": str, "controller": bool}],
}
_CONDITION = {
    **dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"), str),
    "observedGeneration": int,
}
_FIELD = {"fieldRef": {"fieldPath": str}}
_LOAD_BALANCER = {"loadBalancer": {"ingress": [{"ip": str, "hostname": str}]}}

_CONTAINER = {
    **dict.fromkeys(("name", "image", "imagePullPolicy"), str),
    "env": [{"name": _Required(str), "value": str, "valueFrom": _FIELD}],
    "envFrom": [{"configMapRef": _NAMED, "secretRef": _NAMED, "prefix": str}],
    "resources": {"requests": _Map(_QUANTITY), "limits": _Map(_QUANTITY)},
    "volumeMounts": [_NAMED],
}
_ITEMS = {"items": [_FIELD]}
_VOLUME = {
    "name": str,
    "secret": {"secretName": str, "optional": bool},
    "configMap": _NAMED,
    "persistentVolumeClaim": {"claimName": str},
    "downwardAPI": _ITEMS,
    "projected": {
        "sources": [
            {
                "configMap": _NAMED,
                "secret": _NAMED,
                "downwardAPI": _ITEMS,
                "serviceAccountToken": {"path": str, "audience": str, "expirationSeconds": int},
            }
        ]
    },
}
_NODE_TERM = {
    "matchExpressions": [{"key": str, "operator": str, "values": [str]}],
    "matchFields": [{"key": str, "operator": str, "values": [str]}],
}
_POD_TERM = {
    "labelSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
    "namespaces": [str],
    "topologyKey": str,
    "matchLabelKeys": [str],
    "mismatchLabelKeys": [str],
}
_POD_TERMS = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": int, "podAffinityTerm": _POD_TERM}],
}
_CONTAINER_STATUS = {
    "name": str,
    "volumeMounts": [_NAMED],
    "state": {"running": {"startedAt": str}, "waiting": {"reason": str}, "terminated": {"exitCode": int}},
}
_POD_SPEC = {
    **{field: [_CONTAINER] for field in ("containers", "initContainers", "ephemeralContainers")},
    **dict.fromkeys(("nodeName", "serviceAccountName", "runtimeClassName", "dnsPolicy"), str),
    **dict.fromkeys(("hostname", "subdomain", "schedulerName"), str),
    **dict.fromkeys(("terminationGracePeriodSeconds", "activeDeadlineSeconds"), int),
    **dict.fromkeys(("enableServiceLinks", "hostNetwork", "setHostnameAsFQDN"), bool),
    "volumes": [_VOLUME],
    "tolerations": [{**dict.fromkeys(("key", "operator", "value", "effect"), str)}],
    "nodeSelector": _TEXTS,
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODE_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"preference": _NODE_TERM}],
        },
        "podAffinity": _POD_TERMS,
        "podAntiAffinity": _POD_TERMS,
    },
    "topologySpreadConstraints": [{"labelSelector": _SELECTOR, "matchLabelKeys": [str]}],
    "readinessGates": [{"conditionType": str}],
    "schedulingGates": [_NAMED],
    "hostAliases": [{"ip": str, "hostnames": [str]}],
    "imagePullSecrets": [_NAMED],
    "securityContext": {"fsGroup": int, "runAsUser": int},
    "dnsConfig": {
        "nameservers": [str],
        "searches": [str],
        "options": [{"name": str, "value": str}],
    },
}
_POD = {
    "spec": _Required(_POD_SPEC),
    "status": {
        **dict.fromkeys(("phase", "qosClass", "podIP", "hostIP", "message", "reason"), str),
        "containerStatuses": [_CONTAINER_STATUS],
        "initContainerStatuses": [_CONTAINER_STATUS],
        "ephemeralContainerStatuses": [_CONTAINER_STATUS],
        "observedGeneration": int,
        "podIPs": [{"ip": str}],
        "conditions": [_CONDITION],
    },
}
_TARGET = dict.fromkeys(("kind", "name", "namespace", "uid"), str)
_ADDRESS = {"ip": str, "hostname": str, "nodeName": str, "targetRef": _TARGET}
_PORT = {"name": str, "port": int, "protocol": str, "nodePort": int}
_PEER = {"podSelector": _SELECTOR, "namespaceSelector": _SELECTOR}
_CLAIM_REF = dict.fromkeys(("name", "namespace", "uid"), str)

_OF_KIND: Mapping[str, Shape] = {
    "Pod": _POD,
    "Service": {
        "spec": {
            **dict.fromkeys(("type", "clusterIP", "ipFamilyPolicy", "externalName"), str),
            **{field: [str] for field in ("clusterIPs", "ipFamilies", "externalIPs")},
            "selector": _TEXTS,
            "ports": [_PORT],
        },
        "status": _LOAD_BALANCER,
    },
    "Endpoints": {
        "subsets": [
            {"addresses": [_ADDRESS], "notReadyAddresses": [_ADDRESS], "ports": [{"name": str, "port": int}]}
        ]
    },
    "EndpointSlice": {
        "addressType": str,
        "endpoints": [{"addresses": [str], "nodeName": str, "targetRef": _TARGET}],
        "ports": [{"name": str, "port": int}],
    },
    "ConfigMap": {"data": _TEXTS, "binaryData": _TEXTS, "immutable": bool},
    "Secret": {"data": _TEXTS, "type": str, "immutable": bool},
    "ServiceAccount": {"imagePullSecrets": [_NAMED], "automountServiceAccountToken": bool},
    "PersistentVolumeClaim": {
        "spec": {
            **dict.fromkeys(
                ("volumeName", "storageClassName", "volumeMode", "volumeAttributesClassName"), str
            ),
            "accessModes": [str],
            "resources": {"requests": _Map(_QUANTITY)},
            "selector": _SELECTOR,
        },
        "status": {"phase": str, "capacity": _Map(_QUANTITY), "conditions": [_CONDITION]},
    },
    "PersistentVolume": {
        "spec": {
            "claimRef": _CLAIM_REF,
            "capacity": _Map(_QUANTITY),
            "storageClassName": str,
            "csi": {"driver": str},
        },
        "status": {"phase": str},
    },
    "Ingress": {
        "spec": {
            "ingressClassName": str,
            "rules": [{"host": str}],
            "tls": [{"hosts": [str], "secretName": str}],
        },
        "status": _LOAD_BALANCER,
    },
    "NetworkPolicy": {
        "spec": {
            "podSelector": _SELECTOR,
            "policyTypes": [str],
            "ingress": [{"from": [_PEER], "ports": [{"protocol": str}]}],
            "egress": [{"to": [_PEER], "ports": [{"protocol": str}]}],
        }
    },
    "PodDisruptionBudget": {
        "spec": {"selector": _SELECTOR, "minAvailable": str | int, "maxUnavailable": str | int},
        "status": {"observedGeneration": int, "desiredHealthy": int},
    },
    "Namespace": {"status": {"phase": str}},
    "Network": {"spec": {"type": str, "vpcID": str}, "status": {"phase": str}},
    "RuntimeClass": {"handler": str, "scheduling": {"nodeSelector": _TEXTS, "tolerations": [_Map(Any)]}},
}

# Of all other kinds too: custom resources have these two, if they have them, as objects.
_ANY = {"status": _Map(Any)}
_TYPES = _Types()


@functools.cache  # of few kinds there are objects
def _type_of(kind: str) -> Any:
    return _TYPES.of({"metadata": _METADATA, **_OF_KIND.get(kind, _ANY)})


def check(kind: str, value: Object) -> None:
    """Ask whether an object has the shape of its kind. Raises msgspec.ValidationError with the path."""
    msgspec.convert(value, _type_of(kind))


def path_and_message(reason: str) -> tuple[str, str]:
    """A reason of `check` as the field's path, and what is wrong; `object` where it names no field."""
    message, found, path = reason.rpartition(" - at `$.")
    return (path.rstrip("`"), message) if found else ("object", reason)
