# SPDX-License-Identifier: Apache-2.0
"""vn-agent's metrics. Labels take values from the configuration and from closed sets only, so that
nothing in a request can add a series."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from daemonkit.kube import too_large
from daemonkit.metrics import Counter, Registry

if TYPE_CHECKING:
    from vnagent.state import Agent


class Metrics:
    """All families, registered; those that are read from live state call the agent."""

    def __init__(self) -> None:
        self.registry = Registry()
        too_large.add_metric(self.registry)
        self._requests = self.registry.counter(
            "vcnode_requests_total",
            "Decisions, by tenant, endpoint and the status of the answer.",
            ("tenant", "endpoint", "code"),
        )
        self._cells: dict[tuple[str | None, str, int], Counter] = {}
        self.reloads = self.registry.counter(
            "vcnode_reloads_total",
            "Sources that were read again after a change or SIGHUP.",
            ("result",),
        )
        self.reloads.labels("ok")
        self.reloads.labels("error")
        self.handshake_failures = self.registry.counter(
            "vcnode_handshake_failures_total", "Clients that did not prove any known identity."
        )
        begun = self.registry.counter(
            "vcnode_handshakes_total",
            "TLS handshakes that were begun, on the event loop or in the thread beside it.",
            ("place",),
        )
        seconds = self.registry.counter(
            "vcnode_handshake_cpu_seconds_total", "CPU time of TLS handshakes.", ("place",)
        )
        self.handshakes = {place: begun.labels(place) for place in ("loop", "thread")}
        self.handshake_seconds = {place: seconds.labels(place) for place in ("loop", "thread")}
        self.evictions = self.registry.counter(
            "vcnode_connections_evicted_total",
            "Connections without an identity that gave way to others, of the source that had most.",
        )
        self.expired = self.registry.counter(
            "vcnode_connections_expired_total",
            "Connections and streams that ended with the certificates that they were opened by.",
        )
        self.audit_lost = self.registry.counter(
            "vcnode_audit_lost_total", "Audit lines that could not be kept while the disk refused them."
        )
        self.distrusted_removals = self.registry.counter(
            "vcnode_removals_distrusted_total",
            "Times that most tenants, or lists of clients, were missing from their source and were retained.",
        )
        self.state_errors = self.registry.counter(
            "vcnode_state_errors_total", "Failures to keep the last good state on disk."
        )

    def count_request(self, tenant: str | None, endpoint: str, status: int) -> None:
        key = (tenant, endpoint, status)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = self._requests.labels(tenant or "", endpoint, str(status))
        cell.inc()

    def watch_retained(self, tenants: Callable[[], int], client_lists: Callable[[], int]) -> None:
        """Register how many tenants and lists of clients are retained."""
        self.registry.gauge_function(
            "vcnode_retained_tenants", "Tenants that are served though their source lacks them.", tenants
        )
        self.registry.gauge_function(
            "vcnode_retained_client_lists",
            "Lists of clients (vn-agent-clients) that are served though the super cluster lacks them.",
            client_lists,
        )

    def watch(self, agent: "Agent") -> None:
        """Register what is read from the agent when the page is asked for."""
        gauge = self.registry.gauge_function
        gauge(
            "vcnode_tasks",
            "Tasks of the event loop, and requests and streams under way.",
            lambda: len(asyncio.all_tasks()) + agent.busy_count,
        )
        gauge("vcnode_connections", "Connections of tenants.", lambda: len(agent.connections))
        gauge(
            "vcnode_buffered_bytes",
            "Bytes that tenants' clients have not read yet, and those of requests that are not whole yet.",
            lambda: agent.buffered_bytes,
        )
        gauge("vcnode_tunnels", "Upgraded streams.", lambda: len(agent.tunnels))
        gauge("vcnode_kubelet_connections", "Connections to the kubelet.", lambda: agent.kubelet.open_count)
        self.registry.counter_function(
            "vcnode_kubelet_handshakes_total",
            "TLS handshakes with the kubelet: with its certificates, or as a verified session goes on.",
            lambda: {
                ("full",): float(agent.kubelet.full_count),
                ("resumed",): float(agent.kubelet.resumed_count),
            },
            ("kind",),
        )
        gauge("vcnode_tenants", "Tenants that are registered.", lambda: len(agent.registry.tenants))
        gauge("vcnode_pods", "Pods of tenants on this node.", lambda: len(agent.index))
        gauge(
            "vcnode_source_age_seconds",
            "Time since a source last confirmed what is served; saved state counts from when it was saved.",
            lambda: {(name,): age for name, age in agent.ages().items()},
            ("source",),
        )
        gauge(
            "vcnode_source_is_saved_state",
            "1 while what is served comes from the state on disk, as its source was not heard yet.",
            lambda: {(name,): float(is_saved) for name, is_saved in agent.saved().items()},
            ("source",),
        )
        gauge(
            "vcnode_bad_sources",
            "Tenants whose source cannot be used; they keep their last good state.",
            lambda: len(agent.tenant_problems),
        )
