# SPDX-License-Identifier: Apache-2.0
"""kata-bridge's metrics. No label takes its value from a guest, a pod or a tenant."""

from collections import Counter
from collections.abc import Callable, Iterable

from daemonkit.metrics import Registry
from daemonkit.tasks import add_metric
from kata_bridge.guests.core.events import DriftKind

# From a delta into a guest of its own to a whole ruleset into a slow namespace.
_APPLY_BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """All families, registered."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.pushes = self.registry.counter(
            "vcnode_pushes_total", "Rulesets given to guests, by kind and how it ended.", ("kind", "result")
        )
        self.apply_seconds = self.registry.histogram(
            "vcnode_apply_seconds", "Time from giving a ruleset to a guest until it was in.", _APPLY_BOUNDS
        )
        self.losses = self.registry.counter(
            "vcnode_losses_total", "Guests found without the rules that they had been given.", ("how",)
        )
        for loss in DriftKind:
            self.losses.labels(loss.value)
        self.repairs = self.registry.counter(
            "vcnode_drift_repairs_total", "Guests that got such rules back without anyone asking."
        )
        self.results = self.registry.counter(
            "vcnode_results_total", "Answers to those who set rulesets, for each guest.", ("code",)
        )
        self.watchers_ended = self.registry.counter(
            "vcnode_watchers_ended_total", "Watches that were ended because they were not read."
        )
        self.callers_refused = self.registry.counter(
            "vcnode_callers_refused_total", "Connections of processes that may not use the socket."
        )
        self.source_errors = self.registry.counter(
            "vcnode_source_errors_total", "Failures to hear of sandboxes.", ("source",)
        )
        self.state_errors = self.registry.counter(
            "vcnode_state_errors_total", "Failures to write into the state directory."
        )
        add_metric(self.registry)

    def watch(
        self, guests: Callable[[], Iterable[tuple[str, str]]], ages: Callable[[], dict[str, float]]
    ) -> None:
        """Register what is read when the page is asked for: (channel, state) of each guest, and ages."""
        self.registry.gauge_function(
            "vcnode_guests",
            "Guests on this node, by channel and state.",
            lambda: {key: float(count) for key, count in Counter(guests()).items()},
            ("channel", "state"),
        )
        self.registry.gauge_function(
            "vcnode_source_age_seconds",
            "Time since a source of sandboxes was last heard.",
            lambda: {(name,): age for name, age in ages().items()},
            ("source",),
        )
