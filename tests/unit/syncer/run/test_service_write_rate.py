# SPDX-License-Identifier: Apache-2.0
"""One tenant's writes fill neither the super cluster's history nor the time of others."""

import asyncio
from collections.abc import Iterator

import pytest

from daemonkit.kube.resources import CONFIG_MAPS
from devkit.kube.storage import Object
from syncer.core.write_rate import REFILL_S
from syncer.policy.limits import STORED_BYTES
from syncer.sources.policies import SYNC_POLICIES
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import EVENTS, Plane, World, furnish, running

pytestmark = pytest.mark.asyncio

_STORED = 16 << 20
_LARGE = 500_000
_EDITED = 10
# Small ones: a ConfigMap that is made and deleted, and the one of the API server's authority.
_OTHERS = 3
_WAITS = (
    "this tenant may write 131072 bytes a second to the super cluster, and has written more: this write waits"
)


def _edit(plane: Plane, name: str, mark: str, text: str | None = None) -> None:
    value = plane.storage.get(CONFIG_MAPS, "web", name)
    value["metadata"].setdefault("annotations", {})["mark"] = mark
    if text is not None:
        value["data"] = {"text": text}
    plane.storage.put(CONFIG_MAPS, value)


def _mark(world: World, namespace: str, name: str) -> str:
    found: str = world.super.storage.get(CONFIG_MAPS, namespace, name)["metadata"]["annotations"]["mark"]
    return found


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "an annotation"])
async def test_changes_of_large_objects_keep_a_rate(is_whole: bool) -> None:
    world = World({"one": "red", "two": "blue"})
    policy: Object = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "SyncPolicy",
        "metadata": {"namespace": "tenants", "name": "default"},
        "spec": {"quota": {"hard": {STORED_BYTES: str(_STORED)}}},
    }
    world.super.storage.put(SYNC_POLICIES, policy)
    written: list[str] = []
    world.on_write = written.append
    async with running(world):
        large_text = "x" * _LARGE
        red, blue = world.tenants["one"], world.tenants["two"]
        furnish(
            red,
            *(objects.config_map(f"c-{n}", large_text) for n in range(_EDITED)),
            objects.config_map("gone"),
        )
        furnish(blue, objects.config_map("own"))
        await asyncio.sleep(20)
        for second in range(120):
            # All of them each time: six times what the tenant may have, in all.
            for number in range(_EDITED) if second % 6 == 0 else ():
                _edit(red, f"c-{number}", str(second), f"{second} {large_text}" if is_whole else None)
            _edit(blue, "own", str(second))
            if second == 60:
                red.storage.delete(CONFIG_MAPS, "web", "gone")
            await asyncio.sleep(1)
            assert _mark(world, "blue-web", "own") == str(second)
            if second >= 60:
                assert ("red-web", "gone") not in world.super.objects(CONFIG_MAPS)
        now_s = asyncio.get_running_loop().time()
        count = sum("/namespaces/red-web/configmaps" in path for path in written)
        large = (count - _OTHERS) * _LARGE
        assert _STORED < large <= _STORED + now_s * _STORED / REFILL_S
        assert _WAITS in set(_messages(red))
        assert set(_messages(blue)) == set()
        await asyncio.sleep(REFILL_S)
        assert {_mark(world, "red-web", f"c-{number}") for number in range(_EDITED)} == {"114"}
        assert world.problems == []


def _messages(plane: Plane) -> Iterator[str]:
    for each in plane.objects(EVENTS).values():
        yield each["message"]
