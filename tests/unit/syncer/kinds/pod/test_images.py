# SPDX-License-Identifier: Apache-2.0
"""Images that are on a node are not everybody's (the admission plugin AlwaysPullImages)."""

import pytest

from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import Create
from syncer.kinds.pod.images import pull_changes
from syncer.kinds.pod.sync import SYNC
from syncer.policy.sync_policy import DEFAULT
from tests.unit.syncer.kinds.pod.pods import pod, view

SPEC: Object = {
    "containers": [
        {"name": "a", "image": "private.example/a:1", "imagePullPolicy": "Never"},
        {"name": "b", "image": "private.example/b:1", "imagePullPolicy": "IfNotPresent"},
        {"name": "c", "image": "private.example/c:1"},
    ],
    "initContainers": [{"name": "i", "image": "private.example/i:1", "imagePullPolicy": "IfNotPresent"}],
    "volumes": [{"name": "v", "image": {"reference": "private.example/v:1", "pullPolicy": "Never"}}],
}


def test_each_image_is_pulled_with_the_pods_own_credentials() -> None:
    plan = SYNC.plan(("plain", "p"), Pair(pod(SPEC), None), view(policy=DEFAULT))
    (create,) = plan.actions
    assert isinstance(create, Create)
    spec = create.body["spec"]
    policies = [each["imagePullPolicy"] for each in (*spec["containers"], *spec["initContainers"])]
    assert policies == ["Always"] * 4
    assert spec["volumes"][0]["image"]["pullPolicy"] == "Always"
    assert [each.path for each in plan.changes] == [
        "spec.containers[0].imagePullPolicy",
        "spec.volumes[0].image.pullPolicy",
    ]


def test_an_operator_can_leave_them_as_written() -> None:
    plan = SYNC.plan(("plain", "p"), Pair(pod(SPEC), None), view())
    (create,) = plan.actions
    assert isinstance(create, Create)
    assert [each.get("imagePullPolicy") for each in create.body["spec"]["containers"]] == [
        "Never",
        "IfNotPresent",
        None,
    ]
    assert plan.changes == ()


@pytest.mark.parametrize(
    "spec", [None, [], {"containers": 1}, {"containers": [1], "volumes": [1, {"image": 1}]}]
)
def test_any_json_is_passed_over(spec: object) -> None:
    assert list(pull_changes({"spec": spec}, view(policy=DEFAULT))) == []
