# SPDX-License-Identifier: Apache-2.0
"""Rotations of a tenant that is served: from a request to the end of the old key, from wherever one stood."""

from __future__ import annotations

import base64
import copy
import functools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tenancy import keys
from tenant_operator.core import rotations
from tenant_operator.core.conditions import ConditionType
from tenant_operator.core.steps import Rotate
from tenant_operator.model.objects import Object, Ref
from tenant_operator.pki.rotation import PLANS, Asked, Consumer, ConsumerAnswer, RotationStep
from tests.unit.tenant_operator.core.worlds import VERSION, FakeWorld, virtual_cluster

DAY = 86_400.0
WHATS = sorted(rotations.SUPPORTED)
# Of etcd's authority nobody is asked before the next one signs: those who know the former accept it.
ASKED_FIRST = [what for what in WHATS if PLANS[what].verifiers]


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
    assert world.cluster["status"]["rotated"] == {what: "one"}
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
    """However long: the old key signs as before, or is trusted still, and the status has who is waited
    for."""
    world = served()
    (before,) = key_ids(world, what)
    world.answers[what] = {each: {"pod-1": None} for each in Consumer}
    request(world, what)
    world.run()
    world.now_s += 30 * DAY
    world.run()
    found, at = ("Trusted", 0) if what in ASKED_FIRST else ("Reissued", 1)
    assert key_ids(world, what)[at] == before
    (status,) = world.cluster["status"]["rotations"]
    assert (status["what"], status["token"], status["phase"]) == (what, "one", found)
    asked = PLANS[what].verifiers or PLANS[what].users[0]
    assert f"{asked[0]}/pod-1" in status["waitsFor"]
    (condition,) = (
        each
        for each in world.cluster["status"]["conditions"]
        if each.get("type") == ConditionType.CERTIFICATES_VALID
    )
    assert condition["status"] == "True"
    assert f"Rotation of {what}: {found}, waits for " in condition["message"]


@pytest.mark.parametrize("what", ASKED_FIRST)
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


def workload(world: FakeWorld, kind: str, name: str) -> Object:
    spec: Object = world.objects[Ref(kind, world.cluster["status"]["clusterNamespace"], name)]["spec"]
    return spec


def test_a_store_that_is_alone_is_never_started_again() -> None:
    """Its API server is, beside the one before, in each phase. The store ends the rotation when it starts."""
    world = served()
    store, server = (
        copy.deepcopy(workload(world, kind, name))
        for kind, name in (("StatefulSet", "etcd"), ("Deployment", "apiserver"))
    )
    for token in ("one", "two"):
        request(world, "etcd-ca", token)
        world.run()
        assert phase(world) == {}
        assert workload(world, "StatefulSet", "etcd") == store
        assert workload(world, "Deployment", "apiserver") != server
        server = copy.deepcopy(workload(world, "Deployment", "apiserver"))


def test_a_store_that_trusts_the_former_is_waited_for() -> None:
    """With what a person may do about it."""
    world = served()
    request(world, "etcd-ca")
    before = world.asked("etcd-ca")
    old = next(iter((before[Consumer.ETCD] or {}).values()))
    for _ in range(6):
        for step in world.plan().steps:
            world.carry_out(step)
        answered = world.asked("etcd-ca")
        new = next(iter((answered[Consumer.API_SERVER] or {}).values()))
        assert old is not None
        assert new is not None
        shown = ConsumerAnswer(old.trusts, new.uses)
        world.answers["etcd-ca"] = {**answered, Consumer.ETCD: {"etcd-0": shown}}
        world.finish(world.plan())
        world.answers.clear()
    world.answers["etcd-ca"] = {**world.asked("etcd-ca"), Consumer.ETCD: {"etcd-0": shown}}
    world.run()
    (status,) = world.cluster["status"]["rotations"]
    assert (status["phase"], status["waitsFor"]) == ("Dropped", "etcd/etcd-0")
    (message,) = (
        each["message"]
        for each in world.cluster["status"]["conditions"]
        if each.get("type") == ConditionType.CERTIFICATES_VALID
    )
    assert "it ends when these Pods start again, so delete them" in message
    world.answers.clear()
    world.now_s += 3.0
    world.run()
    assert phase(world) == {}


def test_a_lost_authority_of_the_store_starts_it_again() -> None:
    """Nobody has certified the next one."""
    world = served()
    before = copy.deepcopy(workload(world, "StatefulSet", "etcd"))
    found = secret(world, "etcd-ca")["data"]
    found["tls.key"] = base64.b64encode(b"edited").decode()
    request(world, "etcd-ca")
    world.run()
    assert workload(world, "StatefulSet", "etcd") != before


