# SPDX-License-Identifier: Apache-2.0
"""Objects that the Go syncer left in the super cluster are adopted: no write, and no pod starts again.

Their form is that of `../shared/cases/sync-objects.yaml`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest

from tenancy import keys
from tests.k8s.ring.api import JsonObject
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.provisioned import HOME
from tests.k8s.syncer.shops import Shop, is_ready, object_of, pod, pod_spec, service

pytestmark = pytest.mark.timeout(300)

_NAME = "acme"
_PODS = ("web", "old")
_SYNCED = ("configmaps", "secrets", "services", "pods")
_PATROLS = "vcnode_syncer_patrol_duration_seconds_count"


@pytest.fixture
def unsynced(synced_ring: SyncedRing, syncer: SyncerDaemon) -> Iterator[Shop]:
    """A namespace of the first tenant while no syncer runs."""
    syncer.stop()
    syncer.configure({"patrol": {"intervalSeconds": 1}})
    shop = Shop(synced_ring, synced_ring.tenants[0], f"shop-{secrets.token_hex(3)}", syncer)
    try:
        shop.create()
        yield shop
    finally:
        syncer.stop()
        syncer.configure({})
        syncer.start()
        shop.delete()


def _annotations(shop: Shop, uid: str) -> dict[str, str]:
    return {
        keys.CLUSTER: shop.tenant.key,
        keys.NAMESPACE: shop.namespace,
        keys.OWNER_REFERENCES: "null",
        keys.UID: uid,
        keys.VC_NAME: _NAME,
        keys.VC_NAMESPACE: HOME,
    }


def _labels() -> dict[str, str]:
    return {keys.VC_NAME: _NAME, keys.VC_NAMESPACE: HOME}


def _put(shop: Shop, resource: str, own: JsonObject, **fields: object) -> JsonObject:
    """Create the super object of a tenant's as the Go syncer does, with these fields beside its metadata."""
    name = own["metadata"]["name"]
    metadata = {
        "name": name,
        "namespace": shop.super_namespace,
        "labels": _labels(),
        "annotations": _annotations(shop, own["metadata"]["uid"]),
    }
    path = shop.path(resource).replace(shop.namespace, shop.super_namespace)
    return shop.super_api.create(path, {"metadata": metadata, **fields})


def _put_namespace(shop: Shop) -> None:
    own = shop.api.get(f"/api/v1/namespaces/{shop.namespace}")
    virtual_cluster = shop.super_api.get(
        f"/apis/tenancy.x-k8s.io/v1alpha1/namespaces/{HOME}/virtualclusters/{_NAME}"
    )
    annotations = _annotations(shop, own["metadata"]["uid"]) | {
        keys.VC_UID: virtual_cluster["metadata"]["uid"]
    }
    del annotations[keys.OWNER_REFERENCES]
    made = object_of("v1", "Namespace", shop.super_namespace)
    made["metadata"]["annotations"] = annotations
    shop.super_api.create("/api/v1/namespaces", made)


def _put_pod(shop: Shop, own: JsonObject) -> None:
    """With the environment, the host names and the resolver that the Go syncer writes into pods."""
    address = "10.96.0.1"
    environment = {
        "KUBERNETES_PORT": f"tcp://{address}:443",
        "KUBERNETES_PORT_443_TCP": f"tcp://{address}:443",
        "KUBERNETES_PORT_443_TCP_ADDR": address,
        "KUBERNETES_PORT_443_TCP_PORT": "443",
        "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
        "KUBERNETES_SERVICE_HOST": "kubernetes",
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
    }
    spec = json.loads(json.dumps(own["spec"]))
    spec["containers"][0]["env"] = [{"name": name, "value": value} for name, value in environment.items()]
    spec |= {
        "hostAliases": [
            {"ip": address, "hostnames": ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]}
        ],
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["10.96.0.10"],
            "searches": [f"{shop.namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local"],
            "options": [{"name": "ndots", "value": "5"}],
        },
        "tolerations": [],
    }
    made = _put(shop, "pods", own, spec=spec)
    # The Go syncer labels pods with their cluster too.
    path = f"/api/v1/namespaces/{shop.super_namespace}/pods/{made['metadata']['name']}"
    labels = {keys.CLUSTER: shop.tenant.key, **own["metadata"]["labels"]}
    shop.super_api.patch(path, {"metadata": {"labels": labels}})


