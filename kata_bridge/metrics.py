# SPDX-License-Identifier: Apache-2.0
"""kata-bridge's metrics. No label takes its value from a guest, a pod or a tenant."""

from collections import Counter
from collections.abc import Callable, Iterable

from daemonkit.metrics import Registry
from daemonkit.tasks import add_metric

# From a delta for a guest with an agent to a whole ruleset for a slow namespace.
_APPLY_BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class KataBridgeMetrics:
    """All families, registered."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.pushes = self.registry.counter(
            "vcnode_katabridge_pushes_total",
            "Rulesets pushed to guests, by kind and result.",
            ("kind", "result"),
        )
        self.apply_seconds = self.registry.histogram(
            "vcnode_katabridge_apply_seconds",
            "Time of a push into a guest that succeeded.",
            _APPLY_BOUNDS,
        )
        self.drift = self.registry.counter(
            "vcnode_katabridge_drift_total",
            "Guests found without the rules that were applied, by kind.",
            ("kind",),
        )
        self.repairs = self.registry.counter(
            "vcnode_katabridge_drift_repairs_total", "Drifted guests whose rules were applied again."
        )
        self.results = self.registry.counter(
            "vcnode_katabridge_set_ruleset_results_total",
            "Results of SetRuleset, one for each guest.",
            ("code",),
        )
        self.watchers_ended = self.registry.counter(
            "vcnode_katabridge_watches_dropped_total",
            "Watches that were ended because their client did not read.",
        )
        self.peers_refused = self.registry.counter(
            "vcnode_katabridge_peers_refused_total", "Connections of processes that may not use the socket."
        )
        self.source_errors = self.registry.counter(
            "vcnode_katabridge_source_errors_total", "Failed reads of a source of sandboxes.", ("source",)
        )
        self.state_errors = self.registry.counter(
            "vcnode_katabridge_state_errors_total", "Failed writes into the state directory."
        )
        add_metric(self.registry)

    def watch(
        self, guests: Callable[[], Iterable[tuple[str, str]]], ages: Callable[[], dict[str, float]]
    ) -> None:
        """Register what is read at each scrape: (channel, state) of each guest, and ages of sources."""
        self.registry.gauge_function(
            "vcnode_katabridge_guests",
            "Guests on this node, by channel (agent, shim, ttrpc, netns; empty before the first) and state.",
            lambda: {key: float(count) for key, count in Counter(guests()).items()},
            ("channel", "sync_state"),
        )
        self.registry.gauge_function(
            "vcnode_katabridge_source_age_seconds",
            "Time since a source of sandboxes last reported.",
            lambda: {(name,): age for name, age in ages().items()},
            ("source",),
        )
