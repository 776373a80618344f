# SPDX-License-Identifier: Apache-2.0
"""vn-agent's counters. Labels take values from the configuration and from closed sets only, so that
nothing in a request can add a series."""

from collections.abc import Collection

from daemonkit.kube import oversized_objects
from daemonkit.metrics import Counter, Histogram, Registry
from vnagent.core.limits import LimitReason
from vnagent.core.requests import STREAMS, Endpoint
from vnagent.transport.handler import EndReason

# Its series of removed tenants stay: their number is that of configured ports.
TOKEN_REFUSALS = "vcnode_vnagent_token_refusals_total"  # noqa: S105 - a name, no secret
# From a refusal of its own to a log that the kubelet reads backwards; a quiet followed log may take hours.
_DURATION_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
_LIMIT_REASONS = frozenset(map(str, LimitReason))
# Others are pages.
_ENDPOINT_CLASSES = {
    str(Endpoint.CONTAINER_LOGS): "log",
    **{str(each): "stream" for each in STREAMS},
    **dict.fromkeys(
        map(str, (Endpoint.HEALTHZ, Endpoint.DENIED, Endpoint.UNKNOWN, Endpoint.MALFORMED)), "other"
    ),
}


class AgentMetrics:
    """The registered counters. `live_metrics` adds what is read from live state."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()
        oversized_objects.add_metric(self.registry)
        self._requests = self.registry.counter(
            "vcnode_vnagent_requests_total",
            "Decisions, by tenant, endpoint and the status of the answer.",
            ("tenant", "endpoint", "code"),
        )
        self._limited = self.registry.counter(
            "vcnode_vnagent_limited_requests_total",
            "Requests that were answered 429 for a limit of their tenant, by the reason in the audit line.",
            ("tenant", "reason"),
        )
        self._durations = self.registry.histogram(
            "vcnode_vnagent_request_duration_seconds",
            "Time from a whole request head to the first bytes of its answer; of a stream, to its opening.",
            _DURATION_BOUNDS,
            ("endpoint_class", "code_class"),
        )
        self._cells: dict[tuple[str | None, str, int], tuple[Counter, Histogram]] = {}
        self.reloads = self.registry.counter(
            "vcnode_reloads_total",
            "Reloads of sources after a change or SIGHUP.",
            ("result",),
        )
        self.reloads.labels("ok")
        self.reloads.labels("error")
        self.workers_ended = self.registry.counter(
            "vcnode_vnagent_workers_ended_total", "Workers that ended while they were needed."
        )
        self._handshake_failures = self.registry.counter(
            "vcnode_vnagent_handshake_failures_total",
            "TLS handshakes of clients that failed, without those that timed out, hung up or were evicted.",
        )
        begun = self.registry.counter(
            "vcnode_vnagent_handshakes_total",
            "TLS handshakes that began, on the event loop or in the thread.",
            ("place",),
        )
        seconds = self.registry.counter(
            "vcnode_vnagent_handshake_cpu_seconds_total", "CPU time of TLS handshakes.", ("place",)
        )
        self.handshakes = {place: begun.labels(place) for place in ("loop", "thread")}
        self.handshake_seconds = {place: seconds.labels(place) for place in ("loop", "thread")}
        self.evictions = self.registry.counter(
            "vcnode_vnagent_connections_evicted_total",
            "Connections evicted while they counted for no tenant, each from the client address with most.",
        )
        self.expired = self.registry.counter(
            "vcnode_vnagent_connections_expired_total",
            "Connections and streams that ended when their certificates expired.",
        )
        self._token_refusals = self.registry.counter(
            TOKEN_REFUSALS,
            "Requests on a tenant's port for bearer tokens that were refused, by reason.",
            ("tenant", "reason"),
        )
        self.audit_lost = self.registry.counter(
            "vcnode_vnagent_audit_lines_lost_total",
            "Audit lines that were lost while the file could not be written.",
        )
        self.distrusted_removals = self.registry.counter(
            "vcnode_vnagent_relists_distrusted_total",
            "Relists that lacked most tenants, or client lists, which were retained.",
        )
        self.state_errors = self.registry.counter(
            "vcnode_vnagent_state_errors_total", "Failures to save the last good state on disk."
        )

    def count_handshake_failure(self, reason: EndReason) -> None:
        """Count a handshake that ended for this reason, unless its client left."""
        if reason not in (EndReason.CLOSED, EndReason.RESET):
            self._handshake_failures.inc()

    def count_token_refusal(self, tenant: str, reason: str) -> None:
        """Count a request on the port of `tenant` without a valid token."""
        self._token_refusals.labels(tenant, reason).inc()

    def count_limited(self, tenant: str | None, reason: str) -> None:
        """Count a 429 if a limit of the tenant's is its reason."""
        if reason in _LIMIT_REASONS:
            self._limited.labels(tenant or "", reason).inc()

    def count_request(self, tenant: str | None, endpoint: str, status: int, duration_s: float) -> None:
        key = (tenant, endpoint, status)
        cells = self._cells.get(key)
        if cells is None:
            cells = self._cells[key] = (
                self._requests.labels(tenant or "", endpoint, str(status)),
                # Not by tenant: 15 series for each of 1 000 tenants.
                self._durations.labels(_ENDPOINT_CLASSES.get(endpoint, "page"), f"{status // 100}xx"),
            )
        cells[0].inc()
        cells[1].observe(duration_s)

    def forget_tenants(self, tenants: Collection[str]) -> None:
        """Drop the series of tenants that were removed. Otherwise those that come later would have none,
        as their number is bounded."""
        self._requests.drop("tenant", tenants)
        self._limited.drop("tenant", tenants)
        # All: a tenant that counts in the series of the overflow may have its own now.
        self._cells.clear()
