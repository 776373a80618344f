# SPDX-License-Identifier: Apache-2.0
"""Super namespaces of VirtualClusters that are gone: what ran there ends."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from daemonkit.kube.resources import NAMESPACES
from syncer.core.orphans import Orphans, OwnedNamespace, evaluate
from syncer.kinds.pod.sync import ORPHAN_GRACE_S
from tests.unit.syncer import objects
from tests.unit.syncer.planes import Plane, refused
from tests.unit.syncer.worlds import World, furnish, running

pytestmark = pytest.mark.asyncio

_YEARS_S = 10**9
_PODS = "/api/v1/namespaces/red-web/pods/"


class _Recorded(World):
    """`deletions` has the path and the grace period of each deletion in the super cluster."""

    deletions: dict[str, Any]

    def note_write(self, plane: Plane, method: str, path: str, body: bytes | None) -> None:
        super().note_write(plane, method, path, body)
        if method == "DELETE" and plane is self.super:
            self.deletions[path] = json.loads(body or b"{}").get("gracePeriodSeconds")


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


async def test_a_patrol_at_rest_judges_no_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each patrol decoded all super namespaces of tenants twice. What changes is judged as soon as before."""
    world = World({"one": "red"})
    judged: list[int] = []

    def note(namespaces: Iterable[OwnedNamespace], *args: Any, **kwargs: Any) -> Orphans:
        found = list(namespaces)
        judged.append(len(found))
        return evaluate(found, *args, **kwargs)

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
