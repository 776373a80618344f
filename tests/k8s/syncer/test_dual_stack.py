# SPDX-License-Identifier: Apache-2.0
"""Services and pods of two families."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tenancy import keys
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.node import DUAL_HANDLER
from tests.k8s.syncer import policies
from tests.k8s.syncer.cluster import SECOND_TENANT_CIDR, SyncedRing
from tests.k8s.syncer.shops import Shop, agnhost, object_of, pod, pod_spec, service

pytestmark = pytest.mark.timeout(300)

_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_PORT = 8080
_SERVER = {"containers": [agnhost("netexec", f"--http-port={_PORT}")], "terminationGracePeriodSeconds": 1}
# Each tenant's control plane may have chosen the same ones.
_OWN = ["10.32.77.8", f"{SECOND_TENANT_CIDR.partition('/')[0]}778"]
_OWN_FIELDS = {"clusterIP": _OWN[0], "clusterIPs": _OWN}


@pytest.fixture
def two_families(synced_ring: SyncedRing) -> Iterator[None]:
    """Pods of both tenants have an address of each family."""
    api = synced_ring.super_cluster.api
    api.create(_CLASSES, object_of("node.k8s.io/v1", "RuntimeClass", DUAL_HANDLER, handler=DUAL_HANDLER))
    try:
        with policies.applied(api, pods={"runtimeClass": DUAL_HANDLER}):
            yield
    finally:
        api.delete(f"{_CLASSES}/{DUAL_HANDLER}")


@pytest.mark.usefixtures("two_families")
def test_service_of_two_families_leads_to_its_pods(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        shop.apply(
            service("web", "web", _PORT, ipFamilyPolicy="RequireDualStack", **_OWN_FIELDS),
            pod("web", _SERVER, labels={"app": "web"}),
            pod("client", pod_spec(), labels={"app": "client"}),
        )
    addresses: set[str] = set()
    for shop in shops:
        (web,) = shop.wait_running("app=web")
        shop.wait_running("app=client")
        v4, v6 = (each["ip"] for each in web["status"]["podIPs"])
        expected = {"IPv4": {v4}, "IPv6": {v6}}
        for side in (shop.items, shop.super_items):
            shop.wait("a slice for each family", partial(_has_slices, side, expected))
        below = _below(shop)
        assert below["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
        assert below["metadata"]["annotations"][keys.CLUSTER_IPS] == ",".join(_OWN)
        for address in below["spec"]["clusterIPs"]:
            shop.wait_output("client", _request(address), "web")
        addresses |= {v4, v6, *below["spec"]["clusterIPs"]}
    assert len(addresses) == 8


@pytest.mark.usefixtures("two_families")
def test_second_family_is_taken_back_and_comes_again(shop: Shop) -> None:
    shop.apply(service("web", "web", _PORT, ipFamilyPolicy="RequireDualStack"))
    for policy, count in (("RequireDualStack", 2), ("SingleStack", 1), ("PreferDualStack", 2)):
        shop.api.patch(shop.path("services", "web"), {"spec": {"ipFamilyPolicy": policy}})
        shop.wait(f"{count} families are below", partial(_has_families, shop, count))
        own = shop.get("services", "web")["spec"]["clusterIPs"]
        shown = _below(shop)["metadata"]["annotations"]
        assert shown.get(keys.CLUSTER_IPS, shown[keys.CLUSTER_IP]) == ",".join(own)
        assert len(own) == count


def _below(shop: Shop) -> JsonObject:
    found = shop.in_super("services", "web")
    assert found is not None
    return found


def _has_families(shop: Shop, count: int) -> bool:
    """Whether the Service below has so many, by the policy that the tenant gave it."""
    found = shop.in_super("services", "web")
    own = shop.get("services", "web")["spec"]
    return found is not None and (
        found["spec"]["ipFamilyPolicy"] == own["ipFamilyPolicy"]
        and found["spec"]["ipFamilies"] == own["ipFamilies"]
        and len(found["spec"]["clusterIPs"]) == count
    )


def _has_slices(side: Callable[[str], list[JsonObject]], expected: dict[str, set[str]]) -> bool:
    """Whether the ready addresses of one side's slices are these, by family."""
    found: dict[str, set[str]] = {}
    for each in side("endpointslices"):
        for endpoint in each.get("endpoints") or []:
            if endpoint["conditions"].get("ready"):
                found.setdefault(each["addressType"], set()).update(endpoint["addresses"])
    return found == expected


def _request(address: str) -> str:
    return f"printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} {_PORT} | tail -n 1"
