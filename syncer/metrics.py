# SPDX-License-Identifier: Apache-2.0
"""vc-syncer's metrics. Labels have closed sets of values: never a tenant or an object."""

from daemonkit import tasks
from daemonkit.kube import oversized_objects
from daemonkit.metrics import Registry

# From a change on an idle queue to a tenant whose API server is away.
_DELAYS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


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
        self.refusals = registry.counter(
            "vcnode_syncer_refusals_total", "Objects that the tenant's SyncPolicy refused."
        )
        self.repairs = registry.counter(
            "vcnode_syncer_repairs_total", "Objects that a patrol found to differ and had planned again."
        )
        self.events = registry.counter(
            "vcnode_syncer_events_total", "Events for tenants, by result.", ("result",)
        )
        self.queue_seconds = registry.histogram(
            "vcnode_syncer_queue_duration_seconds", "Time that an object waited in the queue.", _DELAYS
        )
        self.patrol_seconds = registry.histogram(
            "vcnode_syncer_patrol_duration_seconds",
            "Time of the loop that a patrol of one tenant took.",
            _DELAYS,
        )
