# SPDX-License-Identifier: Apache-2.0
"""No budget of a tenant without plans keeps a node from being drained."""

import asyncio
from collections.abc import Callable

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import NAMESPACES, NODES, PODS, VIRTUAL_CLUSTERS
from devkit.kube.storage import Object
from syncer.sources.policies import SYNC_POLICIES
from tests.unit.syncer import objects
from tests.unit.syncer.worlds import BUDGETS, World, furnish, running

pytestmark = pytest.mark.asyncio

# The wall clock of these worlds begins at 22:13:20; patrols are every 30 s.
_HOUR_AGO = "2023-11-14T21:12:20Z"
_NOW = "2023-11-14T22:13:20Z"


def _goes_away(world: World) -> None:
    world.tenants["one"].failures.extend([UnreachableError("connect")] * 100_000)


def _does_not_run(world: World) -> None:
    cluster = world.super.storage.get(VIRTUAL_CLUSTERS, "tenants", "one")
    cluster["status"]["phase"] = "Pending"
    world.super.storage.put(VIRTUAL_CLUSTERS, cluster)


def _set_policy(world: World, most_s: object) -> None:
    policy: Object = {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "SyncPolicy",
        "metadata": {"namespace": "tenants", "name": "default"},
        "spec": {"podDisruptionBudgets": {"maxDrainSeconds": most_s}},
    }
    world.super.storage.put(SYNC_POLICIES, policy)


@pytest.mark.parametrize("ends", [_goes_away, _does_not_run])
@pytest.mark.parametrize(
    ("since", "most_s", "kept"),
    [
        (None, None, {"red-web", "red-db"}),
        (_NOW, None, {"red-web", "red-db"}),
        (_HOUR_AGO, None, {"red-db"}),
        (_HOUR_AGO, "no number", {"red-db"}),
        (_HOUR_AGO, 7200, {"red-web", "red-db"}),
        (_NOW, 60, {"red-db"}),
        (None, 0, set()),
    ],
)
async def test_no_budget_without_plans_keeps_a_node_from_being_drained(
    ends: Callable[[World], None], since: str | None, most_s: object, kept: set[str]
) -> None:
    world = World({"one": "red"})
    async with running(world):
        plane = world.tenants["one"]
        furnish(plane, objects.pod("p"))
        plane.cluster.create(NAMESPACES, {"metadata": {"name": "db"}})
        spec: Object = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        for namespace in ("web", "db"):
            meta = {"namespace": namespace, "name": "b"}
            plane.cluster.create(BUDGETS, {"kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
        await asyncio.sleep(20)
        assert {each for each, _ in world.super.objects(BUDGETS)} == {"red-web", "red-db"}
        await world.kill_syncer()
        ends(world)
        if most_s is not None:
            _set_policy(world, most_s)
        if since is not None:
            name = world.super.storage.get(PODS, "red-web", "p")["spec"]["nodeName"]
            node = world.super.storage.get(NODES, "", name)
            taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": since}
            world.super.storage.put(NODES, node | {"spec": {"unschedulable": True, "taints": [taint]}})
        world.start_syncer()
        await asyncio.sleep(100)
        assert {each for each, _ in world.super.objects(BUDGETS)} == kept
        assert world.problems == []


async def test_a_budget_of_the_super_clusters_own_stays() -> None:
    world = World({"one": "red"})
    async with running(world):
        furnish(world.tenants["one"], objects.pod("p"))
        await asyncio.sleep(20)
        labels = {"tenancy.x-k8s.io/vcname": "one"}
        meta: Object = {"namespace": "red-web", "name": "own", "labels": labels}
        world.super.cluster.create(BUDGETS, {"kind": "PodDisruptionBudget", "metadata": meta, "spec": {}})
        _set_policy(world, 0)
        await world.kill_syncer()
        _goes_away(world)
        world.start_syncer()
        await asyncio.sleep(100)
        assert len(world.super.objects(BUDGETS)) == 1
