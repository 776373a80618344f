# SPDX-License-Identifier: Apache-2.0
"""Keys and authorities that are lost, of each kind: what is made again, and by whose word."""

from __future__ import annotations

import copy
import random

import pytest

from tenancy import keys
from tenant_operator.core.known_keys import MAX_TOKENS
from tenant_operator.core.steps import GenerateKeys, IssueAuthority
from tenant_operator.model.objects import Object, Ref
from tenant_operator.pki.facts import JUDGED_BY
from tenant_operator.pki.plan import RotateSecret
from tenant_operator.pki.rotation import PLANS
from tests.unit.tenant_operator.core.test_rotations import DAY, finish, request, served
from tests.unit.tenant_operator.core.worlds import FakeWorld

# The gateway's authority signs nothing of ours, and is made without a word.
LOSSES = sorted(PLANS.keys() - {"gateway-ca"})


def ref_of(world: FakeWorld, what: str) -> Ref:
    return Ref("Secret", world.cluster["status"]["clusterNamespace"], PLANS[what].secret)


def known(world: FakeWorld, what: str) -> Object:
    """What the status has of it."""
    found = world.cluster["status"].get("keys", ())
    return next((each for each in found if each["secret"] == PLANS[what].secret), {})


def lose(world: FakeWorld, what: str) -> None:
    del world.objects[ref_of(world, what)]


def makes(world: FakeWorld, what: str) -> bool:
    """Whether the next plan makes it anew."""
    wanted = PLANS[what].secret
    for step in world.plan().steps:
        match step:
            case IssueAuthority(spec) if spec.secret == wanted:
                return True
            case GenerateKeys(secret) if secret.name == wanted:
                return True
    return False


@pytest.mark.parametrize("what", LOSSES)
def test_a_served_request_replaces_no_lost_key(what: str) -> None:
    world = served()
    request(world, what)
    finish(world)
    lose(world, what)
    world.run()
    assert ref_of(world, what) not in world.objects
    request(world, what, "two")
    world.run()
    assert ref_of(world, what) in world.objects
    assert known(world, what)["tokens"] == ["one", "two"]
    lose(world, what)
    for token in ("two", "one"):
        request(world, what, token)
        assert not makes(world, what)


@pytest.mark.parametrize("what", LOSSES)
def test_a_request_before_a_loss_is_none_after_it(what: str) -> None:
    """It was one to rotate a key that was there, and the rotation waits still."""
    world = served()
    request(world, what)
    world.finish(world.plan())
    lose(world, what)
    assert not makes(world, what)
    assert known(world, what)["tokens"] == ["one"]


@pytest.mark.parametrize("what", LOSSES)
def test_tokens_are_learned_from_a_secret_that_is_there(what: str) -> None:
    """Of tenants that were made before the status had them."""
    world = served()
    request(world, what)
    finish(world)
    del world.cluster["status"]["keys"]
    world.run()
    assert known(world, what)["tokens"] == ["one"]
    lose(world, what)
    assert not makes(world, what)


@pytest.mark.parametrize("what", LOSSES)
def test_a_served_request_replaces_no_edited_key(what: str) -> None:
    """Applied from a file, a Secret has none of the operator's annotations."""
    world = served()
    request(world, what)
    finish(world)
    secret = world.objects[ref_of(world, what)]
    secret["metadata"]["annotations"] = {}
    secret["data"] = dict.fromkeys(secret["data"], "ZWRpdGVk")
    assert not makes(world, what)


def test_tokens_are_bounded() -> None:
    world = served()
    known(world, "encryption-key")["tokens"] = [f"t{number}" for number in range(MAX_TOKENS)]
    request(world, "encryption-key")
    world.finish(world.plan())
    tokens = [f"t{number}" for number in range(1, MAX_TOKENS)]
    assert known(world, "encryption-key")["tokens"] == [*tokens, "one"]


@pytest.mark.parametrize("seed", range(6))
def test_a_lost_key_is_made_by_a_new_word_alone(seed: int) -> None:
    """Requests, lost_namespace and restarts of the operator, in any order."""
    chosen = random.Random(seed)  # noqa: S311 - a repeatable one
    world = served()
    given: dict[str, set[str]] = {what: set() for what in LOSSES}
    for _ in range(10):
        what = chosen.choice(LOSSES)
        match chosen.randrange(4):
            case 0:
                token = chosen.choice(("one", "two", "three", "four"))
                request(world, what, token)
                is_new = token not in given[what]
                assert ref_of(world, what) in world.objects or makes(world, what) == is_new
                given[what].add(token)
                world.run()
            case 1 if ref_of(world, what) in world.objects:
                lose(world, what)
                assert not makes(world, what)
            case 2:
                world.probes.clear()
                world.run()
            case _:
                world.now_s += DAY
                world.run()
        for each in LOSSES:
            assert ref_of(world, each) in world.objects or not makes(world, each)


def test_a_status_has_no_key() -> None:
    """What is known of a Secret is a digest of it, and ids that its annotations have."""
    world = served()
    text = str(world.cluster["status"]["keys"])
    for what in LOSSES:
        for value in world.objects[ref_of(world, what)]["data"].values():
            assert value not in text
    assert known(world, "encryption-key")["keyIds"] in str(
        world.objects[ref_of(world, "encryption-key")]["metadata"]["annotations"][keys.KEY_IDS]
    )


