# SPDX-License-Identifier: Apache-2.0
"""When a probe is asked again."""

from __future__ import annotations

import copy

import msgspec
import pytest

from tenant_operator.core.availability import FIRST_TRIES, control_plane_available, due_in_s, is_due
from tenant_operator.core.conditions import ConditionStatus, ConditionType
from tenant_operator.core.observed import Observed, ProbeResult
from tenant_operator.core.status import status_after, status_patch
from tenant_operator.core.workloads import Readiness
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import VirtualCluster
from tests.unit.tenant_operator import control_planes
from tests.unit.tenant_operator.core.worlds import NOW, FakeWorld, virtual_cluster

CONTROL_PLANE = control_planes.control_plane()


def observed(result: ProbeResult | None, now_s: float = NOW) -> Observed:
    probes = {} if result is None else {"nodes": result}
    return Observed(msgspec.convert(virtual_cluster(), VirtualCluster), {}, {}, now_s, probes)


def test_what_was_never_asked_is_due() -> None:
    assert is_due(observed(None), "nodes", 3600.0, 1.0)


def test_waits_of_a_part_that_does_not_answer() -> None:
    waits = [
        due_in_s(observed(ProbeResult(is_ok=False, at=NOW, failures=count)), "nodes", 3600.0, 1.0)
        for count in range(1, FIRST_TRIES + 12)
    ]
    assert waits == [*[1.0] * FIRST_TRIES, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, *[300.0] * 3]


@pytest.mark.parametrize("failures", range(20))
@pytest.mark.parametrize("is_ok", [True, False])
@pytest.mark.parametrize("shift_s", [0.5, 1.0, 3600.0, 300 * 86400.0])
def test_clock_that_went_back_stops_no_probe(failures: int, shift_s: float, *, is_ok: bool) -> None:
    """Asked while the clock was ahead, and looked at after it was set right."""
    result = ProbeResult(is_ok=is_ok, at=NOW + shift_s, failures=failures)
    assert is_due(observed(result), "nodes", 3600.0, 1.0)


@pytest.mark.parametrize("elapsed_s", [0.0, 0.5, 1799.0, 3599.0, 3600.0, 7200.0])
def test_answer_is_good_for_its_time(elapsed_s: float) -> None:
    left_s = due_in_s(observed(ProbeResult(is_ok=True, at=NOW), NOW + elapsed_s), "nodes", 3600.0, 1.0)
    assert left_s == max(3600.0 - elapsed_s, 0.0)


def test_restart_takes_nobody_from_ready() -> None:
    """What the process before had asked is lost with it."""
    world = FakeWorld(virtual_cluster())
    world.run()
    before = copy.deepcopy(world.cluster["status"])
    world.probes.clear()
    made = world.plan()
    observed = world.observed()
    assert status_patch(observed.virtual_cluster, status_after(observed, made, ())) is None
    assert sorted(each.name for each in made.probes) == ["nodes", "served", "syncer"]
    world.run()
    assert world.cluster["status"] == before


@pytest.mark.parametrize(
    ("ready", "status", "reason", "message"),
    [
        (
            3,
            ConditionStatus.TRUE,
            "WorkloadsReady",
            "the API server, the controller manager and the store serve",
        ),
        (
            2,
            ConditionStatus.TRUE,
            "ReplicasMissing",
            "etcd has 2 of 3 replicas ready, and serves; look at its pods in namespace {key}",
        ),
        (
            1,
            ConditionStatus.FALSE,
            "WorkloadNotReady",
            "etcd has 1 of 3 replicas ready; look at its pods in namespace {key}",
        ),
    ],
)
def test_lost_member_is_shown(ready: int, status: ConditionStatus, reason: str, message: str) -> None:
    """Before the majority is lost, too."""
    control_plane = control_planes.control_plane(replicas=3)
    store = Readiness("etcd", desired=3, ready=ready, updated=3, replicas=3, is_found=True)
    server = Readiness("apiserver", desired=1, ready=1, updated=1, replicas=1, is_found=True)
    found = control_plane_available(control_plane, (store, server), "", was_available=True)
    assert (found.status, found.reason) == (status, reason)
    assert found.message == message.format(key=control_plane.key)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("StatefulSet", "etcd"), ("Deployment", "apiserver"), ("Deployment", "controller-manager")],
)
def test_a_workload_without_a_pod_is_described(kind: str, name: str) -> None:
    """A StatefulSet whose pods are refused has that in its Events alone."""
    world = FakeWorld(virtual_cluster())
    world.run()
    key = world.cluster["status"]["clusterNamespace"]
    value = world.objects[Ref(kind, key, name)]
    value["status"] = {"observedGeneration": value["metadata"]["generation"]}
    found = next(each for each in world.plan().findings if each.type == ConditionType.CONTROL_PLANE_AVAILABLE)
    look = f"kubectl -n {key} describe {kind.lower()} {name}"
    message = f"{name} has 0 of 1 replicas ready; namespace {key} has no pod of it: {look}"
    assert found.message == message


@pytest.mark.parametrize("was_available", [True, False])
def test_what_is_not_observed_yet_makes_none_available(*, was_available: bool) -> None:
    """Nor does it take that from a tenant which has it: each change would."""
    part = Readiness("apiserver", desired=1, ready=1, updated=1, replicas=1, is_found=True)
    found = control_plane_available(CONTROL_PLANE, (part,), "", was_available=was_available)
    assert found.is_true is was_available


@pytest.mark.parametrize("is_asleep", [True, False])
def test_a_tenant_that_is_to_serve_needs_a_replica(*, is_asleep: bool) -> None:
    """One that was scaled down is scaled up a moment later."""
    part = Readiness("apiserver", is_found=True, is_observed=True)
    control_plane = msgspec.structs.replace(CONTROL_PLANE, is_asleep=is_asleep)
    found = control_plane_available(control_plane, (part,), "", was_available=True)
    assert found.is_true is is_asleep
