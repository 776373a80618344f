# SPDX-License-Identifier: Apache-2.0
"""What an API server answers with six bytes for one is written nowhere, where it could not be read then."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from daemonkit.kube.object_limits import MAX_OBJECT_BYTES
from daemonkit.kube.resources import CONFIG_MAPS, Resource
from devkit.kube.storage import Object
from syncer.core.answered_size import answered_bytes
from tenancy import keys
from tests.unit.syncer.planes import Plane
from tests.unit.syncer.worlds import EVENTS, sessions_of, synced_tenant

pytestmark = pytest.mark.asyncio

_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", is_namespaced=False)
_WHERE = ("web", "map")
_WHY = (
    "object: it would have more than 3670016 bytes as an API server answers it, which writes each <, > "
    "and & as six"
)


def _refusals(plane: Plane) -> Iterator[str]:
    for each in plane.objects(EVENTS).values():
        if each["reason"] == "SyncRefused":
            yield each["message"]


def _item(name: str) -> tuple[str, str, str]:
    return ("ConfigMap", "web", name)


def _map(text: str, name: str = "map") -> Object:
    return {"kind": "ConfigMap", "metadata": {"namespace": "web", "name": name}, "data": {"a": text}}


async def test_what_could_not_be_read_is_not_made() -> None:
    """A tenant's API server may answer with these characters as they are."""
    async with synced_tenant() as (world, plane):
        plane.cluster.create(CONFIG_MAPS, _map("<" * 900_000))
        await asyncio.sleep(20)
        assert ("red-web", "map") not in world.super.objects(CONFIG_MAPS)
        assert any(_WHY in each for each in _refusals(plane))
        plane.storage.put(
            CONFIG_MAPS, plane.storage.get(CONFIG_MAPS, *_WHERE) | {"data": {"a": "x" * 900_000}}
        )
        await asyncio.sleep(60)
        assert ("red-web", "map") in world.super.objects(CONFIG_MAPS)


async def test_nothing_grows_until_it_cannot_be_read() -> None:
    """Little by little, with patches that are small each."""
    async with synced_tenant() as (world, plane):
        plane.cluster.create(CONFIG_MAPS, _map("x"))
        await asyncio.sleep(10)
        for number in range(12):
            value = plane.storage.get(CONFIG_MAPS, *_WHERE)
            value["data"][f"k-{number}"] = "&" * 80_000
            plane.storage.put(CONFIG_MAPS, value)
            await asyncio.sleep(20)
            found = world.super.storage.get(CONFIG_MAPS, "red-web", "map")
            assert answered_bytes(msgspec.json.encode(found)) < MAX_OBJECT_BYTES * 3 / 4
        assert any(_WHY in each for each in _refusals(plane))
        assert f"k-{6}" in found["data"]
        # Nothing is reserved for what was not written, and less of it goes down.
        plane.storage.put(CONFIG_MAPS, _map("last") | {"metadata": value["metadata"]})
        await asyncio.sleep(120)
        assert world.super.storage.get(CONFIG_MAPS, "red-web", "map")["data"] == {"a": "last"}


async def test_nor_is_what_comes_up() -> None:
    async with synced_tenant() as (world, plane):
        for name, size in (("small", 9), ("large", 900_000)):
            meta = {"name": name, "labels": {keys.SUPER_PUBLIC: "true"}}
            world.super.storage.create(_CLASSES, {"metadata": meta, "parameters": {"a": "<" * size}})
        await asyncio.sleep(20)
        assert {name for _, name in plane.objects(_CLASSES)} == {"small"}


async def test_what_is_refused_holds_no_room() -> None:
    """Of the quota: a tenant's own objects would have none."""
    async with synced_tenant() as (world, plane):
        for number in range(40):
            plane.cluster.create(CONFIG_MAPS, _map("<" * 900_000, f"large-{number}"))
        await asyncio.sleep(60)
        session = sessions_of(world)["red"]
        assert not [number for number in range(40) if session.quota.is_reserved(_item(f"large-{number}"))]
