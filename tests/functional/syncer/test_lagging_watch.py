# SPDX-License-Identifier: Apache-2.0
"""The super cluster's watch lags behind the tenant's: what it has not brought yet is not gone."""

from pathlib import Path

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, PODS, SERVICES
from tests.functional.syncer.clusters import RecordingApiserver, SyncedClusters, synced_clusters

pytestmark = pytest.mark.functional

SPEC = {
    "automountServiceAccountToken": False,
    "containers": [{"name": "main", "image": "registry.test/app:1"}],
}


async def serve_api_service(clusters: SyncedClusters, tenant: RecordingApiserver) -> None:
    """Give the tenant's pods what they wait for: the `kubernetes` Service with a super cluster IP."""
    tenant.create_namespace("default")
    service = {"metadata": {"namespace": "default", "name": "kubernetes"}, "spec": {"ports": [{"port": 443}]}}
    tenant.storage.create(SERVICES, service)
    await clusters.until(lambda: clusters.super.get(SERVICES, "acme-default", "kubernetes"))
    made = clusters.super.get(SERVICES, "acme-default", "kubernetes")
    assert made is not None
    clusters.super.storage.replace(SERVICES, made | {"spec": {**made["spec"], "clusterIP": "10.0.0.7"}})


async def create_pod(clusters: SyncedClusters, tenant: RecordingApiserver, name: str) -> None:
    tenant.storage.create(PODS, {"metadata": {"namespace": "web", "name": name}, "spec": SPEC})
    await clusters.until(lambda: clusters.super.get(PODS, "acme-web", name))


@pytest.mark.asyncio
async def test_a_bound_pod_outlives_a_lagging_super_watch(tmp_path: Path) -> None:
    """A tenant's pod runs, and the cache lacks its super pod: that one was not evicted."""
    async with synced_clusters(tmp_path, "acme") as clusters:
        await clusters.start()
        tenant, host = clusters.tenants["acme"], clusters.super
        await serve_api_service(clusters, tenant)
        tenant.create_namespace("web")
        await create_pod(clusters, tenant, "first")
        # Watches are woken by writes: from here on the super cluster's bring nothing.
        woken = list(host.storage.on_write)
        host.storage.on_write.clear()
        await create_pod(clusters, tenant, "app")
        pod = tenant.get(PODS, "web", "app")
        assert pod is not None
        bound = {"spec": {**pod["spec"], "nodeName": "node-1"}, "status": {"phase": "Running"}}
        tenant.storage.replace(PODS, pod | bound)
        await clusters.until(
            lambda: any(each.verb == "get" and each.name == "app" for each in host.server.seen)
        )
        tenant.create_config_map("web", "later", {})
        await clusters.until(lambda: host.get(CONFIG_MAPS, "acme-web", "later"))
        assert tenant.get(PODS, "web", "app") is not None
        host.storage.on_write.extend(woken)
        host.storage.delete(PODS, "acme-web", "app")
        await clusters.until(lambda: tenant.get(PODS, "web", "app") is None)
