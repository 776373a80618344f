# SPDX-License-Identifier: Apache-2.0
"""Changes that go down to an existing super pod (upstream's TestCheckContainersImageEquality and others)."""

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Patch, Wait
from tenancy import keys
from tests.unit.syncer.kinds.pod.pods import API_SERVICE, brief, plan, pod, super_pod, view
from tests.unit.syncer.kinds.pod.test_sync import API_VARIABLES

INJECTED = {"name": "mesh", "image": "mesh:1"}


def containers(*images: str, **fields: object) -> Object:
    return {
        "containers": [{"name": f"c{index}", "image": image, **fields} for index, image in enumerate(images)]
    }


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        pytest.param(containers("a:1"), containers("a:1"), None, id="equal"),
        pytest.param(
            containers("a:1", "b:1"),
            containers("a:1", "b:2"),
            {"containers": [{"name": "c1", "image": "b:2"}]},
            id="image",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "i:1"}]},
            {"initContainers": [{"name": "i", "image": "i:2"}]},
            {"initContainers": [{"name": "i", "image": "i:2"}]},
            id="image of an init container",
        ),
        pytest.param({}, {"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 5}, id="deadline"),
        pytest.param(
            {"activeDeadlineSeconds": 9},
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": 5},
            id="a shorter deadline",
        ),
        pytest.param({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 5}, None, id="same deadline"),
        pytest.param({"activeDeadlineSeconds": 5}, {}, None, id="a deadline cannot go"),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
            id="a toleration",
        ),
        pytest.param(
            {"terminationGracePeriodSeconds": -1},
            {"terminationGracePeriodSeconds": 1},
            {"terminationGracePeriodSeconds": 1},
            id="a negative grace period",
        ),
        pytest.param(
            {"terminationGracePeriodSeconds": 30},
            {"terminationGracePeriodSeconds": 1},
            None,
            id="a grace period",
        ),
    ],
)
def test_the_spec_goes_down(before: Object, after: Object, patch: Object | None) -> None:
    found = super_pod(pod(before))
    found["spec"]["containers"].append(INJECTED)
    (expected,) = ([],) if patch is None else ([("patch", "super", "", {"spec": patch})],)
    assert brief(plan(pod(after), found)) == expected
    for action in plan(pod(after), found).actions:
        assert isinstance(action, Patch)
        assert action.is_strategic


GATED = {"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}]}


@pytest.mark.parametrize(
    ("after", "patch"),
    [
        pytest.param(GATED, None, id="held"),
        pytest.param(
            {"schedulingGates": [{"name": "example.com/b"}], "nodeSelector": {"zone": "a"}},
            {
                "schedulingGates": [{"$patch": "delete", "name": "example.com/a"}],
                "nodeSelector": {"zone": "a"},
            },
            id="one is removed, and the node chosen",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {"x": 1}}},
            {
                "schedulingGates": [
                    {"$patch": "delete", "name": "example.com/a"},
                    {"$patch": "delete", "name": "example.com/b"},
                ],
                "affinity": {"nodeAffinity": {"x": 1}},
            },
            id="all are removed",
        ),
    ],
)
def test_scheduling_gates_are_removed(after: Object, patch: Object | None) -> None:
    """A gate that the super cluster added is its own."""
    found = super_pod(pod(GATED))
    assert found["metadata"]["annotations"][keys.SCHEDULING_GATES] == "example.com/a,example.com/b"
    found["spec"]["schedulingGates"].append({"name": "super.example.com/quota"})
    (expected,) = ([],) if patch is None else ([("patch", "super", "", {"spec": patch})],)
    assert brief(plan(pod(after), found)) == expected


DEBUG = {"name": "dbg", "image": "debug:1", "targetContainerName": "c"}


def test_ephemeral_containers_go_down_once_they_are_listed() -> None:
    tenant = pod({"ephemeralContainers": [DEBUG]})
    found = super_pod(pod())
    assert brief(plan(tenant, found)) == [
        ("patch", "super", "", {"metadata": {"annotations": {keys.CONTAINERS: "c,dbg"}}}),
        (
            "patch",
            "super",
            "ephemeralcontainers",
            {"spec": {"ephemeralContainers": [{**DEBUG, "env": API_VARIABLES}]}},
        ),
    ]
    found["metadata"]["annotations"][keys.CONTAINERS] = "c,dbg"
    found["spec"]["ephemeralContainers"] = [{**DEBUG, "env": API_VARIABLES}]
    assert plan(tenant, found).actions == ()


def test_a_new_pod_has_no_ephemeral_containers_yet() -> None:
    assert "ephemeralContainers" not in super_pod(pod({"ephemeralContainers": [DEBUG]}))["spec"]


def test_ephemeral_containers_wait_for_the_api_service() -> None:
    found = super_pod(pod())
    seen = view()
    seen.super_objects.remove(API_SERVICE)
    later = plan(pod({"ephemeralContainers": [DEBUG]}), found, seen)
    assert later.wait == Wait("ServiceNotReady", "Service default/kubernetes has no super cluster IP yet")
    assert [each[0:3] for each in brief(later)] == [("patch", "super", "")]


def sized(cpu: str, memory: str = "64Mi", **others: str) -> Object:
    return containers("a:1", resources={"requests": {"cpu": cpu, "memory": memory, **others}})


