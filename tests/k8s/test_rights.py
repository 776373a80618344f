# SPDX-License-Identifier: Apache-2.0
"""packaging/rbac: what each daemon of a node may do in the super cluster and at its kubelet, and no more.

That it is enough is what the other tests of this ring show: their daemons have these rights alone.
"""

from __future__ import annotations

import pytest

from tests.k8s.ring import shipped
from tests.k8s.ring.cluster import Ring

_HERE, _ELSEWHERE = "worker-1", "worker-2"
_FILES = (
    "kata-bridge-policy.yaml",
    "kata-bridge.yaml",
    "vn-agent.yaml",
    "kubeproxy-ext.yaml",
    "dnsconfig.yaml",
)


@pytest.fixture(scope="module")
def rights(ring: Ring) -> Ring:
    shipped.apply_rights(ring.super_cluster.api, ring.node.name, *_FILES)
    return ring


def _may(ring: Ring, daemon: str, verb: str, resource: str, name: str = "") -> bool:
    """Whether a daemon of this node may: `resource` is `GROUP/RESOURCE[/SUBRESOURCE]`."""
    group, kind, *below = resource.split("/")
    attributes = {"group": group, "resource": kind, "verb": verb, "name": name, "version": "*"}
    reply = ring.super_cluster.api.create(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"vcnode:{daemon}:{_HERE}",
                "groups": [f"vcnode:{daemon}s", "system:authenticated"],
                "resourceAttributes": attributes | ({"subresource": below[0]} if below else {}),
            },
        },
    )
    return bool(reply["status"]["allowed"])


@pytest.mark.parametrize(
    ("verb", "part"),
    [
        *(("get", "proxy"), ("create", "proxy"), ("get", "pods"), ("get", "stats"), ("get", "metrics")),
    ],
)
def test_vn_agent_uses_the_kubelet_of_its_node_alone(rights: Ring, verb: str, part: str) -> None:
    assert _may(rights, "vn-agent", verb, f"/nodes/{part}", _HERE)
    assert not _may(rights, "vn-agent", verb, f"/nodes/{part}", _ELSEWHERE)
    assert not _may(rights, "vn-agent", verb, f"/nodes/{part}")


@pytest.mark.parametrize(
    ("daemon", "verb", "resource"),
    [
        ("vn-agent", "create", "/nodes/stats"),
        ("vn-agent", "get", "/nodes/log"),
        ("vn-agent", "create", "/nodes/checkpoint"),
        ("vn-agent", "get", "/nodes/configz"),
        ("vn-agent", "get", "/nodes"),
        ("vn-agent", "list", "/pods"),
        # Only with packaging/rbac/options.
        ("vn-agent", "get", "/pods/log"),
        ("vn-agent", "create", "/pods/exec"),
        ("vn-agent", "list", "/secrets"),
        ("kubeproxy-ext", "list", "/pods"),
        ("kubeproxy-ext", "get", "/pods/log"),
        ("kubeproxy-ext", "list", "/secrets"),
        ("kubeproxy-ext", "get", "/services"),
        ("kubeproxy-ext", "update", "/services"),
        ("kubeproxy-ext", "patch", "/nodes/status"),
        ("dnsconfig", "list", "/secrets"),
        ("dnsconfig", "patch", "/pods"),
        ("dnsconfig", "get", "/pods/log"),
        ("dnsconfig", "update", "arktos.futurewei.com/networks"),
        ("dnsconfig", "patch", "/events"),
        ("kata-bridge", "get", "/pods"),
        ("kata-bridge", "list", "/pods"),
        ("kata-bridge", "delete", "/pods"),
        ("kata-bridge", "get", "/pods/log"),
        ("kata-bridge", "list", "/secrets"),
        ("kata-bridge", "patch", "/nodes"),
    ],
)
def test_rights_that_no_daemon_needs_are_denied(rights: Ring, daemon: str, verb: str, resource: str) -> None:
    assert not _may(rights, daemon, verb, resource, _HERE)


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_kubeproxy_ext_sees_its_own_node_alone(rights: Ring, verb: str) -> None:
    assert _may(rights, "kubeproxy-ext", verb, "/nodes", _HERE)
    assert not _may(rights, "kubeproxy-ext", verb, "/nodes", _ELSEWHERE)
    assert not _may(rights, "kubeproxy-ext", verb, "/nodes")
