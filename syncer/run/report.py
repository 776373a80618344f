# SPDX-License-Identifier: Apache-2.0
"""What the daemon reports: readiness, `/status`, and `/explain` for one object of a tenant."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from daemonkit.kube.freshness import Failure, Freshness, freshness_of
from daemonkit.kube.shared_budget import SharedBudget
from daemonkit.remedies import Hop, HopKind
from daemonkit.status.server import Query, Readiness, Reply
from syncer.caches.cached_object import CachedObject
from syncer.caches.super_cluster import SuperCaches
from syncer.core import unknown
from syncer.core.pair import Pair
from syncer.core.plan import Side
from syncer.core.plan_description import describe_plan
from syncer.kinds import unknown_policy
from syncer.policy.sync_policy import PolicyUnusable
from syncer.run.attachments import Attachment, Attachments
from syncer.tenant.caches import NOT_WATCHED
from syncer.tenant.deletions import SyncKey
from syncer.tenant.session import TenantSession
from syncer.work.engine import Engine, unreadable_plan
from syncer.work.orphans import OrphanCollector
from syncer.work.queue import WorkQueue
from syncer.work.reports import TenantReports

if TYPE_CHECKING:
    from syncer.sharding.replica import Replica

# Objects that are not synced, of one tenant, in `/status`.
MAX_SHOWN = 50
SUPER_CLUSTER = Hop(
    HopKind.API_SERVER, "super cluster", "superCluster.kubeconfigFile", "packaging/syncer/rbac.yaml"
)
TENANT = Hop(
    HopKind.API_SERVER,
    "the tenant's API server",
    "the tenant's kubeconfig",
    "packaging/rbac/options/vc-syncer-tenant.yaml",
)
PHASES = ("Synced", "NotSynced", "Unusable")


class StatusReport:
    """Reads the state of the parts. `source_problem` is why tenants cannot be read, empty if they can."""

    def __init__(
        self,
        attachments: Attachments,
        super_cluster: SuperCaches,
        queue: WorkQueue,
        reports: TenantReports,
        engine: Engine,
        source_problem: Callable[[], str],
        replica: "Replica | None" = None,
        orphans: OrphanCollector | None = None,
        *,
        clock: Callable[[], float],
        memory: SharedBudget,
    ) -> None:
        self._memory = memory
        self._attachments = attachments
        self._super = super_cluster
        self._queue = queue
        self._reports = reports
        self._engine = engine
        self._source_problem = source_problem
        self._replica = replica
        self._orphans = orphans
        self._clock = clock
        self.is_draining = False

    def readiness(self) -> Readiness:
        """Ready when the super cluster and every reachable tenant are synced.

        A tenant whose API server does not answer, or whose credentials are refused, holds up no other: it
        is listed and not waited for. A replica without tenants is ready, but not while its Lease is not
        renewed.
        """
        lines: list[str] = []
        reasons: list[str] = []
        unsynced = [each.name for each in self._super.reflectors.values() if not each.synced.is_set()]
        found = Freshness(None)
        if unsynced or self._super.failure is not None:
            found = freshness_of(self._super.reflectors.values(), self._clock(), SUPER_CLUSTER)
        if unsynced:
            kinds = ", ".join(unsynced[:5])
            lines.append(f"super cluster: not synced: {kinds}{found.because}")
            reasons.append(f"{kinds} not synced{'' if found.fault is None else f': {found.fault.text}'}")
        elif found.fault is not None:
            lines.append(found.line("super cluster"))
        else:
            lines.append("super cluster: ok")
        problem = self._source_problem()
        lines.append(f"tenants: {problem or 'ok'}")
        if problem:
            reasons.append(lines[-1])
        if self._replica is not None:
            lines.append(_replica_line(self._replica))
            if not self._replica.is_renewed:
                reasons.append(lines[-1])
        waited_for = 0
        for each in self._attachments.by_source.values():
            if each.session is None or not each.session.is_attached:  # few: it is asked each second
                line, is_waited_for = _tenant_line(each)
                lines.append(line)
                waited_for += is_waited_for
        if waited_for:
            reasons.append(f"{waited_for} tenants not synced")
        if self._memory.is_overcommitted:
            lines.append(f"memory: room for {self._memory.room} tenants, and there are more")
        if self.is_draining:
            lines.append("draining")
            reasons.append("draining")
        return Readiness(not reasons, tuple(lines), "; ".join(reasons))

    def status(self, now: float) -> dict[str, object]:
        """The page `/status`: each tenant with its phase, queue, oldest item, held objects and last error."""
        return {
            "isDraining": self.is_draining,
            "superCluster": {
                "hasSynced": self._super.has_synced,
                "sources": {
                    each.name: {
                        "isSynced": each.synced.is_set(),
                        "ageSeconds": each.age_s(),
                        "lists": each.lists,
                        **_failure(each.failure, each.name, now),
                    }
                    for each in self._super.reflectors.values()
                },
            },
            "sourceProblem": self._source_problem(),
            "memory": {
                "budgetBytes": self._memory.limit_bytes,
                "countedBytes": self._memory.total_bytes(),
                "shareBytes": self._memory.share_bytes,
                "roomForTenants": self._memory.room,
            },
            "orphans": None if self._orphans is None else self._orphans.status(),
            "sharding": None if self._replica is None else _sharding(self._replica),
            "tenants": {
                source: self._tenant(each, now)
                for source, each in sorted(self._attachments.by_source.items())
            },
        }

    def _tenant(self, each: Attachment, now: float) -> dict[str, object]:
        found: dict[str, object] = {
            "phase": _phase(each),
            "problem": None
            if each.problem is None
            else {"reason": each.problem.reason, "message": each.problem.message},
            "virtualCluster": None
            if each.state.virtual_cluster is None
            else "/".join(each.state.virtual_cluster),
        }
        session = each.session
        if session is None:
            return found
        depths = self._queue.depths(session)
        reported = self._reports.reported(session)
        return found | {
            "key": session.tenant.key,
            "weight": session.tenant.weight,
            "memoryBytes": session.memory.budget.counted_bytes,
            # Since the session began. Who has much of it makes others wait no longer than its weight allows.
            "processorSeconds": round(session.account.used_ns / 1e9, 3),
            "queue": {"ready": depths.ready, "delayed": depths.delayed, "inFlight": depths.in_flight},
            "oldestItemSeconds": None if depths.oldest_s is None else now - depths.oldest_s,
            "held": {
                side.value: {"reason": hold.reason, "message": hold.message, "token": hold.token}
                for side, hold in session.deletions.holds().items()
            },
            "failure": None if session.caches.failure is None else session.caches.failure.message,
            "lastError": session.last_error,
            "networkProblem": session.network_problem,
            "notSynced": [
                {"kind": kind, "object": f"{namespace}/{name}" if namespace else name, "reason": reason}
                for (kind, namespace, name), reason in list(reported.items())[:MAX_SHOWN]
            ],
            "notSyncedCount": len(reported),
        }

    def tenant_states(self) -> dict[tuple[str, ...], float]:
        """The number of tenants in each phase."""
        phases = [_phase(each) for each in self._attachments.by_source.values()]
        return {(each,): float(phases.count(each)) for each in PHASES}

    def explain(self, query: Query) -> Reply:
        """Where an object is in the super cluster, whether both sides agree, and why not."""
        missing = [name for name in ("tenant", "kind", "name") if not query.get(name)]
        if missing:
            return Reply.json({"error": f"give {', '.join(missing)}"}, 400)
        session = self._attachments.sessions.get(query["tenant"])
        if session is None:
            return Reply.json({"error": "no such tenant is synced"}, 404)
        item: SyncKey = (query["kind"], query.get("namespace", ""), query["name"])
        if item[0] not in session.kinds:
            return Reply.json({"error": f"kind {item[0]} is not synced"}, 404)
        return Reply.json(self._explanation(session, item))

    def _explanation(self, session: TenantSession, item: SyncKey) -> dict[str, object]:
        cached = session.caches.pair(item)
        failed = {side: session.caches.unreadable_on(side, item) for side in Side}
        unreadable = {side: each.reason for side, each in failed.items() if each is not None}
        return {
            "tenant": session.tenant.key,
            "kind": item[0],
            "namespace": item[1],
            "name": item[2],
            "isInTenant": cached.tenant is not None or Side.TENANT in unreadable,
            "superNamespace": session.namespaces.super_name(item[1]) if item[1] else "",
            "ownsSuperNamespace": bool(item[1]) and session.namespaces.owned(item[1]) is not None,
            "isInSuper": cached.super is not None or Side.SUPER in unreadable,
            "superName": _super_name(session, item, cached.super, is_unreadable=Side.SUPER in unreadable),
            "unreadable": unreadable,
            "isSynced": not (unreadable or session.needs_plan(item)),
            "isHeld": any(
                session.deletions.is_unconfirmed(side, item) and not session.deletions.may_delete(side, item)
                for side in Side
            ),
            "reason": self._reports.last(session, item),
            "conflict": self._engine.conflict(session, item),
            "policyProblem": session.policy.message if isinstance(session.policy, PolicyUnusable) else "",
            "plan": _fresh_plan(session, item),
        }


def _failure(failure: Failure | None, name: str, now: float) -> dict[str, object]:
    """Why a kind of the super cluster cannot be read now."""
    if failure is None:
        return {}
    return {"failure": failure.fault(SUPER_CLUSTER, name).failure_document(now - failure.since)}


def _replica_line(replica: "Replica") -> str:
    from syncer.core.sharding import SHARDS  # only where there are replicas

    shards = f"{replica.held_shards} of {SHARDS} shards, {replica.live_replicas} replicas alive"
    if replica.is_renewed:
        return f"sharding: ok: {shards}"
    return f"sharding: Lease not renewed: {replica.last_error or 'not written yet'}; {shards}"


def _sharding(replica: "Replica") -> dict[str, object]:
    return {
        "replica": replica.name,
        "shardsHeld": replica.held_shards,
        "replicasAlive": replica.live_replicas,
        "isLeaseRenewed": replica.is_renewed,
        "lastError": replica.last_error,
    }


def _super_name(
    session: TenantSession, item: SyncKey, found: CachedObject | None, *, is_unreadable: bool
) -> str:
    """The name of the super object; empty without one."""
    if found is not None:
        return found.metadata.name
    key = session.caches.super_key(item) if is_unreadable else None
    return "" if key is None else key[1]


def _fresh_plan(session: TenantSession, item: SyncKey) -> dict[str, object] | None:
    """What a plan of the cached objects would do now, and what it looked up if it waits. Nothing is done.

    None without an object, and for Events, which are copied once. An object that cannot be read has that of
    the engine: without it, as if it were absent, the plan is its deletion on the other side.
    """
    cached = session.caches.pair(item)
    if item[0] in NOT_WATCHED:
        return None
    if (unreadable := session.caches.unreadable(item)) is not None:
        return describe_plan(unreadable_plan(*unreadable)) | {"waitsFor": []}
    if cached.is_empty:
        return None
    view = session.view()
    tenant = None if cached.tenant is None else cached.tenant.load()
    found = None if cached.super is None else cached.super.load()
    sync = session.kinds[item[0]]
    plan = sync.plan((item[1], item[2]), Pair(tenant, found), view)
    plan = unknown.hold(plan, view.unknown, has_tenant=tenant is not None, holds_changes=sync.holds_changes)
    if view.policy_wait is not None:
        plan = unknown_policy.hold(plan, sync, view.policy_wait)
    looked = sorted(view.looked) if plan.wait is not None else []
    return describe_plan(plan) | {
        "waitsFor": [
            {"side": side.value, "kind": kind, "namespace": namespace, "name": name}
            for side, kind, namespace, name in looked
        ]
    }


def _phase(each: Attachment) -> str:
    if each.session is None:
        return "Unusable"
    return "Synced" if each.session.is_attached else "NotSynced"


def _tenant_line(each: Attachment) -> tuple[str, bool]:
    """The line of a tenant that is not synced, and whether readiness waits for it."""
    session = each.session
    if session is None:
        problem = each.problem
        key = "" if problem is None else problem.key
        return f"tenant {key}: {'' if problem is None else problem.message}", False
    failure = session.caches.failure
    if failure is not None:
        fault = TENANT.fault(failure.cause, failure.message, failure.server)
        return f"tenant {session.tenant.key}: not reachable: {fault.text}; {fault.remedy}", False
    return f"tenant {session.tenant.key}: not synced", True
