# SPDX-License-Identifier: Apache-2.0
"""kubeproxy-ext's metrics. Labels take values from closed sets, and tenants' cluster keys."""

from daemonkit import tasks
from daemonkit.kube import oversized_objects
from daemonkit.metrics import Registry

# Buckets as in kube-proxy: for a sync 1 ms to 16 s, for the network programming uneven steps to 300 s.
_SYNC_BUCKETS = tuple(0.001 * 2**i for i in range(15))
_PROGRAMMING_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75),
    *(float(i) for i in range(1, 60)),
    *(float(i) for i in range(60, 120, 5)),
    *(float(i) for i in range(120, 301, 30)),
)


class Metrics:
    def __init__(self) -> None:
        registry = self.registry = Registry()
        tasks.add_metric(registry)
        oversized_objects.add_metric(registry)
        self.sync_duration = registry.histogram(
            "vcnode_kubeproxyext_sync_duration_seconds",
            "Time to compute and render one tenant's rules.",
            _SYNC_BUCKETS,
        )
        self.programming_duration = registry.histogram(
            "vcnode_kubeproxyext_network_programming_duration_seconds",
            "Time from the change of a pod or Service (the slice's annotation) until a guest has applied the "
            "rules for it, by guest and change.",
            _PROGRAMMING_BUCKETS,
        )
        self.last_sync = registry.gauge(
            "vcnode_kubeproxyext_last_sync_timestamp_seconds", "When rules were last computed."
        )
        self.pushes = registry.counter(
            "vcnode_kubeproxyext_pushes_total", "Results of pushed rulesets, by guest.", ("kind", "result")
        )
        self.failed_pushes = registry.counter(
            "vcnode_kubeproxyext_pushes_failed_total",
            "Requests to kata-bridge that ended without all results.",
        )
        self.stale_flows = registry.counter(
            "vcnode_kubeproxyext_stale_flows_total", "Conntrack entries that guests were asked to flush."
        )
        self.relists_distrusted = registry.counter(
            "vcnode_kubeproxyext_relists_distrusted_total",
            "Relists that lacked all Services of a namespace, or a Namespace, and were distrusted.",
            ("tenant",),
        )
        self.state_errors = registry.counter(
            "vcnode_kubeproxyext_state_errors_total", "Failed writes of the saved state."
        )
