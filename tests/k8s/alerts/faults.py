# SPDX-License-Identifier: Apache-2.0
"""A fault for each alert: the series that a scrape has while the fault is there, and while it is not.

Values are in promtool's notation, one a minute: `0x100` is 101 times 0, `0+2x100` grows by 2. Each fault
begins at minute 170 or earlier and is judged at minute 180, unless `at` says otherwise.
"""

from dataclasses import dataclass, field

DAY = 26 * 60
REST = "0x200"
# A single event between two scrapes, at minute 170, which an alert must not miss.
ONCE = "0x169 1x31"
# Faults that last 40 minutes by minute 180, and ones that last the whole time.
LATE = "0x139 1x61"
GROWS = "0x139 10+10x61"


@dataclass(frozen=True, slots=True)
class AlertFault:
    """`series` and `rest` are values by name and labels; `labels` are the labels of the alert that fires."""

    what: str
    series: dict[str, str]
    labels: dict[str, str]
    rest: dict[str, str] = field(default_factory=dict)
    at: str = "180m"


def on_node(name: str, job: str, **labels: str) -> str:
    """A series with the labels that the jobs of packaging/observability set."""
    given = {"job": job, "node": "node-1", "instance": "10.0.0.11:10571"} | labels
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in given.items()) + "}"


def _node(severity: str, **labels: str) -> dict[str, str]:
    return {"severity": severity, "node": "node-1"} | labels


def _all(severity: str, job: str, **labels: str) -> dict[str, str]:
    """Labels of an alert that aggregates nothing."""
    return _node(severity, job=job, instance="10.0.0.11:10571") | labels


def _simple(what: str, series: str, values: str, labels: dict[str, str], rest: str = REST) -> AlertFault:
    return AlertFault(what, {series: values}, labels, {series: rest})


def _slow(what: str, name: str, job: str, bound: str, above: str, **labels: str) -> AlertFault:
    """A histogram of which all observations are above `bound` and below `above`; else below it."""

    def series(below: str) -> dict[str, str]:
        bounds = {bound: below, above: "0+60x200", "+Inf": "0+60x200"}
        return {on_node(f"{name}_bucket", job, le=le, **labels): values for le, values in bounds.items()}

    return AlertFault(what, series(REST), _node("warning"), series("0+60x200"))


VN, KB, KP, DNS, WEB, SYNC, OPER = (
    "vn-agent", "kata-bridge", "kubeproxy-ext", "dnsconfig", "dnsconfig-webhook", "vc-syncer", "vc-operator",
)  # fmt: skip
_BUILD = 'vcnode_build_info{job="vn-agent",node="%s",instance="%s",daemon="vn-agent",version="%s"}'
_REQUESTS = "vcnode_vnagent_requests_total"
_RENEWALS = "vcnode_syncer_vnode_renewals_total"
_RECONCILES = "vcnode_tenantoperator_reconciles_total"
_CLUSTERS = "vcnode_tenantoperator_virtual_clusters"
_REVIEWS = "vcnode_dnswebhook_reviews_total"
_STALE = "30+60x200"

