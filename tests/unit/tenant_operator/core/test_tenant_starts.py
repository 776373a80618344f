# SPDX-License-Identifier: Apache-2.0
"""A tenant starts: what waits for what, and what does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.steps import Apply, SettleDefaults
from tenant_operator.defaults.desired import builtin_files
from tenant_operator.edge.builtin_manifests import builtin_manifests
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


@pytest.mark.parametrize(
    ("store", "status", "is_made"),
    [
        # The first API server starts: it is waited for by the program itself.
        (1, {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 0}, True),
        # Without a store it would be started again and again.
        (0, {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 0}, False),
        # It is never newer than an API server.
        (1, {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}, False),
        (1, {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 0}, False),
        (1, {"replicas": 1, "updatedReplicas": 0, "readyReplicas": 0}, False),
        (1, {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 0, "observedGeneration": 0}, False),
        (1, {"replicas": 0, "updatedReplicas": 0, "readyReplicas": 0}, False),
    ],
)
def test_controller_manager_starts_beside_the_server(
    store: int, status: dict[str, int], is_made: bool
) -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    key = world.cluster["status"]["clusterNamespace"]
    world.objects[Ref("StatefulSet", key, names.ETCD)]["status"]["readyReplicas"] = store
    world.objects[Ref("Deployment", key, names.API_SERVER)]["status"] |= status
    manager = Ref("Deployment", key, names.CONTROLLER_MANAGER)
    del world.objects[manager]
    applied = [ref_of(step.manifest) for step in world.plan().steps if isinstance(step, Apply)]
    assert (manager in applied) is is_made


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
