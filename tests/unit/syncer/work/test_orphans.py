# SPDX-License-Identifier: Apache-2.0
"""Super namespaces of VirtualClusters that are gone: what ran there ends."""

import asyncio
import json
from collections.abc import Collection, Generator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.fairness.steps import STEP_BYTES
from daemonkit.kube.resources import NAMESPACES, Key
from devkit.kube.storage import Object
from syncer.caches.cached_object import CachedMetadata, CachedObject
from syncer.core.orphans import KnownClusters, Orphans, OwnedNamespace, evaluate
from syncer.kinds.pod.sync import ORPHAN_GRACE_S
from syncer.sharding.port import SoleOwner
from syncer.work.orphans import OrphanCollector
from tenancy import keys
from tests.steps import most_in_a_step
from tests.unit.syncer import objects
from tests.unit.syncer.planes import Plane, refused
from tests.unit.syncer.worlds import World, furnish, running

_YEARS_S = 10**9
_PODS = "/api/v1/namespaces/red-web/pods/"


class _Recorded(World):
    """`deletions` has the path and the grace period of each deletion in the super cluster."""

    deletions: dict[str, Any]

    def note_write(self, plane: Plane, method: str, path: str, body: bytes | None) -> None:
        super().note_write(plane, method, path, body)
        if method == "DELETE" and plane is self.super:
            self.deletions[path] = json.loads(body or b"{}").get("gracePeriodSeconds")


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 3_000), st.integers(0, 100_000))
def test_no_step_reads_all_namespaces(count: int, size_bytes: int) -> None:
    """Whatever one tenant has, and however large they are: an object may have 256 KiB of annotations."""
    loaded = [0]

    class Counted(CachedObject):
        def load(self) -> Object:
            loaded[0] += 1
            return super().load()

    notes = {keys.VC_UID: "u", keys.VC_NAMESPACE: "t", keys.VC_NAME: "one", keys.CLUSTER: "red"}
    found: dict[Key, CachedObject] = {}
    for number in range(count):
        own = {
            "annotations": {**notes, keys.NAMESPACE: f"n{number}", keys.UID: "n"},
            "name": f"red-n{number}",
        }
        value = Counted(CachedMetadata(f"red-n{number}"), msgspec.json.encode({"metadata": own}))
        value.json_bytes = size_bytes
        found["", f"red-n{number}"] = value
    caches: Any = SimpleNamespace(objects=lambda _: found, changes_of=lambda _: 0)
    source: Any = SimpleNamespace(
        known=lambda: KnownClusters({("t", "one"): "u"}),
        deleted_uids=frozenset(),
        forget_deleted=lambda _: None,
    )
    unused: Any = None
    collector = OrphanCollector(
        unused, unused, source, caches, SoleOwner(), unused, interval_s=1.0, needs_confirmation=False
    )
    most = most_in_a_step(collector.patrol(), lambda: loaded[0])
    assert loaded[0] == count
    assert most <= 200
    assert (most - 1) * size_bytes <= STEP_BYTES


@pytest.mark.asyncio
@pytest.mark.parametrize("is_refused", [False, True])
async def test_no_pod_outlives_its_tenant_by_its_grace_period(is_refused: bool) -> None:
    """A pod that ignores SIGTERM would run for as long as its tenant has asked for."""
    world = _Recorded({"one": "red", "two": "blue"})
    world.deletions = {}
    async with running(world):
        pods = [
            objects.pod("years", terminationGracePeriodSeconds=_YEARS_S),
            objects.pod("short", terminationGracePeriodSeconds=5),
            objects.pod("usual"),
        ]
        for plane in world.tenants.values():
            furnish(plane, *pods)
        await asyncio.sleep(60)
        if is_refused:
            world.super.failures.append(refused(500))
        world.end_tenant("one")
        await asyncio.sleep(90)
        ended = {
            path.removeprefix(_PODS): grace for path, grace in world.deletions.items() if "/pods/" in path
        }
        assert ended == {"years": ORPHAN_GRACE_S}
        assert ("", "red-web") not in world.super.objects(NAMESPACES)
        assert ("", "blue-web") in world.super.objects(NAMESPACES)


@pytest.mark.asyncio
async def test_a_patrol_at_rest_judges_no_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each patrol decoded all super namespaces of tenants twice. What changes is judged as soon as before."""
    world = World({"one": "red"})
    judged: list[int] = []

    def note(
        namespaces: Collection[OwnedNamespace], *args: Any, **kwargs: Any
    ) -> Generator[None, None, Orphans]:
        judged.append(len(namespaces))
        return evaluate(namespaces, *args, **kwargs)

    async with running(world):
        furnish(world.tenants["one"])
        await asyncio.sleep(100)
        monkeypatch.setattr("syncer.work.orphans.evaluate", note)
        await asyncio.sleep(100)
        assert judged == []
        world.super.storage.create(NAMESPACES, {"metadata": {"name": "another"}})
        await asyncio.sleep(31)
        assert len(judged) == 1
        world.end_tenant("one")
        await asyncio.sleep(90)
        assert ("", "red-web") not in world.super.objects(NAMESPACES)
