# SPDX-License-Identifier: Apache-2.0
"""SyncPolicy objects, parsed. Pure.

A list replaces the default list. But `deniedAnnotations` adds to it, and exceptions are named.
`packaging/crds/syncpolicies.yaml` has the same fields and bounds. The API server drops unknown fields of
objects; fields of an older or newer definition that reach this are errors.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from typing import Any

from syncer.core.objects import Object
from syncer.policy import limits, patterns, quantity
from syncer.policy.patterns import Patterns
from syncer.policy.refusal_list import shown
from syncer.policy.sync_policy import (
    ClaimPolicy,
    DisruptionBudgetLimits,
    EndpointPolicy,
    FieldLimits,
    HostUsers,
    ImagePull,
    IngressPolicy,
    MetadataPolicy,
    Network,
    NetworkLimits,
    NetworkPolicyLimits,
    PodPolicy,
    Privileged,
    ServicePolicy,
    SyncPolicy,
    VNodeCapacity,
    VNodeLimits,
    VNodeScope,
)
from tenancy import keys, names

KIND = "SyncPolicy"
MAX_ENTRIES = 256
"""Of each list: a policy is looked up for every object."""
MAX_CHARS = 317
"""Of an entry: the longest key of an annotation."""
MAX_CIDRS = 64
MAX_PEERS = 10_000
MAX_DRAIN_S = 7 * 24 * 3600

_HOST_NAMESPACES = ("Network", "PID", "IPC")
_SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
_QUOTA_NAMES = frozenset(
    {
        "configmaps",
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "persistentvolumeclaims",
        "pods",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
        "requests.storage",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
        limits.STORED_BYTES,
    }
)
_CLASS_QUOTAS = (
    ".storageclass.storage.k8s.io/persistentvolumeclaims",
    ".storageclass.storage.k8s.io/requests.storage",
)


class _Errors:
    """What is wrong, in the order in which it was found."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, path: str, message: str) -> None:
        if len(self.found) < MAX_ENTRIES:
            self.found.append(f"{path}: {message}")

    def mapping(self, path: str, value: Any) -> Mapping[str, Any]:
        if type(value) is dict:
            return value
        if value is not None:
            self.add(path, "must be an object")
        return {}

    def entries(self, path: str, value: Any, most: int = MAX_ENTRIES) -> list[tuple[str, str]]:
        """The strings of a list, each with its path."""
        if type(value) is not list:
            self.add(path, "must be a list")
            return []
        if len(value) > most:
            self.add(path, f"must have at most {most} entries")
            return []
        found = []
        for index, each in enumerate(value):
            if type(each) is str and len(each) <= MAX_CHARS:
                found.append((f"{path}[{index}]", each))
            else:
                self.add(f"{path}[{index}]", f"must be a string of at most {MAX_CHARS} characters")
        return found


_Parser = Callable[[_Errors, str, Any, Any], Any]
"""Of a field: (errors, path, value, default) to the field's value."""


