# SPDX-License-Identifier: Apache-2.0
"""The operator is killed after each step of an upgrade, a rollback, its confirmation, sleep and wake.

The steps are those of the plans themselves: each scenario is run once to count them, and then once for each
of them. A killed operator has lost its probes, and whatever the plan had left, the status included.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import pytest

from tenant_operator.model.objects import Object, Ref
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


def _version(name: str, version: str, etcd_version: str, **images: str) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "kubernetesVersion": version,
            "etcdVersion": etcd_version,
            "images": {"apiServer": "a:1", "controllerManager": "c:1", "etcd": "e:1", **images},
        },
    }


OLD = _version("v1.33", "1.33.9", "3.7.3")
# With another etcd, which moves alone.
NEW = _version("v1.34", "1.34.4", "3.7.4", apiServer="a:2", controllerManager="c:2", etcd="e:2")


def _ask(world: FakeWorld, name: str, value: str) -> None:
    world.cluster["metadata"].setdefault("annotations", {})[f"vcnode.io/{name}"] = value


def _go_to(world: FakeWorld, version: str) -> None:
    world.cluster["spec"]["clusterVersionName"] = version


def _upgrade(world: FakeWorld) -> None:
    _go_to(world, "v1.34")


def _roll_back(world: FakeWorld) -> None:
    _go_to(world, "v1.33")


def _confirm(world: FakeWorld) -> None:
    _ask(world, "confirm-upgrade", "v1.34")


def _sleep(world: FakeWorld) -> None:
    _ask(world, "sleep-requested-at", "2027-01-15T07:00:00Z")


def _wake(world: FakeWorld) -> None:
    _ask(world, "wake-requested-at", "2027-01-15T07:30:00Z")


def _wake_400_days_later(world: FakeWorld) -> None:
    world.now_s += 400 * 86_400
    _wake(world)


WorldChange = Callable[[FakeWorld], None]
# What was done before, and what the operator is killed in.
SCENARIOS: dict[str, tuple[tuple[WorldChange, ...], WorldChange]] = {
    "upgrade": ((), _upgrade),
    "rollback": ((_upgrade,), _roll_back),
    "confirmation": ((_upgrade,), _confirm),
    "sleep": ((), _sleep),
    "wake": ((_sleep,), _wake),
    "wake with expired certificates": ((_sleep,), _wake_400_days_later),
    "upgrade while asleep": ((_sleep,), _upgrade),
    "wake with another version": ((_sleep, _upgrade), _wake),
}


@functools.cache
def _settled(before: tuple[WorldChange, ...]) -> FakeWorld:
    """A tenant with Kubernetes 1.33 that has settled after each of these. Not to be changed."""
    if not before:
        world = FakeWorld(virtual_cluster(clusterVersionName="v1.33"), version=OLD, more_versions=(NEW,))
    else:
        world = copy.deepcopy(_settled(before[:-1]))
        before[-1](world)
    world.run()
    return world


def _begun(name: str) -> FakeWorld:
    """A scenario before its first step."""
    before, act = SCENARIOS[name]
    world = copy.deepcopy(_settled(before))
    act(world)
    return world


@functools.cache
def _undisturbed(name: str) -> tuple[int, Object]:
    """How many steps a scenario has, and its end."""
    world = _begun(name)
    taken = _run_killed(world, 1_000)
    return taken, _end(world)


def _run_killed(world: FakeWorld, most: int) -> int:
    """Take at most so many steps, of which each status is one; returns how many were taken."""
    taken = 0
    while True:
        made = world.plan()
        for step in made.steps:
            if taken == most:
                return taken
            world.carry_out(step)
            taken += 1
        if taken == most:
            return taken
        is_new = world.finish(made)
        taken += 1
        if not made.steps and not is_new:
            return taken


def _end(world: FakeWorld) -> Object:
    """All that is left, without the numbers of writes and what is random in certificates."""
    left: Object = copy.deepcopy({str(ref): value for ref, value in world.objects.items()})
    for value in left.values():
        for key in ("resourceVersion", "uid", "generation"):
            value["metadata"].pop(key, None)
        value["metadata"].get("annotations", {}).pop("vcnode.io/data-digest", None)
        value.get("status", {}).pop("observedGeneration", None)
        if value["kind"] in ("Secret", "ConfigMap"):
            value["data"] = sorted(value["data"])
    status = copy.deepcopy(world.cluster["status"])
    for each in status["conditions"]:
        del each["lastTransitionTime"]  # what is done before a status is written was never otherwise
    return {"objects": left, "status": status}


@pytest.mark.parametrize(
    ("name", "most"), [(name, most) for name in SCENARIOS for most in range(_undisturbed(name)[0])]
)
def test_killed_operator_ends_in_the_same_state(name: str, most: int) -> None:
    world = _begun(name)
    assert _run_killed(world, most) == most
    world.probes.clear()
    world.run()
    assert _end(world) == _undisturbed(name)[1]


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_changes_the_tenant(name: str) -> None:
    """A scenario that does nothing would be passed by any operator."""
    assert _end(_settled(SCENARIOS[name][0])) != _undisturbed(name)[1]


@pytest.mark.parametrize("name", SCENARIOS)
def test_service_account_keys_outlive_every_change(name: str) -> None:
    """Another key would end every token: upstream made one with each retry and each upgrade."""
    before = _settled(())
    world = _begun(name)
    world.run()
    for secret in ("service-account-keys", "encryption-config", "cluster-ca"):
        ref = Ref("Secret", before.cluster["status"]["clusterNamespace"], secret)
        assert world.objects[ref]["data"] == before.objects[ref]["data"]
