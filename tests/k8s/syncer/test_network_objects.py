# SPDX-License-Identifier: Apache-2.0
"""Ingresses, NetworkPolicies and PodDisruptionBudgets go down, and statuses come up."""

from __future__ import annotations

from functools import partial

import pytest

from tenancy import keys
from tests.k8s.ring.api import JsonObject
from tests.k8s.syncer import policies
from tests.k8s.syncer.shops import Shop, object_of, pod, pod_spec, service

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


_NGINX = "nginx.ingress.kubernetes.io"
# Of ingress-nginx' documentation: what keeps people out, and what writes into the controller's configuration.
_KEEP_OUT = {
    "auth-type": "basic",
    "auth-secret": "users",
    "auth-url": "https://sso.example.org/auth",
    "auth-tls-secret": "authority",
    "whitelist-source-range": "192.0.2.0/24",
    "denylist-source-range": "192.0.2.0/24",
    "server-snippet": "location /own { return 200; }",
    "configuration-snippet": "deny all;",
}


def test_ingress_that_would_lose_what_keeps_people_out(shop: Shop) -> None:
    """Refused and reported, key by key: below it would be open to everyone. A harmless key may stay above."""
    plain = f"{_NGINX}/proxy-body-size"
    names = {key: f"with-{key}" for key in _KEEP_OUT}
    shop.apply(
        service("web", "web", 80),
        *(_named(names[key], {f"{_NGINX}/{key}": value}) for key, value in _KEEP_OUT.items()),
        _named("open", {plain: "8m"}),
        _named("late", {}),
    )
    for name in ("open", "late"):
        shop.wait(f"{name} is below", partial(shop.in_super, "ingresses", name))
    shop.wait("what stays is reported", lambda: plain in shop.reports("Ingress", "open", "SyncChanged"))
    shop.kubectl("annotate", "ingress", "late", f"{_NGINX}/auth-url={_KEEP_OUT['auth-url']}").check()
    for key, name in {**names, "auth-url": "late"}.items():
        is_reported = partial(_is_refused, shop, name, f"{_NGINX}/{key}")
        shop.wait(f"{key} of {name} is refused", is_reported)
    assert {each["metadata"]["name"] for each in shop.super_items("ingresses")} == {"open", "late"}
    allowed = f"{_NGINX}/auth-url"
    with policies.applied(shop.super_api, ingresses={"allowedAnnotations": [allowed]}):
        for name in (names["auth-url"], "late"):
            shop.wait(f"{name} is below, with it", partial(_has, shop, name, allowed))
    shown = {each["metadata"]["name"] for each in shop.super_items("ingresses")}
    assert shown == {"open", "late", names["auth-url"]}


def _named(name: str, annotations: dict[str, str]) -> JsonObject:
    made = _ingress(f"{name}.example.org")
    made["metadata"] = {"name": name, "annotations": annotations}
    return made


def _is_refused(shop: Shop, name: str, key: str) -> bool:
    return key in shop.reports("Ingress", name, "SyncRefused")


def _has(shop: Shop, name: str, key: str) -> bool:
    found = shop.in_super("ingresses", name)
    return found is not None and key in found["metadata"]["annotations"]


def test_network_policy_selects_the_tenants_own(shops: tuple[Shop, Shop]) -> None:
    """All its namespaces are the tenant's: a selector of namespaces must meet no pod of another's."""
    peers = [{"namespaceSelector": {}}, {"podSelector": {"matchLabels": {"app": "client"}}}]
    rule = {"from": [*peers, {"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 80}]}
    policy = object_of(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "web",
        spec={
            "podSelector": {"matchLabels": {"app": "web"}},
            "policyTypes": ["Ingress"],
            "ingress": [rule],
        },
    )
    for shop in shops:
        shop.apply(policy, pod("client", pod_spec(), labels={"app": "client"}))
    for shop in shops:
        shop.wait_own("the pod is below", lambda own: own.in_super("pods", "client") is not None)
        shop.wait_own("it is below", lambda own: own.in_super("networkpolicies", "web") is not None)
        below = shop.in_super("networkpolicies", "web")
        assert below is not None
        assert below["spec"]["podSelector"]["matchLabels"] == {"app": "web"}
        (made,) = below["spec"]["ingress"]
        assert made["from"][2] == {"ipBlock": {"cidr": "192.0.2.0/24"}}
        for peer in made["from"][:2]:
            namespaces = {each["metadata"]["namespace"] for each in _selected(shop, peer)}
            assert shop.super_namespace in namespaces
            assert {name for name in namespaces if not _is_owned(shop, name)} == set()


def test_disruption_budget_and_its_status(shop: Shop) -> None:
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    shop.apply(object_of("policy/v1", "PodDisruptionBudget", "web", spec=budget))
    shop.wait("it is below", lambda: shop.in_super("poddisruptionbudgets", "web") is not None)
    below = shop.in_super("poddisruptionbudgets", "web")
    assert below is not None
    assert below["spec"]["minAvailable"] == 1


def _selected(shop: Shop, peer: JsonObject) -> list[JsonObject]:
    """The pods of the super cluster that a peer of a policy in the namespace stands for."""
    found = []
    namespaces = {
        each["metadata"]["name"]: each for each in shop.super_api.get("/api/v1/namespaces")["items"]
    }
    for each in shop.super_api.get("/api/v1/pods")["items"]:
        where = each["metadata"]["namespace"]
        if "namespaceSelector" in peer:
            labels = namespaces[where]["metadata"].get("labels", {}) if where in namespaces else {}
            is_here = _matches(peer["namespaceSelector"], labels)
        else:
            is_here = where == shop.super_namespace
        if is_here and _matches(peer.get("podSelector") or {}, each["metadata"].get("labels", {})):
            found.append(each)
    return found


def _is_owned(shop: Shop, namespace: str) -> bool:
    annotations = shop.super_api.get(f"/api/v1/namespaces/{namespace}")["metadata"].get("annotations", {})
    return bool(annotations.get(keys.CLUSTER) == shop.tenant.key)


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
