# SPDX-License-Identifier: Apache-2.0
"""vc-operator's metrics. Labels have closed sets of values: never a tenant or an object."""

from daemonkit import tasks
from daemonkit.kube import oversized_objects
from daemonkit.metrics import Registry

FAILURE_CAUSES = (
    "unreachable",
    "unauthorized",
    "forbidden",
    "notFound",
    "conflict",
    "throttled",
    "server",
    "refused",
)
_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class OperatorMetrics:
    """All families, registered."""

    def __init__(self) -> None:
        registry = self.registry = Registry()
        tasks.add_metric(registry)
        oversized_objects.add_metric(registry)
        self.reconciles = registry.counter(
            "vcnode_tenantoperator_reconciles_total", "Plans of a VirtualCluster, by result.", ("result",)
        )
        for result in ("settled", "waiting", "failed"):
            self.reconciles.labels(result)
        self.steps = registry.counter(
            "vcnode_tenantoperator_steps_total", "Steps that were carried out, by kind of step.", ("step",)
        )
        self.failures = registry.counter(
            "vcnode_tenantoperator_failures_total",
            "Steps that failed and are tried again, by cause.",
            ("cause",),
        )
        for cause in FAILURE_CAUSES:
            self.failures.labels(cause)
        self.ready_seconds = registry.histogram(
            "vcnode_tenantoperator_ready_seconds",
            "From the creation of a VirtualCluster to its first condition Ready.",
            _SECONDS,
        )
