# SPDX-License-Identifier: Apache-2.0
"""What runs in the super cluster, as it is shipped: images in containerd, kustomize bases and the Helm chart
applied to an apiserver, the Deployments' pods, and the webhook called by that apiserver."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from dns_webhook.registration import NAME, PATH, split
from tests.k8s.ring import gate_networks, manifests, services, webhook, webhook_pods
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.controlplane import Apiserver
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.shipped import PACKAGING, ROOT
from tests.k8s.ring.tenants import RingTenant

# Its first test waits for the ring, the images and all pods.
pytestmark = pytest.mark.timeout(400)

_AVAILABLE_S = 90.0
_REPLICAS = 2
_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{webhook.NAMESPACE}/deployments"


@dataclass(frozen=True, slots=True)
class Deployed:
    """The Deployment, and the apiserver that calls its pods."""

    apiserver: Apiserver
    kubectl: Kubectl
    server: str
    node_kubectl: Kubectl
    """At the apiserver that kubelets know."""
    images: manifests.Images

    def deployment(self, name: str = webhook.SERVICE) -> JsonObject:
        found: JsonObject = self.apiserver.api.get(f"{_DEPLOYMENTS}/{name}")
        return found

    def status(self, name: str = webhook.SERVICE) -> JsonObject:
        found: JsonObject = self.deployment(name).get("status", {})
        return found

    def pods(self, app: str = webhook.SERVICE) -> list[JsonObject]:
        path = f"/api/v1/namespaces/{webhook.NAMESPACE}/pods?labelSelector=app%3D{app}"
        found: list[JsonObject] = self.apiserver.api.get(path)["items"]
        return found

    def is_available(self, name: str = webhook.SERVICE, replicas: int = _REPLICAS) -> bool:
        return bool(self.status(name).get("availableReplicas") == replicas)

    def is_all_available(self) -> bool:
        return (
            self.is_available()
            and self.is_available(manifests.SYNCER, 1)
            and self.is_available(manifests.OPERATOR)
        )

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
        for package in ("dns_webhook", "dnsconfig", "daemonkit", "tenancy", "syncer", "tenant_operator")
        for path in (ROOT / package).rglob("*.py")
    ]
    if not launcher.exists() or launcher.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        pytest.skip("the images need what packages install: make build/tree/bin/vn-agent")
    return made


@pytest.fixture(scope="module")
def images(ring: Ring, tree: Path) -> manifests.Images:
    return manifests.build_images(tree, ring.directory / "images")


@pytest.fixture(scope="module")
def deployed(ring: Ring, acme: RingTenant, images: manifests.Images) -> Iterator[Deployed]:
    gate_networks.install(ring.super_cluster.api)
    with (
        webhook_pods.pod_apiserver(ring) as apiserver,
        gate_networks.network(ring, acme, "red", "10.88.0.1") as red,
        webhook_pods.deployed(ring, apiserver, images) as kubectl,
    ):
        at_node = replace(ring.super_kubectl, namespace=webhook.NAMESPACE)
        made = Deployed(apiserver, kubectl, red.address, at_node, images)
        try:
            wait_for("all pods are available", made.is_all_available, timeout_s=_AVAILABLE_S)
        except RingError as error:
            found = []
            for name in (webhook.SERVICE, manifests.SYNCER, manifests.OPERATOR):
                log = made.node_kubectl("logs", "--selector", f"app={name}", "--tail=20")
                states = [pod["status"] for pod in made.pods(name)]
                found.append(f"{made.status(name)} {states} {log.text}{log.error_text}")
            raise RingError(f"{error}: {found}") from None
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
    words = ("/usr/bin/python3.11", "-ISc", "import os; print(os.getuid())")
    result = deployed.node_kubectl("exec", pods[0]["metadata"]["name"], "--", *words).check()
    assert result.text.strip() == "65534"


@pytest.mark.parametrize("app", [webhook.SERVICE, manifests.SYNCER, manifests.OPERATOR])
def test_pods_run_the_images_by_digest(deployed: Deployed, app: str) -> None:
    for pod in deployed.pods(app):
        (container,) = pod["spec"]["containers"]
        assert container["image"].endswith(f"/vcnode-{app}@{deployed.images.digests[f'vcnode-{app}']}")


def test_syncer_has_no_problem_with_its_shipped_rights(deployed: Deployed) -> None:
    (pod,) = deployed.pods(manifests.SYNCER)
    words = ("vcnode", "status", "--address", "127.0.0.1:10551", "-o", "json")
    result = deployed.node_kubectl("exec", pod["metadata"]["name"], "--", *words).check()
    (item,) = json.loads(result.text)["items"]
    assert item["isReady"] is True, result.text


def test_one_of_both_operators_holds_the_lease(deployed: Deployed) -> None:
    """By its shipped rights, and both are ready: one that waits could work at once."""
    pods = deployed.pods(manifests.OPERATOR)
    for pod in pods:
        words = ("vcnode", "status", "--address", "127.0.0.1:10552", "-o", "json")
        result = deployed.node_kubectl("exec", pod["metadata"]["name"], "--", *words).check()
        (item,) = json.loads(result.text)["items"]
        assert item["isReady"] is True, result.text
    lease = deployed.apiserver.api.get(
        f"/apis/coordination.k8s.io/v1/namespaces/{webhook.NAMESPACE}/leases/{manifests.OPERATOR}"
    )
    holder = lease["spec"]["holderIdentity"]
    assert [pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"] in holder], holder


def test_chart_is_clean(ring: Ring) -> None:
    manifests.helm_lint(ring.binaries["helm"])


def test_images_of_one_tree_have_one_digest(deployed: Deployed, tree: Path, tmp_path: Path) -> None:
    assert manifests.build_images(tree, tmp_path / "again").digests == deployed.images.digests


def test_chart_and_base_agree_about_cert_manager(ring: Ring, tmp_path: Path) -> None:
    """cert-manager itself is not here: what both render is compared, not applied."""
    base = PACKAGING / "webhook-cert-manager"
    expected = _by_name(manifests.kustomize(ring.binaries["kubectl"], base))
    values = {
        "webhook": {"certManager": {"enabled": True}},
        "syncer": {"enabled": False},
        "crds": {"networks": False, "syncPolicies": False},
        "nodes": {"kataBridge": False, "kubeproxyExt": False, "dnsconfig": False},
    }
    rendered = manifests.helm_template(ring.binaries["helm"], values, tmp_path, webhook.NAMESPACE)
    assert _by_name(rendered) == expected
    role = expected["ClusterRole", "vcnode:dnsconfig-webhook"]
    assert not [rule for rule in role["rules"] if "patch" in rule["verbs"]]


def _by_name(text: str) -> dict[tuple[str, str], JsonObject]:
    """All objects, without what a release of Helm adds: labels, and the image with its tag."""
    found: dict[tuple[str, str], JsonObject] = {}
    for value in filter(None, yaml.safe_load_all(text)):
        value["metadata"].pop("labels", None)
        if value["kind"] == "Deployment":
            pod = value["spec"]["template"]["spec"]
            pod["volumes"].sort(key=lambda each: each["name"])
            for key in ("image", "imagePullPolicy"):
                pod["containers"][0].pop(key, None)
        found[value["kind"], value["metadata"]["name"]] = value
    return found


def test_chart_applies_what_kustomize_applied(ring: Ring, deployed: Deployed, tmp_path: Path) -> None:
    """For good, over the objects of kustomize: no Deployment gets another generation, no pod ends."""
    endpoint = ring.super_cluster.api.endpoint
    values = manifests.helm_values(deployed.images, endpoint.address, endpoint.port)
    values["nodes"] = {"names": [ring.node.name], "vnAgent": {"pods": True, "tenants": True}}
    text = manifests.helm_template(ring.binaries["helm"], values, tmp_path, webhook.NAMESPACE)
    names = (webhook.SERVICE, manifests.SYNCER, manifests.OPERATOR)
    before = {name: deployed.deployment(name)["metadata"]["generation"] for name in names}
    webhook_pods.apply(deployed.kubectl, text, "--dry-run=server")
    try:
        webhook_pods.apply(deployed.kubectl, text)
    finally:
        # Rights of a group that other modules expect without them.
        for option in ("vn-agent-pods", "vn-agent-tenants"):
            file = PACKAGING / "rbac" / "options" / f"{option}.yaml"
            deployed.kubectl("delete", "--ignore-not-found", "-f", str(file)).check()
    assert {name: deployed.deployment(name)["metadata"]["generation"] for name in names} == before
    for name in names:
        labels = deployed.deployment(name)["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "vcnode"
    assert deployed.is_all_available()


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
