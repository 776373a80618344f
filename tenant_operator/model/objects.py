# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects as JSON has them, and how to name one."""

from typing import Any, NamedTuple

from daemonkit.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    VIRTUAL_CLUSTERS,
    Resource,
)
from tenant_operator.model import names

Object = dict[str, Any]
"""One object, as JSON decodes it."""

OPERATOR = names.OPERATOR

DEPLOYMENTS = Resource("apps", "v1", "deployments")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
JOBS = Resource("batch", "v1", "jobs")
CLUSTER_VERSIONS = Resource("tenancy.x-k8s.io", "v1alpha1", "clusterversions", is_namespaced=False)

RESOURCES: dict[str, Resource] = {
    "Namespace": NAMESPACES,
    "Secret": SECRETS,
    "ConfigMap": CONFIG_MAPS,
    "Service": SERVICES,
    "ServiceAccount": SERVICE_ACCOUNTS,
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "Job": JOBS,
    "NetworkPolicy": NETWORK_POLICIES,
    "PodDisruptionBudget": POD_DISRUPTION_BUDGETS,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
    "Pod": PODS,
    "VirtualCluster": VIRTUAL_CLUSTERS,
}
"""The kinds that the operator reads or writes, by their names."""


def object_text(kind: str, namespace: str, name: str) -> str:
    """Which object, in a message."""
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


class Ref(NamedTuple):
    """Which object: its kind (a key of RESOURCES), namespace (empty for cluster-scoped) and name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return object_text(self.kind, self.namespace, self.name)

    @property
    def path(self) -> str:
        """Of the object in the API server."""
        return RESOURCES[self.kind].path(self.namespace or None, self.name)


def ref_of(value: Object) -> Ref:
    """The object that a manifest describes."""
    metadata = value["metadata"]
    return Ref(value["kind"], metadata.get("namespace", ""), metadata["name"])
