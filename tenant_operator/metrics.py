# SPDX-License-Identifier: Apache-2.0
"""vc-operator's metrics. Labels have closed sets of values: never a tenant or an object."""

from collections import Counter
from collections.abc import Callable, Iterable

from daemonkit import tasks
from daemonkit.kube import oversized_objects
from daemonkit.metrics import Registry
from tenant_operator.core.conditions import ConditionStatus, ConditionType
from tenant_operator.model.virtual_cluster import VirtualCluster

FAILURE_CAUSES = (
    "unreachable",
    "unauthorized",
    "forbidden",
    "notFound",
    "conflict",
    "throttled",
    "server",
    "refused",
    "tenant",
    "database",
)
# An API server may put words of its own into a reason.
MAX_REASONS = 40
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

    def watch(self, clusters: Callable[[], Iterable[VirtualCluster]], is_leader: Callable[[], bool]) -> None:
        """Read at each scrape which VirtualClusters are ready, and whether this replica may write."""
        self.registry.gauge_function(
            "vcnode_tenantoperator_virtual_clusters",
            "VirtualClusters by their condition Ready and its reason; the same in each replica.",
            lambda: readiness_counts(clusters()),
            ("ready", "reason"),
        )
        self.registry.gauge_function(
            "vcnode_tenantoperator_leaders", "1 if this replica works, 0 if another may.", is_leader
        )

    def watch_rollouts(self, longest_s: Callable[[], float]) -> None:
        """Read at each scrape how long a change of pods takes that concerns many tenants."""
        self.registry.gauge_function(
            "vcnode_tenantoperator_rolling_seconds",
            "Since when the tenant gets other pods that has not become Ready since for the longest time.",
            longest_s,
        )


def readiness_counts(clusters: Iterable[VirtualCluster]) -> dict[tuple[str, ...], float]:
    """How many there are of each status and reason of condition Ready."""
    found: Counter[tuple[str, ...]] = Counter()
    for cluster in clusters:
        ready = next((each for each in cluster.status.conditions if each.type == ConditionType.READY), None)
        unknown = (ConditionStatus.UNKNOWN.value, "NotReconciled")
        found[unknown if ready is None else (ready.status, ready.reason)] += 1
    kept = dict(found.most_common(MAX_REASONS))
    rest: Counter[tuple[str, ...]] = Counter()
    for (status, reason), count in found.items():
        rest[(status, reason) if (status, reason) in kept else (status, "Other")] += count
    return {key: float(count) for key, count in rest.items()}
