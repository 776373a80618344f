# SPDX-License-Identifier: Apache-2.0
"""The rights of the webhook's account by the shipped role, at a real apiserver with its token."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dns_webhook.registration import NAME, PATH
from tests.k8s.ring import gate_networks, webhook
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant

_JSON_PATCH, _MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_NETWORKS = "/apis/arktos.futurewei.com/v1"
_OWN = f"/api/v1/namespaces/{webhook.NAMESPACE}"
_SERVED_S = 20.0


@pytest.fixture(scope="module")
def account(ring: Ring, acme: RingTenant) -> Iterator[KubernetesApi]:
    """The super cluster with the webhook's token; a network `red` of a tenant is there."""
    gate_networks.install(ring.super_cluster.api)
    with webhook.installed(ring), gate_networks.network(ring, acme, "red", "10.88.0.1"):
        yield webhook.as_itself(ring, webhook.token(ring))


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces",
        "/api/v1/services",
        f"{_NETWORKS}/networks",
        # Not installed here; without the right it would be 403.
        "/apis/tenancy.x-k8s.io/v1alpha1/virtualclusters",
    ],
)
@pytest.mark.parametrize("query", ["?limit=1", "?watch=1&timeoutSeconds=1"])
def test_webhook_may_watch_what_it_reads(account: KubernetesApi, path: str, query: str) -> None:
    assert _status_of(account, "GET", path + query) == (404 if "virtualclusters" in path else 200)


def test_it_may_read_and_patch_its_own_registration(ring: Ring, account: KubernetesApi) -> None:
    assert _status_of(account, "GET", f"{PATH}/{NAME}") == 200
    bundle = base64.b64encode(ring.super_cluster.authority.cert_pem).decode()
    step = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}
    assert _status_of(account, "PATCH", f"{PATH}/{NAME}", [step], _JSON_PATCH) == 200
    assert webhook.registered(ring)["clientConfig"]["caBundle"] == bundle


_ROLE: JsonObject = {"metadata": {"name": "more"}, "rules": []}
_BINDING: JsonObject = {
    "metadata": {"name": "more"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": webhook.SERVICE, "namespace": webhook.NAMESPACE}],
}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        # Its registration: no other verb, no other object, no other kind.
        ("PUT", f"{PATH}/{NAME}", {"metadata": {"name": NAME}}),
        ("DELETE", f"{PATH}/{NAME}", None),
        ("GET", PATH, None),
        ("GET", f"{PATH}?watch=1&timeoutSeconds=1", None),
        ("DELETE", PATH, None),
        ("POST", PATH, {"metadata": {"name": "another"}}),
        ("GET", f"{PATH}/another", None),
        ("PATCH", f"{PATH}/another", {}),
        ("PATCH", f"{_ADMISSION}/validatingwebhookconfigurations/{NAME}", {}),
        ("GET", f"{_ADMISSION}/validatingadmissionpolicies", None),
        # What it follows it does not write, nor read one by one.
        ("GET", "{kube_system}/services/kube-dns-red", None),
        ("PATCH", "{kube_system}/services/kube-dns-red", {"metadata": {"labels": {}}}),
        ("DELETE", "{kube_system}/services/kube-dns-red", None),
        ("POST", "{kube_system}/services", {"metadata": {"name": "kube-dns-blue"}}),
        ("PATCH", "{networks}/red", {}),
        ("PATCH", "{networks}/red/status", {"status": {"dnsServiceIP": "6.6.6.6"}}),
        ("POST", "{networks}", {"metadata": {"name": "blue"}, "spec": {"type": "flat"}}),
        ("DELETE", "{networks}/red", None),
        ("PATCH", "/api/v1/namespaces/kube-system", {"metadata": {"annotations": {}}}),
        ("GET", "/api/v1/namespaces/kube-system", None),
        # It gets tenants' pods in reviews and needs no right to read them.
        ("GET", "/api/v1/pods", None),
        ("POST", "{kube_system}/pods", {"metadata": {"name": "x"}, "spec": {"containers": []}}),
        ("POST", "{kube_system}/pods/x/exec?command=sh", None),
        ("GET", "{kube_system}/pods/x/log", None),
        ("GET", "/api/v1/endpoints", None),
        ("GET", "/api/v1/nodes", None),
        ("POST", "{kube_system}/events", {"metadata": {"name": "x"}}),
        # Secrets, tokens, and more rights: its own namespace is no exception.
        ("GET", "/api/v1/secrets", None),
        ("GET", f"{_OWN}/secrets", None),
        ("GET", f"{_OWN}/configmaps/{webhook.SERVICE}", None),
        ("PATCH", f"{_OWN}/configmaps/{webhook.SERVICE}", {}),
        ("POST", f"{_OWN}/serviceaccounts/{webhook.SERVICE}/token", {"spec": {}}),
        ("PATCH", f"/apis/apps/v1/namespaces/{webhook.NAMESPACE}/deployments/{webhook.SERVICE}", {}),
        ("POST", f"{_RBAC}/clusterroles", _ROLE),
        ("POST", f"{_RBAC}/clusterrolebindings", _BINDING),
        ("PATCH", f"{_RBAC}/clusterroles/vcnode:dnsconfig-webhook", {}),
    ],
)
def test_webhook_may_do_nothing_else(
    account: KubernetesApi, acme: RingTenant, method: str, path: str, body: JsonObject | None
) -> None:
    system = acme.super_namespace("kube-system")
    parts = {
        "kube_system": f"/api/v1/namespaces/{system}",
        "networks": f"{_NETWORKS}/namespaces/{system}/networks",
    }
    kind = _MERGE_PATCH if method == "PATCH" else "application/json"
    assert _status_of(account, method, path.format(**parts), body, kind) == 403


