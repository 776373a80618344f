# SPDX-License-Identifier: Apache-2.0
"""Rotations of a tenant that is served: from a request to the end of the old key, from wherever one stood."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from tenancy import keys
from tenant_operator.core import rotations
from tenant_operator.core.conditions import ConditionType
from tenant_operator.core.steps import Rotate
from tenant_operator.model.objects import Object, Ref
from tenant_operator.pki.rotation import PLANS, Consumer, RotationStep
from tests.unit.tenant_operator.core.worlds import VERSION, FakeWorld, virtual_cluster

DAY = 86_400.0
WHATS = sorted(rotations.SUPPORTED)


@functools.cache
def _served() -> FakeWorld:
    version: Object = copy.deepcopy(VERSION)
    version["spec"]["images"]["signer"] = "s:1"
    world = FakeWorld(virtual_cluster(), version)
    world.run()
    world.is_synced = True
    world.run()
    return world


def served() -> FakeWorld:
    return copy.deepcopy(_served())


def request(world: FakeWorld, what: str, value: str = "one") -> None:
    world.cluster["metadata"].setdefault("annotations", {})[f"{keys.ROTATE_PREFIX}{what}"] = value


def secret(world: FakeWorld, what: str) -> Object:
    key = world.cluster["status"]["clusterNamespace"]
    return world.objects[Ref("Secret", key, PLANS[what].secret)]


def key_ids(world: FakeWorld, what: str) -> list[str]:
    """The ids of keys without certificates, or the certificates: what signs, the next one, the former."""
    found = secret(world, what)
    listed = found["metadata"]["annotations"].get(keys.KEY_IDS)
    if listed is not None:
        return [*listed.split(",")]
    return [
        found["data"][f"{each}.crt"] for each in ("tls", "next", "previous") if f"{each}.crt" in found["data"]
    ]


def finish(world: FakeWorld) -> None:
    """To the end of all tokens. Then all are asked once more."""
    world.run()
    world.now_s += DAY
    world.run()
    world.run()


def phase(world: FakeWorld) -> dict[str, Any]:
    return {each["what"]: each.get("phase", "") for each in world.cluster["status"].get("rotations", ())}


@pytest.mark.parametrize("what", WHATS)
def test_a_request_replaces_the_key_once(what: str) -> None:
    world = served()
    (before,) = key_ids(world, what)
    request(world, what)
    finish(world)
    (after,) = key_ids(world, what)
    assert after != before
    assert phase(world) == {}
    assert secret(world, what)["metadata"]["annotations"][keys.ROTATION_TOKEN] == "one"
    writes = world.writes
    world.run()
    assert (world.writes, key_ids(world, what)) == (writes, [after])
    request(world, what, "two")
    finish(world)
    assert key_ids(world, what) != [after]


def _steps(what: str) -> int:
    world = served()
    request(world, what)
    count = world.run()
    world.now_s += DAY
    return count + world.run() + world.run()


@pytest.mark.parametrize(("what", "most"), [(what, most) for what in WHATS for most in range(_steps(what))])
def test_operator_killed_after_each_step(what: str, most: int) -> None:
    """Another process goes on from what the objects have; the key is replaced once."""
    world = served()
    (before,) = key_ids(world, what)
    request(world, what)
    taken = begun = 0
    while taken < most:
        plan = world.plan()
        for step in plan.steps[: most - taken]:
            world.carry_out(step)
            begun += isinstance(step, Rotate) and step.rotation.step is RotationStep.BEGIN
        taken += len(plan.steps[: most - taken])
        if taken < most:
            is_new = world.finish(plan)
            world.now_s += 0.0 if plan.steps or is_new else DAY
    world.probes.clear()
    finish(world)
    (after,) = key_ids(world, what)
    assert after != before
    assert begun <= 1
    assert phase(world) == {}


@pytest.mark.parametrize("what", WHATS)
def test_who_does_not_answer_is_waited_for_by_name(what: str) -> None:
    """However long: the old key signs as before, and the status has who is waited for."""
    world = served()
    (before,) = key_ids(world, what)
    world.answers[what] = {each: {"pod-1": None} for each in Consumer}
    request(world, what)
    world.run()
    world.now_s += 30 * DAY
    world.run()
    assert key_ids(world, what)[0] == before
    (status,) = world.cluster["status"]["rotations"]
    assert (status["what"], status["token"], status["phase"]) == (what, "one", "Trusted")
    assert f"{PLANS[what].verifiers[0]}/pod-1" in status["waitsFor"]
    (condition,) = (
        each
        for each in world.cluster["status"]["conditions"]
        if each.get("type") == ConditionType.CERTIFICATES_VALID
    )
    assert condition["status"] == "True"
    assert f"Rotation of {what}: Trusted, waits for " in condition["message"]


@pytest.mark.parametrize("what", WHATS)
def test_an_old_answer_does_not_count(what: str) -> None:
    """It is about the Secret before the last step, or about a moment that has passed."""
    world = served()
    request(world, what)
    for step in world.plan().steps:
        world.carry_out(step)
    for _ in range(3):
        plan = world.plan()
        for step in plan.steps:
            if not isinstance(step, Rotate):
                world.carry_out(step)
        world.finish(plan)
    assert any(isinstance(step, Rotate) for step in world.plan().steps)
    world.now_s += 31.0
    assert not any(isinstance(step, Rotate) for step in world.plan().steps)
    world.now_s -= 31.0
    secret(world, what)["metadata"]["resourceVersion"] = "other"
    assert not any(isinstance(step, Rotate) for step in world.plan().steps)


def test_secrets_are_written_again_after_another_server_came() -> None:
    """One that is new may have written by the former key before it read the next."""
    world = served()
    request(world, "encryption-key")
    answered = world.asked("encryption-key")
    for step in iter_steps(world):
        if step.rotation.step is RotationStep.REWRITE:
            break
    assert len([each for each in key_ids(world, "encryption-key") if each]) == 2
    answer = {"another": next(iter((world.asked("encryption-key")[Consumer.API_SERVER] or {}).values()))}
    world.answers["encryption-key"] = {**answered, Consumer.API_SERVER: answer}
    assert [step.rotation.step for step in iter_steps(world)] == [RotationStep.REWRITE, RotationStep.DROP]


def iter_steps(world: FakeWorld) -> Iterator[Rotate]:
    """The steps of rotations, each after it was taken."""
    world.now_s += 3.0
    for _ in range(20):
        plan = world.plan()
        for step in plan.steps:
            world.carry_out(step)
        world.finish(plan)
        yield from (step for step in plan.steps if isinstance(step, Rotate))


def test_client_certificates_end_first_or_are_revoked() -> None:
    """A copy of the administrator's kubeconfig is valid for a day, unless a person says otherwise."""
    world = served()
    request(world, "cluster-ca")
    world.run()
    world.now_s += DAY - 60
    world.run()
    (status,) = world.cluster["status"]["rotations"]
    assert status["waitsFor"] == "client certificates that the previous authority signed"
    world.cluster["metadata"]["annotations"][f"{keys.REVOKE_PREFIX}cluster-ca"] = "other"
    world.run()
    assert phase(world) == {"cluster-ca": "Reissued"}
    world.cluster["metadata"]["annotations"][f"{keys.REVOKE_PREFIX}cluster-ca"] = "one"
    world.run()
    world.run()
    assert phase(world) == {}
    assert set(secret(world, "cluster-ca")["data"]) == {"tls.crt", "tls.key", "chain.crt"}


