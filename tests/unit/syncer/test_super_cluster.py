# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES
from daemonkit.tasks import Tasks
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object, Storage
from syncer.kinds import table
from syncer.super_cluster import SuperCaches
from tenancy import keys

pytestmark = pytest.mark.asyncio


def _namespace(key: str, namespace: str) -> Object:
    notes = {keys.CLUSTER: key, keys.NAMESPACE: namespace, keys.UID: "n", keys.VC_UID: "u"}
    return {"metadata": {"name": f"{key}-{namespace}", "annotations": notes}}


def _config_map(namespace: str, name: str) -> Object:
    return {"metadata": {"namespace": namespace, "name": name, "labels": {keys.VC_NAME: "v"}}}


async def test_what_a_tenant_has_is_found_by_its_namespaces() -> None:
    """Not by looking at what all tenants have: a patrol of each would cost the square of their number."""
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), lambda _: None)
    tasks = Tasks("test")
    for namespace in ("web", "db"):
        cluster.storage.put(NAMESPACES, _namespace("red", namespace))
    cluster.storage.put(NAMESPACES, _namespace("green", "web"))
    for namespace, name in (("red-web", "a"), ("red-web", "b"), ("red-db", "a"), ("green-web", "c")):
        cluster.storage.put(CONFIG_MAPS, _config_map(namespace, name))
    caches.start(tasks)
    await caches.wait_synced()
    assert [name for name, _ in caches.owned_namespaces("red")] == ["red-db", "red-web"]
    assert list(caches.names_in("ConfigMap", "red-web")) == ["a", "b"]
    cluster.storage.delete(CONFIG_MAPS, "red-web", "a")
    cluster.storage.delete(CONFIG_MAPS, "red-db", "a")
    cluster.storage.delete(NAMESPACES, "", "red-db")
    foreign = cluster.storage.get(NAMESPACES, "", "green-web")
    cluster.storage.put(NAMESPACES, foreign | {"metadata": foreign["metadata"] | {"annotations": {}}})
    await asyncio.sleep(1)
    assert [name for name, _ in caches.owned_namespaces("red")] == ["red-web"]
    assert caches.owned_namespaces("green") == []
    assert list(caches.names_in("ConfigMap", "red-web")) == ["b"]
    assert list(caches.names_in("ConfigMap", "red-db")) == []
    await tasks.close(1.0)
