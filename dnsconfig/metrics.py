# SPDX-License-Identifier: Apache-2.0
"""dnsconfig's metrics. Labels have closed sets of values: never a tenant, network or pod."""

from daemonkit import tasks
from daemonkit.kube import oversized_objects
from daemonkit.metrics import Registry
from dnsconfig.resolve.waiting import WaitReason

# From a change that only this node sees to a kata-bridge that is busy or away.
_DELAYS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class DnsConfigMetrics:
    """All families, registered."""

    def __init__(self) -> None:
        registry = self.registry = Registry()
        tasks.add_metric(registry)
        oversized_objects.add_metric(registry)
        self.sync_seconds = registry.histogram(
            "vcnode_dnsconfig_sync_duration_seconds",
            "Time to evaluate all pods of the node after a change.",
            _DELAYS,
        )
        self.delivery_seconds = registry.histogram(
            "vcnode_dnsconfig_delivery_duration_seconds",
            "Time from a change of a pod's desired resolver until kata-bridge has acknowledged it.",
            _DELAYS,
        )
        self.pushes = registry.counter(
            "vcnode_dnsconfig_pushes_total", "Responses of kata-bridge to submitted resolvers.", ("result",)
        )
        self.failed_pushes = registry.counter(
            "vcnode_dnsconfig_pushes_failed_total", "Requests to kata-bridge that ended without a response."
        )
        self.truncated = registry.counter(
            "vcnode_dnsconfig_truncated_total",
            "Pods whose servers or search list exceeded a limit and were truncated.",
        )
        self.events = registry.counter(
            "vcnode_dnsconfig_events_total", "Events about pods, by result.", ("result",)
        )
        self.state_errors = registry.counter(
            "vcnode_dnsconfig_state_errors_total", "Failures to save the last known state on disk."
        )


def by_reason(reasons: list[WaitReason]) -> dict[tuple[str, ...], float]:
    """The count of each reason, zeros included, so that no series comes and goes."""
    return {(reason.value,): float(reasons.count(reason)) for reason in WaitReason}
