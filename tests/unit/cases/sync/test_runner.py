# SPDX-License-Identifier: Apache-2.0
"""The runner of sync cases itself: what passes, what fails, and what differences may say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases.sync.load import Differences, Everywhere, SyncFileError, differences, read
from tests.cases.sync.runner import SyncRunner

BASE = {
    "metadata": {
        "name": "${TENANT_NAME}",
        "namespace": "${KEY}-${TENANT_NS}",
        "labels": {
            "tenancy.x-k8s.io/vcname": "${VC_NAME}",
            "tenancy.x-k8s.io/vcnamespace": "${VC_NAMESPACE}",
        },
        "annotations": {
            "tenancy.x-k8s.io/cluster": "${KEY}",
            "tenancy.x-k8s.io/namespace": "${TENANT_NS}",
            "tenancy.x-k8s.io/ownerReferences": "null",
            "tenancy.x-k8s.io/uid": "${TENANT_UID}",
            "tenancy.x-k8s.io/vcname": "${VC_NAME}",
            "tenancy.x-k8s.io/vcnamespace": "${VC_NAMESPACE}",
        },
    }
}
CASE: dict[str, Any] = {
    "id": "one",
    "kind": "ConfigMap",
    "direction": "down",
    "tenant": {"metadata": {"name": "a", "namespace": "ns"}, "data": {"k": "v"}},
    "super": {"base": "object", "with": {"data": {"k": "v"}}},
    "after": [
        {
            "do": "tenant merge patch",
            "patch": {"data": {"k": "w"}},
            "super": {"changed": [{"path": ["data", "k"], "was": "v", "now": "w"}]},
        },
        {"do": "tenant delete", "super": "gone"},
    ],
}


def failures(tmp_path: Path, case: dict[str, Any], found: Differences | None = None) -> list[str]:
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"bases": {"object": BASE}, "cases": [case]}))
    (result,) = SyncRunner(read(path), found or Differences()).run()
    return list(result.failures)


def test_a_case_that_is_as_recorded_passes(tmp_path: Path) -> None:
    assert failures(tmp_path, CASE) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"super": None}, "super: expected none"),
        ({"super": {"base": "object"}}, "super.data: only found: {'k': 'v'}"),
        (
            {"after": [{"do": "tenant delete", "super": "unchanged"}]},
            "step 1 (tenant delete): super: expected",
        ),
        ({"tenant_gets": {"data": {"k": "x"}}}, "tenant_gets.data.k: expected 'x', found 'v'"),
        ({"after": [{"do": "tenant sings"}]}, "UnknownPlaceholderError: step 'tenant sings'"),
        ({"after": [{"do": "super delete", "super": "gone"}]}, "step 1 (super delete): super: expected gone"),
        ({"super": {"base": "object", "with": {"data": {"k": "${WHAT}"}}}}, "UnknownPlaceholderError: WHAT"),
    ],
)
def test_a_case_that_is_not_fails(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    found = failures(tmp_path, CASE | changes)
    assert [line[: len(expected)] for line in found] == [expected]


def test_a_difference_replaces_what_was_recorded(tmp_path: Path) -> None:
    recorded = CASE | {"super": {"base": "object", "with": {"data": {"k": "other"}}}}
    ours = {"id": "one", "reason": "because", "super": {"with": {"data": {"k": "v"}}}}
    assert failures(tmp_path, recorded, Differences({"one": ours})) == []
    wrong = {**ours, "super": {"with": {"data": {"k": "w"}}}}
    assert failures(tmp_path, recorded, Differences({"one": wrong})) == [
        "super.data.k: expected 'w', found 'v'"
    ]


def test_a_step_of_a_difference_replaces_that_step_alone(tmp_path: Path) -> None:
    steps = [
        {"do": "tenant merge patch", "patch": {"data": {"k": "w"}}, "super": "unchanged"},
        CASE["after"][1],
    ]
    ours = {"id": "one", "reason": "because", "after": [{"super": CASE["after"][0]["super"]}]}
    assert failures(tmp_path, CASE | {"after": steps}, Differences({"one": ours})) == []


def test_a_difference_that_is_none_fails(tmp_path: Path) -> None:
    found = Differences({"one": {"id": "one", "reason": "because", "super": CASE["super"]}})
    assert failures(tmp_path, CASE, found) == ["it is listed as a difference, but is as recorded"]


def test_fields_that_differ_everywhere_are_not_compared(tmp_path: Path) -> None:
    rule = Everywhere("ConfigMap", ("metadata", "annotations", "tenancy.x-k8s.io/*"), "because")
    case = CASE | {
        "super": {"base": "object", "with": {"data": {"k": "v"}, "metadata": {"annotations": None}}}
    }
    assert failures(tmp_path, case, Differences({}, (rule,))) == []
    assert len(failures(tmp_path, case)) > 0


def test_each_difference_of_ours_has_a_reason() -> None:
    found = differences()
    assert len(found.cases) > 30
    assert all(entry["reason"] for entry in found.cases.values())


@pytest.mark.parametrize(
    "entry",
    [
        CASE | {"unknown": 1},
        CASE | {"direction": "sideways"},
        {name: field for name, field in CASE.items() if name != "kind"},
        CASE | {"after": [{"do": "tenant delete", "what": 1}]},
    ],
)
def test_an_unreadable_case_is_named(tmp_path: Path, entry: dict[str, Any]) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"cases": [entry]}))
    with pytest.raises(SyncFileError, match=r"cases\.yaml"):
        read(path)


WAITING_POD: dict[str, Any] = {
    "id": "one",
    "kind": "Pod",
    "direction": "down",
    "tenant": {
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "app:1"}],
            "volumes": [{"name": "s", "secret": {"secretName": "nowhere"}}],
        },
    },
    "super": None,
}


def test_events_of_the_tenant_are_compared(tmp_path: Path) -> None:
    event = {
        "reason": "SyncWaiting",
        "type": "Warning",
        "message": 'Error creating: Secret "nowhere" not found',
        "source": {"host": ""},
        "reportingComponent": "vc-syncer",
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p"},
    }
    assert failures(tmp_path, WAITING_POD | {"tenant_events": [event]}) == []
    other = WAITING_POD | {"tenant_events": [event | {"reason": "FailedCreate"}]}
    assert failures(tmp_path, other) == [
        "tenant_events[0].reason: expected 'FailedCreate', found 'SyncWaiting'"
    ]


def test_a_vnode_is_compared(tmp_path: Path) -> None:
    addresses = [{"type": "InternalIP", "address": "${NODE_IP}"}]
    super_node = {"metadata": {"name": "${NODE}"}, "spec": {}, "status": {"addresses": addresses}}
    case = {"id": "one", "kind": "Node", "direction": "up", "super": super_node, "tenant": super_node}
    found = failures(tmp_path, case)
    assert "tenant.spec.unschedulable: only found: True" in found
    assert not [each for each in found if "addresses" in each]
