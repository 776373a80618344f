# SPDX-License-Identifier: Apache-2.0
"""On which nodes a pod may run, and how, by the SyncPolicy: docs/spec/sync-policy.md#pods."""

import json
from typing import Any

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import patterns, pods
from syncer.policy.sync_policy import DEFAULT, SyncPolicy
from tests.unit.syncer.policy.judged import with_keys
from tests.unit.syncer.policy.pod_examples import (
    VM,
    denied,
    never,
    pod,
    with_pods,
)

refusals_of = with_keys("Pod", pods.refusals)

REFUSED: list[tuple[Object, Refusal]] = [
    (
        pod(runtimeClassName="runc"),
        denied("spec.runtimeClassName", "runtime class runc", "pods.runtimeClasses"),
    ),
    (pod(overhead={"cpu": "1m"}), never("spec.overhead", "overhead without a runtime class")),
    (
        pod(resourceClaims=[{"name": "gpu"}]),
        denied("spec.resourceClaims", "claims of devices", "pods.allowResourceClaims"),
    ),
    (
        pod(nodeName="node-1"),
        denied("spec.nodeName", "a node that no scheduler chose", "pods.allowNodeName"),
    ),
    (pod(schedulerName="mine"), denied("spec.schedulerName", "scheduler mine", "pods.schedulers")),
    (
        pod(tolerations=[{"key": "dedicated", "operator": "Exists"}]),
        denied("spec.tolerations[0]", "toleration of dedicated", "pods.tolerationKeys"),
    ),
    (
        pod(tolerations=[{"operator": "Exists"}]),
        denied("spec.tolerations[0]", "toleration of every taint", "pods.tolerationKeys"),
    ),
    (
        pod(nodeSelector={"node-role.kubernetes.io/control-plane": ""}),
        denied(
            "spec.nodeSelector[node-role.kubernetes.io/control-plane]",
            "selection of nodes by it",
            "pods.nodeLabels",
        ),
    ),
    (
        pod(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{}, {"matchExpressions": [{"key": "pool"}]}]
                    }
                }
            }
        ),
        denied(
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[1].matchExpressions[0].key",
            "selection of nodes by pool",
            "pods.nodeLabels",
        ),
    ),
    (
        pod(
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchFields": [{"key": "spec.unschedulable"}]}}
                    ]
                }
            }
        ),
        never(
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
            ".preference.matchFields[0].key",
            "selection of nodes by field spec.unschedulable",
        ),
    ),
    (
        pod(priorityClassName="system-node-critical"),
        denied("spec.priorityClassName", "priority class system-node-critical", "pods.priorityClasses"),
    ),
]

ALLOWED: list[tuple[Object, SyncPolicy]] = [
    (
        pod(
            runtimeClassName="kata",
            overhead={"cpu": "1m"},
            containers=[{"securityContext": {"privileged": 1}}],
        ),
        with_pods(runtime_classes=frozenset({"kata"}), vm_runtime_classes=frozenset({"kata"})),
    ),
    (pod(runtimeClassName="kata"), with_pods(**VM)),
    (pod(nodeName="node-1"), with_pods(allow_node_name=True)),
    (pod(resourceClaims=[{"name": "gpu"}]), with_pods(allow_resource_claims=True)),
    (pod(schedulerName="mine"), with_pods(schedulers=frozenset({"mine"}))),
    (pod(tolerations=[{"key": "dedicated"}]), with_pods(toleration_keys=patterns.of("ded*"))),
    (pod(tolerations=[{"operator": "Exists"}]), with_pods(toleration_keys=patterns.of("*"))),
    (pod(nodeSelector={"pool": "a"}), with_pods(node_labels=patterns.of("pool"))),
    (pod(priorityClassName="tenant-high"), with_pods(priority_classes=patterns.of("tenant-*"))),
    (
        pod(priorityClassName="system-node-critical"),
        with_pods(priority_classes=patterns.of("system-node-critical")),
    ),
]

NARROWED: list[tuple[Object, SyncPolicy, Refusal]] = [
    (
        pod(priorityClassName="system-node-critical"),
        with_pods(priority_classes=patterns.of("*")),
        denied("spec.priorityClassName", "priority class system-node-critical", "pods.priorityClasses"),
    ),
    (
        pod(
            tolerations=[{"key": "node.kubernetes.io/unschedulable"}, {"key": "node.kubernetes.io/not-ready"}]
        ),
        with_pods(toleration_keys=patterns.of()),
        denied(
            "spec.tolerations[0]", "toleration of node.kubernetes.io/unschedulable", "pods.tolerationKeys"
        ),
    ),
]


