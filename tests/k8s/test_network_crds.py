# SPDX-License-Identifier: Apache-2.0
"""The shipped definitions of Networks on real apiservers: a tenant's own, and the super cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.ring import gate_networks
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import RingTenant

_SHIPPED = Path(__file__).resolve().parents[2] / "packaging" / "crds"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUP = "arktos.futurewei.com/v1"
_NAME = "networks.arktos.futurewei.com"
_SERVED_S = 30.0


@pytest.fixture(scope="module")
def tenant_api(acme: RingTenant) -> Iterator[KubernetesApi]:
    """A tenant's own apiserver with the shipped definition."""
    api = acme.api
    api.create(_CRDS, yaml.safe_load((_SHIPPED / "networks-tenant.yaml").read_text()))
    try:
        wait_for("Networks are served", lambda: _is_served(api), timeout_s=_SERVED_S)
        yield api
    finally:
        api.delete(f"{_CRDS}/{_NAME}")


@pytest.fixture(scope="module", params=["tenant", "super"])
def target(request: pytest.FixtureRequest, ring: Ring, acme: RingTenant) -> tuple[KubernetesApi, str]:
    """An apiserver, and where Networks are in it."""
    if request.param == "tenant":
        return request.getfixturevalue("tenant_api"), f"/apis/{_GROUP}/networks"
    gate_networks.install(ring.super_cluster.api)
    ring.syncer.create_namespace(acme, "kube-system")
    namespace = acme.super_namespace("kube-system")
    return ring.super_cluster.api, f"/apis/{_GROUP}/namespaces/{namespace}/networks"


def test_the_definition_is_structural_and_accepted(tenant_api: KubernetesApi) -> None:
    definition = tenant_api.get(f"{_CRDS}/{_NAME}")
    conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert "NonStructuralSchema" not in conditions
    assert definition["spec"]["scope"] == "Cluster"
    resources = tenant_api.get(f"/apis/{_GROUP}")["resources"]
    assert {each["name"]: each["namespaced"] for each in resources} == {
        "networks": False,
        "networks/status": False,
    }


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "flat"},
        {"type": "vpc", "vpcID": "vpc-1"},
        {"type": "mizar", "service": {"ipam": "Arktos", "cidrs": ["10.0.0.0/8", "192.168.0.0/16"]}},
        {"type": "vpc", "service": {"ipam": "External"}},
        {"type": "vpc", "service": {"ipam": "Kubernetes", "cidrs": []}},
        {"type": "vpc", "service": {"cidrs": ["fd00:10:96::/112", "10.0.0.0/8", "::/0"]}},
    ],
)
def test_good_networks(target: tuple[KubernetesApi, str], spec: JsonObject) -> None:
    api, path = target
    made = api.create(f"{path}?dryRun=All&fieldValidation=Strict", _network("good", spec))
    assert made["spec"] == spec


@pytest.mark.parametrize("name", ["a", "n" * 54, "1", "a-b-1"])
def test_good_names(target: tuple[KubernetesApi, str], name: str) -> None:
    api, path = target
    api.create(f"{path}?dryRun=All", _network(name, {"type": "flat"}))


