# SPDX-License-Identifier: Apache-2.0
"""Every byte that a tenant can list is its own."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

import pytest

from tests.k8s.ring.api import KubernetesApi
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.shops import Shop, deployment, object_of, pod, pod_spec, service

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def marked(shops: tuple[Shop, Shop]) -> tuple[Shop, Shop]:
    """Objects of the same names in both tenants, each with a mark of its own in every place."""
    for shop in shops:
        mark = _mark(shop)
        spec = pod_spec(f"echo {mark}", "exec sleep 100000")
        spec["containers"][0]["env"] = [{"name": "MARK", "value": mark}]
        value = pod("alone", spec, labels={"app": "alone", "mark": mark}, annotations={"mark": mark})
        failing = {**pod_spec(f"echo {mark}; exit 1"), "restartPolicy": "Never"}
        shop.apply(
            object_of("v1", "ConfigMap", "settings", data={"mark": mark}),
            object_of("v1", "Secret", "settings", stringData={"mark": mark}),
            service("web", "web", 80),
            value,
            deployment("web", spec),
            pod("failing", failing),
        )
    for shop in shops:
        shop.wait_running("app=alone")
        shop.wait_running("app=web")
        shop.wait_phase("failing", "Failed")
        shop.wait_own("events of the kubelet", lambda own: len(own.items("events")) > 3)
    return shops


def test_no_list_shows_another_tenants(marked: tuple[Shop, Shop]) -> None:
    for shop, other in (marked, marked[::-1]):
        for path, text in _lists(shop.api):
            for foreign in _foreign(other, shop):
                assert foreign not in text, f"{shop.tenant.key}: {path} shows {foreign}"


def test_no_list_shows_a_name_of_the_super_cluster(marked: tuple[Shop, Shop]) -> None:
    """Not even the tenant's own: what it sees has the names that it gave."""
    for shop in marked:
        for path, text in _lists(shop.api):
            assert shop.tenant.key not in text, f"{path}: {_around(text, shop.tenant.key)}"


def test_no_page_of_a_node_shows_another_tenants(marked: tuple[Shop, Shop]) -> None:
    for shop, other in (marked, marked[::-1]):
        for node in shop.api.get("/api/v1/nodes")["items"]:
            for page in ("pods", "metrics/resource", "metrics/cadvisor", "stats/summary"):
                path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/{page}"
                text = shop.kubectl("get", "--raw", path).text
                for foreign in _foreign(other, shop):
                    assert foreign not in text, f"{shop.tenant.key}: {path} shows {foreign}"


def test_super_namespaces_hold_one_tenant_each(synced_ring: SyncedRing, marked: tuple[Shop, Shop]) -> None:
    for shop, other in (marked, marked[::-1]):
        for resource in ("pods", "configmaps", "secrets", "services", "serviceaccounts", "endpointslices"):
            for value in shop.super_items(resource):
                for mark in _marks(other):
                    assert mark not in str(value)
    assert synced_ring.super_cluster.api.is_ready()


def _mark(shop: Shop) -> str:
    """No mark of one tenant is in that of the other."""
    return f"mark-of-{'first' if shop.tenant is shop.ring.tenants[0] else 'second'}"


def _marks(shop: Shop) -> set[str]:
    """The mark as it is, and as Secrets have it."""
    mark = _mark(shop)
    return {mark, base64.b64encode(mark.encode()).decode()}


def _foreign(other: Shop, shop: Shop) -> set[str]:
    """What must not be in a list of the tenant of `shop`."""
    found = {*_marks(other), other.super_namespace}
    if not shop.tenant.key.startswith(other.tenant.key):
        found.add(other.tenant.key)
    for value in (*other.items("pods"), *other.super_items("pods")):
        found.add(value["metadata"]["uid"])
    return found


def _lists(api: KubernetesApi) -> Iterator[tuple[str, str]]:
    """The text of each list of all namespaces that the API server has, with its path."""
    groups = ["/api/v1"]
    for group in api.get("/apis")["groups"]:
        groups += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
    for group in groups:
        for resource in api.get(group)["resources"]:
            if "list" in resource["verbs"]:
                path = f"{group}/{resource['name']}"
                yield path, api.endpoint.request("GET", path).text


def _around(text: str, word: str) -> str:
    found = re.search(rf".{{0,200}}{re.escape(word)}.{{0,100}}", text, re.DOTALL)
    return found[0] if found is not None else ""
