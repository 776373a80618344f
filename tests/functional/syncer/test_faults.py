# SPDX-License-Identifier: Apache-2.0
"""Faults of API servers, tenants and clocks, through a real process. Each test waits on conditions."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, VIRTUAL_CLUSTERS
from daemonkit.tasks import Tasks
from devkit.kube.apiserver import Seen
from devkit.kube.cluster import ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object
from devkit.syncer.fake_node import FakeNode
from syncer.kinds.event import KIND as EVENT
from tenancy import keys
from tests import moved_clock
from tests.functional.syncer.clusters import RecordingApiserver, SyncedClusters, synced_clusters

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

RULES = ClusterSettings()
WITHIN_S = 60.0
OUTAGE_S = 6.0
COUNT = 20


def _fill(plane: RecordingApiserver, namespace: str = "web", count: int = COUNT) -> None:
    plane.server.cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
    for number in range(count):
        plane.create_config_map(namespace, f"c-{number}", {"n": str(number), "of": plane.key})


def _synced(clusters: SyncedClusters, key: str, namespace: str = "web") -> dict[str, Any]:
    """The data of a tenant's ConfigMaps in the super cluster, without the root certificates."""
    found = clusters.super.objects(CONFIG_MAPS, f"{key}-{namespace}")
    return {name: each["data"] for (_, name), each in found.items() if "kube-root-ca.crt" not in name}


def _expected(plane: RecordingApiserver, namespace: str = "web") -> dict[str, Any]:
    found = plane.objects(CONFIG_MAPS, namespace)
    return {name: each["data"] for (_, name), each in found.items() if name != "kube-root-ca.crt"}


def _is_synced(clusters: SyncedClusters, key: str, namespace: str = "web") -> bool:
    expected = _expected(clusters.tenants[key], namespace)
    return bool(expected) and _synced(clusters, key, namespace) == expected


def _edit(plane: RecordingApiserver, name: str, text: str) -> None:
    found = plane.storage.get(CONFIG_MAPS, "web", name)
    found["data"]["n"] = text
    plane.server.cluster.update(CONFIG_MAPS, found)


def _pod(name: str) -> Object:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"namespace": "web", "name": name}, "spec": spec}


def _phases(plane: RecordingApiserver) -> set[str]:
    return {str(each.get("status", {}).get("phase")) for each in plane.objects(PODS, "web").values()}


@contextlib.asynccontextmanager
async def _nodes(clusters: SyncedClusters) -> AsyncIterator[None]:
    """A scheduler and kubelets beside the super cluster."""
    tasks = Tasks("nodes")
    node = FakeNode(InProcessClient(clusters.super.server.cluster), ("node-0",))
    await node.register()
    tasks.spawn(node.run(), "node")
    try:
        yield
    finally:
        await tasks.close(1.0)


async def test_a_super_outage_is_caught_up_with(tmp_path: Path) -> None:
    """What changed in an outage goes down after it, and pods that ran go on."""
    async with synced_clusters(tmp_path, "acme", "blue", rules=RULES) as clusters, _nodes(clusters):
        await clusters.start()
        for plane in clusters.tenants.values():
            _fill(plane)
            plane.server.cluster.create(PODS, _pod("p"))
        await clusters.until(lambda: all(_is_synced(clusters, key) for key in clusters.tenants), WITHIN_S)
        await clusters.until(lambda: all(_phases(each) == {"Running"} for each in clusters.tenants.values()))
        uids = {key: each["metadata"]["uid"] for key, each in clusters.super.objects(PODS).items()}
        await clusters.super.server.stop()
        for plane in clusters.tenants.values():
            _edit(plane, "c-1", "edited")
            plane.server.cluster.delete(CONFIG_MAPS, "web", "c-2")
            plane.create_config_map("web", "new", {"n": "new"})
        await asyncio.sleep(OUTAGE_S)  # pace: the length of the outage
        await clusters.super.server.start()
        await clusters.until(lambda: all(_is_synced(clusters, key) for key in clusters.tenants), WITHIN_S)
        assert {key: each["metadata"]["uid"] for key, each in clusters.super.objects(PODS).items()} == uids
        assert all(_phases(each) == {"Running"} for each in clusters.tenants.values())


