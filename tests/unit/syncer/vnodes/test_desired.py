# SPDX-License-Identifier: Apache-2.0
import copy
import json
from typing import Any

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Patch, Side
from syncer.vnodes.desired import (
    KIND,
    AgentAddress,
    AgentEndpoint,
    VNodeFacts,
    VNodePolicy,
    VNodeScope,
    agent_addresses,
    desired_vnode,
    is_adoptable,
    is_own_vnode,
    is_ready,
    quota_resources,
    reduced_node,
    vnode_changes,
    vnode_facts,
    without_heartbeats,
)
from tenancy import keys

AGENT = AgentEndpoint(("192.0.2.7",), 10550)
UPSTREAM = VNodePolicy()
AS_IS = VNodePolicy(is_schedulable=True)
UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
NO_IDENTITY = {
    "bootID": "",
    "kernelVersion": "",
    "kubeProxyVersion": "",
    "machineID": "",
    "osImage": "",
    "systemUUID": "",
}


def condition(type_: str, status: str, reason: str, at: str = "10:00") -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": f"{reason}.",
        "lastHeartbeatTime": f"2026-11-25T{at}:00Z",
        "lastTransitionTime": "2026-11-24T08:00:00Z",
    }


READY = condition("Ready", "True", "KubeletReady")
MEMORY = condition("MemoryPressure", "False", "KubeletHasSufficientMemory")
NETWORK = condition("NetworkUnavailable", "False", "RouteCreated")


def super_node(**spec: Any) -> Object:
    """A node as a super cluster has it, with what no tenant may see."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "node-7",
            "uid": "uid-node-7",
            "resourceVersion": "100",
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": "node-7",
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": "z1",
                "rack.example.com/row": "4",
                "rack.example.com.evil/row": "5",
                "team": "blue",
            },
            "annotations": {"machine": "rack 4"},
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": "aws:///i-1", **spec},
        "status": {
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "250"},
            "allocatable": {"cpu": "62", "memory": "250Gi", "pods": "250"},
            "conditions": [
                MEMORY,
                READY,
                NETWORK,
                condition("KernelDeadlock", "False", "pod web-0 of tenant b hangs"),
            ],
            "addresses": [
                {"type": "InternalIP", "address": "192.0.2.7"},
                {"type": "Hostname", "address": "host-real"},
                {"type": "ExternalIP", "address": "203.0.113.99"},
                {"type": "InternalIP", "address": "2001:db8::7"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "b",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.1",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.34.4",
                "machineID": "m",
                "operatingSystem": "linux",
                "osImage": "Debian",
                "systemUUID": "s",
            },
            "images": [{"names": ["tenant-b.example.com/app:1"], "sizeBytes": 1}],
            "volumesInUse": ["csi/1"],
        },
    }


VNODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "node-7",
        "labels": {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "node-7",
            "kubernetes.io/os": "linux",
            "tenancy.x-k8s.io/virtualnode": "true",
        },
        "annotations": {"vcnode.io/vnode-of": "uid-node-7"},
    },
    "spec": {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT]},
    "status": {
        "capacity": {"cpu": "64", "memory": "256Gi", "pods": "250"},
        "allocatable": {"cpu": "62", "memory": "250Gi", "pods": "250"},
        "conditions": [MEMORY, READY, NETWORK],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10550}},
        "nodeInfo": NO_IDENTITY
        | {
            "architecture": "amd64",
            "containerRuntimeVersion": "containerd://2.1.4",
            "kubeletVersion": "v1.34.4",
            "operatingSystem": "linux",
        },
    },
}


def test_vnode_shows_no_more_than_a_tenant_needs() -> None:
    """I7: upstream shows the machine's identity, addresses, images and all labels that were asked for."""
    assert desired_vnode(super_node(), UPSTREAM, AGENT) == VNODE


