# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest

from tenancy.ownership import Owned, OwnerIndex
from tests.rebuilt_pages import tenants_page
from vnagent.pages.page import PageError
from vnagent.pages.pods import PODS

WHEN = "2026-01-02T03:04:05Z"
INDEX = OwnerIndex(
    [
        Owned(
            "ten-a", "web", "shop", "a-1", "ten-a-web", "shop", "s-1001", frozenset({"app", "setup", "dbg"})
        ),
        Owned("ten-b", "web", "bank", "b-1", "ten-b-web", "bank", "s-2001", frozenset({"app"})),
    ]
)


CONTAINER_ID = "3a" * 32


def container(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": "registry.example/shop:1",
        "command": ["sh"],
        "args": ["-c"],
        "workingDir": "/srv",
        "ports": [
            {"name": "http", "containerPort": 80, "hostPort": 8080, "hostIP": "192.0.2.1", "protocol": "TCP"}
        ],
        "env": [{"name": "PASSWORD", "value": "secret"}],
        "envFrom": [{"secretRef": {"name": "secret"}}],
        "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "10m"}, "claims": [{"name": "x"}]},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets"}],
        "livenessProbe": {"httpGet": {"host": "192.0.2.1", "port": 80}},
        "securityContext": {"privileged": True},
        "imagePullPolicy": "IfNotPresent",
        "tty": True,
        "futureField": "future",
    }


def status(name: str, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "lastState": {},
        "ready": True,
        "restartCount": 3,
        "image": "registry.example/rival/secret:7",
        "imageID": "sha256:host",
        "containerID": f"containerd://{CONTAINER_ID}",
        "started": True,
        "allocatedResources": {"cpu": "10m"},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets"}],
    }


SHOP: dict[str, Any] = {
    "metadata": {
        "name": "shop",
        "namespace": "ten-a-web",
        "uid": "s-1001",
        "resourceVersion": "77",
        "creationTimestamp": WHEN,
        "deletionTimestamp": WHEN,
        "deletionGracePeriodSeconds": 30,
        "labels": {"app": "shop", "tenancy.x-k8s.io/cluster": "ten-a"},
        "annotations": {"tenancy.x-k8s.io/cluster": "ten-a", "kubernetes.io/config.source": "api"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "host", "uid": "o-1"}],
        "managedFields": [{"manager": "syncer"}],
    },
    "spec": {
        "volumes": [{"name": "token", "projected": {}}],
        "initContainers": [container("setup"), container("mesh-init")],
        "containers": [container("app"), container("mesh-proxy")],
        "ephemeralContainers": [container("dbg") | {"targetContainerName": "mesh-proxy"}],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "serviceAccountName": "host",
        "nodeName": "node-1",
        "hostname": "shop",
        "priorityClassName": "host",
        "nodeSelector": {"host": "yes"},
        "tolerations": [{"operator": "Exists"}],
        "readinessGates": [{"conditionType": "super.example/gate"}],
        "runtimeClassName": "kata",
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": WHEN,
                "reason": "ContainersNotReady",
                "message": "containers with unready status: [mesh-proxy]",
            },
            {"type": "super.example/gate", "status": "True"},
        ],
        "message": "ten-a-web",
        "reason": "Evicted",
        "hostIP": "192.0.2.1",
        "hostIPs": [{"ip": "192.0.2.1"}],
        "podIP": "10.244.0.10",
        "podIPs": [{"ip": "10.244.0.10"}],
        "nominatedNodeName": "node-2",
        "startTime": WHEN,
        "qosClass": "Burstable",
        "initContainerStatuses": [
            status(
                "setup",
                {
                    "terminated": {
                        "exitCode": 1,
                        "signal": 9,
                        "reason": "Error",
                        "message": "host",
                        "startedAt": WHEN,
                        "finishedAt": WHEN,
                        "containerID": f"containerd://{CONTAINER_ID}",
                    }
                },
            ),
            status("mesh-init", {}),
        ],
        "containerStatuses": [
            status(
                "app",
                {
                    "waiting": {
                        "reason": "CrashLoopBackOff",
                        "message": "back-off 10s restarting failed container=app pod=shop_ten-a-web(s-1001)",
                    }
                },
            ),
            status("mesh-proxy", {"running": {"startedAt": WHEN}}),
        ],
        "ephemeralContainerStatuses": [status("dbg", {"running": {"startedAt": WHEN}})],
        "resize": "Proposed",
        "futureField": "future",
    },
}
BANK: dict[str, Any] = {
    "metadata": {"name": "bank", "namespace": "ten-b-web", "uid": "s-2001"},
    "spec": {"containers": [{"name": "app"}]},
    "status": {},
}
MIRROR: dict[str, Any] = {
    "metadata": {"name": "etcd-node-1", "namespace": "kube-system", "uid": "s-9001"},
    "spec": {"containers": [{"name": "etcd"}]},
}


def page(*items: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(items)}).encode()


