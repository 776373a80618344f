# SPDX-License-Identifier: Apache-2.0
"""vc-syncer's metrics. Labels have closed sets of values: never a tenant or an object."""

from daemonkit import tasks
from daemonkit.kube import oversized_objects
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.metrics import Registry

# From a change on an idle queue to a tenant whose API server is away.
_DELAYS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


# Weight 1, which is the default; 2 to 9; 10 and more.
TENANT_CLASSES = ("default", "raised", "high")
_RAISED, _HIGH = 2, 10


def tenant_class(weight: int) -> str:
    """The class of a tenant with this weight in the queue."""
    return "default" if weight < _RAISED else "raised" if weight < _HIGH else "high"


# Causes that no retry removes: zeros from the start, so that an alert sees the first one.
PERMANENT_CAUSES = ("unexpected", "forbidden", "unauthorized", "foreignNamespace")


def failure_cause(error: Exception) -> str:
    """One of a few words for why a request failed."""
    if isinstance(error, UnreachableError):
        return "unreachable"
    if not isinstance(error, ApiError):
        return "unexpected"
    code = error.status.code
    named = {401: "unauthorized", 403: "forbidden", 404: "notFound", 409: "conflict", 429: "throttled"}
    return named.get(code, "server" if code >= 500 else "refused")


class SyncerMetrics:
    """All families, registered."""

    def __init__(self) -> None:
        registry = self.registry = Registry()
        tasks.add_metric(registry)
        oversized_objects.add_metric(registry)
        self.plans = registry.counter("vcnode_syncer_plans_total", "Comparisons of an object's two sides.")
        self.requests = registry.counter(
            "vcnode_syncer_requests_total", "Requests about objects, by cluster and verb.", ("side", "verb")
        )
        self.failures = registry.counter(
            "vcnode_syncer_failures_total", "Objects that will be tried again, by cause.", ("cause",)
        )
        for cause in PERMANENT_CAUSES:
            self.failures.labels(cause)
        self.refusals = registry.counter(
            "vcnode_syncer_refusals_total", "Objects that the tenant's SyncPolicy refused."
        )
        self.repairs = registry.counter(
            "vcnode_syncer_repairs_total", "Objects that a patrol found to differ and had planned again."
        )
        self.orphans = registry.counter(
            "vcnode_syncer_orphans_deleted_total", "Super namespaces deleted as their VirtualCluster is gone."
        )
        self.events = registry.counter(
            "vcnode_syncer_events_total", "Events for tenants, by result.", ("result",)
        )
        queue_seconds = registry.histogram(
            "vcnode_syncer_queue_duration_seconds",
            "Time that an object waited in the queue, by the class of its tenant.",
            _DELAYS,
            ("tenant_class",),
        )
        self.queue_seconds = {each: queue_seconds.labels(each) for each in TENANT_CLASSES}
        self.patrol_seconds = registry.histogram(
            "vcnode_syncer_patrol_duration_seconds",
            "Time of the loop that a patrol of one tenant took.",
            _DELAYS,
        )
