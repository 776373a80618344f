# SPDX-License-Identifier: Apache-2.0
"""Reviews and their responses."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from dns_webhook import review
from dnsconfig.cluster.objects import NamespaceObject
from dnsconfig.cluster.state import ClusterState
from dnsconfig.resolve.decision import node_dns_of
from tests.cases.dns import load as isolation
from tests.cluster_states import cluster_state_of
from tests.unit.dnsconfig import objects

NODE = node_dns_of("nameserver 192.0.2.1\nsearch node.example\n")
CLUSTER = cluster_state_of([*objects.tenant("t", default="10.0.0.10")])


def review_of(pod: Any, **changed: Any) -> bytes:
    request = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "t-shop",
        "object": pod,
        "oldObject": None,
        "dryRun": True,
        **changed,
    }
    return json.dumps({"apiVersion": review.API_VERSION, "kind": review.KIND, "request": request}).encode()


def response(body: bytes, cluster: ClusterState = CLUSTER) -> dict[str, Any]:
    found = json.loads(review.decide_review(review.decode_review(body), cluster, NODE).body())
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    decision: dict[str, Any] = found["response"]
    assert decision["uid"] == "review-1"
    if "patch" in decision:
        decision["patch"] = json.loads(base64.b64decode(decision["patch"]))
    return decision


def new(pod: dict[str, Any]) -> dict[str, Any]:
    """As in a review: without UID and namespace, and with generateName."""
    for key in ("uid", "namespace", "name"):
        del pod["metadata"][key]
    return pod


LEFT = {"uid": "review-1", "allowed": True}


def test_a_pod_is_patched_with_its_networks_resolver() -> None:
    pod = objects.pod("t", dnsPolicy="ClusterFirst", dnsConfig={"searches": ["own.example"]})
    searches = ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "node.example", "own.example"]
    config = {
        "searches": searches,
        "nameservers": ["10.0.0.10"],
        "options": [{"name": "ndots", "value": "5"}],
    }
    assert response(review_of(new(pod))) == {
        "uid": "review-1",
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": [
            {"op": "add", "path": "/spec/dnsPolicy", "value": "None"},
            {"op": "add", "path": "/spec/dnsConfig", "value": config},
        ],
    }


def test_invalid_node_search_paths_are_left_out() -> None:
    """The kubelet accepts any: a pod's author cannot repair a node's file."""
    node = node_dns_of("search Corp.Example _tcp.x_y.example -bad.example a!b\n")
    decision = review.decide_review(review.decode_review(review_of(new(objects.pod("t")))), CLUSTER, node)
    (config,) = (step["value"] for step in decision.patch if step["path"] == "/spec/dnsConfig")
    assert config["searches"][3:] == ["corp.example", "_tcp.x_y.example"]
    assert decision.left_out == ("-bad.example", "a!b")


@pytest.mark.parametrize("search", ["corp!example", "Corp.Example", "-bad.example"])
def test_an_authors_own_search_paths_stay_as_they_are(search: str) -> None:
    """It names the field, as without the webhook."""
    pod = new(objects.pod("t", dnsConfig={"searches": [search, "ok.example"]}))
    decision = review.decide_review(
        review.decode_review(review_of(pod)), CLUSTER, node_dns_of("search a!b\n")
    )
    (config,) = (step["value"] for step in decision.patch if step["path"] == "/spec/dnsConfig")
    assert config["searches"][3:] == [search, "ok.example"]
    assert decision.left_out == ("a!b",)


def test_a_second_review_changes_nothing() -> None:
    pod = objects.pod("t", dnsPolicy="ClusterFirst")
    for step in response(review_of(pod))["patch"]:
        pod["spec"][step["path"].rpartition("/")[2]] = step["value"]
    assert response(review_of(pod)) == LEFT


@pytest.mark.parametrize(
    "spec",
    [{"dnsPolicy": "None"}, {"dnsPolicy": "Default"}, {"dnsPolicy": "ClusterFirst", "hostNetwork": True}],
)
def test_other_classes_are_admitted_unchanged(spec: dict[str, Any]) -> None:
    assert response(review_of(objects.pod("t", **spec))) == LEFT


def test_other_objects_and_pods_are_admitted_unchanged() -> None:
    assert response(review_of(objects.pod("", tenant_namespace="kube-system"))) == LEFT
    assert response(review_of(objects.pod("t"), operation="UPDATE")) == LEFT
    assert response(review_of(objects.pod("t"), subResource="status")) == LEFT
    assert (
        response(review_of(None, resource={"group": "apps", "version": "v1", "resource": "deployments"}))
        == LEFT
    )


@pytest.mark.parametrize(
    ("pod", "cluster", "code", "message"),
    [
        (objects.pod("t", network="blue"), CLUSTER, 503, "network blue"),
        (objects.pod("t", network="Blue.x"), CLUSTER, 422, "is not a valid network name"),
        (objects.pod("t"), ClusterState(has_namespaces=False, has_virtual_clusters=False), 503, "not known"),
        (objects.pod("t"), ClusterState(), 503, "not known to be this tenant's"),
    ],
)
def test_a_pod_without_a_resolver_is_denied_with_a_reason(
    pod: dict[str, Any], cluster: ClusterState, code: int, message: str
) -> None:
    decision = response(review_of(pod), cluster)
    assert (decision["allowed"], decision["status"]["code"]) == (False, code)
    assert message in decision["status"]["message"]
    assert "patch" not in decision


OPTIONS: dict[str, Any] = {"dnsConfig": {"options": [{"name": f"o{number}"} for number in range(257)]}}


def test_a_too_large_pod_is_denied_undecoded() -> None:
    assert response(review_of(objects.pod("t", **OPTIONS)))["status"] == {
        "code": 422,
        "reason": "Invalid",
        "message": "no DNS for this pod: too large: spec.dnsConfig.options has more than 256 entries",
    }


def test_a_too_large_pod_of_no_tenant_is_admitted() -> None:
    elsewhere = replace(CLUSTER, namespaces={**CLUSTER.namespaces, "kube-system": NamespaceObject()})
    pod = objects.pod("", tenant_namespace="kube-system", **OPTIONS)
    assert response(review_of(pod, namespace="kube-system"), elsewhere) == LEFT


def test_a_too_large_pod_in_an_unsynced_namespace_is_503() -> None:
    status = response(review_of(objects.pod("t", **OPTIONS)), ClusterState())["status"]
    assert (status["code"], status["message"]) == (
        503,
        "no DNS for this pod: namespace t-shop is not synced yet",
    )


@pytest.mark.parametrize("case", isolation.load(), ids=lambda case: case.id)
def test_no_tenant_becomes_anothers_resolver(case: isolation.DnsCase) -> None:
    """The webhook decides each case as the node does, unless the kubelet decides it."""
    pod = case.pod()
    found = response(review_of(pod, namespace=pod["metadata"]["namespace"]), cluster_state_of(case.items()))
    patched = {step["path"]: step["value"] for step in found.get("patch", ())}
    if "/spec/dnsConfig" in patched:
        assert tuple(patched["/spec/dnsConfig"]["nameservers"]) == case.servers
    elif case.waits is None:
        # Of no tenant, or of a class that its node's kubelet resolves.
        assert found == LEFT
        assert case.is_nothing or {"hostNetwork", "dnsPolicy"} & pod["spec"].keys()
    assert found["allowed"] == (case.waits is None)
    assert isolation.FORBIDDEN_PREFIX not in json.dumps(patched)


def test_truncation_is_a_warning() -> None:
    many = {"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"]}
    (warning,) = response(review_of(objects.pod("t", dnsConfig=many)))["warnings"]
    assert warning.startswith("Nameserver limits were exceeded")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": ""}}',
        review_of({}).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
        review_of(None),
        review_of({"spec": {"dnsPolicy": 5}}),
        b'{"a":' * 100_000,
        review_of({"spec": {"x": 0}}).replace(b'"x": 0', b'"x": ' + b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_invalid_reviews_are_errors(body: bytes) -> None:
    with pytest.raises(review.ReviewError):
        review.decode_review(body)
