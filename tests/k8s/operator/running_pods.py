# SPDX-License-Identifier: Apache-2.0
"""The pods of a tenant, to see that none of them starts again while its control plane changes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.syncer.shops import agnhost, deployment, is_ready


@dataclass(frozen=True, slots=True)
class RunningPods:
    """UIDs of the pods in a tenant's namespace `default`, with how often their containers have started
    again."""

    uids: dict[str, int]

    @classmethod
    def of(cls, tenant: OperatedTenant) -> RunningPods:
        """As the tenant sees them now."""
        return cls(
            {
                pod["metadata"]["uid"]: sum(
                    each["restartCount"] for each in pod["status"].get("containerStatuses", [])
                )
                for pod in tenant.api().get("/api/v1/namespaces/default/pods")["items"]
            }
        )


def start(tenant: OperatedTenant, name: str = "web", *, replicas: int = 2) -> None:
    """A Deployment in the tenant's namespace `default`, by its own kubectl, whose pods are ready."""
    spec = {"containers": [agnhost("netexec", "--http-port=8080")], "terminationGracePeriodSeconds": 1}
    document = json.dumps(deployment(name, spec, replicas=replicas)).encode()
    tenant.kubectl()("apply", "-f", "-", stdin=document).check()

    def are_ready() -> bool:
        found = tenant.api().get(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{name}")["items"]
        return len(found) == replicas and all(map(is_ready, found))

    tenant.wait(f"{replicas} pods of {name} are ready", are_ready)
