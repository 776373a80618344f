# SPDX-License-Identifier: Apache-2.0
"""What the tests' tenant may send down beyond the defaults. docs/conformance.md has the specs that need it.

All nodes, as the tests expect to see them. Nothing else is allowed that no spec needs.
"""

from __future__ import annotations

from syncer.policy.sync_policy import VOLUME_TYPES
from tests.k8s.ring.api import JsonObject

# The specs' pods ask for classes of their own with this handler. They need not start.
HANDLER = "test-handler"
RUNTIME_CLASS = "preconfigured"

SPEC: JsonObject = {
    "vNodes": {
        "scope": "All",
        "schedulable": True,
        "labels": ["kubernetes.io/", "node-role.kubernetes.io/"],
    },
    "pods": {
        # Jobs whose privileged pods keep a mark in a directory of the node.
        "privileged": "Always",
        # Lifecycle hooks that call another pod.
        "allowHandlerHosts": True,
        # HostPort; the pod that evicts a StatefulSet's; SchedulerPredicates.
        "hostPorts": [54323, 21017, 54321, 54322],
        "allowNodeName": True,
        # Pods in the node's network, from which specs dial pods and node ports; KubeletManagedEtcHosts.
        "hostNamespaces": ["Network"],
        # NoExecuteTaintManager; the others are those that each pod of a DaemonSet has.
        "tolerationKeys": [
            "kubernetes.io/e2e-evict-taint-key",
            *(f"node.kubernetes.io/{name}-pressure" for name in ("disk", "memory", "pid")),
            "node.kubernetes.io/unschedulable",
        ],
        # Extended resources that specs give to nodes: of the scheduler and of quotas.
        "extendedResources": ["*"],
        "volumeTypes": [*sorted(VOLUME_TYPES), "hostPath"],
        "runtimeClasses": [RUNTIME_CLASS],
    },
    "services": {
        "types": ["ClusterIP", "ExternalName", "NodePort"],
        "externalNames": ["*"],
    },
}
