# SPDX-License-Identifier: Apache-2.0
"""What an API server adds to objects, as far as cases show it, and what the cases leave out."""

import base64
import copy
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

_IDENTITY = (
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "deletionTimestamp"),
    "deletionGracePeriodSeconds",
)

_PROBE = {"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}


def set_defaults(kind: str, value: Object, address: Callable[[], str], port: Callable[[], int]) -> None:
    """Change an object as an API server does when it creates or changes it."""
    match kind:
        case "Service":
            _service(value, address, port)
        case "Secret":
            _secret(value)
        case "Pod":
            _pod(value)
        case "Endpoints":
            for subset in value.get("subsets") or ():
                for each in subset.get("ports") or ():
                    each.setdefault("protocol", "TCP")
        case "Ingress":
            value.setdefault("status", {}).setdefault("loadBalancer", {})
        case "PersistentVolumeClaim":
            value["spec"].setdefault("volumeMode", "Filesystem")
            value["metadata"].setdefault("finalizers", ["kubernetes.io/pvc-protection"])
        case "PersistentVolume":
            value["spec"].setdefault("volumeMode", "Filesystem")
            value["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
            value["metadata"].setdefault("finalizers", ["kubernetes.io/pv-protection"])
        case "StorageClass":
            value.setdefault("reclaimPolicy", "Delete")
            value.setdefault("volumeBindingMode", "Immediate")
        case "PriorityClass":
            value.setdefault("preemptionPolicy", "PreemptLowerPriority")
        case "CustomResourceDefinition":
            value["spec"].setdefault("conversion", {"strategy": "None"})


def _service(value: Object, address: Callable[[], str], port: Callable[[], int]) -> None:
    spec = value.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    value.setdefault("status", {}).setdefault("loadBalancer", {})
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        spec["clusterIP"] = address()
    for each in spec.get("ports") or ():
        each.setdefault("protocol", "TCP")
        each.setdefault("targetPort", each["port"])
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        if spec.get("externalTrafficPolicy") == "Local":
            spec.setdefault("healthCheckNodePort", port())
    if spec["type"] == "NodePort" or spec.get("allocateLoadBalancerNodePorts"):
        for each in spec.get("ports") or ():
            each.setdefault("nodePort", port())
    for each in ((value.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        if "ip" in each:
            each.setdefault("ipMode", "VIP")


def _secret(value: Object) -> None:
    for name, text in (value.pop("stringData", None) or {}).items():
        value.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()
    value.setdefault("type", "Opaque")
    if value["type"] == "kubernetes.io/service-account-token" and "data" not in value:  # its controller's
        namespace = base64.b64encode(value["metadata"]["namespace"].encode()).decode()
        value["data"] = {"ca.crt": "Y2E=", "namespace": namespace, "token": "dG9rZW4="}


def _pod(value: Object) -> None:
    spec = value["spec"]
    for each in (value.get("status") or {}).get("containerStatuses") or ():
        each.setdefault("lastState", {})
    for name, default in (
        ("dnsPolicy", "ClusterFirst"),
        ("enableServiceLinks", True),
        ("serviceAccountName", "default"),
        ("terminationGracePeriodSeconds", 30),
    ):
        spec.setdefault(name, default)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        _container(container)
    for volume in spec.get("volumes") or ():
        for name in ("downwardAPI", "secret", "configMap", "projected"):
            if name in volume:
                volume[name].setdefault("defaultMode", 420)
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            for each in (source.get("downwardAPI") or {}).get("items") or ():
                if "fieldRef" in each:
                    each["fieldRef"].setdefault("apiVersion", "v1")


def _container(container: Object) -> None:
    for each in container.get("env") or ():
        source = each.get("valueFrom") or {}
        if "fieldRef" in source:
            source["fieldRef"].setdefault("apiVersion", "v1")
        if "resourceFieldRef" in source:
            source["resourceFieldRef"].setdefault("divisor", "0")
    for each in container.get("ports") or ():
        each.setdefault("protocol", "TCP")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            container[name] = _PROBE | container[name]
            if "httpGet" in container[name]:
                container[name]["httpGet"].setdefault("scheme", "HTTP")
            if "grpc" in container[name]:
                container[name]["grpc"].setdefault("service", "")
    resources = container.get("resources") or {}
    for name, quantity in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, quantity)


def compared(kind: str, value: Object, user_env: dict[str, list[str]] | None = None) -> Object:
    """What of an object is compared: without what the header of the cases leaves out."""
    found = copy.deepcopy(value)
    for name in ("apiVersion", "kind"):
        found.pop(name, None)
    meta = found.setdefault("metadata", {})
    for name in _IDENTITY:
        meta.pop(name, None)
    for name in ("labels", "annotations", "ownerReferences"):
        if not meta.get(name):
            meta.pop(name, None)
    _drop_versions(found)
    match kind:
        case "Service":
            _drop(
                found.get("spec", {}),
                clusterIPs=...,
                sessionAffinity="None",
                ipFamilies=["IPv4"],
                ipFamilyPolicy="SingleStack",
                internalTrafficPolicy="Cluster",
                externalTrafficPolicy="Cluster",
            )
        case "Namespace":
            found.pop("spec", None)
            labels = meta.get("labels") or {}
            if labels.get("kubernetes.io/metadata.name") == meta.get("name"):
                del labels["kubernetes.io/metadata.name"]
        case "Pod":
            _compared_pod(found, user_env or {})
        case "Event":
            for name in [name for name, field in found.items() if field in (None, "", {})]:
                del found[name]
    return found


def _compared_pod(found: Object, user_env: dict[str, list[str]]) -> None:
    spec = found.get("spec") or {}
    _drop(
        spec,
        schedulerName="default-scheduler",
        securityContext={},
        restartPolicy="Always",
        preemptionPolicy="PreemptLowerPriority",
        priority=0,
        serviceAccount=...,
        dnsPolicy="ClusterFirst",
    )
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        _drop(
            container,
            resources={},
            terminationMessagePath=...,
            terminationMessagePolicy=...,
            imagePullPolicy="IfNotPresent",
        )
        if container.get("env"):
            names = user_env.get(container["name"], [])
            users = [each for each in container["env"] if each["name"] in names]
            others = [each for each in container["env"] if each["name"] not in names]
            container["env"] = users + sorted(others, key=lambda each: str(each["name"]))
    tolerations = [each for each in spec.get("tolerations") or () if each.get("tolerationSeconds") != 300]
    spec.pop("tolerations", None)
    if tolerations:
        spec["tolerations"] = tolerations


def _drop(value: Object, **defaults: Any) -> None:
    """Drop fields that have their default; `...` is any value."""
    for name, default in defaults.items():
        if name in value and (default is ... or value[name] == default):
            del value[name]


def _drop_versions(value: Any) -> None:
    """Drop nulls and resource versions at any depth."""
    if isinstance(value, dict):
        for name in [name for name, field in value.items() if field is None or name == "resourceVersion"]:
            del value[name]
        for field in value.values():
            _drop_versions(field)
    elif isinstance(value, list):
        for each in value:
            _drop_versions(each)
