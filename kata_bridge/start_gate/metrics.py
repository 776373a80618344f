# SPDX-License-Identifier: Apache-2.0
"""The start gate's metrics. No label takes its value from a guest, a pod or a tenant."""

from collections.abc import Callable

from daemonkit.metrics import Registry
from kata_bridge.start_gate.core.decision import Reason

# From a namespace whose rules are there before the first container to a network that an operator creates.
_NEEDS_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class StartGateMetrics:
    """All families, registered."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.needs_met_seconds = registry.histogram(
            "vcnode_katabridge_needs_met_seconds",
            "Time from the start of a sandbox until all needs of its pod were met.",
            _NEEDS_BOUNDS,
        )
        self.blocked = registry.counter(
            "vcnode_katabridge_blocked_starts_total",
            "Blocked container starts, by reason.",
            ("reason",),
        )
        self.warned = registry.counter(
            "vcnode_katabridge_warned_starts_total",
            "Containers that started under policy warn although needs were missing, by reason.",
            ("reason",),
        )
        for reason in Reason:
            self.blocked.labels(reason.value)
            self.warned.labels(reason.value)
        self.allowed = registry.counter(
            "vcnode_katabridge_allowed_starts_total",
            "Containers of tenants' pods that the start gate allowed.",
        )
        self.rejected = registry.counter(
            "vcnode_katabridge_rejected_adjustments_total",
            "Containers that were rejected after all NRI plugins had adjusted them.",
        )
        self.ungated = registry.counter(
            "vcnode_katabridge_ungated_starts_total",
            "Containers that were found running without a decision of the start gate.",
        )
        self.nudges = registry.counter(
            "vcnode_katabridge_nudges_total",
            "Pods that were annotated so that their kubelet tries again at once, by result.",
            ("result",),
        )

    def watch_blocked(self, count: Callable[[], float]) -> None:
        """Register the gauge of blocked containers; `count` is called at each scrape."""
        self._registry.gauge_function(
            "vcnode_katabridge_blocked_containers", "Containers that wait for the needs of their pod.", count
        )
