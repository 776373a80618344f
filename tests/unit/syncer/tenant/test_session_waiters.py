# SPDX-License-Identifier: Apache-2.0
"""What waits for another object is planned when that changes, and not at the next patrol."""

import asyncio

import pytest

from daemonkit.kube.resources import NODES, PODS
from devkit.kube.storage import Object
from syncer.core.plan import Side
from syncer.tenant.deletions import SyncKey
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import sessions_of, synced_tenant

pytestmark = pytest.mark.asyncio


def _daemon_pod(node: str) -> Object:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    found = objects.pod("d", affinity={"nodeAffinity": required}, nodeSelector={"color": "blue"})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    found["metadata"]["ownerReferences"] = [owner]
    return found


async def test_a_daemon_pod_waits_for_the_label_of_its_vnode() -> None:
    async with synced_tenant(objects.pod("p")) as (world, plane):
        node = plane.storage.get(PODS, "web", "p")["spec"]["nodeName"]
        plane.cluster.create(PODS, _daemon_pod(node))
        # Patrols are every 30 s: the next one comes after what is asserted here.
        await asyncio.sleep(20)
        assert ("red-web", "d") not in world.super.objects(PODS)
        vnode = plane.storage.get(NODES, "", node)
        vnode["metadata"]["labels"]["color"] = "blue"
        plane.storage.put(NODES, vnode)
        await asyncio.sleep(5)
        found = world.super.storage.get(PODS, "red-web", "d")
        assert found["spec"].get("nodeSelector") == {}
        # Another label does not end what runs.
        vnode = plane.storage.get(NODES, "", node)
        vnode["metadata"]["labels"]["color"] = "red"
        plane.storage.put(NODES, vnode)
        await asyncio.sleep(40)
        assert world.super.storage.get(PODS, "red-web", "d")["metadata"]["uid"] == found["metadata"]["uid"]
        assert world.problems == []


async def test_what_thousands_looked_at_has_them_planned_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand pods of one service account were planned again in one step of 64 ms."""
    async with synced_tenant() as (world, _):
        session = sessions_of(world)["red"]
        items: list[SyncKey] = [("Pod", "web", f"p{number}") for number in range(5_000)]
        for each in items:
            session.note_looked(each, [(Side.SUPER, "Node", "", "n")])
        woken = list[SyncKey]()
        monkeypatch.setattr(session, "enqueue", woken.append)
        session.looked_at_changed(("Node", "", "n"))
        assert all(session.needs_plan(each) for each in items)
        most = len(woken)
        while len(woken) < len(items):
            before = len(woken)
            await asyncio.sleep(0)  # pace: iterations are counted
            most = max(most, len(woken) - before)
        assert sorted(woken) == sorted(items)
        assert most <= 1_000  # a slice of the loop may have two steps
