# SPDX-License-Identifier: Apache-2.0
"""Pods as tenants make them, pods with a single odd field, and policies and refusals of them."""

from dataclasses import replace
from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.sync_policy import PodPolicy, SyncPolicy

# As a Deployment's pod is when the tenant's API server has admitted it.
ORDINARY: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-6d4cf56db6-x7k2p",
        "namespace": "shop",
        "labels": {"app": "web"},
        "annotations": {"checksum/config": "a5f2", "prometheus.io/scrape": "true"},
    },
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "nginx:1.29",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "readinessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}},
                "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "privileged": False,
                    "procMount": "Default",
                    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "volumeMounts": [{"name": "data", "mountPath": "/data", "mountPropagation": "None"}],
            }
        ],
        "initContainers": [{"name": "init", "image": "busybox"}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "emptyDir": {}},
            {
                "name": "kube-api-access-4xk2p",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt"}},
                        {"downwardAPI": {"items": []}},
                    ]
                },
            },
        ],
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "securityContext": {"runAsNonRoot": True, "fsGroup": 2000},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        ],
    },
}

DAEMON: Object = {
    "metadata": {"name": "agent-8xk2p", "namespace": "shop"},
    "spec": {
        "containers": [{"name": "agent", "image": "agent"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
                    ]
                }
            }
        },
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists"}
            for key in (
                "not-ready",
                "unreachable",
                "disk-pressure",
                "memory-pressure",
                "pid-pressure",
                "unschedulable",
            )
        ],
    },
}


# Of a policy that makes virtual machines of all pods.
VM: Object = {"runtime_class": "kata", "vm_runtime_classes": frozenset({"kata"})}


def pod(annotations: Object | None = None, **spec: Any) -> Object:
    return {"metadata": {"annotations": annotations}, "spec": spec}


def container(**fields: Any) -> Object:
    return pod(containers=[fields])


def context(**fields: Any) -> Object:
    return container(securityContext=fields)


def volume(**source: Any) -> Object:
    return pod(volumes=[{"name": "v", **source}])


def with_pods(**fields: Any) -> SyncPolicy:
    return SyncPolicy(pods=replace(PodPolicy(), **fields))


def denied(path: str, what: str, field: str) -> Refusal:
    return Refusal(path, f"{what}: SyncPolicy field spec.{field} does not allow it")


def never(path: str, what: str) -> Refusal:
    return Refusal(path, f"{what}: no SyncPolicy allows it")
