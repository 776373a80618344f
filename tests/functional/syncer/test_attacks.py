# SPDX-License-Identifier: Apache-2.0
"""A tenant's API server, or what is stored in it, against all other tenants.

Latencies are `make bench-syncer-attacks`. Here a neighbour's objects arrive while the attack goes on, pages
are answered, and SIGTERM ends the process in good order.
"""

import asyncio
import contextlib
from functools import partial
from pathlib import Path

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, PODS
from daemonkit.status.server import fetch
from tests.functional.syncer.clusters import SyncedClusters, synced_clusters
from tests.functional.syncer.hostile_apiserver import WATCHES, fat_pod, hostile_apiserver

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

NEIGHBOUR = "acme"
# The machine may be busy with other tests; without turns an object never arrived.
WITHIN_S = 60.0


async def attach(clusters: SyncedClusters, key: str, kubeconfig: str) -> None:
    """Have the running syncer serve one more tenant."""
    (clusters.directory / "tenants" / f"{key}.kubeconfig").write_text(kubeconfig)
    await clusters.until_status(lambda tenants: f"{key}.kubeconfig" in tenants, WITHIN_S)


async def check_others(clusters: SyncedClusters, count: int = 5) -> None:
    """The neighbour's objects arrive, and pages are answered."""
    for number in range(count):
        clusters.tenants[NEIGHBOUR].create_config_map("web", f"under-{number}", {"n": str(number)})
        await clusters.until(partial(_has_arrived, clusters, f"under-{number}"), WITHIN_S)
        assert (await asyncio.to_thread(fetch, clusters.socket, "/healthz", WITHIN_S))[0] == 200


def _has_arrived(clusters: SyncedClusters, name: str) -> bool:
    return clusters.super.get(CONFIG_MAPS, f"{NEIGHBOUR}-web", name) is not None


@pytest.mark.parametrize("attack", sorted(set(WATCHES) - {"large-config-maps"}))
async def test_a_hostile_apiserver_holds_up_nobody_else(tmp_path: Path, attack: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clusters = await stack.enter_async_context(synced_clusters(tmp_path, NEIGHBOUR))
        clusters.tenants[NEIGHBOUR].create_namespace("web", uid="web-1")
        await clusters.start()
        for number in range(2):
            kubeconfig = await stack.enter_async_context(hostile_apiserver(attack))
            await attach(clusters, f"hostile-{number}", kubeconfig)
        await check_others(clusters)
        assert await clusters.stop() == 0


async def test_a_pod_with_all_that_is_allowed_holds_up_nobody(tmp_path: Path) -> None:
    async with synced_clusters(tmp_path, NEIGHBOUR, "hostile") as clusters:
        for plane in clusters.tenants.values():
            plane.create_namespace("web", uid=f"{plane.key}-1")
        await clusters.start()
        clusters.tenants["hostile"].storage.create(PODS, fat_pod("fat"))
        await check_others(clusters)
        assert await clusters.stop() == 0