def test_a_syncer_that_works_by_the_former_is_waited_for() -> None:
    world = served()
    world.is_synced = False
    request(world, "cluster-ca")
    finish(world)
    (status,) = world.cluster["status"]["rotations"]
    assert (status["phase"], status["waitsFor"]) == ("Reissued", "vc-syncer")
    world.is_synced = True
    finish(world)
    assert phase(world) == {}


@pytest.mark.parametrize("what", WHATS)
def test_a_rotation_goes_on_when_the_tenant_wakes(what: str) -> None:
    """Nothing rotates of one that sleeps: nobody can be asked."""
    world = served()
    (before,) = key_ids(world, what)
    request(world, what)
    for step in world.plan().steps:
        world.carry_out(step)
    annotations = world.cluster["metadata"]["annotations"]
    annotations["vcnode.io/sleep-requested-at"] = "2027-01-15T07:00:00Z"
    world.run()
    assert key_ids(world, what)[0] == before
    assert secret(world, what)["metadata"]["annotations"][keys.ROTATION_PHASE] == "Trusted"
    annotations["vcnode.io/wake-requested-at"] = "2027-01-15T07:30:00Z"
    finish(world)
    assert phase(world) == {}
    assert key_ids(world, what) != [before]


def test_tokens_of_the_old_key_end_first() -> None:
    world = served()
    request(world, "service-account-keys")
    world.run()
    new, _, old = key_ids(world, "service-account-keys")
    assert {f"{new}.pub", f"{old}.pub"} < secret(world, "service-account-keys")["data"].keys()
    world.now_s += DAY - 60
    world.run()
    assert key_ids(world, "service-account-keys") == [new, "", old]
    (status,) = world.cluster["status"]["rotations"]
    assert status["waitsFor"] == "tokens that the previous key signed"