def test_vnode_of_a_reduced_node_is_the_same() -> None:
    assert desired_vnode(reduced_node(super_node()), UPSTREAM, AGENT) == VNODE


def test_reduced_node_has_nothing_beside() -> None:
    assert set(json.dumps(reduced_node(super_node())).split('"')).isdisjoint(
        {"podCIDR", "providerID", "images", "volumesInUse", "KernelDeadlock", "annotations", "Hostname"}
    )


def test_super_node_is_left_as_it_is() -> None:
    """S9: upstream changed objects of its cache."""
    cordoned = super_node(
        unschedulable=True, taints=[UNSCHEDULABLE_TAINT, {"key": "gpu", "effect": "NoSchedule"}]
    )
    before = copy.deepcopy(cordoned)
    vnode = desired_vnode(
        cordoned, VNodePolicy(taints=frozenset(("gpu",)), labels=frozenset(("team",))), AGENT, "2026"
    )
    vnode["spec"]["taints"][1]["key"] = "changed"
    vnode["status"]["conditions"][0]["status"] = "changed"
    vnode["status"]["capacity"]["cpu"] = "changed"
    assert cordoned == before


@pytest.mark.parametrize(
    ("entries", "more"),
    [
        ((), {}),
        (("team",), {"team": "blue"}),
        (("missing",), {}),
        (("rack.example.com/",), {"rack.example.com/row": "4"}),
        (
            ("team", "topology.kubernetes.io/zone"),
            {"team": "blue", "topology.kubernetes.io/zone": "z1"},
        ),
    ],
)
def test_labels_go_up_by_allow_list(entries: tuple[str, ...], more: dict[str, str]) -> None:
    vnode = desired_vnode(super_node(), VNodePolicy(labels=frozenset(entries)), AGENT)
    assert vnode["metadata"]["labels"] == VNODE["metadata"]["labels"] | more  # type: ignore[index]


GPU = {"key": "gpu", "effect": "NoSchedule", "value": "x"}


@pytest.mark.parametrize(
    ("policy", "spec", "expected"),
    [
        (UPSTREAM, {}, {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT]}),
        (UPSTREAM, {"taints": [GPU]}, {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT]}),
        (
            VNodePolicy(taints=frozenset(("gpu",))),
            {"taints": [GPU]},
            {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT, GPU]},
        ),
        (
            # Upstream lost the taint here.
            UPSTREAM,
            {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT | {"timeAdded": "2026"}]},
            {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT]},
        ),
        (AS_IS, {}, {}),
        (AS_IS, {"taints": [GPU]}, {}),
        (
            AS_IS,
            {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT]},
            {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT]},
        ),
        (VNodePolicy(taints=frozenset(("gpu",)), is_schedulable=True), {"taints": [GPU]}, {"taints": [GPU]}),
    ],
)
def test_taints_go_up_by_allow_list(policy: VNodePolicy, spec: Object, expected: Object) -> None:
    assert desired_vnode(super_node(**spec), policy, AGENT)["spec"] == expected


def test_cordoned_node_shows_so() -> None:
    vnode = desired_vnode(super_node(unschedulable=True), UPSTREAM, AGENT)
    assert vnode["status"]["conditions"] == [
        MEMORY,
        READY,
        NETWORK,
        {
            "type": "SuperNodeCordoned",
            "status": "True",
            "reason": "Cordoned",
            "message": "no new pods start here",
        },
    ]
    assert desired_vnode(super_node(unschedulable=True), AS_IS, AGENT)["status"] == VNODE["status"]


def test_dead_node_shows_so() -> None:
    node = super_node()
    dead = [
        condition("MemoryPressure", "Unknown", "NodeStatusUnknown"),
        condition("Ready", "Unknown", "NodeStatusUnknown"),
    ]
    node["status"]["conditions"] = dead
    assert desired_vnode(node, UPSTREAM, AGENT)["status"]["conditions"] == dead
    assert desired_vnode(node, UPSTREAM, AGENT, "2026-11-25T11:00:00Z")["status"]["conditions"] == dead