def test_webhook_may_not_impersonate(ring: Ring, account: KubernetesApi) -> None:
    for name, value in (("User", "admin"), ("Group", "system:masters")):
        acting = KubernetesApi(
            account.endpoint,
            {**account.headers, "Impersonate-User": "admin", f"Impersonate-{name}": value},
        )
        assert _status_of(acting, "GET", "/api/v1/namespaces") == 403


def test_webhook_without_its_role_may_nothing(ring: Ring, account: KubernetesApi) -> None:
    """What is allowed above is so by the shipped binding and by nothing else."""
    name = webhook.shipped("rbac.yaml", "ClusterRoleBinding")["metadata"]["name"]
    ring.super_cluster.api.delete(f"{_RBAC}/clusterrolebindings/{name}")
    try:
        wait_for(
            "refused", lambda: _status_of(account, "GET", "/api/v1/namespaces") == 403, timeout_s=_SERVED_S
        )
        assert _status_of(account, "GET", f"{PATH}/{NAME}") == 403
    finally:
        webhook.apply(ring, "rbac.yaml")
    wait_for("allowed", lambda: _status_of(account, "GET", "/api/v1/namespaces") == 200, timeout_s=_SERVED_S)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/webhooks/0/clientConfig/service/namespace", "tenant-shop"),
        ("/webhooks/0/clientConfig/service/path", "/other"),
        ("/webhooks/0/clientConfig/service/port", 444),
        ("/webhooks/0/clientConfig", {"url": "https://192.0.2.1/mutate"}),
        ("/webhooks/0/matchConditions", []),
        ("/webhooks/0/matchConditions/0/expression", "true"),
        ("/webhooks/0/rules/0/resources", ["*/*"]),
        ("/webhooks/0/rules/0/operations/-", "UPDATE"),
        ("/webhooks/0/namespaceSelector", {"matchLabels": {"x": "y"}}),
        ("/webhooks/0/objectSelector", {"matchLabels": {"x": "y"}}),
        ("/webhooks/0/matchPolicy", "Exact"),
        ("/webhooks/0/failurePolicy", "Ignore"),
        ("/webhooks/0/timeoutSeconds", 30),
        ("/webhooks/0/reinvocationPolicy", "Never"),
        ("/webhooks/0/sideEffects", "NoneOnDryRun"),
        ("/webhooks/0/name", "other.vcnode.io"),
        ("/webhooks", []),
        ("/metadata/labels", {"x": "y"}),
        ("/metadata/annotations", {"x": "y"}),
        ("/metadata/finalizers", ["vcnode.io/x"]),
    ],
)
def test_webhook_changes_only_the_bundle_of_its_registration(
    ring: Ring, account: KubernetesApi, path: str, value: object
) -> None:
    wait_for(
        "the policy counts", lambda: _is_denied(account, "/webhooks/0/timeoutSeconds", 7), timeout_s=_SERVED_S
    )
    assert _is_denied(account, path, value)
    # The policy is about this account: others change what they like.
    step = {"op": "add", "path": path, "value": value}
    as_admin = ring.super_cluster.api
    assert _status_of(as_admin, "PATCH", f"{PATH}/{NAME}?dryRun=All", [step], _JSON_PATCH) == 200


def test_it_adds_no_webhook_to_its_registration(ring: Ring, account: KubernetesApi) -> None:
    wait_for("denied", lambda: _is_denied(account, "/webhooks/0/timeoutSeconds", 7), timeout_s=_SERVED_S)
    assert _is_denied(account, "/webhooks/-", {**webhook.registered(ring), "name": "other.vcnode.io"})


def _is_denied(account: KubernetesApi, path: str, value: object) -> bool:
    """Whether the shipped policy, and nothing else, keeps the account from it."""
    step = {"op": "add", "path": path, "value": value}
    reply = account.endpoint.request(
        "PATCH",
        f"{PATH}/{NAME}?dryRun=All",
        body=json.dumps([step]).encode(),
        headers={"Content-Type": _JSON_PATCH, **account.headers},
    )
    return reply.status == 422 and "denied request: the webhook " in reply.text


def _status_of(
    api: KubernetesApi, method: str, path: str, body: Any = None, kind: str = "application/json"
) -> int:
    """The status of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": kind, **api.headers}
    return api.endpoint.request(method, path, body=data, headers=headers).status
