# SPDX-License-Identifier: Apache-2.0
"""The ring is an ordinary Kubernetes on each side, before a syncer joins them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tenancy import keys
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import wait_for
from tests.k8s.syncer import provisioned
from tests.k8s.syncer.cluster import NODES, SyncedRing
from tests.k8s.syncer.shops import agnhost, deployment, pod, pod_spec, service

pytestmark = pytest.mark.timeout(300)

_NAMESPACE = "plain"


@pytest.fixture(scope="module")
def host(synced_ring: SyncedRing) -> Iterator[Kubectl]:
    """The super cluster's kubectl, in a namespace of its own."""
    plain = synced_ring.super_kubectl
    plain("create", "namespace", _NAMESPACE).check()
    yield Kubectl(plain.network, plain.binary, plain.kubeconfig, _NAMESPACE)
    plain("delete", "namespace", _NAMESPACE, "--wait=false").check()


def _apply(kubectl: Kubectl, *values: object) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": list(values)}
    kubectl("apply", "-f", "-", stdin=json.dumps(document).encode()).check()


def test_super_deployment_runs_on_both_nodes(synced_ring: SyncedRing, host: Kubectl) -> None:
    spread = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }
    spec = {"containers": [agnhost("netexec", "--http-port=8080")], "terminationGracePeriodSeconds": 1}
    _apply(
        host,
        deployment("web", {**spec, **spread}, replicas=len(synced_ring.nodes)),
        service("web", "web", 8080),
        pod("client", pod_spec()),
    )
    host("wait", "--for=condition=available", "deployment/web", "--timeout=40s").check()
    host("wait", "--for=condition=ready", "pod/client", "--timeout=40s").check()
    nodes = host("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}").check().text
    assert set(nodes.split()) == set(NODES)
    # The Service leads to pods of both nodes, from a pod of one.
    address = host("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}").check().text
    names: set[str] = set()

    def both() -> bool:
        script = f"printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} 8080 | tail -n 1"
        names.add(host("exec", "client", "--", "sh", "-c", script).text)
        return len(names - {""}) == len(NODES)

    wait_for("both pods answer at the Service", both, timeout_s=40)


def test_super_pod_has_its_accounts_token(host: Kubectl) -> None:
    container = agnhost("inclusterclient", "--poll-interval=1")
    _apply(host, pod("in-cluster", {"containers": [container], "terminationGracePeriodSeconds": 1}))
    host("wait", "--for=condition=ready", "pod/in-cluster", "--timeout=40s").check()
    wait_for("it reaches the apiserver", lambda: "/healthz" in host("logs", "in-cluster").text, timeout_s=30)


def test_tenants_controllers_make_pods_that_wait(synced_ring: SyncedRing) -> None:
    both = [replace(tenant.kubectl, namespace=_NAMESPACE) for tenant in synced_ring.tenants]
    for kubectl in both:
        kubectl("create", "namespace", _NAMESPACE).check()
        _apply(kubectl, deployment("web", pod_spec()))

    def have_pods() -> bool:
        return all("web-" in kubectl("get", "pods", "-o", "name").text for kubectl in both)

    wait_for("a pod in each tenant", have_pods, timeout_s=30)
    for kubectl in both:
        kubectl("delete", "namespace", _NAMESPACE, "--wait=false").check()


def test_both_tenants_are_as_vc_manager_leaves_them(synced_ring: SyncedRing) -> None:
    api = synced_ring.super_cluster.api
    for tenant in synced_ring.tenants:
        root = api.get(f"/api/v1/namespaces/{tenant.key}")["metadata"]["annotations"]
        assert root[keys.VC_ROOT_NAMESPACE] == "true"
        secrets = api.get(f"/api/v1/namespaces/{tenant.key}/secrets")["items"]
        names = {secret["metadata"]["name"] for secret in secrets}
        assert {"root-ca", "apiserver-ca", provisioned.ADMIN_KUBECONFIG} <= names


def test_both_agents_serve_both_tenants(synced_ring: SyncedRing) -> None:
    keys_of = sorted(tenant.key for tenant in synced_ring.tenants)

    def are_served() -> bool:
        pages = [node.agent.status("/status")[1] for node in synced_ring.nodes]
        return all(sorted(json.loads(page)["tenants"]) == keys_of for page in pages)

    wait_for("both tenants on all nodes", are_served, timeout_s=20)
