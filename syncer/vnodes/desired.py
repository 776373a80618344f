# SPDX-License-Identifier: Apache-2.0
"""The vNode that a tenant should see for a super node, and how an existing one becomes it. Pure.

A vNode has what the tenant needs to know of a machine that it shares: whether it is alive, and where vn-agent
listens. It has no identity of the machine, no kernel version and no address but that of vn-agent.
"""

import enum
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daemonkit.kube.resources import NODES
from syncer.core.objects import (
    Object,
    SyncedKind,
    annotations_of,
    labels_of,
    merge_patch,
    metadata,
    name_of,
    uid_of,
    version_of,
)
from syncer.core.plan import Patch, Side
from syncer.policy import quantity
from syncer.policy.sync_policy import VNodeScope as VNodeScope
from tenancy import keys

KIND = SyncedKind(NODES, "Node")
# A kubelet has one of each IP family. A tenant may write as many into its vNodes.
_MOST_ADDRESSES = 2

ALWAYS_LABELS = ("kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os")
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
CORDONED = "SuperNodeCordoned"
"""The condition of a vNode, unschedulable anyway, whose super node is cordoned."""

# What a kubelet or a network's controller sets. Others, as those of node-problem-detector or of our start
# gate, have messages about other tenants' pods.
_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
# Others, of a newer Kubernetes, are not known.
_CONDITION_FIELDS = ("type", "status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime")
_TAINT_FIELDS = ("key", "value", "effect", "timeAdded")
# Those that the node lifecycle controller sets to Unknown when a kubelet is silent. The tenant's own
# controller does the same once the Lease expires: it and we must not disagree.
_OF_KUBELET = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"})
# The node lifecycle controller's taints of a node that is not ready. The API server gives the first one to
# every new Node. A control plane without that controller would keep it for ever.
_NOT_READY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
# The API requires all fields of nodeInfo as strings; those of the machine stay empty.
_NODE_INFO = {
    "architecture": True,
    "bootID": False,
    "containerRuntimeVersion": True,
    "kernelVersion": False,
    "kubeProxyVersion": False,
    "kubeletVersion": True,
    "machineID": False,
    "operatingSystem": True,
    "osImage": False,
    "systemUUID": False,
}
_OWNED_STATUS = ("capacity", "allocatable", "conditions", "addresses", "daemonEndpoints", "nodeInfo")


@dataclass(frozen=True, slots=True)
class VNodePolicy:
    """What one tenant's vNodes show.

    `labels` and `taints` list keys that go up; one that ends with `/` stands for all keys of that domain.
    `resources` is the capacity instead of the real node's: see `quota_resources`. `node_labels` select the
    super nodes of the scope ALL. `is_schedulable`: as the super node is, so that it shows a cordon. If not,
    vNodes are always unschedulable, as upstream's: DaemonSets' pods tolerate that.
    """

    labels: frozenset[str] = frozenset()
    taints: frozenset[str] = frozenset()
    resources: Mapping[str, str] | None = None
    scope: VNodeScope = VNodeScope.USED
    node_labels: Mapping[str, str] | None = None
    is_schedulable: bool = False

    def covers(self, super_node: Object) -> bool:
        """Whether the tenant has a vNode for this node although it has no pods there."""
        labels = labels_of(super_node)
        wanted = (self.node_labels or {}).items()
        return self.scope is VNodeScope.ALL and all(labels.get(key) == value for key, value in wanted)


class AgentAddress(enum.Enum):
    """Whose address vNodes have: the node's, that of vn-agent's Service, or of its pod on the node."""

    NODE = "node"
    SERVICE = "service"
    POD_IP = "podIP"


@dataclass(frozen=True, slots=True)
class AgentEndpoint:
    """Where the tenant's API server finds vn-agent of a node. No address is known yet if there is none."""

    addresses: tuple[str, ...]
    port: int = 10550


