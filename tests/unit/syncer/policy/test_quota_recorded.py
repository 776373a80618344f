# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes 1.34's own code makes of objects and patches: its defaults, its merges, and its quota.

Recorded by tests/k8s/components/kubernetes/quota of objects that were drawn at random.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from daemonkit.kube.resources import PODS
from syncer.core.objects import Object, SyncedKind
from syncer.core.patches import patched
from syncer.core.plan import Patch, Side
from syncer.policy import quantity
from syncer.policy.quota import unstated
from syncer.policy.sync_policy import SyncPolicy
from syncer.policy.usage import of_object

RECORDED: list[Any] = json.loads((Path(__file__).parents[3] / "cases/quota/recorded.json").read_text())
# The counts, and names that a limit of ours does not have.
_OTHERS = ("count/", "cpu", "memory", "ephemeral-storage", "hugepages-")
_COUNTS = frozenset({"services", "persistentvolumeclaims"})
_REQUIRED = SyncPolicy(
    quota=tuple((f"{side}.{name}", 1) for side in ("limits", "requests") for name in ("cpu", "memory"))
)


def _result(case: Any) -> Object:
    value: Object = case["object"]
    for each in case["patches"]:
        kind = SyncedKind(PODS, case["kind"])
        is_strategic = each["type"] == "strategic"
        value = patched(
            value, Patch(Side.SUPER, kind, "n", "a", "u", each["body"], is_strategic=is_strategic)
        )
    return value


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_usage_is_that_of_kubernetes(number: int) -> None:
    recorded = RECORDED[number]
    expected = {
        name: quantity.parse(amount)
        for name, amount in recorded["usage"].items()
        if not name.startswith(_OTHERS) and name not in _COUNTS
    }
    found = of_object(recorded["case"]["kind"], _result(recorded["case"]))
    assert {name: amount for name, amount in found.items() if amount} == {
        name: amount for name, amount in expected.items() if amount
    }


@pytest.mark.parametrize(
    "number", [number for number, each in enumerate(RECORDED) if each["case"]["kind"] == "Pod"]
)
def test_what_kubernetes_demands_is_demanded(number: int) -> None:
    """`resources` of a pod satisfy Kubernetes whatever they state; here each name is asked for."""
    recorded = RECORDED[number]
    pod = _result(recorded["case"])
    if "missing" in recorded:
        assert unstated(pod, _REQUIRED) != ()
    elif "resources" not in pod["spec"]:
        assert unstated(pod, _REQUIRED) == ()