def message_of(world: FakeWorld) -> str:
    """Of the condition of certificates."""
    conditions = world.cluster["status"]["conditions"]
    return str(next(each["message"] for each in conditions if each.get("type") == "CertificatesValid"))


def is_valid(world: FakeWorld) -> bool:
    world.run()
    conditions = world.cluster["status"]["conditions"]
    return any(each.get("type") == "CertificatesValid" and each["status"] == "True" for each in conditions)


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("what", LOSSES)
def test_a_secret_without_annotations_is_known_by_its_data(what: str, is_lost: bool) -> None:
    """Restored from a file, or stripped by another tool."""
    world = served()
    request(world, what)
    finish(world)
    before = copy.deepcopy(world.objects[ref_of(world, what)])
    if is_lost:
        lose(world, what)
        assert not is_valid(world)
    world.objects[ref_of(world, what)] = copy.deepcopy(before)
    world.objects[ref_of(world, what)]["metadata"]["annotations"] = {}
    assert is_valid(world)
    after, notes = world.objects[ref_of(world, what)], before["metadata"]["annotations"]
    assert after["data"] == before["data"]
    assert after["metadata"]["annotations"] == {key: notes[key] for key in JUDGED_BY if key in notes}


def backed_up(name: str = "nightly") -> FakeWorld:
    world = served()
    back_up(world, name)
    return world


def back_up(world: FakeWorld, name: str) -> None:
    world.cluster["metadata"].setdefault("annotations", {})["vcnode.io/backup-requested"] = name
    world.run()


@pytest.mark.parametrize("has_notes", [False, True])
@pytest.mark.parametrize("is_edited", [False, True])
def test_lost_keys_are_restored_from_their_copy(is_edited: bool, has_notes: bool) -> None:
    world = backed_up()
    ref = ref_of(world, "encryption-key")
    before = world.objects[ref]["data"]
    if is_edited:
        world.objects[ref]["data"] = {"config.yaml": "ZWRpdGVk"}
    else:
        lose(world, "encryption-key")
    assert not is_valid(world)
    (name,) = (each.name for each in world.objects if each.name.startswith("encryption-config-backup-"))
    verb = "replace" if is_edited else "create"
    assert (
        f"Restore it from its copy: kubectl get secret {name} -n {ref.namespace} -o yaml | "
        r"sed -E '/^ {2}(creationTimestamp|resourceVersion|uid):/d; "
        r"s/^( {2}name:) .*/\1 encryption-config/' | "
        f"kubectl {verb} -f -, or annotate"
    ) in message_of(world)
    restored = copy.deepcopy(world.objects[Ref("Secret", ref.namespace, name)])
    restored["metadata"]["name"] = ref.name
    if not has_notes:  # the copies of before had none
        restored["metadata"]["annotations"] = {}
    world.objects[ref] = restored
    assert is_valid(world)
    assert world.objects[ref]["data"] == before


def test_the_copy_of_another_key_is_not_named() -> None:
    world = backed_up()
    request(world, "encryption-key")
    finish(world)
    lose(world, "encryption-key")
    assert not is_valid(world)
    assert "Restore it from a backup, or annotate" in message_of(world)


def test_a_copy_is_known_without_the_status() -> None:
    world = backed_up()
    lose(world, "encryption-key")
    world.cluster["status"]["keys"] = []
    assert not is_valid(world)
    assert "from its copy" in message_of(world)


@pytest.mark.parametrize("count", range(2, len(LOSSES) + 1))
def test_all_lost_keys_are_named_at_once(count: int) -> None:
    """The one that loses data first, in a message that no condition cuts."""
    world = backed_up()
    chosen = LOSSES[-count:] if count < len(LOSSES) else LOSSES
    lost = {*chosen, "encryption-key"}
    for what in lost:
        lose(world, what)
    assert not is_valid(world)
    text = message_of(world)
    assert text.startswith(f"{ref_of(world, 'encryption-key')} is missing. ")
    assert text.endswith(".")
    assert all(f"{PLANS[what].secret} (" in text for what in lost - {"encryption-key"})


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("what", ["encryption-key", "service-account-keys"])
def test_keys_of_before_a_rotation_are_not_used(what: str, *, is_asked: bool) -> None:
    world = served()
    ref = ref_of(world, what)
    older = copy.deepcopy(world.objects[ref])
    request(world, what)
    finish(world)
    newer, last = copy.deepcopy(world.objects[ref]), known(world, what)["keyIds"]
    if not is_asked:
        del world.cluster["metadata"]["annotations"][f"{keys.ROTATE_PREFIX}{what}"]
    world.objects[ref] = older
    assert not [each for each in world.plan().steps if isinstance(each, RotateSecret)]
    world.run()
    assert f"Secret {ref.namespace}/{ref.name} is of before a rotation" in message_of(world)
    assert known(world, what)["keyIds"] == last
    restored = copy.deepcopy(world)
    restored.objects[ref] = newer
    restored.run()
    assert is_valid(restored)
    request(world, what, "two")
    finish(world)
    assert is_valid(world)
    assert known(world, what)["keyIds"] not in ("", last)


@pytest.mark.parametrize("what", sorted(what for what in LOSSES if what.endswith("-ca")))
def test_authorities_lost_with_all_they_signed(what: str) -> None:
    world = served()
    for ref in [each for each in world.objects if each.kind == "Secret"]:
        del world.objects[ref]
    assert not makes(world, what)
    request(world, what, "two")
    assert makes(world, what)