def test_node_whose_agent_is_silent_is_not_ready() -> None:
    """As the tenant's node lifecycle controller would write it, so that nobody changes it back."""
    vnode = desired_vnode(super_node(), UPSTREAM, AGENT, "2026-11-25T11:00:00Z")
    silent = {
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "vn-agent of the node does not answer",
        "lastTransitionTime": "2026-11-25T11:00:00Z",
    }
    assert vnode["status"]["conditions"] == [MEMORY | silent, READY | silent, NETWORK]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([READY], True),
        ([MEMORY, READY | {"status": "False"}], False),
        ([READY | {"status": "Unknown"}], False),
        ([], False),
        (None, False),
    ],
)
def test_ready(conditions: list[Object] | None, *, expected: bool) -> None:
    assert is_ready({"status": {"conditions": conditions}}) is expected


def test_capacity_by_policy() -> None:
    quota = {"requests.cpu": "4", "limits.cpu": "8", "memory": "8Gi", "pods": "20", "count/secrets": "9"}
    vnode = desired_vnode(super_node(), VNodePolicy(resources=quota_resources(quota)), AGENT)
    assert vnode["status"]["capacity"] == {"cpu": "4", "memory": "8Gi", "pods": "20"}
    assert vnode["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "20"}


def test_resources_of_a_quota() -> None:
    assert quota_resources(
        {
            "cpu": "1",
            "limits.memory": "2Gi",
            "requests.ephemeral-storage": "3Gi",
            "requests.nvidia.com/gpu": "4",
            "requests.storage": "5Gi",
            "fast.storageclass.storage.k8s.io/requests.storage": "6Gi",
            "requests.fast.storageclass.storage.k8s.io/x": "7",
            "services": "8",
        }
    ) == {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "3Gi", "nvidia.com/gpu": "4"}


@pytest.mark.parametrize(
    ("source", "service", "pod", "expected"),
    [
        (AgentAddress.NODE, None, None, ("192.0.2.7", "2001:db8::7")),
        (AgentAddress.SERVICE, None, None, ()),
        (AgentAddress.SERVICE, {"spec": {"clusterIP": "10.96.0.9"}}, None, ("10.96.0.9",)),
        (AgentAddress.SERVICE, {"spec": {"clusterIP": "None"}}, None, ()),
        (AgentAddress.SERVICE, {"spec": {}}, None, ()),
        (AgentAddress.POD_IP, None, None, ()),
        (AgentAddress.POD_IP, None, {"status": {"podIP": "10.1.0.3"}}, ("10.1.0.3",)),
        (AgentAddress.POD_IP, None, {"status": {}}, ()),
    ],
)
def test_address_of_the_agent(
    source: AgentAddress, service: Object | None, pod: Object | None, expected: tuple[str, ...]
) -> None:
    assert agent_addresses(source, super_node(), service, pod) == expected


def test_addresses_and_port_are_those_of_the_agent() -> None:
    status = desired_vnode(super_node(), UPSTREAM, AgentEndpoint((), 10551))["status"]
    assert status["addresses"] == []
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10551}}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (VNodePolicy(), False),
        (VNodePolicy(scope=VNodeScope.ALL), True),
        (VNodePolicy(scope=VNodeScope.ALL, node_labels={"team": "blue"}), True),
        (VNodePolicy(scope=VNodeScope.ALL, node_labels={"team": "red"}), False),
        (VNodePolicy(scope=VNodeScope.ALL, node_labels={"team": "blue", "missing": ""}), False),
        (VNodePolicy(node_labels={"team": "blue"}), False),
    ],
)
def test_nodes_without_pods(policy: VNodePolicy, *, expected: bool) -> None:
    assert policy.covers(super_node()) is expected


