# SPDX-License-Identifier: Apache-2.0
"""kubeproxy-ext's metrics. What kube-proxy has too is called as there, with the same buckets.

Labels take values from closed sets, and tenants' cluster keys.
"""

from collections.abc import Callable, Mapping

from daemonkit import tasks
from daemonkit.kube import oversized_objects
from daemonkit.metrics import Registry

# kube-proxy: 1 ms to 16 s for a sync; 250 ms to 10 min, in uneven steps, for the way of a change.
_SYNC_BUCKETS = tuple(0.001 * 2**i for i in range(15))
_PROGRAMMING_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75),
    *(float(i) for i in range(1, 60)),
    *(float(i) for i in range(60, 120, 5)),
    *(float(i) for i in range(120, 301, 30)),
)

Numbers = Callable[[], float]
Series = Callable[[], Mapping[tuple[str, ...], float]]


class Metrics:
    """All families, registered."""

    def __init__(self) -> None:
        registry = self.registry = Registry()
        tasks.add_metric(registry)
        oversized_objects.add_metric(registry)
        self.sync_duration = registry.histogram(
            "kubeproxy_sync_proxy_rules_duration_seconds",
            "Time to compute and render one tenant's rules after a change.",
            _SYNC_BUCKETS,
        )
        self.programming_duration = registry.histogram(
            "kubeproxy_network_programming_duration_seconds",
            "Time from the change of a pod or Service (the slice's annotation) until all of a tenant's "
            "guests of one kind have answered.",
            _PROGRAMMING_BUCKETS,
        )
        self.last_sync = registry.gauge(
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds", "When rules were last computed."
        )
        self.pushes = registry.counter(
            "vcnode_pushes_total", "Answers to rulesets that were sent, by guest.", ("kind", "result")
        )
        self.failed_pushes = registry.counter(
            "vcnode_pushes_failed_total", "Requests to kata-bridge that ended without all answers."
        )
        self.flows = registry.counter(
            "vcnode_stale_flows_total", "Conntrack entries that guests were asked to flush."
        )
        self.held_lists = registry.counter(
            "vcnode_held_lists_total",
            "Lists that would have taken a tenant's last Services, by tenant.",
            ("tenant",),
        )
        self.state_errors = registry.counter(
            "vcnode_state_errors_total", "Failures to keep the last known state on disk."
        )

    def gauge(self, name: str, help_: str, read: Numbers) -> None:
        """Add a number that is read when the page is asked for."""
        self.registry.gauge_function(name, help_, read)

    def gauges(self, name: str, help_: str, read: Series, *labels: str) -> None:
        """Add numbers that are read when the page is asked for."""
        self.registry.gauge_function(name, help_, read, labels)
