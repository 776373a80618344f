# SPDX-License-Identifier: Apache-2.0
"""The page `/explain` of a running syncer."""

import asyncio
import json
from typing import Any

import pytest

from syncer.core.plan import Side
from tests.unit.syncer import objects
from tests.unit.syncer.planes import TOO_LARGE, grow
from tests.unit.syncer.worlds import DOWN, World, synced_tenant

pytestmark = pytest.mark.asyncio

STAYS: dict[str, Any] = {"actions": [], "refusals": [], "wait": None, "conflict": "", "waitsFor": []}
REFUSED = STAYS | {"refusals": [{"path": "object", "message": TOO_LARGE}]}
WAITS = STAYS | {"wait": {"reason": "SuperObjectUnreadable", "message": f"it stays as it is: {TOO_LARGE}"}}


def _explain(world: World, kind: str, name: str) -> dict[str, Any]:
    assert world.service is not None
    query = {"tenant": "red", "kind": kind, "namespace": "web", "name": name}
    found: dict[str, Any] = json.loads(world.service._report.explain(query).body)  # noqa: SLF001
    return found


@pytest.mark.parametrize(("kind", "name"), [("Pod", "p"), ("ConfigMap", "c")])
@pytest.mark.parametrize("sides", [(Side.TENANT,), (Side.SUPER,), tuple(Side)], ids="+".join)
async def test_what_cannot_be_read_is_there_and_stays(kind: str, name: str, sides: tuple[Side, ...]) -> None:
    """The plan of an object that is taken for absent is a deletion, which nobody carries out."""
    async with synced_tenant(objects.pod("p"), objects.config_map("c")) as (world, plane):
        before = _explain(world, kind, name)
        assert (before["isSynced"], before["unreadable"]) == (True, {})
        for side in sides:
            where, namespace = (plane, "web") if side is Side.TENANT else (world.super, "red-web")
            grow(where.storage, DOWN[kind], namespace, name)
        await asyncio.sleep(5)
        expected = {
            "unreadable": {side.value: TOO_LARGE for side in sides},
            "plan": REFUSED if Side.TENANT in sides else WAITS,
            "isSynced": False,
        }
        found = _explain(world, kind, name)
        assert {field: value for field, value in found.items() if before[field] != value} == expected | {
            "reason": found["reason"]
        }
        assert TOO_LARGE in found["reason"]


async def test_what_is_on_neither_side_has_no_plan() -> None:
    async with synced_tenant() as (world, _):
        found = _explain(world, "Pod", "none")
        assert (found["isInTenant"], found["isInSuper"], found["unreadable"]) == (False, False, {})
        assert found["plan"] is None
