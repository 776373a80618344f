# SPDX-License-Identifier: Apache-2.0
"""Metrics that are read from live state when the page is scraped."""

from collections.abc import Callable, Mapping

from daemonkit import tasks
from daemonkit.metrics import Registry
from vnagent.sources.configured import ConfiguredSources
from vnagent.sources.publisher import Publisher
from vnagent.state import AgentState
from vnagent.upstream.pool import UpstreamPool


def _by_source(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(name,): float(value) for name, value in values.items()}


def watch_connections(metrics: Registry, state: AgentState, pool: UpstreamPool) -> None:
    """Register what a process that serves connections counts. Of several processes these are summed."""
    tasks.add_metric(metrics, lambda: state.busy_count)
    metrics.gauge_function(
        "vcnode_vnagent_connections",
        "Open connections of clients, with those whose handshake runs on the event loop.",
        lambda: len(state.connections),
    )
    metrics.gauge_function(
        "vcnode_vnagent_buffered_bytes",
        "Bytes that tenants' clients have not read yet, and bytes of incomplete requests.",
        lambda: state.buffered_bytes,
    )
    metrics.counter_function(
        "vcnode_vnagent_sent_bytes_total",
        "Bytes of answers and streams that were sent to the clients of a tenant, before encryption.",
        lambda: state.by_tenant(lambda _, usage: usage.sent_bytes),
        ("tenant",),
    )
    metrics.counter_function(
        "vcnode_vnagent_loop_seconds_total",
        "Processor time of the event loop that a tenant's connections, streams, pages and lookups took.",
        lambda: state.by_tenant(lambda tenant, _: state.account_of(tenant).used_ns / 1e9),
        ("tenant",),
    )
    metrics.gauge_function("vcnode_vnagent_tunnels", "Upgraded streams.", lambda: len(state.tunnels))
    metrics.gauge_function(
        "vcnode_vnagent_log_follows", "Logs that are followed.", lambda: state.log_follow_count
    )
    metrics.gauge_function(
        "vcnode_vnagent_kubelet_connections", "Connections to the kubelet.", lambda: pool.open_count
    )
    metrics.counter_function(
        "vcnode_vnagent_kubelet_handshakes_total",
        "TLS handshakes with the kubelet: full ones, and resumptions of a verified session.",
        lambda: {("full",): float(pool.full_count), ("resumed",): float(pool.resumed_count)},
        ("kind",),
    )


def watch_workers(metrics: Registry, count: Callable[[], float]) -> None:
    """Register how many workers serve."""
    metrics.gauge_function(
        "vcnode_vnagent_workers", "Workers that serve connections; 0 where one process does.", count
    )


def watch_sources(
    metrics: Registry, state: AgentState, publisher: Publisher, sources: ConfiguredSources
) -> None:
    """Register what the process that reads the sources knows."""
    metrics.gauge_function(
        "vcnode_vnagent_tenants", "Tenants that are registered.", lambda: len(state.registry.tenants)
    )
    metrics.gauge_function("vcnode_vnagent_pods", "Pods of tenants on this node.", lambda: len(state.index))
    metrics.gauge_function(
        "vcnode_vnagent_invalid_tenants",
        "Tenants whose source is invalid; they keep their last good state.",
        lambda: len(state.tenant_problems),
    )
    metrics.gauge_function(
        "vcnode_vnagent_retained_tenants",
        "Tenants that are served though their source lacks them.",
        lambda: len(publisher.retained_sources),
    )
    metrics.gauge_function(
        "vcnode_vnagent_retained_client_lists",
        "Client lists (vn-agent-clients) that are served though the super cluster lacks them.",
        lambda: len(publisher.retained_lists),
    )
    metrics.gauge_function(
        "vcnode_vnagent_source_age_seconds",
        "Time since a source last confirmed the served objects; saved state counts from when it was saved.",
        lambda: _by_source(sources.ages()),
        ("source",),
    )
    metrics.gauge_function(
        "vcnode_vnagent_saved_sources",
        "1 while saved state is served, as the source has not synced yet.",
        lambda: _by_source(sources.saved()),
        ("source",),
    )
