# SPDX-License-Identifier: Apache-2.0
"""A tenant starts: what waits for what, and what does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenancy import keys
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.steps import Apply, SettleDefaults
from tenant_operator.defaults.desired import builtin_files
from tenant_operator.edge.builtin_manifests import builtin_manifests
from tenant_operator.life.requests import text_of
from tenant_operator.model import names
from tenant_operator.model.objects import Ref, ref_of
from tests.unit.tenant_operator.core.worlds import NOW, SETTINGS, FakeWorld, virtual_cluster


class StartingWorld(FakeWorld):
    """Its controller manager is never ready."""

    def make_ready(self) -> bool:
        before = self.status_of(names.CONTROLLER_MANAGER)
        is_changed = super().make_ready()
        for ref, value in self.objects.items():
            if ref.name == names.CONTROLLER_MANAGER and ref.kind == "Deployment":
                value["status"]["readyReplicas"] = 0
                return is_changed and value["status"] != before
        return is_changed

    def status_of(self, name: str) -> Any:
        found = (value for ref, value in self.objects.items() if (ref.kind, ref.name) == ("Deployment", name))
        return dict(next(found, {}).get("status", {}))


def _key(world: FakeWorld) -> str:
    found: str = world.cluster["status"]["clusterNamespace"]
    return found


def _applied(world: FakeWorld) -> set[str]:
    """The workloads that the next plan applies."""
    refs = [ref_of(step.manifest) for step in world.plan().steps if isinstance(step, Apply)]
    return {ref.name for ref in refs if ref.kind in ("Deployment", "StatefulSet")}


@pytest.mark.parametrize(
    ("status", "is_made"),
    [
        ({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}, True),
        # A controller manager waits for ten seconds alone.
        ({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 0}, False),
        # It is never newer than an API server.
        ({"replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}, False),
    ],
)
def test_controller_manager_starts_behind_the_server(status: dict[str, int], *, is_made: bool) -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    world.objects[Ref("Deployment", _key(world), names.API_SERVER)]["status"] |= status
    del world.objects[Ref("Deployment", _key(world), names.CONTROLLER_MANAGER)]
    assert (names.CONTROLLER_MANAGER in _applied(world)) is is_made


def test_controller_manager_wakes_behind_the_server() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    annotations = world.cluster["metadata"].setdefault("annotations", {})
    annotations[keys.SLEEP_REQUESTED_AT] = text_of(NOW - 2)
    world.run()
    annotations[keys.WAKE_REQUESTED_AT] = text_of(NOW - 1)
    assert _applied(world) == {names.ETCD, names.API_SERVER}
    world.run()
    assert world.cluster["status"]["phase"] == "Running"
    assert not world.plan().is_starting


@pytest.mark.parametrize("is_begun", [True, False])
def test_control_plane_waits_for_a_place_to_start(*, is_begun: bool) -> None:
    world = StartingWorld(virtual_cluster())
    world.may_start = is_begun
    world.run()
    made = world.plan()
    assert (made.is_down, made.waits_to_start) == (is_begun, not is_begun)
    condition = next(each for each in world.cluster["status"]["conditions"] if each["type"] == "Ready")
    assert ("maxStarting" in condition["message"]) is not is_begun
    assert (Ref("StatefulSet", _key(world), names.ETCD) in world.objects) is is_begun


def test_what_runs_waits_for_no_place() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    world.may_start = False
    made = world.plan()
    assert (made.is_starting, made.waits_to_start, made.steps) == (False, False, ())
    world.objects[Ref("Deployment", _key(world), names.API_SERVER)]["status"]["readyReplicas"] = 0
    made = world.plan()
    assert (made.is_starting, made.is_down, made.waits_to_start) == (False, True, False)


def test_tenant_is_served_while_its_controllers_start() -> None:
    world = StartingWorld(virtual_cluster())
    world.run()
    status = world.cluster["status"]
    found = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert status["phase"] == "Running"
    assert found["ControlPlaneAvailable"] == found["Ready"] == ("False", "WorkloadNotReady")
    assert found["SyncerAttached"] == ("True", "NamespacesSynced")
    assert found["NodesServing"][0] == "True"


@pytest.mark.parametrize(
    ("syncer", "nodes", "is_settled"),
    [
        (None, None, False),
        (ProbeResult(is_ok=True, at=NOW), None, False),
        (ProbeResult(is_ok=True, at=NOW), ProbeResult(is_ok=False, at=NOW, failures=7), False),
        (ProbeResult(is_ok=True, at=NOW), ProbeResult(is_ok=True, at=NOW), True),
        # Without a vc-syncer a tenant has its defaults all the same.
        (ProbeResult(is_ok=False, at=NOW, failures=8), ProbeResult(is_ok=True, at=NOW), True),
    ],
)
def test_tenant_is_ready_before_its_defaults_are_whole(
    syncer: ProbeResult | None, nodes: ProbeResult | None, *, is_settled: bool
) -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    world.settings = msgspec.structs.replace(SETTINGS, builtin=builtin_files(builtin_manifests()))
    asked = {"syncer": syncer, "nodes": nodes}
    world.probes = {name: found for name, found in asked.items() if found is not None}
    assert any(isinstance(step, SettleDefaults) for step in world.plan().steps) is is_settled