def agent_addresses(
    source: AgentAddress, super_node: Object, service: Object | None, agent_pod: Object | None
) -> tuple[str, ...]:
    """The addresses of a node's vn-agent. `service` and `agent_pod` are vn-agent's, None if there is none."""
    match source:
        case AgentAddress.NODE:
            found = (super_node.get("status") or {}).get("addresses") or []
            return tuple(each["address"] for each in found if each.get("type") == "InternalIP")
        case AgentAddress.SERVICE:
            ip = ((service or {}).get("spec") or {}).get("clusterIP")
            return (ip,) if ip and ip != "None" else ()
        case AgentAddress.POD_IP:
            ip = ((agent_pod or {}).get("status") or {}).get("podIP")
            return (ip,) if ip else ()


def quota_resources(hard: Mapping[str, str]) -> dict[str, str]:
    """A ResourceQuota's limits as the capacity of a node."""
    found: dict[str, str] = {}
    for name in ("cpu", "memory", "ephemeral-storage", "pods"):
        for key in (name, f"requests.{name}", f"limits.{name}"):
            if key in hard:
                found[name] = hard[key]
                break
    extended = "requests."
    for key, value in hard.items():
        name = key.removeprefix(extended)
        if key.startswith(extended) and "/" in name and ".storageclass.storage.k8s.io/" not in name:
            found[name] = value
    return found


def reduced_node(super_node: Object) -> Object:
    """The part of a super node that vNodes depend on: for caches."""
    spec, status = super_node.get("spec") or {}, super_node.get("status") or {}
    addresses = [each for each in status.get("addresses") or [] if each.get("type") == "InternalIP"]
    return {
        "metadata": {
            "name": name_of(super_node),
            "uid": uid_of(super_node),
            "labels": labels_of(super_node),
        },
        "spec": {"taints": spec.get("taints") or [], "unschedulable": bool(spec.get("unschedulable"))},
        "status": {
            "capacity": status.get("capacity") or {},
            "allocatable": status.get("allocatable") or {},
            "conditions": _kept_conditions(status),
            "addresses": addresses,
            "nodeInfo": _node_info(status),
        },
    }


def without_heartbeats(node: Object) -> Object:
    """A node, or a vNode, without what each heartbeat changes: to find out whether anything else changed."""
    status = node["status"]
    return node | {"status": status | {"conditions": _without_heartbeats(status["conditions"])}}


def is_ready(super_node: Object) -> bool:
    """Whether the node's condition Ready is True."""
    return _condition_of(super_node, "Ready") == "True"


def desired_vnode(
    super_node: Object, policy: VNodePolicy, agent: AgentEndpoint, silent_since: str = ""
) -> Object:
    """The vNode of a super node, without what the tenant and its API server add.

    `silent_since` is when vn-agent was found not to answer, as in conditions; empty while it answers.
    """
    labels = {key: value for key, value in labels_of(super_node).items() if _is_own_label(key, policy)}
    labels[keys.VIRTUAL_NODE] = "true"
    spec, status = super_node.get("spec") or {}, super_node.get("status") or {}
    is_cordoned = bool(spec.get("unschedulable"))
    taints = [
        {name: each[name] for name in _TAINT_FIELDS if name in each}
        for each in spec.get("taints") or []
        if each.get("key") != UNSCHEDULABLE and _is_listed(str(each.get("key")), policy.taints)
    ]
    desired_spec: Object = {}
    if is_cordoned or not policy.is_schedulable:
        desired_spec["unschedulable"] = True
        taints.insert(0, {"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    if taints:
        desired_spec["taints"] = taints
    conditions = _kept_conditions(status)
    if silent_since:
        conditions = [_silenced(each, silent_since) for each in conditions]
    if is_cordoned and not policy.is_schedulable:
        conditions.append(
            {"type": CORDONED, "status": "True", "reason": "Cordoned", "message": "no new pods start here"}
        )
    given = policy.resources
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name_of(super_node),
            "labels": labels,
            "annotations": {keys.VNODE_OF: uid_of(super_node)},
        },
        "spec": desired_spec,
        "status": {
            "capacity": dict(status.get("capacity") or {} if given is None else given),
            "allocatable": dict(status.get("allocatable") or {} if given is None else given),
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": each} for each in agent.addresses],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": agent.port}},
            "nodeInfo": _node_info(status),
        },
    }