@pytest.mark.parametrize(
    ("before", "after", "sizes"),
    [
        pytest.param(sized("1"), sized("1"), None, id="equal"),
        pytest.param(sized("1"), sized("2"), {"requests": {"cpu": "2"}}, id="cpu"),
        pytest.param(sized("1"), sized("1", "1Gi"), {"requests": {"memory": "1Gi"}}, id="memory"),
        pytest.param(sized("1"), sized("1", **{"example.com/gpu": "1"}), None, id="others cannot change"),
        pytest.param(sized("1"), containers("a:1"), None, id="what super adds stays"),
    ],
)
def test_a_resize_goes_down(before: Object, after: Object, sizes: Object | None) -> None:
    found = super_pod(pod(before))
    changed = {"containers": [{"name": "c0", "resources": sizes}]}
    expected = [] if sizes is None else [("patch", "super", "resize", {"spec": changed})]
    assert brief(plan(pod(after), found)) == expected
    found["status"]["phase"] = "Succeeded"
    tenant = pod(after, status={"phase": "Succeeded", "qosClass": "BestEffort"})
    assert brief(plan(tenant, found)) == []


GATES = {"readinessGates": [{"conditionType": "example.com/r"}, {"conditionType": "Ready"}]}


@pytest.mark.parametrize(
    ("own", "actual", "patch"),
    [
        pytest.param([], [], None, id="none"),
        pytest.param(
            [{"type": "example.com/r", "status": "True", "lastProbeTime": None, "observedGeneration": 3}],
            [{"type": "example.com/r", "status": "True", "observedGeneration": 1}],
            None,
            id="equal",
        ),
        pytest.param(
            [{"type": "Ready", "status": "True"}],
            [{"type": "Ready", "status": "False"}],
            None,
            id="the system's",
        ),
        pytest.param([{"type": "other", "status": "True"}], [], None, id="no gate's"),
        pytest.param(
            [{"type": "example.com/r", "status": "True", "lastProbeTime": None}],
            [{"type": "example.com/r", "status": "False"}],
            [{"type": "example.com/r", "status": "True"}],
            id="differs",
        ),
        pytest.param(
            [{"type": "example.com/r", "status": "True"}],
            [],
            [{"type": "example.com/r", "status": "True"}],
            id="missing",
        ),
        pytest.param(
            [],
            [{"type": "example.com/r", "status": "True"}],
            [{"$patch": "delete", "type": "example.com/r"}],
            id="gone",
        ),
    ],
)
def test_conditions_of_readiness_gates_go_down(
    own: list[Object], actual: list[Object], patch: list[Object] | None
) -> None:
    tenant = pod(GATES, status={"phase": "Pending", "conditions": own})
    found = super_pod(pod(GATES))
    found["status"]["conditions"] = actual
    down = [each for each in brief(plan(tenant, found)) if each[1] == "super"]
    expected = [] if patch is None else [("patch", "super", "status", {"status": {"conditions": patch}})]
    assert down == expected


def test_a_refused_change_does_not_go_down_by_halves() -> None:
    spec = {"nodeName": "n1", **GATES}
    found = super_pod(pod(GATES), node="n1")
    privileged = {**DEBUG, "securityContext": {"privileged": True}}
    condition = {"type": "example.com/r", "status": "True"}
    status = {"phase": "Pending", "qosClass": "BestEffort", "conditions": [condition]}
    later = plan(pod({"ephemeralContainers": [privileged], **spec}, status=status, labels={"a": "1"}), found)
    assert [each.path for each in later.refusals] == [
        "spec.ephemeralContainers[0].securityContext.privileged"
    ]
    # A condition is no part of it.
    assert brief(later) == [("patch", "super", "status", {"status": {"conditions": [condition]}})]


def test_a_pod_that_is_there_is_not_judged_again() -> None:
    spec = {"containers": [{"name": "c", "image": "app:1", "securityContext": {"privileged": True}}]}
    found = super_pod(pod())
    found["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert plan(pod(spec), found).refusals == ()
    assert [each.path for each in plan(pod(spec, labels={"a": "1"}), found).refusals] == [
        "spec.containers[0].securityContext.privileged"
    ]


@pytest.mark.parametrize("field", ["annotations", "labels"])
@pytest.mark.parametrize("key", ["$patch", "$retainKeys", "$setElementOrder/x"])
def test_directives_are_no_metadata(field: str, key: str) -> None:
    """In a strategic merge patch `$patch: replace` would take our own annotations from the super pod."""
    tenant = pod(**{field: {key: "replace", "a": "b"}})
    assert brief(plan(tenant, super_pod(pod()))) == [
        ("patch", "super", "", {"metadata": {field: {"a": "b"}}}),
    ]


def test_conditions_have_no_directives() -> None:
    own = {"type": "example.com/r", "status": "True"}
    tenant = pod(GATES, status={"phase": "Pending", "conditions": [{**own, "$patch": "replace"}]})
    found = super_pod(tenant)
    patches = [each for each in plan(tenant, found).actions if isinstance(each, Patch)]
    assert [each.body for each in patches if each.side == "super"] == [{"status": {"conditions": [own]}}]


def test_ephemeral_containers_have_no_directives() -> None:
    tenant = pod({"ephemeralContainers": [{**DEBUG, "$patch": "replace"}]})
    refused = plan(tenant, super_pod(pod())).refusals
    assert [(each.path, each.message) for each in refused] == [
        ("spec.ephemeralContainers[0].$patch", "a directive of a patch: no SyncPolicy allows it")
    ]
