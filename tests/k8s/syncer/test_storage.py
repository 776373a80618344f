# SPDX-License-Identifier: Apache-2.0
"""Claims of tenants bind to volumes of the super cluster, and pods write to them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.k8s.ring.api import KubernetesApi
from tests.k8s.syncer.cluster import NODES, SyncedRing
from tests.k8s.syncer.shops import Shop, object_of, pod, pod_spec

pytestmark = pytest.mark.timeout(300)

_VOLUMES = "/api/v1/persistentvolumes"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_PUBLISHED = {"tenancy.x-k8s.io/super.public": "true"}


@pytest.fixture
def storage_class(synced_ring: SyncedRing) -> Iterator[str]:
    """A published class with two volumes on the first node."""
    api = synced_ring.super_cluster.api
    name = f"disk-{secrets.token_hex(3)}"
    made = object_of("storage.k8s.io/v1", "StorageClass", name, provisioner="kubernetes.io/no-provisioner")
    made["metadata"]["labels"] = _PUBLISHED
    api.create(_CLASSES, made)
    volumes = [f"{name}-{n}" for n in range(2)]
    for volume in volumes:
        api.create(_VOLUMES, _volume(volume, name))
    yield name
    for volume in volumes:
        api.delete(f"{_VOLUMES}/{volume}")
    api.delete(f"{_CLASSES}/{name}")


def _volume(name: str, storage_class: str) -> dict[str, object]:
    node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODES[0]]}
    return object_of(
        "v1",
        "PersistentVolume",
        name,
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": f"/var/lib/{name}", "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
        },
    )


def _claim(storage_class: str) -> dict[str, object]:
    return object_of(
        "v1",
        "PersistentVolumeClaim",
        "data",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )


def _writer(text: str) -> dict[str, object]:
    spec = pod_spec(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec["containers"][0]["command"] = ["sh", "-c", f"echo {text} >> /data/log; exec sleep 100000"]
    return pod("writer", spec, labels={"app": "writer"})


def test_claims_bind_in_both_tenants(shops: tuple[Shop, Shop], storage_class: str) -> None:
    for shop in shops:
        shop.wait_own(
            "the class is in the tenant",
            lambda own: _has(own.api, f"{_CLASSES}/{storage_class}"),
        )
        shop.apply(_claim(storage_class), _writer(f"first of {shop.tenant.key}"))
    volumes = []
    for shop in shops:
        shop.wait_running("app=writer")
        claim = shop.get("persistentvolumeclaims", "data")
        assert claim["status"]["phase"] == "Bound"
        assert claim["status"]["capacity"] == {"storage": "1Gi"}
        volumes.append(claim["spec"]["volumeName"])
        volume = shop.api.get(f"{_VOLUMES}/{volumes[-1]}")
        assert volume["spec"]["claimRef"]["namespace"] == shop.namespace
        assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert shop.sh("writer", "cat /data/log").check().text == f"first of {shop.tenant.key}\n"
    assert volumes[0] != volumes[1]
    # The data outlives the pod, and each tenant sees its own volume alone.
    one, other = shops
    one.kubectl("delete", "pod", "writer").check()
    one.apply(_writer("second"))
    one.wait_running("app=writer")
    assert one.sh("writer", "cat /data/log").check().text == f"first of {one.tenant.key}\nsecond\n"
    for shop, foreign in ((one, volumes[1]), (other, volumes[0])):
        assert not _has(shop.api, f"{_VOLUMES}/{foreign}")


def test_deleted_claim_goes_below_too(shop: Shop, storage_class: str) -> None:
    shop.wait("the class is in the tenant", lambda: _has(shop.api, f"{_CLASSES}/{storage_class}"))
    shop.apply(_claim(storage_class))
    shop.wait("it is bound", lambda: shop.get("persistentvolumeclaims", "data")["status"]["phase"] == "Bound")
    shop.kubectl("delete", "pvc", "data", "--wait=false").check()
    shop.wait_gone("persistentvolumeclaims", "data")


def test_class_that_is_unpublished_goes(synced_ring: SyncedRing, shop: Shop, storage_class: str) -> None:
    path = f"{_CLASSES}/{storage_class}"
    shop.wait("it is in the tenant", lambda: _has(shop.api, path))
    label = {"metadata": {"labels": dict.fromkeys(_PUBLISHED)}}
    synced_ring.super_cluster.api.patch(path, label)
    shop.wait("it is gone from the tenant", lambda: not _has(shop.api, path))


def _has(api: KubernetesApi, path: str) -> bool:
    return api.endpoint.request("GET", path).status == 200