def kept_as_shown(desired: Object, actual: Object) -> Object:
    """The vNode while its policy is not known: what a policy decides is as the tenant's Node has it.

    `desired` is by `VNodePolicy()`, so that labels and taints of others stay. A cordon is shown whatever the
    policy is.
    """
    status = actual.get("status") or {}
    resources = {field: status.get(field) or {} for field in ("capacity", "allocatable")}
    is_open = (
        not (actual.get("spec") or {}).get("unschedulable") and _condition_of(desired, CORDONED) != "True"
    )
    spec = {} if is_open else desired["spec"]
    return desired | {"spec": spec, "status": desired["status"] | resources}


def is_adoptable(node: Object) -> bool:
    """Whether a Node of a tenant may become its vNode: one of ours, or of the Go syncer.

    Only for a super node that the tenant may see anyway. Otherwise a tenant would learn the names of nodes
    by making Nodes with this label.
    """
    return labels_of(node).get(keys.VIRTUAL_NODE) == "true"


def is_own_vnode(node: Object) -> bool:
    """Whether a Node of a tenant is one that we made or adopted, so that we may delete it."""
    return is_adoptable(node) and bool(annotations_of(node).get(keys.VNODE_OF))


def is_vnode_of(node: Object, super_node: Object) -> bool:
    """Whether a Node of a tenant was made or adopted for this super node.

    It has that node's UID, which the tenant knows from there alone.
    """
    return is_own_vnode(node) and annotations_of(node)[keys.VNODE_OF] == uid_of(super_node)


@dataclass(frozen=True, slots=True)
class VNodeFacts:
    """What plans of pods read of a vNode: while it stays, no pod is planned for a change of its vNode."""

    labels: Mapping[str, str]
    addresses: tuple[str, ...]
    """The internal ones, that vn-agent has."""


def vnode_facts(node: Object) -> VNodeFacts | None:
    """Those of a Node of a tenant, in which anything may stand; None if it is no vNode of ours."""
    if not is_own_vnode(node):
        return None
    match node.get("status"):
        case {"addresses": [*found]}:
            internal = (each for each in found if isinstance(each, dict) and each.get("type") == "InternalIP")
            texts = (each["address"] for each in internal if isinstance(each.get("address"), str))
            addresses = tuple(itertools.islice(texts, _MOST_ADDRESSES))
        case _:
            addresses = ()
    return VNodeFacts(labels_of(node), addresses)


def vnode_changes(desired: Object, actual: Object, policy: VNodePolicy) -> tuple[Patch, ...]:
    """The patches that make the vNode of the tenant the desired one; none if it is.

    Labels, annotations and taints of the tenant stay. Its status is ours, but for times of heartbeats: the
    Lease has the heartbeat.
    """
    body: Object = {}
    if meta := _metadata_changes(desired, actual, policy):
        body["metadata"] = meta
    spec = _spec_changes(desired, actual, policy)
    if spec:
        body["spec"] = spec
    found: list[Patch] = []
    if body:
        # A patch replaces the whole list of taints, which the tenant's controllers change too.
        version = version_of(actual) if "taints" in spec else ""
        found.append(_patch(actual, body, version=version))
    if status := _status_changes(desired["status"], actual.get("status") or {}):
        found.append(_patch(actual, {"status": status}, subresource="status"))
    return tuple(found)


def _patch(actual: Object, body: Object, *, subresource: str = "", version: str = "") -> Patch:
    return Patch(
        Side.TENANT, KIND, "", name_of(actual), uid_of(actual), body, subresource=subresource, version=version
    )


