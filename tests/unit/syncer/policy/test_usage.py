# SPDX-License-Identifier: Apache-2.0
"""What objects use of a quota, as Kubernetes' own quotas count it."""

from typing import Any

import pytest
from hypothesis import given

from syncer.core.objects import Object
from syncer.policy import quantity, usage
from tests.unit.syncer.policy.arbitrary_json import changed

ONE, MILLI, MI = 10**9, 10**6, 1024**2 * 10**9


def container(cpu: str, memory: str, *, restart: str | None = None) -> Object:
    found: Object = {"resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}}
    return found | ({"restartPolicy": restart} if restart else {})


def pod(phase: str | None = None, **spec: Any) -> Object:
    return {"spec": spec} | ({"status": {"phase": phase}} if phase else {})


PODS: list[tuple[Object, usage.Usage]] = [
    (pod(containers=[{}]), {"pods": ONE}),
    (pod("Running", containers=[{}]), {"pods": ONE}),
    (pod("Succeeded", containers=[container("1", "1Mi")]), {}),
    (pod("Failed", containers=[container("1", "1Mi")]), {}),
    (
        pod(containers=[container("100m", "10Mi"), container("1", "20Mi")]),
        {
            "pods": ONE,
            "requests.cpu": 1_100 * MILLI,
            "requests.memory": 30 * MI,
            "limits.memory": 30 * MI,
        },
    ),
    # The larger of the init container and all others.
    (
        pod(initContainers=[container("2", "5Mi")], containers=[container("1", "20Mi")]),
        {"pods": ONE, "requests.cpu": 2 * ONE, "requests.memory": 20 * MI, "limits.memory": 20 * MI},
    ),
    # A sidecar runs beside the init containers after it and beside the containers.
    (
        pod(
            initContainers=[
                container("4", "1Mi"),
                container("1", "1Mi", restart="Always"),
                container("4", "1Mi"),
            ],
            containers=[container("1", "1Mi")],
        ),
        {"pods": ONE, "requests.cpu": 5 * ONE, "requests.memory": 2 * MI, "limits.memory": 2 * MI},
    ),
    # The pod's own resources replace those; overhead is added to what is requested or limited.
    (
        pod(
            resources={"requests": {"cpu": "3"}, "limits": {"memory": "50Mi"}},
            containers=[container("1", "1Mi")],
            overhead={"cpu": "250m", "memory": "10Mi"},
        ),
        {"pods": ONE, "requests.cpu": 3_250 * MILLI, "requests.memory": 11 * MI, "limits.memory": 60 * MI},
    ),
    (
        pod(
            containers=[
                {
                    "resources": {
                        "requests": {
                            "example.com/gpu": "2",
                            "ephemeral-storage": "1Mi",
                            "hugepages-2Mi": "4Mi",
                        },
                        "limits": {"example.com/gpu": "2", "cpu": "1"},
                    }
                }
            ]
        ),
        {
            "pods": ONE,
            "requests.example.com/gpu": 2 * ONE,
            "requests.ephemeral-storage": MI,
            "requests.hugepages-2Mi": 4 * MI,
            # The API server takes the limit for the request that is left out.
            "requests.cpu": ONE,
            "limits.cpu": ONE,
        },
    ),
    (
        pod(containers=[{"resources": {"requests": {"cpu": "many", "memory": "-1"}}}]),
        {"pods": ONE, "requests.cpu": quantity.MAX_NANOS, "requests.memory": 0},
    ),
]

OTHERS: list[tuple[str, Object, usage.Usage]] = [
    ("Service", {"spec": {"ports": [{}]}}, {}),
    (
        "Service",
        {"spec": {"type": "NodePort", "ports": [{}, {}]}},
        {"services.nodeports": 2 * ONE},
    ),
    (
        "Service",
        {"spec": {"type": "LoadBalancer", "ports": [{}]}},
        {"services.loadbalancers": ONE, "services.nodeports": ONE},
    ),
    (
        "Service",
        {"spec": {"type": "LoadBalancer", "ports": [{}], "allocateLoadBalancerNodePorts": False}},
        {"services.loadbalancers": ONE, "services.nodeports": 0},
    ),
    (
        "Service",
        {
            "spec": {
                "type": "LoadBalancer",
                "ports": [{"nodePort": 30_000}, {}],
                "allocateLoadBalancerNodePorts": False,
            }
        },
        {"services.loadbalancers": ONE, "services.nodeports": ONE},
    ),
    (
        "PersistentVolumeClaim",
        {"spec": {"resources": {"requests": {"storage": "5Mi"}}, "storageClassName": "fast"}},
        {
            "requests.storage": 5 * MI,
            "fast.storageclass.storage.k8s.io/persistentvolumeclaims": ONE,
            "fast.storageclass.storage.k8s.io/requests.storage": 5 * MI,
        },
    ),
    (
        "PersistentVolumeClaim",
        {
            "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "slow"}},
            "spec": {"resources": {"requests": {"storage": "1500m"}}, "storageClassName": "fast"},
            "status": {"allocatedResources": {"storage": "7"}},
        },
        {
            "requests.storage": 7 * ONE,
            "slow.storageclass.storage.k8s.io/persistentvolumeclaims": ONE,
            "slow.storageclass.storage.k8s.io/requests.storage": 7 * ONE,
        },
    ),
    ("PersistentVolumeClaim", {"spec": {}}, {"requests.storage": 0}),
    ("ConfigMap", {"data": {}}, {}),
    ("Ingress", {"spec": {}}, {}),
]


@pytest.mark.parametrize(("value", "expected"), PODS)
def test_pods(value: Object, expected: usage.Usage) -> None:
    assert usage.of_object("Pod", value) == expected


@pytest.mark.parametrize(("kind", "value", "expected"), OTHERS)
def test_other_kinds(kind: str, value: Object, expected: usage.Usage) -> None:
    assert usage.of_object(kind, value) == expected


@given(changed(*(value for value, _ in PODS)), changed(*(value for _, value, _ in OTHERS)))
def test_any_json_is_counted(pod: Object, other: Object) -> None:
    assert all(amount >= 0 for amount in usage.of_pod(pod).values())
    assert all(amount >= 0 for amount in usage.of_service(other).values())
    assert all(amount >= 0 for amount in usage.of_claim(other).values())