def test_who_answers_the_same_for_long_is_asked_less_often() -> None:
    world = served()
    request(world, "etcd-ca")
    world.answers["etcd-ca"] = {each: {"pod-1": None} for each in Consumer}
    world.run()
    (name,) = (each for each in world.probes if each == "rotation/etcd-ca")
    last = world.probes[name]
    for repeats, wait_s in ((0, 3.0), (40, 3.0), (41, 6.0), (60, 300.0)):
        world.probes[name] = msgspec.structs.replace(last, at=world.now_s, repeats=repeats)
        assert name not in [each.name for each in world.plan().probes]
        world.now_s += wait_s
        assert name in [each.name for each in world.plan().probes]


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


REMEDY = (
    "waits for kube-root-ca.crt/shop. If this stays, delete these ConfigMaps in the tenant: immutable ones"
    " are not written, nor those that a webhook guards, and new ones are made at once; this phase goes on"
    " without them after 7 days, or 10 minutes with annotation vcnode.io/revoke-cluster-ca=one of the"
    " VirtualCluster."
)


@pytest.mark.parametrize("is_revoked", [True, False])
def test_an_immutable_bundle_ends_no_rotation(is_revoked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, with what to do and when it is waited for no longer."""
    asked = FakeWorld.asked

    def immutable(world: FakeWorld, what: str) -> Asked:
        """A bundle in one namespace is none of ours."""
        return {**asked(world, what), Consumer.ROOT_CERTIFICATES: {"shop": None}}

    monkeypatch.setattr(FakeWorld, "asked", immutable)
    world = served()
    request(world, "cluster-ca")
    phases = []
    for _ in range(3):
        world.run()
        (status,) = world.cluster["status"]["rotations"]
        if is_revoked:
            # Before the rotation it would be removed.
            world.cluster["metadata"]["annotations"][f"{keys.REVOKE_PREFIX}cluster-ca"] = "one"
        (condition,) = (
            each
            for each in world.cluster["status"]["conditions"]
            if each.get("type") == ConditionType.CERTIFICATES_VALID
        )
        assert REMEDY in condition["message"]
        phases.append(status["phase"])
        world.now_s += 600 if is_revoked else 7 * DAY
        world.run()
        if not is_revoked and phases[-1] == "Reissued":
            # Copies of the administrator's kubeconfig.
            world.now_s += DAY
            world.run()
    assert phases == ["Trusted", "Reissued", "Dropped"]
    assert phase(world) == {}


@pytest.mark.parametrize(
    ("what", "again"),
    # Keys without certificates do not get old.
    [*((what, again) for what in keys.REVOCABLE for again in ("two", "one")), ("cluster-ca", "")],
)
@pytest.mark.parametrize("is_early", [False, True])
def test_revocation_ends_no_later_rotation(what: str, again: str, *, is_early: bool) -> None:
    """Whether a person asks for that one, with another value or the first one, or nobody: a key gets old.
    `is_early`: it is written again when none is under way."""
    world = served()
    annotations = world.cluster["metadata"].setdefault("annotations", {})
    revocation = f"{keys.REVOKE_PREFIX}{what}"
    request(world, what)
    world.run()
    annotations[revocation] = "one"
    world.run()
    world.now_s += DAY
    world.run()
    world.run()
    assert phase(world) == {}
    annotations = world.cluster["metadata"]["annotations"]
    assert revocation not in annotations
    if again == "one":
        request(world, what, "between")
        finish(world)
    if is_early:
        world.cluster["metadata"]["annotations"][revocation] = again or "one"
    if again:
        request(world, what, again)
    for _ in range(80):
        if phase(world).get(what) == "Reissued":
            break
        world.now_s += 0.0 if again else 60 * DAY
        world.run()
    world.now_s += DAY - 60
    world.run()
    assert phase(world)[what] == "Reissued"
    assert revocation not in world.cluster["metadata"]["annotations"]


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


@pytest.mark.parametrize("what", WHATS)
def test_a_rotation_goes_on_during_an_upgrade(what: str) -> None:
    """And one that is asked for meanwhile follows it."""
    world = served()
    (before,) = key_ids(world, what)
    later: Object = copy.deepcopy(world.version)
    later["metadata"]["name"], later["spec"]["kubernetesVersion"] = "later", "1.34.5"
    world.more_versions = (later,)
    request(world, what)
    for step in world.plan().steps:
        world.carry_out(step)
    world.cluster["spec"]["clusterVersionName"] = "later"
    request(world, what, "two")
    finish(world)
    finish(world)
    assert phase(world) == {}
    assert world.cluster["status"]["clusterVersion"] == "later"
    assert secret(world, what)["metadata"]["annotations"][keys.ROTATION_TOKEN] == "two"
    assert before not in key_ids(world, what)


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