def _put_service(shop: Shop, own: JsonObject) -> None:
    spec = {name: own["spec"][name] for name in ("selector", "ports", "type")}
    is_headless = own["spec"]["clusterIP"] == "None"
    made = _put(shop, "services", own, spec=spec | ({"clusterIP": "None"} if is_headless else {}))
    annotations = {"transparency.tenancy.x-k8s.io/clusterIP": made["spec"]["clusterIP"]}
    if not is_headless:
        annotations["tenancy.x-k8s.io/clusterIP"] = own["spec"]["clusterIP"]
    path = f"/api/v1/namespaces/{shop.super_namespace}/services/{made['metadata']['name']}"
    shop.super_api.patch(path, {"metadata": {"annotations": annotations}})


def _versions(shop: Shop) -> dict[str, str]:
    """The version of each super object that the Go syncer made."""
    found = {
        f"{resource}/{each['metadata']['name']}": each["metadata"]["resourceVersion"]
        for resource in _SYNCED
        for each in shop.super_items(resource)
        if keys.UID in each["metadata"].get("annotations", {})
        and each["metadata"]["name"] != "tenant-kube-root-ca.crt"
    }
    namespace = shop.super_api.get(f"/api/v1/namespaces/{shop.super_namespace}")
    return found | {"namespace": namespace["metadata"]["resourceVersion"]}


def test_objects_of_the_go_syncer_are_adopted(unsynced: Shop, syncer: SyncerDaemon) -> None:
    shop = unsynced
    shop.wait("its account", lambda: shop.find("serviceaccounts", "default") is not None)
    for resource, value in (
        ("configmaps", object_of("v1", "ConfigMap", "settings", data={"a": "b"})),
        ("secrets", object_of("v1", "Secret", "password", data={"u": "dXNlcg=="}, type="Opaque")),
        ("services", service("web", "web", 8080)),
        ("services", service("db", "web", 5432, clusterIP="None")),
        ("pods", pod("web", pod_spec(automountServiceAccountToken=False), labels={"app": "web"})),
        # With the token of the super cluster that the Go syncer lets it have.
        ("pods", pod("old", pod_spec(), labels={"app": "old"})),
    ):
        shop.api.create(shop.path(resource), value)
    _put_namespace(shop)
    shop.wait("its account below", lambda: shop.in_super("serviceaccounts", "default") is not None)
    _put(shop, "configmaps", shop.get("configmaps", "settings"), data={"a": "b"})
    _put(shop, "secrets", shop.get("secrets", "password"), data={"u": "dXNlcg=="}, type="Opaque")
    for name in ("web", "db"):
        _put_service(shop, shop.get("services", name))
    for name in _PODS:
        _put_pod(shop, shop.get("pods", name))

    def all_run_below() -> bool:
        found = [each for each in shop.super_items("pods") if is_ready(each)]
        return len(found) == len(_PODS)

    shop.wait("the pods run below", all_run_below)
    before = {each["metadata"]["name"]: each for each in shop.super_items("pods")}
    versions = _versions(shop)
    assert len(versions) == 1 + 1 + 1 + 2 + len(_PODS)

    syncer.start()
    for name in _PODS:
        (above,) = shop.wait_running(f"app={name}")
        below = before[name]
        assert above["spec"]["nodeName"] == below["spec"]["nodeName"]
        assert above["status"]["podIP"] == below["status"]["podIP"]
        assert _containers(above) == _containers(below)
        assert shop.sh(name, "echo here").check().text == "here\n"
    patrols = syncer.metric(_PATROLS)
    shop.wait("two patrols of both tenants", lambda: syncer.metric(_PATROLS) >= patrols + 4)
    assert _versions(shop) == versions
    own = shop.get("services", "web")["metadata"]["annotations"]
    found = shop.in_super("services", "web")
    assert found is not None
    assert own["transparency.tenancy.x-k8s.io/clusterIP"] == found["spec"]["clusterIP"]
    # From now on they follow the tenant's.
    shop.api.patch(shop.path("configmaps", "settings"), {"data": {"a": "c"}})
    shop.wait(
        "a change goes down",
        lambda: (shop.in_super("configmaps", "settings") or {}).get("data") == {"a": "c"},
    )
    shop.kubectl("delete", "pod", *_PODS).check()
    for name in _PODS:
        shop.wait_gone("pods", name)


def _containers(value: JsonObject) -> list[tuple[str, int]]:
    return [(each["containerID"], each["restartCount"]) for each in value["status"]["containerStatuses"]]
