# SPDX-License-Identifier: Apache-2.0
"""Objects that go and come again under the same names, and namespaces that end."""

from __future__ import annotations

import json

import pytest

from tenancy import keys
from tests.k8s.syncer.shops import Shop, deployment, object_of, pod, pod_spec, service

pytestmark = pytest.mark.timeout(300)


def test_pod_is_made_again_under_its_name(shops: tuple[Shop, Shop]) -> None:
    one, other = shops
    for shop in shops:
        shop.apply(pod("web", pod_spec("echo first", "exec sleep 100000"), labels={"app": "web"}))
    for shop in shops:
        shop.wait_running("app=web")
    kept = other.get("pods", "web")["metadata"]["uid"]
    one.kubectl("delete", "pod", "web").check()
    one.apply(pod("web", pod_spec("echo second", "exec sleep 100000"), labels={"app": "web"}))
    (again,) = one.wait_running("app=web")
    assert one.kubectl("logs", "web").check().text == "second\n"
    below = one.in_super("pods", "web")
    assert below is not None
    assert below["metadata"]["annotations"][keys.UID] == again["metadata"]["uid"]
    assert other.get("pods", "web")["metadata"]["uid"] == kept


def test_pod_is_replaced_without_a_pause(shop: Shop) -> None:
    """`kubectl replace --force`: the new pod is there before the old one has ended below."""
    value = pod("web", pod_spec("echo first", "exec sleep 100000"), labels={"app": "web"})
    shop.apply(value)
    first = shop.wait_running("app=web")[0]["metadata"]["uid"]
    value["spec"]["containers"][0]["command"][-1] = "echo second; exec sleep 100000"
    document = json.dumps(value).encode()
    shop.kubectl("replace", "--force", "--grace-period=0", "-f", "-", stdin=document).check()

    def is_new() -> bool:
        found = shop.find("pods", "web")
        return found is not None and found["metadata"]["uid"] != first

    shop.wait("another pod of that name", is_new)
    shop.wait_running("app=web")
    assert shop.kubectl("logs", "web").check().text == "second\n"


def test_namespace_ends_on_both_sides(shops: tuple[Shop, Shop]) -> None:
    one, other = shops
    for shop in shops:
        shop.apply(
            deployment("web", pod_spec()),
            service("web", "web", 80),
            object_of("v1", "ConfigMap", "settings", data={"a": "b"}),
        )
    for shop in shops:
        shop.wait_running("app=web")
    one.kubectl("delete", "namespace", one.namespace, "--wait=false").check()
    one.wait("the tenant's is gone", lambda: not _has_namespace(one, one.namespace))
    one.wait("the super cluster's is gone", lambda: not _has_super_namespace(one))
    # The other tenant's of the same name is as it was.
    other.wait_running("app=web")
    assert _has_super_namespace(other)


def test_namespace_comes_again_under_its_name(shop: Shop) -> None:
    shop.apply(deployment("web", pod_spec()))
    shop.wait_running("app=web")
    shop.kubectl("delete", "namespace", shop.namespace, "--wait=false").check()
    shop.wait("the tenant's is gone", lambda: not _has_namespace(shop, shop.namespace))
    shop.create()
    shop.apply(deployment("web", pod_spec()))
    shop.wait_running("app=web")
    below = shop.super_api.get(f"/api/v1/namespaces/{shop.super_namespace}")["metadata"]
    above = shop.api.get(f"/api/v1/namespaces/{shop.namespace}")["metadata"]
    assert below["annotations"][keys.UID] == above["uid"]


def test_namespace_below_is_annotated_as_upstream_does(shop: Shop) -> None:
    shop.wait("it is below", lambda: _has_super_namespace(shop))
    annotations = shop.super_api.get(f"/api/v1/namespaces/{shop.super_namespace}")["metadata"]["annotations"]
    expected = {keys.CLUSTER: shop.tenant.key, keys.NAMESPACE: shop.namespace}
    assert expected.items() <= annotations.items()
    assert annotations[keys.VC_NAME] in ("acme", "acme-x")


def test_foreign_edit_below_is_repaired(shop: Shop) -> None:
    shop.apply(object_of("v1", "ConfigMap", "settings", data={"word": "own"}))
    shop.wait("it is below", lambda: shop.in_super("configmaps", "settings") is not None)
    path = f"/api/v1/namespaces/{shop.super_namespace}/configmaps/settings"
    shop.super_api.patch(path, {"data": {"word": "foreign", "more": "x"}})
    shop.wait("it is repaired", lambda: shop.super_api.get(path)["data"] == {"word": "own"})
    shop.super_api.delete(path)
    shop.wait("it is there again", lambda: shop.in_super("configmaps", "settings") is not None)


def _has_namespace(shop: Shop, name: str) -> bool:
    return shop.api.endpoint.request("GET", f"/api/v1/namespaces/{name}").status == 200


def _has_super_namespace(shop: Shop) -> bool:
    path = f"/api/v1/namespaces/{shop.super_namespace}"
    return shop.super_api.endpoint.request("GET", path).status == 200
