# SPDX-License-Identifier: Apache-2.0
"""Requests about objects of the super cluster, as it gets them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import Status
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.write_gate import GatedClient
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers

pytestmark = pytest.mark.asyncio

PODS = "/api/v1/namespaces/root/pods"


BEFORE = "2027-01-15T08:00:00Z"


def pod(name: str, ends_at: str = "") -> dict[str, Any]:
    meta = {"name": name, "namespace": "root", "uid": f"uid-{name}"}
    return {"metadata": meta | ({"deletionTimestamp": ends_at} if ends_at else {})}


def writer(answers: Any) -> SuperClusterWriter:
    return SuperClusterWriter(GatedClient(answers, lambda: True))


async def test_only_pods_that_should_have_ended_are_ended() -> None:
    listed = {
        "items": [
            pod("runs"),
            pod("hangs", BEFORE),
            pod("ends", "2027-01-15T08:00:01Z"),
            pod("gone", "2027-01-15T07:59:59Z"),
        ]
    }
    conflict = ApiError(Status(code=409, reason="Conflict"))
    answers = FakeAnswers(
        {f"GET {PODS}": listed, f"DELETE {PODS}/hangs": {}, f"DELETE {PODS}/gone": conflict}
    )
    await writer(answers).end_pods("root", BEFORE)
    assert answers.requests == [
        (f"GET {PODS}", {"labelSelector": "vcnode.io/managed-by=vc-operator", "limit": "100"}),
        (f"DELETE {PODS}/hangs", {}),
        (f"DELETE {PODS}/gone", {}),
    ]
    assert json.loads(answers.bodies[0]) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid-hangs"},
    }


async def test_refusal_to_end_a_pod_is_a_failure() -> None:
    refused = ApiError(Status(code=403, reason="Forbidden"))
    answers = FakeAnswers({f"GET {PODS}": {"items": [pod("hangs", BEFORE)]}, f"DELETE {PODS}/hangs": refused})
    with pytest.raises(ApiError):
        await writer(answers).end_pods("root", BEFORE)