MINE = {
    "image": "registry.example/shop:1",
    "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}],
    "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "10m"}},
    "imagePullPolicy": "IfNotPresent",
    "tty": True,
}
RAN = {
    "lastState": {},
    "ready": True,
    "restartCount": 3,
    "image": "registry.example/shop:1",
    "imageID": "",
    "containerID": "containerd://" + "3a" * 32,
    "started": True,
}


def test_a_pod_has_the_tenants_names() -> None:
    assert json.loads(tenants_page(PODS, page(MIRROR, SHOP, BANK), INDEX, "ten-a")) == {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": [
            {
                "metadata": {
                    "name": "shop",
                    "namespace": "web",
                    "uid": "a-1",
                    "creationTimestamp": WHEN,
                    "deletionTimestamp": WHEN,
                    "deletionGracePeriodSeconds": 30,
                },
                "spec": {
                    "initContainers": [{"name": "setup", **MINE}],
                    "containers": [{"name": "app", **MINE}],
                    "ephemeralContainers": [{"name": "dbg", **MINE}],
                    "restartPolicy": "Always",
                    "terminationGracePeriodSeconds": 30,
                    "nodeName": "node-1",
                },
                "status": {
                    "phase": "Running",
                    "conditions": [
                        {
                            "type": "Ready",
                            "status": "False",
                            "lastTransitionTime": WHEN,
                            "reason": "ContainersNotReady",
                        }
                    ],
                    "reason": "Evicted",
                    "podIP": "10.244.0.10",
                    "podIPs": [{"ip": "10.244.0.10"}],
                    "startTime": WHEN,
                    "qosClass": "Burstable",
                    "initContainerStatuses": [
                        {
                            "name": "setup",
                            "state": {
                                "terminated": {
                                    "exitCode": 1,
                                    "signal": 9,
                                    "reason": "Error",
                                    "startedAt": WHEN,
                                    "finishedAt": WHEN,
                                }
                            },
                            **RAN,
                        }
                    ],
                    "containerStatuses": [
                        {"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, **RAN}
                    ],
                    "ephemeralContainerStatuses": [
                        {"name": "dbg", "state": {"running": {"startedAt": WHEN}}, **RAN}
                    ],
                },
            }
        ],
    }


def test_a_minimal_pod() -> None:
    assert json.loads(tenants_page(PODS, page(SHOP, BANK), INDEX, "ten-b"))["items"] == [
        {
            "metadata": {"name": "bank", "namespace": "web", "uid": "b-1"},
            "spec": {"containers": [{"name": "app"}]},
            "status": {},
        }
    ]


def test_a_tenant_without_pods() -> None:
    empty = b'{"items":[],"kind":"PodList","apiVersion":"v1","metadata":{}}'
    assert tenants_page(PODS, page(SHOP, BANK), INDEX, "ten-c") == empty
    assert tenants_page(PODS, b'{"kind":"PodList","items":null}', INDEX, "ten-a") == empty


@pytest.mark.parametrize(
    ("was", "is_now"),
    [(b"s-1001", b"s-7777"), (b'"ten-a-web"', b'"ten-b-web"'), (b'"name": "shop"', b'"name": "shop2"')],
)
def test_namespace_name_and_uid_must_match(was: bytes, is_now: bytes) -> None:
    assert json.loads(tenants_page(PODS, page(SHOP).replace(was, is_now), INDEX, "ten-a"))["items"] == []


def test_a_duplicate_key_has_one_value_throughout() -> None:
    twice = page(BANK).replace(
        b'"namespace": "ten-b-web"', b'"namespace": "ten-a-web", "namespace": "ten-b-web"'
    )
    assert json.loads(tenants_page(PODS, twice, INDEX, "ten-a"))["items"] == []
    assert b"ten-a" not in tenants_page(PODS, twice, INDEX, "ten-b")


GOOD = page(SHOP, BANK)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x1f\x8b\x08",
        b"{}",
        b"[]",
        GOOD[: len(GOOD) // 2],
        GOOD[:-1],
        GOOD + b"{}",
        GOOD.replace(b"PodList", b"Status"),
        GOOD.replace(b'"ten-b-web"', b"7"),
        GOOD.replace(b'"name": "app"', b'"name": null'),
        GOOD.replace(b"shop", b"\xff"),
        b'{"kind":"PodList","x":' + b'{"a":' * 100_000,
    ],
)
def test_another_page_is_an_error(bad: bytes) -> None:
    with pytest.raises(PageError):
        tenants_page(PODS, bad, INDEX, "ten-a")


@pytest.mark.parametrize(
    "container_id",
    ["", "containerd://host", f"containerd://{CONTAINER_ID}/x", f"http://{CONTAINER_ID}", CONTAINER_ID],
)
def test_an_id_of_another_form_is_left_out(container_id: str) -> None:
    shop = json.loads(json.dumps(SHOP))
    shop["status"]["containerStatuses"][0]["containerID"] = container_id
    (item,) = json.loads(tenants_page(PODS, page(shop), INDEX, "ten-a"))["items"]
    assert "containerID" not in item["status"]["containerStatuses"][0]
