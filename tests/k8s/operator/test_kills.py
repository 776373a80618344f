# SPDX-License-Identifier: Apache-2.0
"""vc-operator is killed again and again while it makes a tenant, and while it removes it."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from functools import partial

import pytest

from tests.k8s.operator import tenants
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring.processes import RingError, wait_for

pytestmark = pytest.mark.timeout(300)

_SEED = 37
_KILLS = 4
_STEPS_S = 5.0
_STEPS = "vcnode_tenantoperator_steps_total"
# A tenant is made in about fifty steps, and removed in about ten.
_MAKING, _REMOVING = (1, 16), (1, 3)
_OWNED = "deployments,statefulsets,services,secrets,configmaps,networkpolicies,poddisruptionbudgets,roles"


def test_killed_operator_makes_and_removes_the_same(
    residents: tuple[OperatedTenant, OperatedTenant], operator: OperatorDaemon, figures: list[str]
) -> None:
    """As one that was never killed: the objects of a tenant of the same class, and then none of them."""
    resident = residents[0]
    steps = random.Random(_SEED)  # noqa: S311 - which steps, not secrets
    began = time.monotonic()
    made = tenants.create(resident.ground, operator, "orange", clusterVersionName="resident")
    try:
        kills = _kill_repeatedly(operator, steps, _MAKING)
        made.wait_condition(tenants.READY)
        assert _objects(made) == _objects(resident)
        assert _strays(made) == []
        made_s = time.monotonic() - began
    finally:
        made.delete()
    key, began = made.key, time.monotonic()
    kills += _kill_repeatedly(operator, steps, _REMOVING)
    made.wait_gone()
    namespaces = resident.ground.api.get("/api/v1/namespaces")["items"]
    assert [each["metadata"]["name"] for each in namespaces if each["metadata"]["name"].startswith(key)] == []
    figures.append(
        f"vc-operator killed {kills} times (seed {_SEED}): Ready after {made_s:.1f} s, deleted in "
        f"{time.monotonic() - began:.1f} s"
    )


def _kill_repeatedly(operator: OperatorDaemon, steps: random.Random, most: tuple[int, int]) -> int:
    """Kill it after some of its steps, or where it has none left; returns how often."""
    for _ in range(_KILLS):
        left = steps.randint(*most)
        with contextlib.suppress(RingError):
            wait_for("steps", partial(_has_taken, operator, left), timeout_s=_STEPS_S)
        operator.stop(signal.SIGKILL)
        operator.start()
    return _KILLS


def _has_taken(operator: OperatorDaemon, steps: int) -> bool:
    return operator.metric(_STEPS) >= steps


def _objects(tenant: OperatedTenant) -> list[str]:
    """Kinds and names of all that is in its root namespace, without what controllers name."""
    shown = tenant.root_kubectl("get", _OWNED, "-o", "name", "-l", "vcnode.io/managed-by=vc-operator")
    return sorted(shown.check().text.split())


def _strays(tenant: OperatedTenant) -> list[str]:
    """What has no owner: neither the label of the operator nor a controller."""
    found = tenant.root_kubectl("get", _OWNED, "-o", "json", "-l", "vcnode.io/managed-by!=vc-operator")
    return [
        f"{each['kind']}/{each['metadata']['name']}"
        for each in json.loads(found.check().text)["items"]
        if not each["metadata"].get("ownerReferences") and each["metadata"]["name"] != "kube-root-ca.crt"
    ]
