# SPDX-License-Identifier: Apache-2.0
"""packaging/webhook as it is shipped: an image in containerd, a Deployment's pods, called by an apiserver."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dns_webhook.registration import NAME, PATH, split
from tests.k8s.ring import gate_networks, services, webhook, webhook_pods
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.controlplane import Apiserver
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.shipped import ROOT
from tests.k8s.ring.tenants import RingTenant

_AVAILABLE_S = 90.0
_REPLICAS = 2
_DEPLOYMENT = f"/apis/apps/v1/namespaces/{webhook.NAMESPACE}/deployments/{webhook.SERVICE}"


@dataclass(frozen=True, slots=True)
class Deployed:
    """The Deployment, and the apiserver that calls its pods."""

    apiserver: Apiserver
    kubectl: Kubectl
    server: str
    node_kubectl: Kubectl
    """At the apiserver that kubelets know."""

    def status(self) -> JsonObject:
        found: JsonObject = self.apiserver.api.get(_DEPLOYMENT).get("status", {})
        return found

    def pods(self) -> list[JsonObject]:
        found: list[JsonObject] = self.apiserver.api.get(f"/api/v1/namespaces/{webhook.NAMESPACE}/pods")[
            "items"
        ]
        return found

    def is_available(self) -> bool:
        return bool(self.status().get("availableReplicas") == _REPLICAS)

    def create(self, ring: Ring, tenant: RingTenant, network: str) -> JsonObject:
        """A tenant's pod of a network, as a dry run by the apiserver; raises `RingError`."""
        value = services.pod_value(tenant, "any", ring.node.name, "", services.sleeper(), network)
        namespace = tenant.super_namespace("default")
        made = self.apiserver.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", value)
        found: JsonObject = made["spec"]
        return found


@pytest.fixture(scope="module")
def tree() -> Path:
    """The installed tree, which `make k8s` builds."""
    made = ROOT / "build" / "tree"
    launcher = made / "bin" / webhook.SERVICE
    sources = [
        path
        for package in ("dns_webhook", "dnsconfig", "daemonkit", "tenancy")
        for path in (ROOT / package).rglob("*.py")
    ]
    if not launcher.exists() or launcher.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        pytest.skip("the webhook's image needs what packages install: make build/tree/bin/vn-agent")
    return made


@pytest.fixture(scope="module")
def deployed(ring: Ring, acme: RingTenant, tree: Path) -> Iterator[Deployed]:
    gate_networks.install(ring.super_cluster.api)
    with (
        webhook_pods.pod_apiserver(ring) as apiserver,
        gate_networks.network(ring, acme, "red", "10.88.0.1") as red,
        webhook_pods.deployed(ring, apiserver, tree) as kubectl,
    ):
        at_node = replace(ring.super_kubectl, namespace=webhook.NAMESPACE)
        made = Deployed(apiserver, kubectl, red.address, at_node)
        try:
            wait_for("the webhook's pods are available", made.is_available, timeout_s=_AVAILABLE_S)
        except RingError as error:
            log = made.node_kubectl("logs", "--selector", f"app={webhook.SERVICE}", "--tail=20")
            states = [pod["status"] for pod in made.pods()]
            raise RingError(f"{error}: {made.status()} {states} {log.text}{log.error_text}") from None
        yield made


def test_apiserver_calls_its_pods_for_a_tenants_pod(ring: Ring, acme: RingTenant, deployed: Deployed) -> None:
    spec = deployed.create(ring, acme, "red")
    assert (spec["dnsPolicy"], spec["dnsConfig"]["nameservers"]) == ("None", [deployed.server])
    with pytest.raises(RingError, match=r"no DNS for this pod: .*none"):
        deployed.create(ring, acme, "none")


def test_its_pods_meet_the_namespaces_pod_security_policy(deployed: Deployed) -> None:
    """The namespace enforces the Pod Security Standard `restricted`: they would not be there otherwise."""
    pods = deployed.pods()
    assert len(pods) == _REPLICAS
    for pod in pods:
        (container,) = pod["status"]["containerStatuses"]
        assert (container["ready"], container["restartCount"]) == (True, 0)
    result = deployed.node_kubectl("exec", pods[0]["metadata"]["name"], "--", "id", "-u").check()
    assert result.text.strip() == "65534"


def test_authorities_of_both_replicas_are_in_the_registration(deployed: Deployed) -> None:
    (found,) = deployed.apiserver.api.get(f"{PATH}/{NAME}")["webhooks"]
    assert len(split(base64.b64decode(found["clientConfig"]["caBundle"]))) == _REPLICAS


def test_pod_that_is_made_anew_answers(ring: Ring, acme: RingTenant, deployed: Deployed) -> None:
    """Its keys went with its memory. Not one pod of a tenant is refused meanwhile."""
    gone = deployed.pods()[0]["metadata"]
    deployed.kubectl("delete", "pod", gone["name"], "--wait=false").check()

    def is_back() -> bool:
        assert deployed.create(ring, acme, "red")["dnsPolicy"] == "None"
        uids = {pod["metadata"]["uid"] for pod in deployed.pods()}
        return gone["uid"] not in uids and deployed.is_available()

    wait_for("another pod is available", is_back, timeout_s=_AVAILABLE_S)
