# SPDX-License-Identifier: Apache-2.0
"""Labels that a tenant gave its vNodes, in the selectors of DaemonSets' pods."""

import copy
from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Wait
from syncer.policy.sync_policy import DEFAULT
from tenancy import keys
from tests.unit.syncer.kinds.pod.pods import bound, brief, created, plan, pod, super_pod, view

OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
AFFINITY: Object = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ]
        }
    }
}
REFUSED = "spec.nodeSelector[color]"


def daemon(selector: Object, *, affinity: Object = AFFINITY, owner: Object = OWNER, **spec: Any) -> Object:
    return pod({"nodeSelector": selector, "affinity": affinity, **spec}, ownerReferences=[owner])


def vnode(name: str = "n1", *, is_ours: bool = True, **labels: str) -> Object:
    meta: Object = {"name": name, "labels": {**labels, keys.VIRTUAL_NODE: "true"}}
    if is_ours:
        meta["annotations"] = {keys.VNODE_OF: "super-uid"}
    return {"kind": "Node", "metadata": meta}


def seen(*nodes: Object) -> FakeView:
    return view(tenant_objects=nodes, policy=DEFAULT)


BLUE = daemon({"color": "blue", "kubernetes.io/os": "linux"})


def test_a_label_that_the_vnode_has_does_not_go_down() -> None:
    spec = created(BLUE, seen(vnode("n2"), vnode(color="blue")))["spec"]
    assert (spec["nodeSelector"], spec["affinity"]) == ({"kubernetes.io/os": "linux"}, AFFINITY)


def test_a_label_that_the_policy_allows_goes_down() -> None:
    """It is the super node's, whatever the vNode has."""
    spec = created(daemon({"kubernetes.io/os": "linux"}), seen(vnode()))["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (seen(vnode(color="red")), "node n1 does not have the label color=blue"),
        (seen(vnode()), "node n1 does not have the label color=blue"),
        (seen(vnode("n2", color="blue")), "there is no vNode n1"),
        # A Node of the tenant's own says nothing about the super node of this name.
        (seen(vnode(color="blue", is_ours=False)), "there is no vNode n1"),
    ],
)
def test_a_pod_waits_while_its_vnode_has_another_label(found: FakeView, message: str) -> None:
    waiting = plan(BLUE, None, found)
    assert (waiting.wait, waiting.actions) == (Wait("NodeSelectorMismatch", message), ())


def test_other_refusals_come_before_the_wait() -> None:
    found = plan(daemon({"color": "blue"}, hostPID=True), None, seen(vnode()))
    assert ([each.path for each in found.refusals], found.wait) == (["spec.hostPID"], None)


def _required(*terms: Object) -> Object:
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    }


def _name(*values: str, operator: str = "In") -> Object:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [*values]}]}


OS = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}


@pytest.mark.parametrize(
    "other",
    [
        daemon({"color": "blue"}, owner={**OWNER, "kind": "ReplicaSet"}),
        daemon({"color": "blue"}, owner={**OWNER, "controller": False}),
        daemon({"color": "blue"}, affinity={}),
        daemon({"color": "blue"}, affinity=_required()),
        daemon({"color": "blue"}, affinity=_required({})),
        daemon({"color": "blue"}, affinity=_required(OS)),
        daemon({"color": "blue"}, affinity=_required({**_name("n1"), **OS})),
        daemon({"color": "blue"}, affinity=_required(_name("n1"), _name("n2"))),
        daemon({"color": "blue"}, affinity=_required(_name("n1", "n2"))),
        daemon({"color": "blue"}, affinity=_required(_name("n1", operator="NotIn"))),
        daemon({"color": "blue"}, schedulingGates=[{"name": "example.com/g"}]),
        pod({"nodeSelector": {"color": "blue"}}),
    ],
)
def test_other_pods_are_refused(other: Object) -> None:
    found = plan(other, None, seen(vnode(color="blue"), vnode("n2", color="blue")))
    assert ([each.path for each in found.refusals], found.actions) == ([REFUSED], ())


def test_changes_go_down_to_a_pod_whose_selector_did_not() -> None:
    """Also when the vNode has lost the label: that is for the DaemonSet controller."""
    there = super_pod(BLUE, seen(vnode(color="blue")), node="n1")
    tenant = bound(BLUE)
    image = copy.deepcopy(tenant)
    image["spec"]["containers"][0]["image"] = "app:2"
    for found in (seen(vnode(color="blue")), seen(vnode())):
        changed = plan(image, there, found)
        assert changed.refusals == ()
        body = {"spec": {"containers": [{"name": "c", "image": "app:2"}]}}
        assert brief(changed)[0] == ("patch", "super", "", body)