def stored(vnode: Object = VNODE, **metadata: Any) -> Object:
    """A vNode as the tenant's API server has it."""
    found = copy.deepcopy(vnode)
    found["metadata"] |= {"uid": "uid-v", "resourceVersion": "5"}
    for field, value in metadata.items():
        found["metadata"][field] = found["metadata"].get(field, {}) | value
    return found


def patch(body: Object, **more: Any) -> Patch:
    return Patch(Side.TENANT, KIND, "", "node-7", "uid-v", body, **more)


def test_vnode_that_is_right_is_left_alone() -> None:
    own = stored(labels={"own": "1"}, annotations={"own": "2"})
    own["spec"]["podCIDR"] = "10.0.0.0/24"
    own["spec"]["taints"].append({"key": "own", "effect": "NoExecute"})
    own["spec"]["taints"][0] = own["spec"]["taints"][0] | {"timeAdded": "2026"}
    own["status"]["images"] = []
    own["status"]["capacity"] |= {"memory": "262144Mi", "cpu": "64000m"}
    for each in own["status"]["conditions"]:
        each["lastHeartbeatTime"] = None
    assert vnode_changes(VNODE, own, UPSTREAM) == ()


def test_only_our_labels_are_changed() -> None:
    policy = VNodePolicy(labels=frozenset(("team", "row")))
    found = stored(labels={"kubernetes.io/os": "windows", "row": "4", "own": "1"})
    found["metadata"]["annotations"] = {"own": "1"}
    assert vnode_changes(desired_vnode(super_node(), policy, AGENT), found, policy) == (
        patch(
            {
                "metadata": {
                    "labels": {"kubernetes.io/os": "linux", "team": "blue", "row": None},
                    "annotations": {"vcnode.io/vnode-of": "uid-node-7"},
                }
            }
        ),
    )


NEW = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
OWN = {"key": "own", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("policy", "spec", "expected"),
    [
        (UPSTREAM, {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT, OWN]}, {}),
        (
            UPSTREAM,
            {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT, NEW, OWN]},
            {"taints": [UNSCHEDULABLE_TAINT, OWN]},
        ),
        (UPSTREAM, {"unschedulable": True}, {"taints": [UNSCHEDULABLE_TAINT]}),
        (UPSTREAM, {"taints": [UNSCHEDULABLE_TAINT]}, {"unschedulable": True}),
        (
            AS_IS,
            {"unschedulable": True, "taints": [UNSCHEDULABLE_TAINT]},
            {"unschedulable": None, "taints": []},
        ),
        (
            VNodePolicy(taints=frozenset(("gpu", "old"))),
            {
                "unschedulable": True,
                "taints": [
                    UNSCHEDULABLE_TAINT | {"timeAdded": "2026"},
                    {"key": "old", "effect": "NoExecute"},
                ],
            },
            {"taints": [UNSCHEDULABLE_TAINT | {"timeAdded": "2026"}, GPU]},
        ),
    ],
)
def test_only_our_taints_are_changed(policy: VNodePolicy, spec: Object, expected: Object) -> None:
    found = stored() | {"spec": spec}
    desired = desired_vnode(super_node(taints=[GPU]), policy, AGENT)
    version = "5" if "taints" in expected else ""
    assert vnode_changes(desired, found, policy) == (
        (patch({"spec": expected}, version=version),) if expected else ()
    )


def test_taints_of_a_node_that_is_not_ready_are_the_tenants() -> None:
    node = super_node()
    node["status"]["conditions"] = [READY | {"status": "False"}]
    desired = desired_vnode(node, UPSTREAM, AGENT)
    found = stored(desired)
    found["spec"]["taints"].append(NEW)
    assert vnode_changes(desired, found, UPSTREAM) == ()


