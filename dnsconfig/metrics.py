# SPDX-License-Identifier: Apache-2.0
"""dnsconfig's metrics. Labels take values from closed sets alone: no tenant, network or pod."""

from collections.abc import Callable, Mapping

from daemonkit import tasks
from daemonkit.kube import oversized_objects
from daemonkit.metrics import Registry
from dnsconfig.resolve.waiting import Cause

# From a change that only this node sees to a bridge that is busy or away.
_DELAYS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """All families, registered."""

    def __init__(self) -> None:
        registry = self.registry = Registry()
        tasks.add_metric(registry)
        oversized_objects.add_metric(registry)
        self.turn_seconds = registry.histogram(
            "vcnode_dns_turn_seconds", "Time to decide for all pods of the node after a change.", _DELAYS
        )
        self.delivery_seconds = registry.histogram(
            "vcnode_dns_delivery_seconds",
            "Time from a change of what a pod is to have until kata-bridge has acknowledged it.",
            _DELAYS,
        )
        self.pushes = registry.counter(
            "vcnode_pushes_total", "Answers of kata-bridge to resolv.confs and reasons.", ("result",)
        )
        self.failed_pushes = registry.counter(
            "vcnode_pushes_failed_total", "Requests to kata-bridge that ended without an answer."
        )
        self.cut = registry.counter(
            "vcnode_dns_cut_total", "Pods whose servers or search list did not fit and were cut."
        )
        self.events = registry.counter("vcnode_events_total", "Events on pods, by outcome.", ("result",))
        self.state_errors = registry.counter(
            "vcnode_state_errors_total", "Failures to keep the last known state on disk."
        )

    def gauge(self, name: str, help_: str, read: Callable[[], float]) -> None:
        """Add a number that is read when the page is asked for."""
        self.registry.gauge_function(name, help_, read)

    def gauges(
        self, name: str, help_: str, read: Callable[[], Mapping[tuple[str, ...], float]], *labels: str
    ) -> None:
        """Add numbers that are read when the page is asked for."""
        self.registry.gauge_function(name, help_, read, labels)


def by_cause(causes: list[Cause]) -> dict[tuple[str, ...], float]:
    """How often each cause stands there; all causes, so that a series does not come and go."""
    return {(cause.value,): float(causes.count(cause)) for cause in Cause}