async def test_a_tenant_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """Its connections stay open and bring nothing; the others' changes all go down meanwhile."""
    async with synced_clusters(tmp_path, "acme", "blue", "green", rules=RULES) as clusters, _nodes(clusters):
        await clusters.start()
        for plane in clusters.tenants.values():
            _fill(plane)
            for number in range(COUNT):
                plane.server.cluster.create(PODS, _pod(f"p-{number}"))
        hanging, *others = clusters.tenants
        # In the midst of its bindings, of which each waits for an answer.
        await clusters.until(lambda: clusters.tenants[hanging].writes(PODS, "create", "binding"), WITHIN_S)
        clusters.tenants[hanging].server.half_open()
        for key in others:
            for number in range(COUNT):
                _edit(clusters.tenants[key], f"c-{number}", "edited")
        await clusters.until(lambda: all(_is_synced(clusters, key) for key in others), WITHIN_S)
        await clusters.until(
            lambda: all(_phases(clusters.tenants[key]) == {"Running"} for key in others), WITHIN_S
        )
        clusters.tenants[hanging].server.heal()
        await clusters.until(lambda: _phases(clusters.tenants[hanging]) == {"Running"}, WITHIN_S)


async def test_a_start_waits_for_no_tenant_that_hangs(tmp_path: Path) -> None:
    async with synced_clusters(tmp_path, "acme", "blue", rules=RULES) as clusters:
        clusters.tenants["acme"].server.half_open()
        _fill(clusters.tenants["blue"])
        await clusters.start(waits_until_ready=False)
        await clusters.until(lambda: _is_synced(clusters, "blue"), WITHIN_S)
        _fill(clusters.tenants["acme"])
        clusters.tenants["acme"].server.heal()
        await clusters.until(lambda: _is_synced(clusters, "acme"), 2 * WITHIN_S)


async def test_expired_watches_lose_nothing(tmp_path: Path) -> None:
    """A storm of 410: each change comes with watches that expire on both sides."""
    async with synced_clusters(tmp_path, "acme", rules=RULES, patrol={"intervalSeconds": 2}) as clusters:
        await clusters.start()
        plane = clusters.tenants["acme"]
        _fill(plane)
        await clusters.until(lambda: _is_synced(clusters, "acme"), WITHIN_S)
        for number in range(COUNT):
            _edit(plane, f"c-{number}", "edited")
            if number < 4:
                plane.server.cluster.delete(CONFIG_MAPS, "web", f"c-{number}")
            for each in (plane, clusters.super):
                each.storage.compact()
                each.server.expire_watches()
            await asyncio.sleep(0.05)  # pace: of the storm
        await clusters.until(lambda: _is_synced(clusters, "acme"), WITHIN_S)


async def test_conflicts_are_tried_again(tmp_path: Path) -> None:
    """A storm of 409 on both sides loses nothing, and makes nothing twice."""
    async with synced_clusters(tmp_path, "acme", rules=RULES) as clusters, _nodes(clusters):
        await clusters.start()
        plane = clusters.tenants["acme"]
        for each in (plane, clusters.super):
            count = 0

            def refuse(seen: Seen, each: RecordingApiserver = each) -> bool:
                nonlocal count
                count += seen.verb in ("create", "patch", "update", "delete")
                if seen.verb in ("create", "patch") and count % 2:
                    each.server.faults.refusals.append((409, 0))
                return True

            each.on_request = refuse
        _fill(plane)
        for number in range(COUNT):
            plane.server.cluster.create(PODS, _pod(f"p-{number}"))
        await clusters.until(
            lambda: _is_synced(clusters, "acme") and _phases(plane) == {"Running"}, 2 * WITHIN_S
        )
        assert len(clusters.super.objects(PODS)) == COUNT


