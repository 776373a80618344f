# SPDX-License-Identifier: Apache-2.0
"""Super namespaces of VirtualClusters that are gone, with a real process."""

from pathlib import Path

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, VIRTUAL_CLUSTERS
from syncer.core.objects import is_deleting
from tenancy import keys
from tests.functional.syncer.virtual_clusters import NAMESPACE, encoded, virtual_clusters

pytestmark = pytest.mark.functional


def owned_by(found: dict[str, object] | None) -> str:
    """The UID of the VirtualCluster that a super namespace names."""
    if found is None:
        return ""
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["annotations"].get(keys.VC_UID, ""))


@pytest.mark.asyncio
async def test_a_deleted_cluster_takes_its_namespaces_along(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        for name in ("acme", "blue"):
            await clusters.add(name)
        await clusters.syncer.start()
        await clusters.until_synced("acme", "blue")
        clusters.super.delete(VIRTUAL_CLUSTERS, NAMESPACE, "acme")
        await clusters.syncer.until(
            lambda: not any(each.startswith("t-acme") for each in clusters.super.names(NAMESPACES))
        )
        await clusters.until_follows("blue", "later")
        assert "vcnode_syncer_orphans_deleted_total 5.0" in await clusters.syncer.metrics()
        assert clusters.planes["acme"].names(CONFIG_MAPS, "web") >= {"settings-0"}


@pytest.mark.asyncio
async def test_a_cluster_that_is_made_again_is_another_tenant(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        plane = await clusters.add("acme")
        await clusters.syncer.start()
        await clusters.until_synced("acme")
        before = clusters.cluster("acme")["metadata"]["uid"]
        # A finalizer holds the old namespace: until it is gone the new tenant waits.
        namespace = clusters.super.get(NAMESPACES, "", "t-acme-web")
        assert namespace is not None
        namespace["metadata"]["finalizers"] = ["example.com/hold"]
        clusters.super.server.storage.replace(NAMESPACES, namespace)
        clusters.super.delete(VIRTUAL_CLUSTERS, NAMESPACE, "acme")
        clusters.add_cluster("acme", {keys.ADMIN_KUBECONFIG: encoded(plane.kubeconfig())})
        after = clusters.cluster("acme")["metadata"]["uid"]
        await clusters.syncer.until(
            lambda: owned_by(clusters.super.get(NAMESPACES, "", "t-acme-default")) == after
        )
        await clusters.syncer.until(
            lambda: is_deleting(clusters.super.get(NAMESPACES, "", "t-acme-web") or {})
        )
        waits = clusters.super.get(NAMESPACES, "", "t-acme-web")
        assert owned_by(waits) == before
        page = await clusters.syncer.until_status(
            lambda found: any(
                each["object"] == "web" and each["reason"].startswith("SyncConflict")
                for tenant in found["tenants"].values()
                for each in tenant["notSynced"]
            )
        )
        assert len(page["tenants"]) == 1
        assert waits is not None
        waits["metadata"]["finalizers"] = []
        clusters.super.server.storage.replace(NAMESPACES, waits)
        clusters.super.server.cluster.empty("t-acme-web")
        await clusters.syncer.until(
            lambda: owned_by(clusters.super.get(NAMESPACES, "", "t-acme-web")) == after
        )
        await clusters.until_synced("acme")


@pytest.mark.asyncio
async def test_an_empty_list_of_clusters_deletes_nothing(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path, patrol={"intervalSeconds": 1}) as clusters:
        for name in ("acme", "blue", "coal"):
            await clusters.add(name)
        await clusters.syncer.start()
        await clusters.until_synced("acme", "blue", "coal")
        await clusters.syncer.stop()
        objects = {name: clusters.cluster(name) for name in ("acme", "blue", "coal")}
        for name in objects:
            clusters.super.server.storage.delete(VIRTUAL_CLUSTERS, NAMESPACE, name)
        deletions = len([each for each in clusters.super.server.seen if each.verb == "delete"])
        await clusters.syncer.start()
        page = await clusters.syncer.until_status(lambda found: found["orphans"]["isDistrusted"])
        assert page["orphans"]["heldCount"] == 15
        # They come back, with the UIDs that they had, and go on.
        for value in objects.values():
            clusters.super.server.storage.restore(VIRTUAL_CLUSTERS, value)
        for name in objects:
            await clusters.until_follows(name, "later")
        seen = [each for each in clusters.super.server.seen if each.verb == "delete"]
        assert len(seen) == deletions
        await clusters.syncer.until_status(lambda found: found["orphans"]["heldCount"] == 0)