def _text(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    if type(value) is str and len(value) <= MAX_CHARS:
        return value
    errors.add(path, f"must be a string of at most {MAX_CHARS} characters")
    return default


def _domain(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    found = _text(errors, path, value, default).lower().strip(".")
    if not found:
        errors.add(path, "must be a DNS domain")
    return found


def _switch(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    if type(value) is bool:
        return value
    errors.add(path, "must be true or false")
    return default


def _choice(members: type[StrEnum]) -> _Parser:
    def parse_choice(errors: _Errors, path: str, value: Any, default: Any) -> Any:
        for each in members:
            if value == each.value:
                return each
        errors.add(path, f"must be one of {', '.join(members)}")
        return default

    return parse_choice


def _names(*implied: str, of: tuple[str, ...] = ()) -> _Parser:
    def parse_names(errors: _Errors, path: str, value: Any, default: Any) -> Any:
        found = set(implied)
        for place, each in errors.entries(path, value):
            if of and each not in of:
                errors.add(place, f"must be one of {', '.join(of)}")
            found.add(each)
        return frozenset(found)

    return parse_names


def _pattern_entries(errors: _Errors, path: str, value: Any) -> tuple[str, ...]:
    found = []
    for place, each in errors.entries(path, value):
        if patterns.is_pattern(each):
            found.append(each)
        else:
            errors.add(place, "must be a name, or a pattern as a*, *a, a*b or *a*")
    return tuple(found)


def _patterns(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    return Patterns(_pattern_entries(errors, path, value))


def _more_patterns(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    return patterns.joined(default, _pattern_entries(errors, path, value))


def _hosts(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    return Patterns(tuple(each.lower() for each in _pattern_entries(errors, path, value)))


def _ports(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    if type(value) is not list or len(value) > MAX_ENTRIES:
        errors.add(path, f"must be a list of at most {MAX_ENTRIES} entries")
        return default
    for index, each in enumerate(value):
        if not _is_port(each):
            errors.add(f"{path}[{index}]", "must be a port from 1 to 65535")
    return frozenset(each for each in value if _is_port(each))


def _is_port(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 16


def _cidrs(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    found: list[Network] = []
    for place, each in errors.entries(path, value, MAX_CIDRS):
        try:
            found.append(ipaddress.ip_network(each))
        except ValueError:
            errors.add(place, "must be a range of addresses, as 10.0.0.0/8, whose host bits are 0")
    return tuple(found)


def _number(most: int) -> _Parser:
    def parse_number(errors: _Errors, path: str, value: Any, default: Any) -> Any:
        if type(value) is int and 0 <= value <= most:
            return value
        errors.add(path, f"must be a number from 0 to {most}")
        return default

    return parse_number


def _keys(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    found = errors.entries(path, value)
    for place, each in found:
        if not each:
            errors.add(place, "must not be empty")
    return tuple(each for _, each in found)


def _label_values(errors: _Errors, path: str, value: Any, default: Any) -> Any:
    found = errors.mapping(path, value)
    if len(found) > MAX_ENTRIES or not all(type(each) is str for each in found.values()):
        errors.add(path, f"must be at most {MAX_ENTRIES} labels with their values")
        return default
    return tuple(sorted(found.items()))


SECTIONS: Mapping[str, tuple[str, type, Mapping[str, tuple[str, _Parser]]]] = {
    "pods": (
        "pods",
        PodPolicy,
        {
            "runtimeClass": ("runtime_class", _text),
            "runtimeClasses": ("runtime_classes", _names()),
            "vmRuntimeClasses": ("vm_runtime_classes", _names()),
            "privileged": ("privileged", _choice(Privileged)),
            "hostNamespaces": ("host_namespaces", _names(of=_HOST_NAMESPACES)),
            "hostUsers": ("host_users", _choice(HostUsers)),
            "hostPorts": ("host_ports", _ports),
            "capabilities": ("capabilities", _names()),
            "seLinuxTypes": ("se_linux_types", _names("")),
            "sysctls": ("sysctls", _patterns),
            "volumeTypes": ("volume_types", _names()),
            "projectedSources": ("projected_sources", _names()),
            "csiDrivers": ("csi_drivers", _names()),
            "allowHandlerHosts": ("allow_handler_hosts", _switch),
            "allowNodeName": ("allow_node_name", _switch),
            "allowResourceClaims": ("allow_resource_claims", _switch),
            "extendedResources": ("extended_resources", _patterns),
            "imagePull": ("image_pull", _choice(ImagePull)),
            "schedulers": ("schedulers", _names("")),
            "tolerationKeys": ("toleration_keys", _patterns),
            "nodeLabels": ("node_labels", _patterns),
            "priorityClasses": ("priority_classes", _patterns),
            "deniedAnnotations": ("denied_annotations", _more_patterns),
            "allowedAnnotations": ("allowed_annotations", _patterns),
        },
    ),
    "metadata": (
        "metadata",
        MetadataPolicy,
        {
            "allowedLabels": ("allowed_labels", _patterns),
            "allowedAnnotations": ("allowed_annotations", _patterns),
            "withheldKeys": ("withheld_keys", _patterns),
        },
    ),
    "services": (
        "services",
        ServicePolicy,
        {
            "types": ("types", _names(of=_SERVICE_TYPES)),
            "externalCIDRs": ("external_cidrs", _cidrs),
            "loadBalancerCIDRs": ("load_balancer_cidrs", _cidrs),
            "loadBalancerClasses": ("load_balancer_classes", _names()),
            "clusterDomain": ("cluster_domain", _domain),
            "externalNames": ("external_names", _hosts),
            "deniedAnnotations": ("denied_annotations", _more_patterns),
            "allowedAnnotations": ("allowed_annotations", _patterns),
        },
    ),
    "endpoints": (
        "endpoints",
        EndpointPolicy,
        {"deniedCIDRs": ("denied_cidrs", _cidrs), "allowedCIDRs": ("allowed_cidrs", _cidrs)},
    ),
    "claims": (
        "claims",
        ClaimPolicy,
        {
            "storageClasses": ("storage_classes", _names()),
            "volumeAttributesClasses": ("attributes_classes", _names()),
        },
    ),
    "ingresses": (
        "ingresses",
        IngressPolicy,
        {
            "classes": ("classes", _names()),
            "hosts": ("hosts", _hosts),
            "deniedAnnotations": ("denied_annotations", _more_patterns),
            "allowedAnnotations": ("allowed_annotations", _patterns),
        },
    ),
    "networkPolicies": (
        "network_policies",
        NetworkPolicyLimits,
        {"maxPeers": ("max_peers", _number(MAX_PEERS))},
    ),
    "podDisruptionBudgets": (
        "pod_disruption_budgets",
        DisruptionBudgetLimits,
        {"maxDrainSeconds": ("max_drain_seconds", _number(MAX_DRAIN_S))},
    ),
    "networks": ("networks", NetworkLimits, {"vpcIDs": ("vpc_ids", _patterns)}),
    "fields": ("fields", FieldLimits, {"allowed": ("allowed", _patterns)}),
    "vNodes": (
        "v_nodes",
        VNodeLimits,
        {
            "scope": ("scope", _choice(VNodeScope)),
            "nodeLabels": ("node_labels", _label_values),
            "labels": ("labels", _keys),
            "taints": ("taints", _keys),
            "capacity": ("capacity", _choice(VNodeCapacity)),
            "schedulable": ("is_schedulable", _switch),
        },
    ),
}


def parse(obj: Object) -> SyncPolicy | tuple[str, ...]:
    """The policy of a SyncPolicy object, or all its errors with their paths."""
    errors = _Errors()
    _check_names(errors, "", obj, ("apiVersion", "kind", "metadata", "spec"))
    # An API server leaves both out of a list's items, of some kinds.
    if obj.get("apiVersion", keys.API_VERSION) != keys.API_VERSION:
        errors.add("apiVersion", f"must be {keys.API_VERSION}")
    if obj.get("kind", KIND) != KIND:
        errors.add("kind", f"must be {KIND}")
    spec = errors.mapping("spec", obj.get("spec"))
    _check_names(errors, "spec", spec, (*SECTIONS, "quota"))
    sections = {
        attribute: _section(errors, f"spec.{name}", spec.get(name), type_, parsers)
        for name, (attribute, type_, parsers) in SECTIONS.items()
    }
    found = SyncPolicy(**sections, quota=_quota(errors, spec.get("quota")))
    return tuple(errors.found) or found


def _check_names(errors: _Errors, path: str, value: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in value:
        if name not in known:
            errors.add(f"{path}.{shown(name)}" if path else shown(name), "is unknown")


def _section(
    errors: _Errors, path: str, value: Any, type_: type, parsers: Mapping[str, tuple[str, _Parser]]
) -> Any:
    found = errors.mapping(path, value)
    _check_names(errors, path, found, tuple(parsers))
    defaults = {each.name: _default(each) for each in fields(type_)}
    return type_(
        **{
            attribute: parser(errors, f"{path}.{name}", found[name], defaults[attribute])
            for name, (attribute, parser) in parsers.items()
            if found.get(name) is not None
        }
    )


def _default(value: "Field[Any]") -> Any:
    return None if value.default is MISSING else value.default


def _quota(errors: _Errors, value: Any) -> tuple[tuple[str, int], ...]:
    quota = errors.mapping("spec.quota", value)
    _check_names(errors, "spec.quota", quota, ("hard",))
    hard = errors.mapping("spec.quota.hard", quota.get("hard"))
    if len(hard) > MAX_ENTRIES:
        errors.add("spec.quota.hard", f"must have at most {MAX_ENTRIES} entries")
        return ()
    found = []
    for name, limit in sorted(hard.items()):
        path = f"spec.quota.hard[{shown(name)}]"
        parsed = quantity.parse(limit)
        if not _is_quota_name(name):
            errors.add(path, "is no resource that is counted")
        elif parsed is None or parsed < 0:
            errors.add(path, "must be a quantity that is not negative, as 10, 500m or 2Gi")
        else:
            found.append((name, parsed))
    return tuple(found)


def _is_quota_name(name: str) -> bool:
    if name in _QUOTA_NAMES or name in limits.CORE_COUNTS or name.endswith(_CLASS_QUOTAS):
        return True
    if name.startswith(limits.COUNT_PREFIX):
        resource, dot, group = name.removeprefix(limits.COUNT_PREFIX).partition(".")
        return bool(dot) and names.is_dns_label(resource) and names.is_pod_name(group)
    resource = name.removeprefix("requests.")
    return resource != name and ("/" in resource or resource.startswith("hugepages-"))