def test_status_is_ours() -> None:
    found = stored()
    found["status"] |= {
        "capacity": {"cpu": "64", "memory": "1Gi", "example.com/own": "5"},
        "conditions": [READY | {"status": "False"}],
        "addresses": [],
    }
    assert vnode_changes(VNODE, found, UPSTREAM) == (
        patch(
            {
                "status": {
                    "capacity": {"memory": "256Gi", "pods": "250", "example.com/own": None},
                    "conditions": [MEMORY, READY, NETWORK],
                    "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
                }
            },
            subresource="status",
        ),
    )


def test_heartbeats_alone_are_no_change() -> None:
    later = super_node()
    later["status"]["conditions"][1] = condition("Ready", "True", "KubeletReady", at="11:00")
    assert vnode_changes(desired_vnode(later, UPSTREAM, AGENT), stored(), UPSTREAM) == ()
    assert without_heartbeats(reduced_node(later)) == without_heartbeats(reduced_node(super_node()))
    later["status"]["conditions"][1]["status"] = "False"
    assert without_heartbeats(reduced_node(later)) != without_heartbeats(reduced_node(super_node()))


@pytest.mark.parametrize(
    ("metadata", "can_adopt", "may_delete"),
    [
        ({}, False, False),
        ({"labels": {"tenancy.x-k8s.io/virtualnode": "false"}}, False, False),
        ({"labels": {"tenancy.x-k8s.io/virtualnode": "true"}}, True, False),
        ({"annotations": {"vcnode.io/vnode-of": "u"}}, False, False),
        (
            {
                "labels": {"tenancy.x-k8s.io/virtualnode": "true"},
                "annotations": {"vcnode.io/vnode-of": "u"},
            },
            True,
            True,
        ),
    ],
)
def test_whose_a_node_is(metadata: Object, *, can_adopt: bool, may_delete: bool) -> None:
    node = {"metadata": {"name": "node-7", **metadata}}
    assert (is_adoptable(node), is_own_vnode(node)) == (can_adopt, may_delete)


@pytest.mark.parametrize(
    ("status", "addresses"),
    [
        ({"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}, ("192.0.2.1",)),
        (
            {"addresses": [{"type": "InternalIP", "address": f"192.0.2.{each}"} for each in range(9)]},
            ("192.0.2.0", "192.0.2.1"),
        ),
        ({"addresses": [{"type": "Hostname", "address": "n"}, {"address": "192.0.2.1"}]}, ()),
        ({"addresses": ["x", None, {"type": "InternalIP"}, {"type": "InternalIP", "address": 7}]}, ()),
        ({"addresses": {"type": "InternalIP"}}, ()),
        (["addresses"], ()),
        (None, ()),
    ],
)
def test_what_is_read_of_a_vnode(status: object, addresses: tuple[str, ...]) -> None:
    """A tenant may write anything into it."""
    labels = {keys.VIRTUAL_NODE: "true", "color": "blue"}
    node = {"metadata": {"labels": labels, "annotations": {keys.VNODE_OF: "u"}}, "status": status}
    assert vnode_facts(node) == VNodeFacts(labels, addresses)
    assert vnode_facts(node | {"metadata": {"labels": labels}}) is None


def test_vnode_of_the_go_syncer_is_adopted() -> None:
    """The case `vnode` of sync-objects.yaml: its initial conditions were invented."""
    found = stored()
    del found["metadata"]["annotations"]
    found["spec"]["taints"] = [UNSCHEDULABLE_TAINT | {"timeAdded": "2026"}, NEW]
    found["status"]["conditions"] = [
        READY,
        condition("OutOfDisk", "False", "KubeletHasSufficientDisk"),
    ]
    assert vnode_changes(VNODE, found, UPSTREAM) == (
        patch(
            {
                "metadata": {"annotations": {"vcnode.io/vnode-of": "uid-node-7"}},
                "spec": {"taints": [UNSCHEDULABLE_TAINT | {"timeAdded": "2026"}]},
            },
            version="5",
        ),
        patch({"status": {"conditions": [MEMORY, READY, NETWORK]}}, subresource="status"),
    )
