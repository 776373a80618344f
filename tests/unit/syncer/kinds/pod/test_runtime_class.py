# SPDX-License-Identifier: Apache-2.0
"""Which super class a pod gets for the tenant's own class, and what of that class goes down."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Refusal, Side
from syncer.core.unknown import Unknown
from syncer.policy import patterns
from syncer.policy.sync_policy import DEFAULT, PodPolicy
from tenancy import keys
from tests.unit.syncer.kinds.pod.pods import brief, created, plan, pod, super_pod, view

REFUSED = (
    Refusal(
        "spec.runtimeClassName",
        "runtime class mine: SyncPolicy field spec.pods.runtimeClasses does not allow it",
    ),
)
TOLERATION = {"key": "dedicated", "operator": "Exists"}
SCHEDULING = {"nodeSelector": {"pool": "own"}, "tolerations": [TOLERATION]}


def runtime_class(name: str, handler: Any, *, is_public: bool = True, **fields: Any) -> Object:
    labels = {keys.SUPER_PUBLIC: "true"} if is_public else {}
    return {
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": labels},
        "handler": handler,
        **fields,
    }


def seen(*super_classes: Object, own: Object | None = None, forced: str = "", **allowed: Any) -> FakeView:
    pods = PodPolicy(runtime_class=forced, **{"runtime_classes": frozenset({"kata", "runc"}), **allowed})
    mine = runtime_class("mine", "kata-qemu", is_public=False) if own is None else own
    return view(*super_classes, tenant_objects=(mine,), policy=replace(DEFAULT, pods=pods))


MINE = pod({"runtimeClassName": "mine"})
KATA, RUNC = runtime_class("kata", "kata-qemu"), runtime_class("runc", "runc")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (seen(KATA), "kata"),
        (seen(RUNC, KATA), "kata"),
        (seen(runtime_class("runc", "kata-qemu"), KATA), "kata"),
        # The forced class is allowed without being listed, and comes first.
        (seen(KATA, runtime_class("zz", "kata-qemu"), forced="zz"), "zz"),
        (seen(KATA, runtime_class("runc", "kata-qemu"), forced="runc"), "runc"),
        (seen(KATA, runtime_class("zz", "other"), forced="zz"), "kata"),
    ],
)
def test_the_class_of_the_same_handler(found: FakeView, expected: str) -> None:
    assert created(MINE, found)["spec"]["runtimeClassName"] == expected


@pytest.mark.parametrize(
    "found",
    [
        seen(),
        seen(RUNC),
        seen(runtime_class("free", "kata-qemu")),
        seen(runtime_class("kata", "kata-qemu", is_public=False)),
        seen(KATA, runtime_classes=frozenset()),
        seen(KATA, own=runtime_class("other", "kata-qemu")),
        # Nothing is mapped by a handler that is missing on both sides.
        seen(runtime_class("kata", ""), own=runtime_class("mine", "")),
        seen(runtime_class("kata", None), own=runtime_class("mine", None)),
        seen(runtime_class("kata", ["a"]), own=runtime_class("mine", "a")),
        seen(RUNC, forced="kata"),
    ],
)
def test_other_classes_are_refused(found: FakeView) -> None:
    refused = plan(MINE, None, found)
    assert (refused.refusals, refused.actions) == (REFUSED, ())


def test_a_listed_name_is_the_super_clusters_class() -> None:
    """The tenant may have a class of that name with another handler: it is not asked."""
    own = runtime_class("kata", "runc", is_public=False)
    named = pod({"runtimeClassName": "kata"})
    assert created(named, seen(KATA, RUNC, own=own))["spec"]["runtimeClassName"] == "kata"


def test_a_mapped_class_has_the_rules_of_the_super_class() -> None:
    """Whether its pods are VMs says the policy of the super cluster's class."""
    root = pod(
        {
            "runtimeClassName": "mine",
            "containers": [{"name": "c", "image": "a", "securityContext": {"privileged": True}}],
        }
    )
    in_vm: dict[str, Any] = {"vm_runtime_classes": frozenset({"kata"})}
    assert plan(root, None, seen(KATA, **in_vm)).refusals == ()
    for other in (seen(KATA), seen(KATA, vm_runtime_classes=frozenset({"mine"}))):
        assert [each.path for each in plan(root, None, other).refusals] == [
            "spec.containers[0].securityContext.privileged"
        ]


