# SPDX-License-Identifier: Apache-2.0
"""Keys and authorities that are lost, of each kind: what is made again, and by whose word."""

from __future__ import annotations

import random

import pytest

from tenancy import keys
from tenant_operator.core.known_keys import MAX_TOKENS
from tenant_operator.core.steps import GenerateKeys, IssueAuthority
from tenant_operator.model.objects import Object, Ref
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
