# SPDX-License-Identifier: Apache-2.0
"""packaging/gate/required-plugins.yaml: every tenant's pod requires kata-bridge, and cannot remove that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tenancy import keys
from tests.k8s.ring import gating, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.shipped import ROOT
from tests.k8s.ring.tenants import RingTenant

_FILE = ROOT / "packaging" / "gate" / "required-plugins.yaml"
_KEY = "required-plugins.noderesource.dev"
_OWN = {f"{_KEY}/container.main": "[]", f"{_KEY}/pod": "[]", _KEY: "[]", "mine": "kept"}


@pytest.fixture(scope="module")
def older_pod(ring: Ring, acme: RingTenant) -> Iterator[str]:
    """The path of a tenant's pod that is older than the policy."""
    with _namespace(ring, f"{acme.key}-before", {}) as path:
        pod = services.pod_value(acme, "old", ring.node.name, "", services.sleeper())
        ring.super_cluster.api.create(f"{path}/pods", pod)
        try:
            yield f"{path}/pods/old"
        finally:
            ring.super_cluster.api.delete(f"{path}/pods/old")


@pytest.fixture(scope="module")
def policy(
    ring: Ring, acme: RingTenant, older_pod: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Applied as in the README, without one namespace by its name; deleted afterwards, as no kata-bridge
    runs for other tests' pods."""
    assert older_pod
    kubectl = replace(ring.super_kubectl, namespace="default")
    text = _FILE.read_text(encoding="utf-8")
    file = tmp_path_factory.mktemp("gate") / _FILE.name
    file.write_text(text.replace("values: [kube-system]", f"values: [kube-system, {_left_out(acme)}]"))
    kubectl("apply", "--validate=strict", "-f", str(file)).check()
    try:
        # An apiserver enforces a policy a moment after it is made.
        wait_for("the policy works", lambda: _KEY in _dry_run(ring, acme, {})["annotations"], timeout_s=20)
        yield
    finally:
        kubectl("delete", "-f", str(file)).check()
        wait_for(
            "the policy is gone", lambda: _KEY not in _dry_run(ring, acme, {})["annotations"], timeout_s=20
        )


@pytest.mark.usefixtures("policy")
def test_tenant_pod_requires_the_plugin_whatever_its_spec(ring: Ring, acme: RingTenant) -> None:
    found = _dry_run(ring, acme, _OWN)["annotations"]
    assert {key: value for key, value in found.items() if key.startswith(_KEY)} == gating.REQUIRED
    assert found["mine"] == "kept"


@pytest.mark.usefixtures("policy")
def test_pod_of_no_tenant_is_left_alone(ring: Ring, acme: RingTenant) -> None:
    found = _dry_run(ring, acme, _OWN, is_tenants=False)["annotations"]
    assert found == _OWN


@pytest.mark.usefixtures("policy")
def test_namespace_is_left_out_by_its_name(ring: Ring, acme: RingTenant) -> None:
    with _namespace(ring, _left_out(acme), {}):
        found = _dry_run(ring, acme, {}, namespace=_left_out(acme))["annotations"]
        assert found.keys() == {keys.CLUSTER, keys.NAMESPACE, keys.UID}


@pytest.mark.usefixtures("policy")
def test_namespace_labels_do_not_remove_the_requirement(ring: Ring, acme: RingTenant) -> None:
    """A syncer may copy the labels of tenants' namespaces. The API server writes one of these anew."""
    name = f"{acme.key}-labels"
    labels = {"vcnode.io/gate": "off", "kubernetes.io/metadata.name": _left_out(acme)}
    with _namespace(ring, name, labels):
        assert _KEY in _dry_run(ring, acme, {}, namespace=name)["annotations"]


@pytest.mark.usefixtures("policy")
def test_requirement_cannot_be_removed_later(ring: Ring, acme: RingTenant) -> None:
    with services.pod(ring, acme, "", services.sleeper()) as pod:
        changed = ring.super_cluster.api.patch(
            pod.path, {"metadata": {"annotations": {_KEY: None, f"{_KEY}/pod": "[]"}}}
        )
    found = changed["metadata"]["annotations"]
    assert {key: value for key, value in found.items() if key.startswith(_KEY)} == gating.REQUIRED


@pytest.mark.usefixtures("policy")
def test_nudge_of_an_older_pod_is_admitted(ring: Ring, older_pod: str) -> None:
    """A pod from before the policy has no requirement, and kata-bridge may write none."""
    gating.allow_bridge(ring)
    nudge = {"metadata": {"annotations": {"vcnode.io/gate-opened": "2027-01-01T00:00:00Z"}}}
    made = gating.as_bridge(ring).patch(older_pod, nudge)
    assert "vcnode.io/gate-opened" in made["metadata"]["annotations"]
    assert _KEY not in made["metadata"]["annotations"]


def _left_out(tenant: RingTenant) -> str:
    return f"{tenant.key}-left-out"


@contextmanager
def _namespace(ring: Ring, name: str, labels: dict[str, str]) -> Iterator[str]:
    """A namespace of the super cluster; its path."""
    api, path = ring.super_cluster.api, f"/api/v1/namespaces/{name}"
    metadata = {"name": name, "labels": labels}
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    try:
        yield path
    finally:
        api.delete(path)


def _dry_run(
    ring: Ring,
    tenant: RingTenant,
    annotations: dict[str, str],
    *,
    namespace: str = "",
    is_tenants: bool = True,
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