def _metadata_changes(desired: Object, actual: Object, policy: VNodePolicy) -> Object:
    patch: Object = {}
    wanted, found = labels_of(desired), labels_of(actual)
    labels: Object = {key: value for key, value in wanted.items() if found.get(key) != value}
    labels |= {key: None for key in found if key not in wanted and _is_own_label(key, policy)}
    if labels:
        patch["labels"] = labels
    of = metadata(desired)["annotations"][keys.VNODE_OF]
    if annotations_of(actual).get(keys.VNODE_OF) != of:
        patch["annotations"] = {keys.VNODE_OF: of}
    return patch


def _spec_changes(desired: Object, actual: Object, policy: VNodePolicy) -> Object:
    patch: Object = {}
    wanted, found = desired["spec"], actual.get("spec") or {}
    if bool(wanted.get("unschedulable")) != bool(found.get("unschedulable")):
        patch["unschedulable"] = wanted.get("unschedulable")
    has_recovered = _condition_of(desired, "Ready") == "True"
    own = wanted.get("taints") or []
    old = found.get("taints") or []
    kept = [
        each
        for each in old
        if not _is_own_taint(str(each.get("key")), policy)
        and not (has_recovered and each.get("key") in _NOT_READY)
    ]
    if _taints(own + kept) != _taints(old):
        times = {_taint(each): each for each in old}
        patch["taints"] = [times.get(_taint(each), each) for each in own] + kept
    return patch


def _status_changes(desired: Object, actual: Object) -> Object:
    found = {key: actual[key] for key in _OWNED_STATUS if key in actual}
    wanted = dict(desired)
    if _without_heartbeats(wanted["conditions"]) == _without_heartbeats(found.get("conditions") or []):
        del wanted["conditions"]
        found.pop("conditions", None)
    for field in ("capacity", "allocatable"):
        have = found.get(field) or {}
        # The API server writes quantities in its own form.
        wanted[field] = {
            key: have[key] if key in have and _is_same_amount(have[key], value) else value
            for key, value in wanted[field].items()
        }
    patch: Object = merge_patch(found, wanted)
    return patch


def _is_same_amount(one: object, other: object) -> bool:
    if one == other:
        return True
    amount = quantity.parse(one)
    return amount is not None and amount == quantity.parse(other)


def _kept_conditions(status: Object) -> list[Object]:
    found = status.get("conditions") or []
    return [
        {name: each[name] for name in _CONDITION_FIELDS if name in each}
        for each in found
        if each.get("type") in _CONDITIONS
    ]


def _without_heartbeats(conditions: list[Object]) -> list[Object]:
    # A field that is null is one that is absent: the API server writes times that were not given so.
    return [
        {key: value for key, value in each.items() if key != "lastHeartbeatTime" and value not in (None, "")}
        for each in conditions
    ]


def _silenced(condition: Object, since: str) -> Object:
    if condition.get("type") not in _OF_KUBELET or condition.get("status") == "Unknown":
        return condition
    return condition | {
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "vn-agent of the node does not answer",
        "lastTransitionTime": since,
    }


def _condition_of(node: Object, type_: str) -> str:
    for each in (node.get("status") or {}).get("conditions") or []:
        if each.get("type") == type_:
            return str(each.get("status"))
    return "Unknown"


def _node_info(status: Object) -> dict[str, str]:
    found = status.get("nodeInfo") or {}
    return {key: str(found.get(key) or "") if is_shown else "" for key, is_shown in _NODE_INFO.items()}


def _is_listed(key: str, entries: frozenset[str]) -> bool:
    # A key has one slash at most, behind its domain. No entry is empty.
    return key in entries or key[: key.find("/") + 1] in entries


def _is_own_label(key: str, policy: VNodePolicy) -> bool:
    return key in ALWAYS_LABELS or _is_listed(key, policy.labels)


def _is_own_taint(key: str, policy: VNodePolicy) -> bool:
    return key == UNSCHEDULABLE or _is_listed(key, policy.taints)


def _taint(value: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(value.get("key")), str(value.get("value") or ""), str(value.get("effect"))


def _taints(values: list[Object]) -> list[tuple[str, str, str]]:
    return sorted(map(_taint, values))
