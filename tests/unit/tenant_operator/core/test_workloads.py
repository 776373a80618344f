# SPDX-License-Identifier: Apache-2.0
"""When a rollout is over."""

from __future__ import annotations

import json

import pytest

from tenant_operator.core.live import parse_live
from tenant_operator.core.workloads import Readiness, readiness_of


def readiness(desired: int, generation: int = 2, **status: int) -> Readiness:
    value = {
        "metadata": {"name": "apiserver", "generation": generation},
        "spec": {"replicas": desired},
        "status": status,
    }
    return readiness_of("apiserver", parse_live("StatefulSet", json.dumps(value).encode()))


@pytest.mark.parametrize(
    ("is_settled", "status"),
    [
        (True, {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}),
        # The ready one is the old one.
        (False, {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}),
        # Its new pod is ready, and the old one has not ended.
        (False, {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 2}),
        (False, {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}),
        (False, {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1}),
        (False, {"observedGeneration": 2, "replicas": 1, "readyReplicas": 1}),
        (False, {}),
    ],
)
def test_rollout_is_over_when_all_pods_are_new(is_settled: bool, status: dict[str, int]) -> None:
    assert readiness(1, **status).is_settled is is_settled


def test_nothing_to_run_is_settled() -> None:
    assert readiness(0, observedGeneration=2).is_settled


def test_store_needs_its_majority() -> None:
    def store(ready: int) -> Readiness:
        value = {
            "metadata": {"name": "etcd", "generation": 1},
            "spec": {"replicas": 3},
            "status": {"readyReplicas": ready, "observedGeneration": 1},
        }
        return readiness_of("etcd", parse_live("StatefulSet", json.dumps(value).encode()))

    assert [store(ready).is_available for ready in range(4)] == [False, False, True, True]
