# SPDX-License-Identifier: Apache-2.0
"""What is there before a control plane has a pod: its Service, its account and its budgets of disruptions."""

from collections.abc import Iterable

from tenancy import keys
from tenant_operator.model import names, pods
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object


def network(control_plane: ControlPlane, components: Iterable[str]) -> tuple[Object, ...]:
    """In the root namespace. The components are those whose service needs their pods."""
    return (
        _service_account(control_plane),
        _service(control_plane),
        *(_disruption_budget(control_plane, each) for each in components),
    )


def root_namespace(control_plane: ControlPlane, rolling_since: str = "") -> Object:
    """The Namespace of the control plane, with whose it is, and since when its pods are being replaced."""
    annotations = {
        keys.VC_NAME: control_plane.name,
        keys.VC_NAMESPACE: control_plane.namespace,
        keys.VC_UID: control_plane.uid,
        keys.VC_ROOT_NAMESPACE: "true",
        keys.SERVICE_CIDRS: ",".join(control_plane.service_cidrs),
    }
    if control_plane.volumes == "Retain":
        # From the beginning: a finalizer may be taken away, and vc-syncer collects namespaces without it.
        annotations[keys.RETAINED] = "true"
    if rolling_since:
        annotations[keys.ROLLING_SINCE] = rolling_since
    labels = control_plane.labels | {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    metadata = {"name": control_plane.key, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _service_account(control_plane: ControlPlane) -> Object:
    """Has no rights, and its pods no token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": pods.metadata(control_plane, names.SERVICE_ACCOUNT),
        "automountServiceAccountToken": False,
    }


def _service(control_plane: ControlPlane) -> Object:
    exposure = control_plane.exposure
    spec: Object = {
        "type": exposure.type,
        "selector": pods.selector(names.API_SERVER)["matchLabels"],
        "ports": [{"name": "https", "port": names.API_SERVER_PORT, "targetPort": "https"}],
    }
    if exposure.load_balancer_class:
        spec["loadBalancerClass"] = exposure.load_balancer_class
    metadata = pods.metadata(control_plane, names.API_SERVER_SERVICE, names.API_SERVER)
    # The super cluster copies it to the Service's Endpoints, and vc-syncer watches those that have it. So it
    # knows where the tenant's Service `default/kubernetes` may lead.
    metadata["labels"] |= {keys.VC_NAME: control_plane.name}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _disruption_budget(control_plane: ControlPlane, component: str) -> Object:
    """One may be evicted at a time. A drained node waits for no single replica: it starts again elsewhere."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": pods.metadata(control_plane, component, component),
        "spec": {
            "maxUnavailable": 1,
            "selector": pods.selector(component),
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