@pytest.mark.parametrize("name", ["n" * 55, "a.b", "A", "a_b", "-a", "a-", "", "n" * 254])
def test_bad_names(target: tuple[KubernetesApi, str], name: str) -> None:
    """Each needs a Service kube-dns-<name>; a name that cannot be one could never have its own server."""
    api, path = target
    with pytest.raises(RingError, match=r": 422 .*name"):
        api.create(f"{path}?dryRun=All", _network(name, {"type": "flat"}))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "spec: Required value"),
        ({}, "spec.type: Required value"),
        ({"type": ""}, "spec.type"),
        ({"type": 7}, "spec.type"),
        ({"type": ["flat"]}, "spec.type"),
        ({"type": "vpc", "vpcID": 7}, "spec.vpcID"),
        ({"type": "vpc", "service": {"ipam": "arktos"}}, "spec.service.ipam: Unsupported value"),
        ({"type": "vpc", "service": {"ipam": ""}}, "spec.service.ipam: Unsupported value"),
        ({"type": "vpc", "service": {"cidrs": ["10.0.0.0"]}}, r"spec.service.cidrs\[0\]"),
        ({"type": "vpc", "service": {"cidrs": ["10.0.0.0/33"]}}, r"spec.service.cidrs\[0\]"),
        ({"type": "vpc", "service": {"cidrs": ["10.0.0.0/8", "fd00::/129"]}}, r"spec.service.cidrs\[1\]"),
        ({"type": "vpc", "service": {"cidrs": ["fd00::"]}}, r"spec.service.cidrs\[0\]"),
        ({"type": "vpc", "service": {"cidrs": ["fd00/64"]}}, r"spec.service.cidrs\[0\]"),
        ({"type": "vpc", "service": {"cidrs": ["10.0.0.0/8\n"]}}, r"spec.service.cidrs\[0\]"),
        ({"type": "vpc", "service": {"cidrs": ["10.0.0.0/8"] * 9}}, "spec.service.cidrs: Too many"),
        ({"type": "vpc", "service": {"cidrs": "10.0.0.0/8"}}, "spec.service.cidrs"),
        ({"type": "flat", "cidrs": []}, "unknown field .*spec.cidrs"),
    ],
)
def test_bad_networks(target: tuple[KubernetesApi, str], spec: Any, words: str) -> None:
    api, path = target
    value = _network("bad", spec)
    if spec is None:
        del value["spec"]
    with pytest.raises(RingError, match=f": (422|400) .*{words}"):
        api.create(f"{path}?dryRun=All&fieldValidation=Strict", value)


def test_status_is_written_by_its_subresource_alone(target: tuple[KubernetesApi, str]) -> None:
    api, path = target
    ready = {"phase": "Ready", "dnsServiceIP": "10.96.0.53"}
    value = _network("status-alone", {"type": "flat"})
    one = f"{path}/status-alone"
    try:
        # The right to create a Network does not include its status.
        assert "status" not in api.create(path, {**value, "status": ready})
        assert "status" not in api.patch(one, {"status": ready})
        assert api.patch(f"{one}/status", {"status": ready})["status"] == ready
        # The right to write the status does not include the spec.
        changed = api.patch(f"{one}/status", {"spec": {"type": "vpc"}, "status": {"message": "x"}})
        assert (changed["spec"], changed["status"]) == ({"type": "flat"}, {**ready, "message": "x"})
        assert api.patch(one, {"spec": {"vpcID": "v"}})["status"] == {**ready, "message": "x"}
        for phase in ("ready", "", 7, None):
            if phase is not None:
                with pytest.raises(RingError, match=r": 422 .*status.phase"):
                    api.patch(f"{one}/status", {"status": {"phase": phase}})
        for phase in ("Pending", "Failed", "Unknown", "Terminating"):
            api.patch(f"{one}/status", {"status": {"phase": phase}})
    finally:
        api.delete(one)


def test_kubectl_columns(tenant_api: KubernetesApi, acme: RingTenant) -> None:
    tenant_api.create(f"/apis/{_GROUP}/networks", _network("shown", {"type": "vpc", "vpcID": "vpc-9"}))
    try:
        status = {"status": {"phase": "Ready", "dnsServiceIP": "10.96.0.53"}}
        tenant_api.patch(f"/apis/{_GROUP}/networks/shown/status", status)
        for short in ("networks", "network", "net", "ne"):
            head, row = acme.kubectl("get", short).check().text.splitlines()
            assert head.split() == ["NAME", "TYPE", "VPC", "PHASE", "DNS"]
            assert row.split() == ["shown", "vpc", "vpc-9", "Ready", "10.96.0.53"]
    finally:
        tenant_api.delete(f"/apis/{_GROUP}/networks/shown")


def _network(name: str, spec: Any) -> JsonObject:
    return {"apiVersion": _GROUP, "kind": "Network", "metadata": {"name": name}, "spec": spec}


def _is_served(api: KubernetesApi) -> bool:
    try:
        api.get(f"/apis/{_GROUP}/networks")
    except RingError:
        return False
    return True