async def test_a_full_quota_is_reported_and_tried_again(tmp_path: Path) -> None:
    async with synced_clusters(tmp_path, "acme", "blue", rules=RULES) as clusters:
        await clusters.start()
        is_full = True

        def has_room(seen: Seen) -> bool:
            return not (is_full and seen.resource == CONFIG_MAPS and seen.verb == "create")

        clusters.super.on_request = has_room
        plane = clusters.tenants["acme"]
        _fill(plane, count=3)
        await clusters.until(
            lambda: (
                {
                    each["involvedObject"]["name"]
                    for each in plane.objects(EVENT.resource, "web").values()
                    if each["reason"] == "FailedCreate"
                }
                >= {"c-0", "c-1", "c-2"}
            ),
            WITHIN_S,
        )
        asked = len(clusters.super.writes(CONFIG_MAPS, "create"))
        await clusters.until(lambda: len(clusters.super.writes(CONFIG_MAPS, "create")) > asked, WITHIN_S)
        is_full = False
        # The backoff of an item ends at 30 s.
        await clusters.until(lambda: _is_synced(clusters, "acme"), WITHIN_S)


async def test_expired_credentials_are_reported_and_replaced(tmp_path: Path) -> None:
    """A tenant whose credentials are refused is listed as such; new ones are taken without a restart."""
    async with synced_clusters(tmp_path, "acme", "blue", rules=RULES) as clusters:
        plane = clusters.tenants["acme"]
        valid, plane.leaf = plane.leaf, RecordingApiserver("other").leaf
        _fill(plane)
        _fill(clusters.tenants["blue"])
        await clusters.start(waits_until_ready=False)
        await clusters.until(lambda: _is_synced(clusters, "blue"), WITHIN_S)
        found = await clusters.until_status(lambda all_: all_["acme.kubeconfig"]["phase"] == "NotSynced")
        assert found["blue.kubeconfig"]["phase"] == "Synced"
        assert _synced(clusters, "acme") == {}
        plane.leaf = valid
        clusters.write_config()
        await clusters.until(lambda: _is_synced(clusters, "acme"), 2 * WITHIN_S)


@pytest.mark.parametrize("clocks", ["wall", "monotonic", "wall,monotonic"])
async def test_clocks_that_jump_lose_nothing(tmp_path: Path, clocks: str) -> None:
    async with synced_clusters(tmp_path, "acme", rules=RULES) as clusters, _nodes(clusters):
        offset = tmp_path / "offset"
        moved_clock.move(offset, 0.0)
        await clusters.start(launcher=("tests.moved_clock", str(offset), clocks))
        plane = clusters.tenants["acme"]
        _fill(plane)
        await clusters.until(lambda: _is_synced(clusters, "acme"), WITHIN_S)
        pods = 0
        # A monotonic clock goes forward alone, as after a suspended machine.
        for jump_s in (86_400.0, 90_000.0) if "monotonic" in clocks else (86_400.0, -86_400.0):
            moved_clock.move(offset, jump_s)
            await clusters.status()
            pods += 1
            plane.server.cluster.create(PODS, _pod(f"p-{pods}"))
            _edit(plane, "c-0", str(jump_s))
            await clusters.until(
                lambda: _is_synced(clusters, "acme") and _phases(plane) == {"Running"}, WITHIN_S
            )
        assert len(clusters.super.objects(PODS)) == pods


# ---- tenants of VirtualClusters, whose held deletions a person releases