FAULTS: dict[str, AlertFault] = {
    # ---- all daemons
    "VcnodeDaemonDown": _simple(
        "the daemon was stopped", on_node("up", KB), "1x169 0x31", _all("critical", KB), "1x200"
    ),
    "VcnodeDaemonAbsent": AlertFault(
        "the node is no target any more",
        {
            _BUILD % ("node-1", "a", "0.1.0"): "1x149 stale",
            _BUILD % ("node-2", "b", "0.1.0"): "1x200",
        },
        _node("warning"),
        {_BUILD % ("node-1", "a", "0.1.0"): "1x200"},
    ),
    "VcnodeNotReady": _simple(
        "its kubeconfig is refused",
        on_node("vcnode_process_ready", DNS),
        "0x200",
        _all("critical", DNS),
        "1x200",
    ),
    "VcnodeRestarts": _simple(
        "it ends again and again",
        on_node("process_start_time_seconds", VN),
        "1000x159 1001 1002 1003 1004 1005x40",
        _all("warning", VN),
        "1000x169 1001x31",
    ),
    "VcnodeVersionsDiffer": AlertFault(
        "an upgrade that stopped half way",
        {
            _BUILD % ("node-1", "a", "0.1.0"): f"1x{DAY}",
            _BUILD % ("node-2", "b", "0.2.0"): f"1x{DAY}",
        },
        {"severity": "info", "daemon": "vn-agent"},
        {
            _BUILD % ("node-1", "a", "0.1.0"): "1x800 _x800",
            _BUILD % ("node-2", "b", "0.2.0"): f"1x{DAY}",
        },
        at=f"{DAY}m",
    ),
    "VcnodeFileDescriptors": AlertFault(
        "a leak of sockets",
        {on_node("process_open_fds", VN): "950x200", on_node("process_max_fds", VN): "1024x200"},
        _all("warning", VN),
        {on_node("process_open_fds", VN): "95x200", on_node("process_max_fds", VN): "1024x200"},
    ),
    "VcnodeStateNotSaved": AlertFault(
        "the disk is full",
        {
            on_node("vcnode_vnagent_state_errors_total", VN): REST,
            on_node("vcnode_katabridge_state_errors_total", KB): REST,
            on_node("vcnode_kubeproxyext_state_errors_total", KP): REST,
            on_node("vcnode_dnsconfig_state_errors_total", DNS): ONCE,
        },
        _all("warning", DNS),
        {on_node("vcnode_vnagent_state_errors_total", VN): "5x200"},
    ),
    "VcnodeObjectsTooLarge": _simple(
        "a Service of 2 MB",
        on_node("vcnode_process_oversized_objects", KP, kind="services"),
        LATE,
        {"severity": "warning", "job": KP, "kind": "services"},
    ),
    "VcnodeScrapersRefused": _simple(
        "a scraper whose name is not configured",
        on_node("vcnode_process_scrapes_total", VN, result="forbidden"),
        "0+2x200",
        _node("info", job=VN, result="forbidden"),
        ONCE,
    ),
    # ---- vn-agent
    "VnAgentSourceStale": _simple(
        "the kubelet is away",
        on_node("vcnode_vnagent_source_age_seconds", VN, source="pods"),
        _STALE,
        _node("critical", source="pods"),
        "2x200",
    ),
    "VnAgentSavedState": _simple(
        "a restart while the super cluster is away",
        on_node("vcnode_vnagent_saved_sources", VN, source="tenants"),
        LATE,
        _node("warning", source="tenants"),
    ),
    "VnAgentTenantInvalid": _simple(
        "a field of a tenant is misspelt",
        on_node("vcnode_vnagent_invalid_tenants", VN),
        LATE,
        _node("warning"),
    ),
    "VnAgentTenantsRetained": AlertFault(
        "the directory of tenants was emptied",
        {
            on_node("vcnode_vnagent_retained_tenants", VN): "0x130 7x70",
            on_node("vcnode_vnagent_retained_client_lists", VN): REST,
        },
        _node("warning"),
        {on_node("vcnode_vnagent_retained_client_lists", VN): REST},
    ),
    "VnAgentErrors": AlertFault(
        "the kubelet answers 502",
        {
            on_node(_REQUESTS, VN, tenant="a", endpoint="containerLogs", code="200"): "0+60x200",
            on_node(_REQUESTS, VN, tenant="a", endpoint="containerLogs", code="502"): GROWS,
        },
        _node("warning"),
        {
            on_node(_REQUESTS, VN, tenant="a", endpoint="containerLogs", code="200"): "0+60x200",
            on_node(_REQUESTS, VN, tenant="a", endpoint="containerLogs", code="502"): ONCE,
        },
    ),
    "VnAgentSlow": _slow(
        "the kubelet reads statistics for 4 s",
        "vcnode_vnagent_request_duration_seconds",
        VN,
        "2.0",
        "5.0",
        endpoint_class="page",
        code_class="2xx",
    ),
    "VnAgentAuditLinesLost": _simple(
        "the disk of the audit log is full",
        on_node("vcnode_vnagent_audit_lines_lost_total", VN),
        ONCE,
        _all("critical", VN),
    ),
    "VnAgentHandshakesFail": _simple(
        "an API server with an expired certificate",
        on_node("vcnode_vnagent_handshake_failures_total", VN),
        "0x139 120+120x61",
        _node("warning"),
        ONCE,
    ),
    "VnAgentEvictions": _simple(
        "a flood of connections",
        on_node("vcnode_vnagent_connections_evicted_total", VN),
        "0x139 120+120x61",
        _node("warning"),
        ONCE,
    ),
    "VnAgentReloadsFail": _simple(
        "a certificate was replaced by garbage",
        on_node("vcnode_reloads_total", VN, result="error"),
        ONCE,
        _all("warning", VN, result="error"),
    ),
    # ---- kata-bridge
    "KataBridgeSourceStale": _simple(
        "containerd is away",
        on_node("vcnode_katabridge_source_age_seconds", KB, source="nri"),
        _STALE,
        _node("critical", source="nri"),
        "1x200",
    ),
    "KataBridgeContainersBlocked": _simple(
        "a network without a DNS Service",
        on_node("vcnode_katabridge_blocked_containers", KB),
        "0x130 3x70",
        _node("critical"),
        "0x174 3x26",
    ),
    "KataBridgeUngatedStarts": _simple(
        "kata-bridge was away",
        on_node("vcnode_katabridge_ungated_starts_total", KB),
        ONCE,
        _all("critical", KB),
    ),
    "KataBridgeWarnedStarts": _simple(
        "policy warn",
        on_node("vcnode_katabridge_warned_starts_total", KB, reason="ResolverNotSynced"),
        ONCE,
        _all("info", KB, reason="ResolverNotSynced"),
    ),
    "KataBridgeGuestsUnreachable": _simple(
        "an agent in a guest hangs",
        on_node("vcnode_katabridge_guests", KB, channel="agent", sync_state="unreachable"),
        "0x130 2x70",
        _node("warning", sync_state="unreachable"),
    ),
    "KataBridgeDrift": _simple(
        "a program in a guest flushes iptables",
        on_node("vcnode_katabridge_drift_total", KB, kind="lost"),
        "0x129 1+1x70",
        _node("warning"),
        ONCE,
    ),
    "KataBridgeSlow": _slow(
        "guests apply rules for 4 s", "vcnode_katabridge_apply_seconds", KB, "2.0", "5.0"
    ),
    "KataBridgePluginConflict": _simple(
        "another plugin mounts resolv.conf",
        on_node("vcnode_katabridge_rejected_adjustments_total", KB),
        ONCE,
        _all("warning", KB),
    ),
    "KataBridgePeersRefused": _simple(
        "a program of another user connects",
        on_node("vcnode_katabridge_peers_refused_total", KB),
        ONCE,
        _all("warning", KB),
    ),
    # ---- kubeproxy-ext
    "KubeproxyExtSourceStale": _simple(
        "the API server is away",
        on_node("vcnode_kubeproxyext_source_age_seconds", KP, source="services"),
        _STALE,
        _node("critical", source="services"),
        "5x200",
    ),
    "KubeproxyExtBridgeAway": _simple(
        "kata-bridge was stopped",
        on_node("vcnode_kubeproxyext_bridge_connected", KP),
        "1x169 0x31",
        _node("critical"),
        "1x200",
    ),
    "KubeproxyExtGuestsBehind": _simple(
        "a guest refuses a line",
        on_node("vcnode_kubeproxyext_guest_behind_seconds", KP),
        "0x169 60+60x31",
        _node("warning"),
        "0x200",
    ),
    "KubeproxyExtRelistsDistrusted": _simple(
        "a backup without Services was restored",
        on_node("vcnode_kubeproxyext_distrusted_relists", KP),
        LATE,
        _node("warning"),
    ),
    "KubeproxyExtProgrammingSlow": _slow(
        "guests get changes after 12 s",
        "vcnode_kubeproxyext_network_programming_duration_seconds",
        KP,
        "10.0",
        "20.0",
    ),
    "KubeproxyExtPushesFail": _simple(
        "kata-bridge ends at each request",
        on_node("vcnode_kubeproxyext_pushes_failed_total", KP),
        GROWS,
        _all("warning", KP),
        ONCE,
    ),
    # ---- dnsconfig and its webhook
    "DnsConfigSourceStale": _simple(
        "the API server is away",
        on_node("vcnode_dnsconfig_source_age_seconds", DNS, source="pods"),
        _STALE,
        _node("critical", source="pods"),
        "5x200",
    ),
    "DnsConfigBridgeAway": _simple(
        "kata-bridge was stopped",
        on_node("vcnode_dnsconfig_bridge_connected", DNS),
        "1x169 0x31",
        _node("critical"),
        "1x200",
    ),
    "DnsConfigPodsWait": _simple(
        "a network that nobody created",
        on_node("vcnode_dnsconfig_waiting_pods", DNS, reason="NotFound"),
        LATE,
        _node("warning", reason="NotFound"),
    ),
    "DnsConfigServersRevoked": _simple(
        "the DNS Service of a network was deleted",
        on_node("vcnode_dnsconfig_revoked_pods", DNS),
        LATE,
        _node("warning"),
    ),
    "DnsConfigPushesFail": _simple(
        "kata-bridge ends at each request",
        on_node("vcnode_dnsconfig_pushes_failed_total", DNS),
        GROWS,
        _all("warning", DNS),
        ONCE,
    ),
    "DnsWebhookDenies": AlertFault(
        "no replica has synced",
        {
            on_node(_REVIEWS, WEB, result="patched"): "5x200",
            on_node(_REVIEWS, WEB, result="denied"): GROWS,
        },
        {"severity": "warning"},
        {
            on_node(_REVIEWS, WEB, result="patched"): "0+10x200",
            on_node(_REVIEWS, WEB, result="denied"): ONCE,
        },
    ),
    "DnsWebhookRequestsInvalid": _simple(
        "a registration of another version",
        on_node(_REVIEWS, WEB, result="invalid"),
        ONCE,
        {"severity": "warning"},
    ),
    # ---- vc-syncer
    "VcSyncerDeletionsHeld": _simple(
        "a tenant's etcd was wiped",
        on_node("vcnode_syncer_held_tenants", SYNC, side="super"),
        ONCE,
        {"severity": "warning", "side": "super"},
    ),
    "VcSyncerSourceStale": _simple(
        "the super cluster is away",
        on_node("vcnode_syncer_source_age_seconds", SYNC, source="super"),
        _STALE,
        {"severity": "critical", "source": "super"},
        "5x200",
    ),
    "VcSyncerTenantUnusable": _simple(
        "a Secret has the certificate of another authority",
        on_node("vcnode_syncer_tenants", SYNC, state="Unusable"),
        LATE,
        {"severity": "warning", "state": "Unusable"},
    ),
    "VcSyncerQueueSlow": _simple(
        "the super cluster answers slowly",
        on_node("vcnode_syncer_oldest_item_seconds", SYNC, tenant_class="default"),
        "0x130 90x70",
        {"severity": "warning", "tenant_class": "default"},
        "2x200",
    ),
    "VcSyncerUnexpectedFailures": _simple(
        "a right was taken away",
        on_node("vcnode_syncer_failures_total", SYNC, cause="forbidden"),
        ONCE,
        {"severity": "warning"},
    ),
    "VcSyncerConflicts": _simple(
        "somebody made the namespace of a tenant by hand",
        on_node("vcnode_syncer_conflicts", SYNC),
        LATE,
        {"severity": "info"},
    ),
    "VcSyncerRepairs": _simple(
        "another controller writes in tenants' namespaces",
        on_node("vcnode_syncer_repairs_total", SYNC),
        "0+3x200",
        {"severity": "info"},
        "0x100 150x100",
    ),
    "VcSyncerVNodeLeases": AlertFault(
        "API servers of tenants are away",
        {
            on_node(_RENEWALS, SYNC, result="renewed"): "0+60x200",
            on_node(_RENEWALS, SYNC, result="failed"): "0x139 20+20x61",
        },
        {"severity": "warning"},
        {
            on_node(_RENEWALS, SYNC, result="renewed"): "0+60x200",
            on_node(_RENEWALS, SYNC, result="failed"): ONCE,
        },
    ),
    "VcSyncerTokens": _simple(
        "a tenant forbids TokenRequests",
        on_node("vcnode_syncer_pod_tokens_total", SYNC, result="renewalFailed"),
        "0x129 1+1x71",
        {"severity": "warning"},
        ONCE,
    ),
    "VcSyncerLeaseLost": _simple(
        "the right to renew Leases was taken away",
        on_node("vcnode_syncer_valid_leases", SYNC),
        "1x170 0x30",
        {"severity": "critical", "instance": "10.0.0.11:10571"},
        "1x200",
    ),
    # ---- vc-operator
    "VcOperatorStepsRefused": _simple(
        "a right was taken away",
        on_node("vcnode_tenantoperator_failures_total", OPER, cause="forbidden"),
        ONCE,
        {"severity": "warning", "cause": "forbidden"},
    ),
    "VcOperatorReconcilesFail": AlertFault(
        "the super cluster's store is full",
        {
            on_node(_RECONCILES, OPER, result="settled"): "0+1x200",
            on_node(_RECONCILES, OPER, result="failed"): "0x139 3+3x61",
        },
        {"severity": "critical"},
        {
            on_node(_RECONCILES, OPER, result="settled"): "0+1x200",
            on_node(_RECONCILES, OPER, result="failed"): ONCE,
        },
    ),
    "VcOperatorReadySlow": AlertFault(
        "no node has room for control planes",
        {
            on_node("vcnode_tenantoperator_ready_seconds_bucket", OPER, le=le): values
            for le, values in {"60.0": REST, "120.0": REST, "300.0": "0+1x200", "+Inf": "0+1x200"}.items()
        },
        {"severity": "warning"},
        {
            on_node("vcnode_tenantoperator_ready_seconds_bucket", OPER, le=le): "0+1x200"
            for le in ("60.0", "120.0", "300.0", "+Inf")
        },
    ),
    "VcOperatorTenantsNotReady": AlertFault(
        "a tenant's store has no volume",
        {on_node(_CLUSTERS, OPER, ready="False", reason="WorkloadNotReady"): LATE},
        {"severity": "warning"},
        {
            on_node(_CLUSTERS, OPER, ready="False", reason="Asleep"): "3x200",
            on_node(_CLUSTERS, OPER, ready="True", reason="TenantReady"): "3x200",
            on_node(_CLUSTERS, OPER, ready="Unknown", reason="NotReconciled"): "1x200",
        },
    ),
    "VcOperatorRolloutStuck": AlertFault(
        "an edited ClusterVersion names an image that does not start",
        {on_node("vcnode_tenantoperator_rolling_seconds", OPER): "0x100 0+60x100"},
        {"severity": "warning"},
        {on_node("vcnode_tenantoperator_rolling_seconds", OPER): "0 60 120 180 240 0x195"},
    ),
    "VcOperatorNoLeader": AlertFault(
        "the right to write the Lease was taken away",
        {on_node("vcnode_tenantoperator_leaders", OPER): "1x139 0x61"},
        {"severity": "critical"},
        {
            on_node("vcnode_tenantoperator_leaders", OPER): REST,
            on_node("vcnode_tenantoperator_leaders", OPER, instance="10.0.0.12:10571"): "1x200",
        },
    ),
}
