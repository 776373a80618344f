# SPDX-License-Identifier: Apache-2.0
"""Ingresses, NetworkPolicies and PodDisruptionBudgets go down, and statuses come up."""

from __future__ import annotations

import pytest

from tests.k8s.ring.api import JsonObject
from tests.k8s.syncer.shops import Shop, object_of, service

pytestmark = pytest.mark.timeout(300)


def _ingress(host: str) -> JsonObject:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return object_of(
        "networking.k8s.io/v1", "Ingress", "web", spec={"rules": [{"host": host, "http": {"paths": [path]}}]}
    )


def test_ingress_and_its_status(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        shop.apply(service("web", "web", 80), _ingress(f"{shop.tenant.apiserver.name}.example.org"))
    for number, shop in enumerate(shops, start=1):
        shop.wait_own("it is below", lambda own: own.in_super("ingresses", "web") is not None)
        below = shop.in_super("ingresses", "web")
        assert below is not None
        assert below["spec"] == shop.get("ingresses", "web")["spec"]
        # As an ingress controller of the super cluster does.
        status = {"loadBalancer": {"ingress": [{"ip": f"192.0.2.{number}"}]}}
        path = f"/apis/networking.k8s.io/v1/namespaces/{shop.super_namespace}/ingresses/web/status"
        shop.super_api.patch(path, {"status": status})
        shop.wait_own(
            "its status is above",
            lambda own: own.get("ingresses", "web").get("status", {}).get("loadBalancer", {}).get("ingress"),
        )
    for number, shop in enumerate(shops, start=1):
        (entry,) = shop.get("ingresses", "web")["status"]["loadBalancer"]["ingress"]
        assert entry == {"ip": f"192.0.2.{number}"}
    shops[0].kubectl("delete", "ingress", "web").check()
    shops[0].wait_gone("ingresses", "web")
    assert shops[1].in_super("ingresses", "web") is not None


def test_network_policy_selects_the_tenants_own(shops: tuple[Shop, Shop]) -> None:
    """All its namespaces are the tenant's: a selector of namespaces must not meet another's."""
    policy = object_of(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "web",
        spec={
            "podSelector": {"matchLabels": {"app": "web"}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [
                        {"namespaceSelector": {}},
                        {"podSelector": {"matchLabels": {"app": "client"}}},
                        {"ipBlock": {"cidr": "192.0.2.0/24"}},
                    ],
                    "ports": [{"port": 80, "protocol": "TCP"}],
                }
            ],
        },
    )
    for shop in shops:
        shop.apply(policy)
    for shop in shops:
        shop.wait_own("it is below", lambda own: own.in_super("networkpolicies", "web") is not None)
        below = shop.in_super("networkpolicies", "web")
        assert below is not None
        assert below["spec"]["podSelector"]["matchLabels"] == {"app": "web"}
        (rule,) = below["spec"]["ingress"]
        selectors = [each["namespaceSelector"] for each in rule["from"] if "namespaceSelector" in each]
        assert selectors
        for selector in selectors:
            assert selector not in ({}, None), "it selects all namespaces of the super cluster"
        namespaces = _selected(shop, selectors)
        assert shop.super_namespace in namespaces
        other = shops[1 - shops.index(shop)]
        assert other.super_namespace not in namespaces


def test_disruption_budget_and_its_status(shop: Shop) -> None:
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    shop.apply(object_of("policy/v1", "PodDisruptionBudget", "web", spec=budget))
    shop.wait("it is below", lambda: shop.in_super("poddisruptionbudgets", "web") is not None)
    below = shop.in_super("poddisruptionbudgets", "web")
    assert below is not None
    assert below["spec"]["minAvailable"] == 1


def _selected(shop: Shop, selectors: list[JsonObject]) -> set[str]:
    """The namespaces of the super cluster that any of the selectors matches."""
    found: set[str] = set()
    for namespace in shop.super_api.get("/api/v1/namespaces")["items"]:
        labels = namespace["metadata"].get("labels", {})
        if any(_matches(selector, labels) for selector in selectors):
            found.add(namespace["metadata"]["name"])
    return found


def _matches(selector: JsonObject, labels: dict[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for term in selector.get("matchExpressions") or []:
        value = labels.get(term["key"])
        is_met = {
            "In": value in term.get("values", []),
            "NotIn": value not in term.get("values", []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[term["operator"]]
        if not is_met:
            return False
    return True
