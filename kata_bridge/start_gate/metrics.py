# SPDX-License-Identifier: Apache-2.0
"""The gate's metrics. No label takes its value from a guest, a pod or a tenant."""

from collections.abc import Callable

from daemonkit.metrics import Registry
from kata_bridge.start_gate.core.decision import Kind

# From a namespace whose rules are there before anyone asks to a network that is made by hand.
_OPEN_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class GateMetrics:
    """All families, registered. `held` counts the containers that are held now."""

    def __init__(self, registry: Registry, held: Callable[[], float]) -> None:
        self.open_seconds = registry.histogram(
            "vcnode_gate_open_seconds",
            "Time from the start of a sandbox until all that its containers need was in.",
            _OPEN_BOUNDS,
        )
        self.holds = registry.counter(
            "vcnode_gate_holds_total", "Containers that were refused for now, by what was missing.", ("kind",)
        )
        self.warned = registry.counter(
            "vcnode_gate_warned_total", "Containers that started although this was missing.", ("kind",)
        )
        for kind in Kind:
            self.holds.labels(kind.value)
            self.warned.labels(kind.value)
        self.admitted = registry.counter(
            "vcnode_gate_admitted_total", "Containers of tenants' pods that passed the gate."
        )
        self.rejected = registry.counter(
            "vcnode_gate_rejected_total", "Containers that were rejected after all plugins had adjusted them."
        )
        self.got_through = registry.counter(
            "vcnode_gate_got_through_total", "Containers found running of which the gate had not been asked."
        )
        self.nudges = registry.counter(
            "vcnode_gate_nudges_total",
            "Pods whose kubelet was told to try again, by how it ended.",
            ("result",),
        )
        registry.gauge_function(
            "vcnode_gate_held_containers", "Containers that wait for what their pod needs.", held
        )
