# SPDX-License-Identifier: Apache-2.0
"""A load balancer's controller and admission of the super cluster write into a tenant's Service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.syncer import policies
from tests.k8s.syncer.shops import Shop, object_of, service

pytestmark = pytest.mark.timeout(300)

_ADMISSION = "/apis/admissionregistration.k8s.io/v1beta1"
_NAME = "class-of-load-balancers"
_CLASS = "kube-vip.io/kube-vip-class"
_ADDRESS = "192.0.2.7"
_ADDRESS_KEY = "kube-vip.io/loadbalancerIPs"
# As k8s.io/cloud-provider's and MetalLB's controllers hold it.
_CLEANUP = "service.kubernetes.io/load-balancer-cleanup"
_ALLOWED = {"types": ["ClusterIP", "LoadBalancer"]}


@pytest.fixture
def classed(shop: Shop) -> Iterator[Shop]:
    """A namespace below where admission gives each load balancer a class."""
    shop.wait("its namespace is below", lambda: _is_below(shop))
    mutation = {"expression": f"Object{{spec: Object.spec{{loadBalancerClass: '{_CLASS}'}}}}"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "type", "expression": "object.spec.type == 'LoadBalancer'"}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": mutation}],
    }
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": shop.super_namespace}}}
    made = {
        "mutatingadmissionpolicies": ("MutatingAdmissionPolicy", spec),
        "mutatingadmissionpolicybindings": (
            "MutatingAdmissionPolicyBinding",
            {"policyName": _NAME, "matchResources": where},
        ),
    }
    api = shop.super_api
    try:
        for resource, (kind, content) in made.items():
            value = object_of("admissionregistration.k8s.io/v1beta1", kind, _NAME, spec=content)
            api.create(f"{_ADMISSION}/{resource}", value)
        # An API server enforces a policy a moment after it is made.
        shop.wait("admission works", lambda: _class_of(_tried(shop)) == _CLASS)
        yield shop
    finally:
        for resource in made:
            api.delete(f"{_ADMISSION}/{resource}/{_NAME}")


def test_what_the_super_cluster_writes_into_a_service_stays(classed: Shop) -> None:
    """A tenant's change takes away its own keys alone, nobody writes again and again, and status comes up."""
    shop = classed
    with policies.applied(shop.super_api, services=_ALLOWED):
        made = _service()
        made["metadata"]["labels"] = {"own": "x", "late": "y"}
        shop.apply(made)
        shop.wait("it is below", lambda: shop.in_super("services", "web") is not None)
        _write_as_controller(shop)
        shop.wait("its status is above", lambda: _ingress_of(shop.get("services", "web")) == [_ADDRESS])
        shop.kubectl("label", "service", "web", "late-").check()
        shop.wait("the tenant's label is gone", lambda: "late" not in _below(shop)["metadata"]["labels"])
        found = _below(shop)
        assert found["metadata"]["labels"].items() >= {"own": "x", "implementation": "kube-vip"}.items()
        assert found["metadata"]["annotations"][_ADDRESS_KEY] == _ADDRESS
        assert (found["spec"]["loadBalancerIP"], _class_of(found)) == (_ADDRESS, _CLASS)
        # What the super cluster's controllers write is theirs: of it the status alone comes up.
        above = shop.get("services", "web")
        assert above["metadata"]["labels"] == {"own": "x"}
        assert _ADDRESS_KEY not in above["metadata"]["annotations"]
        assert "loadBalancerIP" not in above["spec"]
        _check_quiet(shop)
        _check_removal(shop)


def _check_quiet(shop: Shop) -> None:
    """By the time that later objects of the tenant have gone down, nobody has written the Service again."""
    before = (_below(shop)["metadata"]["resourceVersion"], shop.get("services", "web")["metadata"])
    for number in range(3):
        name = f"later-{number}"
        shop.apply(object_of("v1", "ConfigMap", name, data={"a": "b"}))
        shop.wait("a later object is below", partial(shop.in_super, "configmaps", name))
    after = (_below(shop)["metadata"]["resourceVersion"], shop.get("services", "web")["metadata"])
    assert after == before


def _check_removal(shop: Shop) -> None:
    """The controller has the time that it wants for its own removal."""
    shop.kubectl("delete", "service", "web").check()
    shop.wait("its deletion is below", lambda: "deletionTimestamp" in _below(shop)["metadata"])
    _controller(shop).patch(_path(shop), {"metadata": {"finalizers": None}})
    shop.wait_gone("services", "web")


def _write_as_controller(shop: Shop) -> None:
    api = _controller(shop)
    metadata = {
        "labels": {"implementation": "kube-vip"},
        "annotations": {_ADDRESS_KEY: _ADDRESS},
        "finalizers": [_CLEANUP],
    }
    api.patch(_path(shop), {"metadata": metadata, "spec": {"loadBalancerIP": _ADDRESS}})
    api.patch(f"{_path(shop)}/status", {"status": {"loadBalancer": {"ingress": [{"ip": _ADDRESS}]}}})


def _controller(shop: Shop) -> KubernetesApi:
    """The super cluster, whose API server records this writer by its name."""
    return replace(shop.super_api, headers={"User-Agent": "kube-vip/v1.0.0"})


def _path(shop: Shop) -> str:
    return f"/api/v1/namespaces/{shop.super_namespace}/services/web"


def _service() -> JsonObject:
    return service("web", "web", 80, type="LoadBalancer", allocateLoadBalancerNodePorts=False)


def _below(shop: Shop) -> JsonObject:
    found = shop.in_super("services", "web")
    assert found is not None
    return found


def _is_below(shop: Shop) -> bool:
    path = f"/api/v1/namespaces/{shop.super_namespace}"
    return shop.super_api.endpoint.request("GET", path).status == 200


def _tried(shop: Shop) -> JsonObject:
    """What a load balancer would be below."""
    return shop.super_api.create(f"{_path(shop).rpartition('/')[0]}?dryRun=All", _service())


def _class_of(found: JsonObject) -> str:
    return str(found["spec"].get("loadBalancerClass", ""))


def _ingress_of(found: JsonObject) -> list[str]:
    entries = found.get("status", {}).get("loadBalancer", {}).get("ingress", [])
    return [str(each.get("ip")) for each in entries]