def test_a_bound_pod_has_the_node_of_its_super_pod() -> None:
    bound = pod(nodeName="node-1")
    assert pods.refusals(bound, DEFAULT, pod(nodeName="node-1")) == ()
    for other in (pod(nodeName="node-2"), pod(), {}):
        assert [each.path for each in pods.refusals(bound, DEFAULT, other)] == ["spec.nodeName"]


def test_a_pod_keeps_the_runtime_class_that_it_was_given() -> None:
    assert pods.refusals(pod(runtimeClassName="old"), with_pods(**VM), pod(runtimeClassName="old")) == ()
    # The tenant's own class of the same handler.
    assert pods.refusals(pod(runtimeClassName="own"), with_pods(**VM), pod(runtimeClassName="kata")) == ()


def test_selectors_are_judged_while_they_can_change() -> None:
    """That is until the super pod's scheduling gates are gone."""
    chosen = pod(nodeSelector={"pool": "a"})
    assert pods.refusals(chosen, DEFAULT, pod()) == ()
    for there in (None, pod(schedulingGates=[{"name": "example.com/g"}])):
        assert [each.path for each in pods.refusals(chosen, DEFAULT, there)] == ["spec.nodeSelector[pool]"]


@pytest.mark.parametrize(
    ("own", "forced", "others", "expected"),
    [
        (None, "", (), None),
        (None, "kata", (), "kata"),
        ("kata", "kata", (), "kata"),
        ("gvisor", "kata", ("gvisor",), "gvisor"),
        ("gvisor", "kata", (), "kata"),
        ("gvisor", "", ("gvisor",), "gvisor"),
        ("gvisor", "", (), None),
        (["gvisor"], "kata", (), "kata"),
    ],
)
def test_forced_runtime_class(own: Any, forced: str, others: tuple[str, ...], expected: str | None) -> None:
    policy = with_pods(runtime_class=forced, runtime_classes=frozenset(others))
    assert pods.forced_runtime_class(pod(runtimeClassName=own), policy) == expected


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "rdma/hca", "devices.kubevirt.io/kvm", "smarter-devices/fuse", "cpu2"]
)
def test_devices_are_asked_for_by_allow_list(resource: str) -> None:
    """What a device plugin gives is on the node as others left it, as with claims of devices."""
    value = pod(containers=[{"resources": {"limits": {resource: "1", "cpu": "1", "hugepages-2Mi": "2Mi"}}}])
    path = f"spec.containers[0].resources.limits[{resource}]"
    assert refusals_of(value, DEFAULT) == (denied(path, f"resource {resource}", "pods.extendedResources"),)
    assert refusals_of(value, with_pods(extended_resources=patterns.of(resource))) == ()
    whole = pod(resources={"requests": {resource: "1"}}, containers=[{}])
    assert [each.path for each in refusals_of(whole, DEFAULT)] == [f"spec.resources.requests[{resource}]"]


_TERM = {"topologyKey": "pool", "labelSelector": {}}


_TOPOLOGIES = {
    f"spec.affinity.{kind}.{path}": {
        "affinity": {kind: {f"{when}DuringSchedulingIgnoredDuringExecution": [term]}}
    }
    for kind in ("podAffinity", "podAntiAffinity")
    for when, path, term in (
        ("required", "requiredDuringSchedulingIgnoredDuringExecution[0]", _TERM),
        (
            "preferred",
            "preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm",
            {"weight": 1, "podAffinityTerm": _TERM},
        ),
    )
} | {"spec.topologySpreadConstraints[0]": {"topologySpreadConstraints": [{"maxSkew": 1, **_TERM}]}}


@pytest.mark.parametrize("path", _TOPOLOGIES)
def test_a_topology_selects_nodes_by_allow_list(path: str) -> None:
    """A scheduler leaves out the nodes without the label."""
    value = pod(**_TOPOLOGIES[path])
    assert refusals_of(value, DEFAULT) == (
        denied(f"{path}.topologyKey", "selection of nodes by pool", "pods.nodeLabels"),
    )
    assert refusals_of(value, with_pods(node_labels=patterns.of("pool", "kubernetes.io/os"))) == ()
    usual = json.loads(json.dumps(value).replace('"pool"', '"topology.kubernetes.io/zone"'))
    assert refusals_of(usual, DEFAULT) == ()
