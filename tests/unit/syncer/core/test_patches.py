# SPDX-License-Identifier: Apache-2.0
"""What an object is after a patch: as the fake API server has it, and as a quota depends on it."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.resources import PODS
from devkit.kube import patches as reference
from syncer.core import patches
from syncer.core.objects import Object, SyncedKind
from syncer.core.plan import Patch, Side
from tests.unit.syncer.policy.arbitrary_json import JSON

POD: Object = {
    "metadata": {"name": "a"},
    "spec": {
        "containers": [
            {"name": "a", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}},
            {"name": "b", "image": "i", "resources": {"requests": {"cpu": "2"}}},
        ],
        "tolerations": [{"key": "x"}],
        "schedulingGates": [{"name": "g"}, {"name": "h"}],
    },
}


def _patch(body: Object, *, is_strategic: bool) -> Patch:
    return Patch(Side.SUPER, SyncedKind(PODS, "Pod"), "n", "a", "u", body, is_strategic=is_strategic)


@pytest.mark.parametrize(
    ("patch", "path", "expected"),
    [
        (
            {"containers": [{"name": "b", "resources": {"requests": {"cpu": "3"}}}]},
            "containers",
            [
                POD["spec"]["containers"][0],
                {"name": "b", "image": "i", "resources": {"requests": {"cpu": "3"}}},
            ],
        ),
        (
            {"containers": [{"name": "a", "image": "j"}]},
            "containers",
            [{**POD["spec"]["containers"][0], "image": "j"}, POD["spec"]["containers"][1]],
        ),
        ({"schedulingGates": [{"$patch": "delete", "name": "g"}]}, "schedulingGates", [{"name": "h"}]),
        ({"schedulingGates": [{"$patch": "replace"}, {"name": "k"}]}, "schedulingGates", [{"name": "k"}]),
        ({"tolerations": [{"key": "y"}]}, "tolerations", [{"key": "y"}]),
        ({"tolerations": None}, "tolerations", None),
        ({"nodeSelector": {"a": "b"}}, "nodeSelector", {"a": "b"}),
    ],
)
def test_a_strategic_merge_patch(patch: Object, path: str, expected: Any) -> None:
    before = copy.deepcopy(POD)
    after = patches.patched(POD, _patch({"spec": patch}, is_strategic=True))
    assert after["spec"].get(path) == expected
    assert before == POD


def test_a_merge_patch_removes_what_is_null() -> None:
    claim: Object = {"spec": {"resources": {"requests": {"storage": "1"}}, "storageClassName": "a"}}
    body: Object = {"spec": {"resources": {"requests": {"storage": "5"}}, "storageClassName": None}}
    assert patches.patched(claim, _patch(body, is_strategic=False)) == {
        "spec": {"resources": {"requests": {"storage": "5"}}}
    }


_QUANTITY = st.sampled_from(["1", "2", "500m", None])
_RESOURCES = st.dictionaries(
    st.sampled_from(["requests", "limits"]),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), _QUANTITY, max_size=2),
    max_size=2,
)
_NAMES = st.sampled_from("abcd")
_ENV = st.lists(st.builds(lambda name: {"name": name, "value": name}, _NAMES), max_size=2, unique_by=str)


def _container(name: str, image: str | None, resources: Object, env: list[Object]) -> Object:
    found = {"name": name, "image": image, "resources": resources, "env": env}
    return {field: value for field, value in found.items() if value}


_CONTAINERS: st.SearchStrategy[list[Object]] = st.lists(
    st.builds(_container, _NAMES, st.sampled_from(["i", "j", None]), _RESOURCES, _ENV),
    max_size=4,
    unique_by=lambda each: str(each["name"]),
)
_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "tolerations": st.lists(st.sampled_from([{"key": "x"}, {"key": "y"}]), max_size=2),
        "activeDeadlineSeconds": st.none() | st.integers(1, 3),
    },
)


@given(_SPECS, st.lists(_SPECS, max_size=3))
def test_patches_are_applied_as_the_api_server_does(spec: Object, changes: list[Object]) -> None:
    expected: Any = {"spec": spec}
    actual: Object = {"spec": spec}
    for change in changes:
        expected = reference.strategic_merge(expected, {"spec": change})
        actual = patches.patched(actual, _patch({"spec": change}, is_strategic=True))
    assert actual == expected


@given(JSON, JSON)
def test_a_merge_patch_is_that_of_the_rfc(value: Any, patch: Any) -> None:
    assert patches.merge(value, patch) == reference.merge_patch(value, patch)


@given(JSON, JSON)
def test_any_json_can_be_patched(value: Any, patch: Any) -> None:
    patches.strategic_merge({"containers": value}, {"containers": patch})