def _add_virtual_clusters(clusters: SyncedClusters) -> None:
    for key, plane in clusters.tenants.items():
        kubeconfig = base64.b64encode(plane.kubeconfig().encode()).decode()
        notes = {keys.ADMIN_KUBECONFIG: kubeconfig}
        clusters.super.storage.put(
            VIRTUAL_CLUSTERS,
            {
                "metadata": {"namespace": "tenants", "name": key, "annotations": notes},
                "status": {"phase": "Running", "clusterNamespace": key},
            },
        )


def _release(clusters: SyncedClusters, key: str, token: str) -> None:
    cluster = clusters.super.storage.get(VIRTUAL_CLUSTERS, "tenants", key)
    cluster["metadata"]["annotations"][keys.RELEASE_HELD] = token
    clusters.super.storage.put(VIRTUAL_CLUSTERS, cluster)


def _held(tenants: Any, key: str) -> Any:
    pages = [each for each in tenants.values() if each.get("key") == key]
    return (pages[0]["held"] if pages else {}).get("super")


@contextlib.asynccontextmanager
async def _virtual_clusters(tmp_path: Path, *tenants: str) -> AsyncIterator[SyncedClusters]:
    settings = {"tenants": {"virtualClusters": {}}, "patrol": {"intervalSeconds": 2}}
    async with SyncedClusters(tmp_path, tenants, settings, RULES) as clusters:
        _add_virtual_clusters(clusters)
        await clusters.start()
        yield clusters


async def test_a_restored_backup_is_held_until_released(tmp_path: Path) -> None:
    """A tenant's etcd goes back: what the backup lacks stays below until a person releases it."""
    async with _virtual_clusters(tmp_path, "acme", "blue") as clusters:
        plane = clusters.tenants["acme"]
        _fill(plane, count=4)
        await clusters.until(lambda: _is_synced(clusters, "acme"), WITHIN_S)
        backup = plane.storage.revision
        for number in range(COUNT):
            plane.create_config_map("web", f"later-{number}", {"n": "later"})
        await clusters.until(lambda: _is_synced(clusters, "acme"), WITHIN_S)
        before = _synced(clusters, "acme")
        await plane.server.stop()
        plane.storage.roll_back(backup)
        plane.storage.compact()
        await plane.server.start()
        found = await clusters.until_status(lambda tenants: _held(tenants, "acme"), 2 * WITHIN_S)
        hold = _held(found, "acme")
        assert hold["reason"] == "TooManyRemovals"
        # Beside them stand the root certificates of five namespaces, and what was there at the backup.
        assert f"ConfigMap {COUNT} of {COUNT + 4 + 5}" in hold["message"], hold
        assert _synced(clusters, "acme") == before
        # Another tenant goes on, and so do this one's own changes.
        _fill(clusters.tenants["blue"])
        _edit(plane, "c-0", "edited")
        await clusters.until(lambda: _is_synced(clusters, "blue"), WITHIN_S)
        await clusters.until(lambda: _synced(clusters, "acme")["c-0"]["n"] == "edited", WITHIN_S)
        _release(clusters, "acme", hold["token"])
        await clusters.until(lambda: _is_synced(clusters, "acme"), WITHIN_S)
        await clusters.until_status(lambda tenants: not _held(tenants, "acme"))


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_wiped_tenant_is_held(tmp_path: Path, is_running: bool) -> None:
    """A control plane that comes back empty takes nothing along, whether or not a syncer ran meanwhile."""
    async with _virtual_clusters(tmp_path, "acme") as clusters:
        plane = clusters.tenants["acme"]
        _fill(plane)
        await clusters.until(lambda: _is_synced(clusters, "acme"), WITHIN_S)
        before = _synced(clusters, "acme")
        if not is_running:
            await clusters.stop()
        await plane.wipe()
        if not is_running:
            await clusters.start()
        found = await clusters.until_status(lambda tenants: _held(tenants, "acme"), 2 * WITHIN_S)
        assert _held(found, "acme")["reason"] in ("TenantEmpty", "TooManyRemovals")
        assert _synced(clusters, "acme") == before
