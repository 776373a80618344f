# SPDX-License-Identifier: Apache-2.0
"""Metrics that are read from live state at a scrape. Labels have closed sets of values."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from daemonkit.kube.reflector import Reflector
from daemonkit.kube.shared_budget import SharedBudget
from daemonkit.metrics import Registry
from syncer.caches.cached_object import CachedObject
from syncer.caches.super_cluster import SuperCaches
from syncer.core.plan import Side
from syncer.run.attachments import Attachments
from syncer.run.report import StatusReport
from syncer.sharding.port import SoleOwner
from syncer.tokens.controller import TokenCounts
from syncer.tokens.token_requests import RenewalFailure
from syncer.vnodes.tenant_vnodes import VNodeCounts
from syncer.work.engine import Engine
from syncer.work.orphans import OrphanCollector
from syncer.work.queue import WorkQueue
from syncer.work.reports import TenantReports

if TYPE_CHECKING:
    from syncer.sharding.replica import Replica

Values = dict[tuple[str, ...], float]


class LiveParts(msgspec.Struct, frozen=True):
    """What the metrics are read from."""

    attachments: Attachments
    super_cluster: SuperCaches
    queue: WorkQueue
    engine: Engine
    reports: TenantReports
    report: StatusReport
    vnodes: VNodeCounts
    tokens: TokenCounts
    ownership: "SoleOwner | Replica"
    orphans: OrphanCollector | None
    memory: SharedBudget


def add_live_metrics(registry: Registry, parts: LiveParts) -> None:
    """Register all of them."""
    registry.gauge_function(
        "vcnode_syncer_tenants",
        "Tenants by state.",
        parts.report.tenant_states,
        ("state",),
    )
    registry.gauge_function(
        "vcnode_syncer_memory_bytes",
        "Memory as it is counted: for all tenants, held for them, and the share of each.",
        lambda: memory_bytes(parts.memory),
        ("of",),
    )
    registry.gauge_function(
        "vcnode_syncer_memory_room_tenants",
        "For how many tenants the limit of memory has room.",
        lambda: float(parts.memory.room),
    )
    registry.gauge_function(
        "vcnode_syncer_memory_refused_tenants",
        "Tenants that are not served wholly: there was no memory for what their API servers have.",
        lambda: float(memory_refused(parts.attachments)),
    )
    registry.gauge_function(
        "vcnode_syncer_queued_objects",
        "Objects in the queue, by the class of their tenants and by what they wait for.",
        parts.queue.totals,
        ("tenant_class", "state"),
    )
    registry.gauge_function(
        "vcnode_syncer_oldest_item_seconds",
        "Longest time that an object waits in the queue now, by the class of its tenant.",
        parts.queue.oldest_ages_s,
        ("tenant_class",),
    )
    registry.gauge_function(
        "vcnode_syncer_source_age_seconds",
        "Time since the source that is the oldest was confirmed: of the super cluster, of synced tenants.",
        lambda: source_ages(parts.super_cluster, parts.attachments),
        ("source",),
    )
    registry.gauge_function(
        "vcnode_syncer_held_namespaces",
        "Super namespaces whose VirtualCluster is gone, and that are kept until that is confirmed.",
        lambda: 0.0 if parts.orphans is None else float(parts.orphans.held),
    )
    registry.gauge_function(
        "vcnode_syncer_held_tenants",
        "Tenants with deletions that a person must release, by the side where objects would be deleted.",
        lambda: held_tenants(parts.attachments),
        ("side",),
    )
    registry.gauge_function(
        "vcnode_syncer_held_deletions",
        "Deletions that a person must release, by the side where objects would be deleted.",
        lambda: held_deletions(parts.attachments),
        ("side",),
    )
    registry.gauge_function(
        "vcnode_syncer_unsynced_objects",
        "Objects of tenants that are refused, wait, conflict or fail: their Events say why.",
        parts.reports.count,
    )
    registry.gauge_function(
        "vcnode_syncer_conflicts",
        "Objects of tenants whose name another object has in the super cluster.",
        parts.engine.conflict_count,
    )
    _add_vnodes_and_tokens(registry, parts)
    _add_sharding(registry, parts.ownership)


def _add_vnodes_and_tokens(registry: Registry, parts: LiveParts) -> None:
    vnodes, tokens = parts.vnodes, parts.tokens
    registry.counter_function(
        "vcnode_syncer_vnode_writes_total",
        "Writes of vNodes in tenants, by result.",
        lambda: {
            ("created",): vnodes.created,
            ("patched",): vnodes.patched,
            ("deleted",): vnodes.deleted,
            ("failed",): vnodes.failed,
        },
        ("result",),
    )
    registry.counter_function(
        "vcnode_syncer_vnode_renewals_total",
        "Renewals of vNodes' Leases, by result.",
        lambda: {("renewed",): vnodes.renewed, ("failed",): vnodes.renewals_failed},
        ("result",),
    )
    registry.counter_function(
        "vcnode_syncer_pod_tokens_total",
        "Tokens of pods by what became of them: those of one pod count once.",
        lambda: {
            ("issued",): tokens.issued,
            ("renewed",): tokens.renewed,
            ("renewalFailed",): tokens.renewals_failed,
            ("removed",): tokens.removed,
        },
        ("result",),
    )
    registry.counter_function(
        "vcnode_syncer_token_renewal_failures_total",
        "Renewals of pods' tokens that failed, by cause: the pods' Events say why.",
        lambda: {(each.value,): float(tokens.failures[each]) for each in RenewalFailure},
        ("cause",),
    )


def _add_sharding(registry: Registry, ownership: "SoleOwner | Replica") -> None:
    registry.gauge_function(
        "vcnode_syncer_held_shards",
        "Shards of tenants that this replica holds; none without sharding.",
        lambda: 0 if isinstance(ownership, SoleOwner) else ownership.held_shards,
    )
    registry.gauge_function(
        "vcnode_syncer_replicas",
        "Replicas whose Leases are valid, this one included.",
        lambda: 1 if isinstance(ownership, SoleOwner) else ownership.live_replicas,
    )
    registry.gauge_function(
        "vcnode_syncer_valid_leases",
        "1 while this replica may write, as its Lease is renewed or it is alone; else 0.",
        lambda: float(True if isinstance(ownership, SoleOwner) else ownership.is_renewed),
    )


def memory_bytes(memory: SharedBudget) -> Values:
    """What there is, what of it is held, and what each tenant may always have."""
    return {
        ("budget",): float(memory.limit_bytes),
        ("held",): float(memory.total_bytes()),
        ("share",): float(memory.share_bytes),
    }


def source_ages(super_cluster: SuperCaches, attachments: Attachments) -> Values:
    """The age of the oldest source of each side; none that has never been confirmed."""
    tenants = (
        each
        for session in attachments.sessions.values()
        if session.is_attached
        for each in session.caches.reflectors.values()
    )
    found = (
        ("super", _oldest(super_cluster.reflectors.values())),
        ("tenants", _oldest(tenants)),
    )
    return {(name,): age_s for name, age_s in found if age_s is not None}


def _oldest(reflectors: Iterable[Reflector[CachedObject]]) -> float | None:
    ages = (each.age_s() for each in reflectors)
    return max((age_s for age_s in ages if age_s is not None), default=None)


def memory_refused(attachments: Attachments) -> int:
    """How many tenants were refused memory a short while ago."""
    return sum(each.memory.problem is not None for each in attachments.sessions.values())


def held_tenants(attachments: Attachments) -> Values:
    """How many tenants have a hold, by side."""
    found = Counter(side for each in attachments.sessions.values() for side in each.deletions.holds())
    return {(side.value,): float(found[side]) for side in Side}


def held_deletions(attachments: Attachments) -> Values:
    """How many deletions all holds have, by side."""
    found: Counter[Side] = Counter()
    for session in attachments.sessions.values():
        for side, hold in session.deletions.holds().items():
            found[side] += hold.missing
    return {(side.value,): float(found[side]) for side in Side}
