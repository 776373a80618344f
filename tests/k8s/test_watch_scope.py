# SPDX-License-Identifier: Apache-2.0
"""kubeproxy-ext's watches at a real API server, while a tenant grows beyond 24 namespaces and shrinks.

The API server's `apiserver_longrunning_requests` has the number of watches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kubeproxy_ext.cache.watch_scope import MAX_NAMESPACES
from tenancy import keys
from tests.k8s.ring import services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.services import RingService
from tests.k8s.ring.serving import CHANGED_S, KATA, ServingNode, serving, web_address
from tests.k8s.ring.tenants import RingTenant

_VIRTUAL_CLUSTER = {keys.VC_NAME: "acme", keys.VC_NAMESPACE: "tenant-1"}
# A reflector of the super cluster's ends its watch when the new ones have listed.
_SWITCHED_S = 20.0


@pytest.fixture(scope="module")
def node(ring: Ring) -> Iterator[ServingNode]:
    with serving(ring) as made:
        yield made


def _watches(ring: Ring, resource: str) -> tuple[int, int]:
    """How many watches of a namespace, and of the whole cluster, the super API server serves."""
    page = ring.super_cluster.api.endpoint.request("GET", "/metrics").text
    found = {"namespace": 0, "cluster": 0}
    for line in re.findall(r"^apiserver_longrunning_requests\{.*$", page, re.MULTILINE):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if (labels["resource"], labels["verb"]) == (resource, "WATCH") and labels["scope"] in found:
            found[labels["scope"]] += int(float(line.rpartition(" ")[2]))
    return found["namespace"], found["cluster"]


def _create_namespace(ring: Ring, tenant: RingTenant, name: str, more: dict[str, str]) -> None:
    annotations = {keys.CLUSTER: tenant.key, keys.NAMESPACE: name, **more}
    metadata = {"name": tenant.super_namespace(name), "annotations": annotations}
    value = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    ring.super_cluster.api.create("/api/v1/namespaces", value)


def _delete_namespaces(ring: Ring, names: list[str]) -> None:
    """All of them, and take them off the list. Finalized by hand: no controller of namespaces runs."""
    while names:
        api, path = ring.super_cluster.api, f"/api/v1/namespaces/{names[-1]}"
        api.delete(path)
        metadata = {"name": names[-1]}
        value = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {"finalizers": []}}
        api.put(f"{path}/finalize", value)
        names.pop()


def _annotate(ring: Ring, tenant: RingTenant, values: dict[str, str | None]) -> None:
    """Annotate all namespaces of a tenant with its VirtualCluster."""
    for each in ring.super_cluster.api.get("/api/v1/namespaces")["items"]:
        metadata: JsonObject = each["metadata"]
        if metadata.get("annotations", {}).get(keys.CLUSTER) == tenant.key:
            patch = {"metadata": {"annotations": values}}
            ring.super_cluster.api.patch(f"/api/v1/namespaces/{metadata['name']}", patch)


@pytest.mark.parametrize(
    ("annotations", "cluster_watches"),
    # By the labels of the tenant's VirtualCluster, and one watch of what has no such label.
    [pytest.param({}, 1, id="whole-cluster"), pytest.param(_VIRTUAL_CLUSTER, 2, id="by-labels")],
)
def test_watches_switch_above_24_namespaces_and_back(
    node: ServingNode, acme: RingTenant, annotations: dict[str, str], cluster_watches: int
) -> None:
    """A Service in the last namespace is served, no rule is written again by either switch, and what
    changes after each is followed."""
    ring, kinds = node.ring, ("services", "endpointslices")
    with ExitStack() as stack:
        _annotate(ring, acme, dict(annotations))
        stack.callback(_annotate, ring, acme, dict.fromkeys(annotations))
        pod = stack.enter_context(node.guest(acme, KATA))
        pod.wait("Running")
        sandbox = node.sandbox_of(pod)
        node.wait_current(sandbox.id)
        before = {kind: _watches(ring, kind) for kind in kinds}
        assert all(by_namespace > 0 for by_namespace, _ in before.values())
        rules = node.rules_in(sandbox)

        names = [f"scope-{number:02d}" for number in range(MAX_NAMESPACES + 1)]
        made: list[str] = []
        stack.callback(_delete_namespaces, ring, made)
        for name in names:
            _create_namespace(ring, acme, name, annotations)
            made.append(acme.super_namespace(name))

        def watches(by_namespace: int, more: int) -> bool:
            """Those that other clients have stay."""
            expected = {kind: (by_namespace, before[kind][1] + more) for kind in kinds}
            return {kind: _watches(ring, kind) for kind in kinds} == expected

        wait_for("watches of the cluster", lambda: watches(0, cluster_watches), timeout_s=_SWITCHED_S)
        assert node.rules_in(sandbox) == rules

        last = stack.enter_context(_service_in(node, acme, made[-1]))
        wait_for("the last namespace's", lambda: pod.fetch(last.ip) == "page of acme\n", timeout_s=CHANGED_S)
        assert "refused" in pod.fetch(node.of_acme_x.ip)

        last.delete()
        wait_for("its Service is gone", lambda: last.ip not in node.rules_in(sandbox), timeout_s=CHANGED_S)
        rules = node.rules_in(sandbox)
        _delete_namespaces(ring, made)

        def is_back() -> bool:
            """Not as many as before: those of namespaces that other tests left end meanwhile."""
            found = {kind: _watches(ring, kind) for kind in kinds}
            return all(found[kind][0] > 0 and found[kind][1] == before[kind][1] for kind in kinds)

        wait_for("watches of namespaces", is_back, timeout_s=_SWITCHED_S)
        assert node.rules_in(sandbox) == rules
        with services.service(ring, acme, web_address(ring, acme)) as later:
            wait_for("a later one", lambda: pod.fetch(later.ip) == "page of acme\n", timeout_s=CHANGED_S)


@contextmanager
def _service_in(node: ServingNode, tenant: RingTenant, namespace: str) -> Iterator[RingService]:
    """A Service of the tenant in that super namespace, in front of the tenant's page."""
    name = "last"
    value = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"name": "http", "port": services.PORT, "protocol": "TCP"}]},
    }
    api = node.ring.super_cluster.api
    made = api.create(f"/api/v1/namespaces/{namespace}/services", value)
    found = RingService(api, namespace, name, made["spec"]["clusterIP"])
    try:
        found.lead_to(node.web_address(tenant))
        yield found
    finally:
        found.delete()
