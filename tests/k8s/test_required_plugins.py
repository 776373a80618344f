# SPDX-License-Identifier: Apache-2.0
"""packaging/gate/required-plugins.yaml: every tenant's pod demands kata-bridge, and cannot take that back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tenancy import keys
from tests.k8s.ring import gating, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.shipped import ROOT
from tests.k8s.ring.tenants import Tenant

_FILE = ROOT / "packaging" / "gate" / "required-plugins.yaml"
_KEY = "required-plugins.noderesource.dev"
_OWN = {f"{_KEY}/container.main": "[]", f"{_KEY}/pod": "[]", _KEY: "[]", "mine": "kept"}


@pytest.fixture(scope="module")
def policy(ring: Ring, acme: Tenant) -> Iterator[None]:
    """Applied as the README says; gone afterwards, as no kata-bridge runs for other tests' pods."""
    kubectl = replace(ring.super_kubectl, namespace="default")
    kubectl("apply", "--validate=strict", "-f", str(_FILE)).check()
    try:
        # An apiserver enforces a policy a moment after it is made.
        wait_for("the policy works", lambda: _KEY in _dry_run(ring, acme, {})["annotations"], timeout_s=20)
        yield
    finally:
        kubectl("delete", "-f", str(_FILE)).check()
        wait_for(
            "the policy is gone", lambda: _KEY not in _dry_run(ring, acme, {})["annotations"], timeout_s=20
        )


@pytest.mark.usefixtures("policy")
def test_tenants_pod_demands_the_plugin_whatever_it_says(ring: Ring, acme: Tenant) -> None:
    found = _dry_run(ring, acme, _OWN)["annotations"]
    assert {key: value for key, value in found.items() if key.startswith(_KEY)} == gating.REQUIRED
    assert found["mine"] == "kept"


@pytest.mark.usefixtures("policy")
def test_pod_of_no_tenant_is_left_alone(ring: Ring, acme: Tenant) -> None:
    found = _dry_run(ring, acme, _OWN, is_tenants=False)["annotations"]
    assert found == _OWN


@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("gate", ["warn", "off"])
def test_namespace_whose_gate_holds_nothing_is_left_alone(ring: Ring, acme: Tenant, gate: str) -> None:
    api, namespace = ring.super_cluster.api, f"{acme.key}-{gate}"
    metadata = {"name": namespace, "labels": {"vcnode.io/gate": gate}}
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    try:
        assert _dry_run(ring, acme, {}, namespace=namespace)["annotations"].keys() == {
            keys.CLUSTER,
            keys.NAMESPACE,
            keys.UID,
        }
    finally:
        api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.mark.usefixtures("policy")
def test_demand_cannot_be_taken_away_later(ring: Ring, acme: Tenant) -> None:
    with services.pod(ring, acme, "", services.sleeper()) as pod:
        changed = ring.super_cluster.api.patch(
            pod.path, {"metadata": {"annotations": {_KEY: None, f"{_KEY}/pod": "[]"}}}
        )
    found = changed["metadata"]["annotations"]
    assert {key: value for key, value in found.items() if key.startswith(_KEY)} == gating.REQUIRED


@pytest.mark.usefixtures("policy")
def test_nudge_of_an_older_pod_is_let_in(ring: Ring, acme: Tenant) -> None:
    """A pod from before the policy has no demand, and kata-bridge may write none."""
    gating.allow_bridge(ring)
    api, namespace = ring.super_cluster.api, f"{acme.key}-before"
    metadata = {"name": namespace, "labels": {"vcnode.io/gate": "off"}}
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    path = f"/api/v1/namespaces/{namespace}"
    try:
        pod = services.pod_value(acme, "old", ring.node.name, "", services.sleeper())
        api.create(f"{path}/pods", pod)
        api.patch(path, {"metadata": {"labels": {"vcnode.io/gate": None}}})
        nudge = {"metadata": {"annotations": {"vcnode.io/gate-opened": "2027-01-01T00:00:00Z"}}}
        made = gating.as_bridge(ring).patch(f"{path}/pods/old", nudge)
        assert "vcnode.io/gate-opened" in made["metadata"]["annotations"]
        assert _KEY not in made["metadata"]["annotations"]
    finally:
        api.delete(f"{path}/pods/old")
        api.delete(path)


def _dry_run(
    ring: Ring, tenant: Tenant, annotations: dict[str, str], *, namespace: str = "", is_tenants: bool = True
) -> JsonObject:
    """The metadata of a pod as the apiserver would take it."""
    where = namespace or tenant.super_namespace("default")
    value = services.pod_value(tenant, "any", ring.node.name, "", services.sleeper())
    if not is_tenants:
        value["metadata"]["annotations"] = {}
    value["metadata"]["annotations"] |= annotations
    made = ring.super_cluster.api.create(f"/api/v1/namespaces/{where}/pods?dryRun=All", value)
    found: JsonObject = {"annotations": {}} | made["metadata"]
    return found