SCHEDULED = pod(
    {
        "runtimeClassName": "mine",
        "overhead": {"cpu": "1"},
        "nodeSelector": {"pool": "own", "kubernetes.io/os": "linux"},
        "tolerations": [TOLERATION, {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
    }
)
WITH_SCHEDULING = runtime_class(
    "mine", "kata-qemu", overhead={"podFixed": {"cpu": "1"}}, scheduling=SCHEDULING, is_public=False
)


def test_overhead_and_scheduling_of_the_tenants_class_stay() -> None:
    spec = created(SCHEDULED, seen(KATA, own=WITH_SCHEDULING))["spec"]
    assert "overhead" not in spec
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert spec["tolerations"] == [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]


def test_what_a_pod_selects_beside_its_class_is_judged() -> None:
    own = copy.deepcopy(SCHEDULED)
    own["spec"]["nodeSelector"] = {"pool": "other"}
    own["spec"]["tolerations"] = [{**TOLERATION, "effect": "NoSchedule"}]
    refused = plan(own, None, seen(KATA, own=WITH_SCHEDULING)).refusals
    assert [each.path for each in refused] == ["spec.tolerations[0]", "spec.nodeSelector[pool]"]


def test_changes_go_down_to_a_pod_of_a_mapped_class() -> None:
    """Neither the class nor its scheduling is a change, and nothing of it is refused later."""
    found = seen(KATA, own=WITH_SCHEDULING)
    there = super_pod(SCHEDULED, found)
    assert plan(SCHEDULED, there, found).actions == ()
    image = copy.deepcopy(SCHEDULED)
    image["spec"]["containers"][0]["image"] = "app:2"
    changed = plan(image, there, found)
    assert changed.refusals == ()
    body = {"spec": {"containers": [{"name": "c", "image": "app:2"}]}}
    assert brief(changed) == [("patch", "super", "", body)]


def test_a_running_pod_outlives_its_class() -> None:
    bare = pod({"runtimeClassName": "mine"})
    there = super_pod(bare, seen(KATA))
    image = copy.deepcopy(bare)
    image["spec"]["containers"][0]["image"] = "app:2"
    assert plan(image, there, seen(KATA, own=runtime_class("other", "x"))).refusals == ()


@given(
    st.sampled_from(["mine", "kata", "runc", "secret", ""]),
    st.sampled_from(["kata-qemu", "runc", "secret", ""]),
    st.sets(st.sampled_from(["kata", "runc"])),
    st.sampled_from(["", "kata", "runc"]),
)
def test_no_pod_reaches_a_handler_that_is_not_allowed(
    name: str, handler: str, listed: set[str], forced: str
) -> None:
    classes = KATA, RUNC, runtime_class("secret", "secret")
    handlers = {each["metadata"]["name"]: each["handler"] for each in classes} | {"": ""}
    policy = replace(
        DEFAULT,
        pods=PodPolicy(runtime_class=forced, runtime_classes=frozenset(listed), node_labels=patterns.of("*")),
    )
    own = runtime_class(name or "other", handler, is_public=False)
    found = plan(
        pod({"runtimeClassName": name} if name else {}),
        None,
        view(*classes, tenant_objects=(own,), policy=policy),
    )
    if not found.refusals:
        reached = found.actions[-1].body["spec"].get("runtimeClassName", "")  # type: ignore[union-attr]
        assert reached in {*listed, forced}
        assert name in ("", reached) or name in listed or handlers[reached] == handler


@pytest.mark.parametrize("unknown", [(Side.TENANT, "mine"), (Side.SUPER, "kata")])
def test_a_pod_waits_for_a_class_that_cannot_be_read(unknown: tuple[Side, str]) -> None:
    """It may be one that the policy lists: that is no reason to refuse the pod."""
    side, name = unknown
    found = seen(KATA, RUNC)
    found.unreadable = frozenset({Unknown(side, "RuntimeClass", "", name, "too large")})
    (unreadable,) = found.unreadable
    result = plan(MINE, None, found)
    assert (result.refusals, result.wait, result.actions) == ((), unreadable.wait(), ())


def test_a_changed_pod_waits_for_a_class_that_cannot_be_read() -> None:
    found = seen(KATA)
    below = super_pod(MINE, found)
    changed = copy.deepcopy(MINE)
    changed["spec"]["tolerations"] = [TOLERATION]
    unreadable = Unknown(Side.TENANT, "RuntimeClass", "", "mine", "too large")
    found.unreadable = frozenset({unreadable})
    result = plan(changed, below, found)
    assert (result.refusals, result.wait, result.down.actions) == ((), unreadable.wait(), ())
