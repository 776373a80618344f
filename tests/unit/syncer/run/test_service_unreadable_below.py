# SPDX-License-Identifier: Apache-2.0
"""No object of a tenant becomes one that cannot be read in the super cluster."""

import asyncio

import msgspec
import pytest

from daemonkit.kube.object_limits import limits_of
from daemonkit.kube.resources import NAMESPACES
from devkit.kube.storage import Object
from syncer.policy.metadata_keys import MAX_LABELS
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import DOWN, EVENTS, World, furnish, running

pytestmark = pytest.mark.asyncio

_SPECS: dict[str, Object] = {
    "Pod": objects.pod("o"),
    "Service": objects.service("o", ports=[{"port": 80}]),
    "Endpoints": {"subsets": [{"addresses": [{"ip": "203.0.113.1"}], "ports": [{"port": 80}]}]},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": [{"addresses": ["203.0.113.1"]}]},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}},
    "NetworkPolicy": {"spec": {"podSelector": {}}},
}
_LABELS = {"short": ("l-{}", "x"), "withheld": ("example.com/{:021}", "x"), "long": ("{:062}l", "x" * 5)}
_TOO_LARGE = {"large": ("{:061}-l", "x" * 60)}


def _texts(form: str, count: int) -> dict[str, str]:
    key, value = (_LABELS | _TOO_LARGE)[form]
    return {key.format(number): value for number in range(count)}


def _object(kind: str, form: str, count: int) -> Object:
    labels = _texts(form, count)
    if kind == "EndpointSlice":
        labels = {**_texts(form, count - 1), "kubernetes.io/service-name": "s"}
    return {**_SPECS[kind], "kind": kind, "metadata": {"namespace": "web", "name": "o", "labels": labels}}


@pytest.mark.parametrize("form", _LABELS)
async def test_what_goes_down_can_be_read_there(form: str) -> None:
    """Of each kind one that is as large as it may be goes down, and can be read."""
    world = World({"one": "red"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, objects.service("s"))
        await asyncio.sleep(10)
        for kind in _SPECS:
            plane.cluster.create(DOWN[kind], _object(kind, form, MAX_LABELS))
        # Each API server adds a label to its namespaces.
        large = {"metadata": {"name": "large", "labels": _texts(form, MAX_LABELS - 1)}}
        plane.cluster.create(NAMESPACES, large)
        await asyncio.sleep(60)
        below = [(DOWN[kind], "red-web", "o") for kind in _SPECS] + [(NAMESPACES, "", "red-large")]
        for resource, namespace, name in below:
            value = world.super.storage.get(resource, namespace, name)
            assert limits_of(resource).excess(msgspec.json.encode(value)) is None


@pytest.mark.parametrize(("form", "count"), [("short", MAX_LABELS + 1), ("large", 900)])
async def test_what_could_not_be_read_there_stays(form: str, count: int) -> None:
    world = World({"one": "red"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, objects.service("s"))
        await asyncio.sleep(10)
        for kind in _SPECS:
            plane.cluster.create(DOWN[kind], _object(kind, form, count))
        plane.cluster.create(NAMESPACES, {"metadata": {"name": "large", "labels": _texts(form, count)}})
        await asyncio.sleep(60)
        assert {kind for kind in _SPECS if ("red-web", "o") in world.super.objects(DOWN[kind])} == set()
        assert ("", "red-large") not in world.super.objects(NAMESPACES)
        refused = {
            (each.get("regarding") or each["involvedObject"])["kind"]
            for each in plane.objects(EVENTS).values()
            if each["reason"] == "SyncRefused"
        }
        assert refused == {*_SPECS, "Namespace"}
