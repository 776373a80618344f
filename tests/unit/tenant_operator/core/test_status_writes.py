# SPDX-License-Identifier: Apache-2.0
"""What is written of a status: what differs, on condition of the version that was read, and nothing else."""

from __future__ import annotations

from tenant_operator.core.status import status_after, status_patch
from tenant_operator.model.objects import Object
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


def test_only_the_status_of_the_version_that_was_read() -> None:
    """Upstream read again after a conflict, and wrote its status over labels and finalizers of others."""
    world = FakeWorld(virtual_cluster())
    patch = _patch(world)
    assert patch is not None
    assert patch.keys() == {"metadata", "status"}
    assert patch["metadata"] == {"resourceVersion": "7"}


def test_settled_status_is_not_written() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    assert _patch(world) is None


def test_phase_is_updating_until_all_run_the_version() -> None:
    """Upstream declares the phase, and never sets it. vc-syncer and vn-agent serve a tenant in both."""
    old = {"metadata": {"name": "v1.34"}, "spec": _spec("1.34.4")}
    new = {"metadata": {"name": "v1.34.5"}, "spec": _spec("1.34.5")}
    world = FakeWorld(virtual_cluster(), version=old, more_versions=(new,))
    world.run()
    world.cluster["spec"]["clusterVersionName"] = "v1.34.5"
    phases: list[str] = []
    while not phases or phases[-1] != "Running" or len(phases) < 3:
        made = world.plan()
        for step in made.steps:
            world.carry_out(step)
        world.finish(made)
        phases.append(world.cluster["status"]["phase"])
    assert set(phases) == {"Running", "Updating"}
    assert world.cluster["status"]["clusterVersion"] == "v1.34.5"


def _patch(world: FakeWorld) -> Object | None:
    observed = world.observed()
    return status_patch(observed.virtual_cluster, status_after(observed, world.plan(), ()))


def _spec(version: str) -> dict[str, object]:
    images = {"apiServer": f"a:{version}", "controllerManager": f"c:{version}", "etcd": "e:1"}
    return {"kubernetesVersion": version, "etcdVersion": "3.7.3", "images": images}
