# SPDX-License-Identifier: Apache-2.0
"""What is kept of an object: no key, nothing of other people's, nothing without a bound."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import msgspec
import pytest

from tenant_operator.core.live import MAX_BODY_BYTES, MAX_VALUES, is_as_desired, parse_live
from tenant_operator.model import names
from tenant_operator.model.objects import Object
from tests.unit.tenant_operator.core.kept_fields import NotKeptError, kept
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


def encoded(kind: str, **rest: Any) -> bytes:
    metadata = {"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1"} | rest.pop("metadata", {})
    return json.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}).encode()


def test_no_key_of_a_tenant_is_kept() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    secrets = {ref: value for ref, value in world.objects.items() if ref.kind == "Secret"}
    looked_at = 0
    for ref, value in secrets.items():
        held = msgspec.json.encode(parse_live("Secret", json.dumps(value).encode())).decode()
        for key, text in value["data"].items():
            if not key.endswith((".crt", ".pub")):
                looked_at += 1
                plain = base64.b64decode(text)
                assert text not in held, (ref, key)
                assert plain.decode() not in held, (ref, key)
    assert looked_at > 15


def test_labels_and_annotations_of_others_are_not_kept() -> None:
    ours = {"vcnode.io/managed-by": "vc-operator", "app.kubernetes.io/component": "etcd"}
    others = {"example.com/x": "y" * 200_000, "deployment.kubernetes.io/revision": "7", "plain": "z"}
    live = parse_live("Deployment", encoded("Deployment", metadata={"labels": ours | others}))
    assert live.metadata.labels == ours


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("ConfigMap", {"data": {f"k{at}": "v" for at in range(MAX_VALUES + 1)}}),
        ("Secret", {"data": {f"k{at}": "dg==" for at in range(MAX_VALUES + 1)}}),
        ("NetworkPolicy", {"spec": {"text": "x" * MAX_BODY_BYTES}}),
        ("Secret", {"data": {f"{at}.crt": "A" * 100_000 for at in range(5)}}),
    ],
    ids=["values", "keys", "body", "certificates"],
)
def test_what_is_too_large_is_not_as_desired(kind: str, rest: Object) -> None:
    live = parse_live(kind, encoded(kind, **rest))
    held = sum(map(len, (live.body, *live.certificates.values()))) + 64 * len(live.digests)
    assert held < 20_000
    desired = json.loads(encoded(kind, **rest))
    if kind != "Secret" or len(live.digests) == 0:
        assert not is_as_desired(live, desired)


def test_what_is_not_kept_cannot_be_read_in_tests() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    found = {(ref.kind, ref.name): kept(ref, value) for ref, value in world.objects.items()}
    reads: list[Any] = [
        lambda: found["Secret", names.CLUSTER_CA].value,
        lambda: found["Secret", names.API_SERVER_SERVING].certificates["tls.crt"],
        lambda: found["Secret", names.API_SERVER_SERVING].certificates.get("ca.crt"),
        lambda: found["ConfigMap", names.AUTHORITIES].value.get("data"),
        lambda: found["Deployment", names.API_SERVER].value["kind"],
        lambda: found["Deployment", names.API_SERVER].value["metadata"]["managedFields"],
        lambda: found["Deployment", names.API_SERVER].value["status"].get("availableReplicas"),
        lambda: "loadBalancer" in found["StatefulSet", names.ETCD].value["status"],
    ]
    for read in reads:
        with pytest.raises(NotKeptError):
            read()


@pytest.mark.parametrize("seed", range(40))
def test_random_worlds_have_the_same_plan_of_what_is_kept(seed: int) -> None:
    """`FakeWorld.plan` compares it with that of whole objects."""
    chance = random.Random(seed)  # noqa: S311 - a repeatable one
    world = FakeWorld(virtual_cluster())
    world.run()
    for _ in range(3):
        for ref in chance.sample(sorted(world.objects), 3):
            _change(world.objects[ref], chance)
        if chance.random() < 0.3:
            del world.objects[chance.choice(sorted(world.objects))]
        world.now_s += chance.choice([1.0, 90_000.0, 300 * 86_400.0])
        made = world.plan()
        for step in made.steps[: chance.randrange(5)]:
            world.carry_out(step)
        world.finish(made)


def _change(value: Object, chance: random.Random) -> None:
    """What a person, or another controller, may do to an object."""
    change = chance.randrange(6)
    if change == 0:
        value["metadata"].setdefault("annotations", {})["example.com/note"] = "x"
    elif change == 1:
        value["metadata"]["labels"].pop(chance.choice(sorted(value["metadata"]["labels"])), None)
    elif change == 2 and "status" in value:
        value["status"]["readyReplicas"] = chance.randrange(2)
        value["status"]["conditions"] = [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]
    elif change == 3 and value.get("data"):
        value["data"][chance.choice(sorted(value["data"]))] = "bm9uc2Vuc2U="
    elif change == 4 and value.get("data"):
        value["data"].pop(chance.choice(sorted(value["data"])))
    elif change == 5 and "spec" in value:
        value["spec"]["replicas"] = 5
        value["metadata"]["generation"] += 1
