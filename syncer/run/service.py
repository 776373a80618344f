# SPDX-License-Identifier: Apache-2.0
"""One running vc-syncer: builds the parts, starts them in order, and ends them."""

import asyncio
import secrets
import socket
from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING

from daemonkit import logs
from daemonkit.fairness.emptying import emptied
from daemonkit.fairness.steps import in_steps
from daemonkit.fairness.weighted_round_robin import MAX_WEIGHT
from daemonkit.kube.foreign_hosts import ForeignHosts
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.reflector_log import FailureLog
from daemonkit.kube.shared_budget import SharedBudget
from daemonkit.run.daemon_shell import DaemonShell, freeze_heap
from daemonkit.run.lifecycle import Lifecycle
from daemonkit.ticks import next_tick
from syncer.caches.cached_object import CachedObject
from syncer.caches.super_change import API_SERVER, CLUSTER_NETWORKS, DRAIN, NODE, POD_ADDRESS, SuperChange
from syncer.caches.super_cluster import SuperCaches
from syncer.config import ShardingConfig, SyncerConfiguration
from syncer.core.memory import TENANT_BYTES, budget_bytes, chosen_limit_bytes, room
from syncer.core.tenant_cluster import TenantCluster
from syncer.kinds import table
from syncer.kinds.port import SYSTEM_NAMESPACE, KindSync
from syncer.metrics import SyncerMetrics
from syncer.networks.controller import NetworkController
from syncer.run.attachments import Attachments
from syncer.run.cluster_conditions import ClusterConditions
from syncer.run.live_metrics import LiveParts, add_live_metrics
from syncer.run.memory_return import MemoryReturn
from syncer.run.reachability import Reachability
from syncer.run.report import StatusReport
from syncer.run.tenant_policies import TenantPolicies
from syncer.sharding.port import SoleOwner
from syncer.sources.directory import DirectorySource
from syncer.sources.port import (
    Reachable,
    TenantState,
    Unusable,
    keys_of,
    without_overlaps,
)
from syncer.sources.virtual_clusters import VirtualClusterSource
from syncer.surroundings import COMPONENT, Surroundings
from syncer.tenant.api_server import known_addresses
from syncer.tenant.deletions import SyncKey
from syncer.tenant.owned_namespaces import NAMESPACE
from syncer.tenant.session import SessionSurroundings, TenantSession
from syncer.work.action_writer import ActionWriter
from syncer.work.checks import all_checks
from syncer.work.detached import DetachedTenants, run_check
from syncer.work.engine import SLOTS, Engine
from syncer.work.orphans import OrphanCollector
from syncer.work.patrol import Patrol
from syncer.work.queue import WorkQueue
from syncer.work.reports import TenantReports
from syncer.work.slots import Slots
from syncer.work.token_sync import TokenSync
from syncer.work.vnode_sync import VNodeSync

if TYPE_CHECKING:
    from syncer.sharding.replica import Replica

_LOOKED_AT = frozenset({API_SERVER, CLUSTER_NETWORKS, DRAIN, POD_ADDRESS})
# A start that is not ready by then reports ready to systemd all the same; `/readyz` names what is missing.
READY_WAIT_S = 10.0
# For writes under way at a stop.
DRAIN_S = 5.0
LOOK_S = 1.0
# For the Lease to be released: others take over at once then.
LEAVE_S = 3.0

_log = logs.get(__name__)


class SyncerService:
    """Everything that lives from start to stop."""

    def __init__(
        self,
        config: SyncerConfiguration,
        environment: Mapping[str, str],
        surroundings: Surroundings | None = None,
    ) -> None:
        """Build all parts without connecting. Raises CredentialsError for an unusable kubeconfig."""
        self._config = config
        self._outside = outside = Surroundings() if surroundings is None else surroundings
        self._metrics = SyncerMetrics()
        self._published: Mapping[str, TenantState] = {}
        self._keys: frozenset[str] = frozenset()
        self._shell = DaemonShell(COMPONENT, wall_clock=outside.wall)
        self._tasks = self._shell.tasks
        self._replica = _replica_name(environment)
        # A managed field's manager is what stands before the slash.
        self._user_agent = COMPONENT if config.sharding is None else f"{COMPONENT}/{self._replica}"
        self._client = outside.open_super(
            config.super_cluster.kubeconfig_file, environment, SLOTS, self._user_agent
        )
        self._kinds: dict[str, KindSync] = {each.kind.kind: each for each in _kinds(config)}
        self._ownership = self._make_ownership(config.sharding)
        self._scheduler = outside.scheduler()
        # All tenants wait for what the super cluster tells: no number of them keeps it away.
        self._system = self._scheduler.open("super cluster", MAX_WEIGHT)
        self._queue = WorkQueue(outside.monotonic, outside.jitter, self._metrics.queue_seconds)
        self._super = SuperCaches(
            self._client, self._kinds.values(), self._super_changed, on_applied=self._charge_owners
        )
        self._memory = SharedBudget(
            budget_bytes(self._memory_limit_bytes()),
            lambda: self._super.stored.all.memory_bytes,
            member_bytes=TENANT_BYTES,
        )
        self._is_overcommitted = False
        self._surroundings = SessionSurroundings(
            self._kinds,
            self._super,
            self._client,
            config.settings,
            self._ownership,
            outside.open_tenant,
            self._memory,
            self._user_agent,
            config.tenants.max_cache_bytes,
            outside.monotonic,
            lambda: self._keys,
            ForeignHosts(lambda: self._client.server).resolve,
        )
        slots = Slots(SLOTS)
        self._reports = TenantReports(self._metrics, outside.wall, outside.monotonic, slots)
        self._attachments = Attachments(self, self._tasks)
        self._vnodes = VNodeSync(
            self._client,
            self._super,
            config.vn_agent,
            self._tasks,
            outside.wall,
            outside.jitter,
            probe=outside.probe,
        )
        self._tokens = TokenSync(
            self._client, self._super, self._reports, self._owns, self._tasks, outside.wall, outside.jitter
        )
        self._patrol = Patrol(
            self._queue,
            self._metrics,
            self._attachments.sessions,
            interval_s=config.patrol.interval_seconds,
            patrolled=self._tokens.remove_orphans,
        )
        self._memory_return = MemoryReturn(outside.return_free_pages)
        self._engine = Engine(
            self._kinds,
            self._queue,
            self._metrics,
            ActionWriter(self._kinds, self._metrics, self._vnodes, self._tokens, slots),
            self._reports,
            self._tasks,
            slots,
            self._memory_return.note_item,
        )
        self._meta_client = self._client
        self._source = self._make_source(environment)
        self._conditions = ClusterConditions(self._meta_client, self._source, outside.wall)
        self._reachability = Reachability(
            self._attachments.sessions,
            self._conditions.note_reachability,
            lambda session, reason: self._conditions.has(session.virtual_cluster, reason),
            changes=lambda: (FailureLog.changes, self._memory.refusals),
            clock=self._outside.monotonic,
        )
        self._orphans = self._make_orphans()
        self._policies = policies = TenantPolicies(
            self._meta_client,
            self._source,
            self._attachments.sessions,
            self._queue,
            self._vnodes,
            self._patrol,
        )
        detached = DetachedTenants(
            self._client,
            self._super,
            self._ownership,
            lambda: self._keys,
            policies.are_applied,
            policies.of_objects,
        )
        self._checks = all_checks(self._super, detached)
        self._report = StatusReport(
            self._attachments,
            self._super,
            self._queue,
            self._reports,
            self._engine,
            self._source_problem,
            None if isinstance(self._ownership, SoleOwner) else self._ownership,
            self._orphans,
            clock=outside.monotonic,
            memory=self._memory,
        )
        add_live_metrics(
            self._metrics.registry,
            LiveParts(
                self._attachments,
                self._super,
                self._queue,
                self._engine,
                self._reports,
                self._report,
                self._vnodes.vnodes.counts,
                self._tokens.issuer.counts,
                self._ownership,
                self._orphans,
                self._memory,
            ),
        )

    def _memory_limit_bytes(self) -> int:
        """What the process may take, with a line in the log about it."""
        found = self._outside.memory_limit()
        configured = self._config.max_memory_bytes
        limit_bytes = chosen_limit_bytes(configured, None if found is None else found.size_bytes)
        source = "maxMemoryBytes"
        if configured is None:
            source = "default" if found is None else str(found.path)
        _log.info(
            "memory that the process may take",
            mebibytes=limit_bytes >> 20,
            source=source,
            room_for_tenants=room(limit_bytes),
        )
        return limit_bytes

    def _make_ownership(self, sharding: ShardingConfig | None) -> "SoleOwner | Replica":
        if sharding is None:
            return SoleOwner()
        # Only here: they take 0.2 MB of a process.
        from daemonkit.lease_times import Instant
        from syncer.sharding.lease_objects import LeaseNames
        from syncer.sharding.replica import Replica

        leases = LeaseNames(sharding.lease.namespace, sharding.lease.name)
        return Replica(
            self._client,
            leases,
            self._replica,
            f"{self._replica}_{secrets.token_hex(8)}",
            self._update_tenants,
            clocks=lambda: Instant(self._outside.monotonic(), self._outside.wall()),
        )

    def _make_source(self, environment: Mapping[str, str]) -> DirectorySource | VirtualClusterSource:
        tenants = self._config.tenants
        if tenants.directory is not None:
            return DirectorySource(tenants.directory, lambda: self._client.server, self._publish)
        meta = tenants.virtual_clusters
        if meta is not None and (path := meta.kubeconfig_file) is not None:
            self._meta_client = self._outside.open_super(path, environment, SLOTS, self._user_agent)
        return VirtualClusterSource(
            self._meta_client,
            self._client,
            lambda: self._client.server,
            self._publish,
            self._tasks,
        )

    def _make_orphans(self) -> OrphanCollector | None:
        meta = self._config.tenants.virtual_clusters
        if meta is None or not isinstance(self._source, VirtualClusterSource):
            return None
        return OrphanCollector(
            self._meta_client,
            self._client,
            self._source,
            self._super,
            self._ownership,
            self._metrics,
            interval_s=self._config.patrol.interval_seconds,
            # Several meta clusters may have their tenants in one super cluster.
            needs_confirmation=meta.kubeconfig_file is not None,
            clock=self._outside.monotonic,
        )

    # ---- life

    async def run(self, life: Lifecycle) -> int:
        """Work until the daemon stops. Returns the exit code."""
        freeze_heap()
        await self._shell.start(
            life,
            self._config.status.listen_at,
            self._metrics.registry,
            readiness=self._report.readiness,
            status=self.status,
            pages={"/explain": self._report.explain},
            scrapes=self._config.metrics,
        )
        self.start_parts()
        await self._shell.announce(READY_WAIT_S, lambda: {"tenants": len(self._attachments.sessions)})
        await life.stopping.wait()
        await self._stop()
        return 0

    def start_parts(self) -> None:
        """Start all but the status pages."""
        if not isinstance(self._ownership, SoleOwner):
            self._tasks.spawn(self._ownership.run(), "sharding")
            self._tasks.spawn(self._ownership.cut_expired(), "cut of expired writes")
        self._super.start(self._tasks, self._system)
        self._tasks.spawn(self._policies.run(), "policies")
        self._tasks.spawn(self._source.run(), "tenants")
        self._tasks.spawn(self._conditions.run(), "conditions")
        self._tasks.spawn(self._look_after_tenants(), "look after tenants")
        if self._orphans is not None:
            self._tasks.spawn(self._system.run(self._orphans.run()), "orphans")
        for name, check in self._checks.items():
            patrols = run_check(check, self._super, self._config.patrol.interval_seconds)
            self._tasks.spawn(self._system.run(patrols), name)
        self._vnodes.start(self._tasks)
        self._tokens.start(self._tasks)
        self._tasks.spawn(self._engine.run(), "engine")
        self._tasks.spawn(self._patrol.run(), "patrol")
        self._tasks.spawn(self._note_super_cluster(), "addresses and draining of the super cluster")

    async def _look_after_tenants(self) -> None:
        """Look each second at what no event tells: whether tenants can be read, and are still themselves."""
        while True:
            self._reachability.poll()
            self._attachments.poll()
            await next_tick(LOOK_S)

    async def _note_super_cluster(self) -> None:
        """Look at what no object of the super cluster tells: where its API server is, and the time."""
        await self._super.wait_synced()
        while True:
            self._super.addresses.note_api_server(known_addresses(self._client, self._client.server))
            self._super.note_draining(self._outside.wall())
            await asyncio.sleep(self._config.patrol.interval_seconds)

    def status(self) -> dict[str, object]:
        """The page `/status`."""
        return self._report.status(self._outside.monotonic())

    async def patrol(self) -> int:
        """Patrol all tenants now; returns how many objects are not verified."""
        return sum([await self._patrol.check(each) for each in list(self._attachments.sessions.values())])

    async def _stop(self) -> None:
        self._report.is_draining = True
        await self._queue.drain(DRAIN_S)
        self._memory_return.close()
        await self._attachments.close()
        await self._shell.end_tasks()
        if not isinstance(self._ownership, SoleOwner):
            await self._ownership.leave(LEAVE_S)
        await self._client.close()
        await self._shell.stop()

    # ---- tenants

    def _publish(self, tenants: Mapping[str, TenantState]) -> None:
        self._published = without_overlaps(tenants)
        self._keys = keys_of(tenants)
        if isinstance(self._source, VirtualClusterSource):
            self._keys |= self._source.keys
        self._update_tenants()

    def _update_tenants(self) -> None:
        """Serve those of the published tenants that this process holds."""
        held = {
            source: state
            for source, state in self._published.items()
            if self._ownership.holds(state.cluster.key if isinstance(state, Reachable) else state.key)
        }
        self._attachments.update(held)
        self._note_room()

    def _note_room(self) -> None:
        """Say when the tenants begin, or cease, to be more than there is memory for."""
        memory, was = self._memory, self._is_overcommitted
        # A session that ends is counted there until it has given back what it held.
        self._is_overcommitted = len(self._attachments.sessions) > memory.room
        if self._is_overcommitted and not was:
            _log.warning(
                "more tenants than the limit of memory has room for: raise it, or divide them among replicas",
                tenants=len(self._attachments.sessions),
                room=memory.room,
            )
        elif was and not self._is_overcommitted:
            _log.info("the limit of memory has room for all tenants again", room=memory.room)

    def open_session(self, state: Reachable) -> TenantSession:
        """Build the session of a tenant; its conditions of what was the matter before end."""
        self._conditions.end_unusable(state.virtual_cluster)
        return TenantSession(
            self,
            self._surroundings,
            state.cluster,
            state.access,
            self._policies.of(state.cluster),
            self._scheduler.open(state.cluster.key, state.cluster.weight),
            held_tokens=self._conditions.held_tokens(state.virtual_cluster),
            virtual_cluster=state.virtual_cluster,
        )

    def enqueue(self, session: TenantSession, item: SyncKey) -> None:
        """Have an object of a tenant planned."""
        self._queue.add(session, item)

    def out_of_memory(self, session: TenantSession) -> None:
        """Another tenant has a claim to what is held for this one."""
        self._attachments.note_out_of_memory(session)

    def queued(self, session: TenantSession) -> int:
        """How many items of a tenant wait to be planned."""
        depths = self._queue.depths(session)
        return depths.ready + depths.delayed

    def task_failed(self, session: TenantSession) -> None:
        """A session has lost one of its tasks."""
        self._attachments.note_failure(session)

    async def wait_super_synced(self) -> None:
        """Return once the super cluster's objects are known."""
        await self._super.wait_synced()

    def is_super_cluster(self, session: TenantSession) -> bool:
        """Whether a tenant's Namespace is one of the super cluster's itself: no two clusters share a UID."""
        own = _system_uid(session.caches.reflectors[NAMESPACE])
        return bool(own) and own == _system_uid(self._super.reflectors[NAMESPACE])

    async def attach(self, session: TenantSession) -> bool:
        """A tenant is synced: plan its objects, and serve its vNodes and tokens. False if it ended meanwhile.

        What it has is looked at in steps before any of it is planned. What changes meanwhile reaches its
        vNodes and tokens, and is counted.
        """
        self._vnodes.nodes_synced()
        await in_steps(self._vnodes.attach(session))
        await in_steps(self._tokens.attach(session))
        session.start_quota()
        await session.count_quota()
        # No await from here.
        if self._attachments.sessions.get(session.tenant.key) is not session:
            return False
        self._vnodes.policy_changed(session)  # it may have another one than when they were begun
        self._queue.attach(session)
        session.is_attached = True
        session.tasks.spawn(self._patrol.start(session), "first patrol")
        if self._config.networks.enabled:
            session.tasks.spawn(self._networks_of(session).run(), "networks")
        return True

    def _networks_of(self, session: TenantSession) -> NetworkController:
        def report(reason: str, message: str) -> None:
            session.network_problem = f"{reason}: {message}" if reason else ""

        return NetworkController(
            session.client,
            session.api_server.client,
            self._config.networks.settings(session.tenant.cluster_domain),
            report,
            may_write=lambda: self._ownership.may_write(session.tenant.key),
            cache_budget=session.memory.budget,
            account=session.account,
        )

    def detached(self, session: TenantSession) -> tuple[Generator[None, None, None], ...]:
        """A tenant is not synced any more. All forget it at once; what they held is given back in steps."""
        session.is_attached = False
        vnodes, tokens = self._vnodes.detach(session), self._tokens.detach(session)
        held = *self._queue.detach(session), *self._reports.forget(session), *self._engine.forget(session)
        return vnodes, tokens, emptied(*held)

    def _owns(self, key: str, super_namespace: str) -> bool:
        session = self._attachments.sessions.get(key)
        is_owned = session is not None and session.namespaces.owns(super_namespace)
        return is_owned and self._ownership.may_write(key)

    def _super_changed(self, change: SuperChange) -> None:
        if change.kind == NODE:
            self._vnodes.node_changed(change)
            return
        sessions = self._attachments.sessions
        found = sessions.values() if change.key is None else filter(None, [sessions.get(change.key)])
        for session in found:
            if change.kind in _LOOKED_AT:
                session.looked_at_changed(change.item)
                continue
            if change.owner is not None and not change.owner.is_of(session.tenant.key, session.tenant.uid):
                continue  # of an earlier tenant with this key, whose pods may run on
            session.super_changed(change)
            if change.value is None or session.vnodes is None:
                continue  # it is read once the tenant is attached
            if change.kind == "Secret":
                self._tokens.secret_changed(change.value, is_deleted=change.is_deleted)
            elif change.kind == "Pod":
                self._vnodes.pod_changed(session, change.value, is_deleted=change.is_deleted)
                if change.is_deleted:
                    self._tokens.pod_gone(session, change.value)

    def _charge_owners(self, parts: Mapping[str, int], whole: int) -> None:
        """Charge tenants for what the super cluster's watch took to tell of their objects."""
        sessions = self._attachments.sessions
        accounts = {sessions[key].account: part for key, part in parts.items() if key in sessions}
        self._system.charge_others(accounts, whole)

    def tenant_changed(self, session: TenantSession, before: TenantCluster) -> None:
        """A weight, a policy, prefixes or a release of a tenant changed."""
        self._policies.tenant_changed(session, before)

    def note_problem(self, problem: Unusable) -> None:
        """A tenant cannot be synced: its VirtualCluster says so."""
        self._conditions.note_problem(problem)

    def note_resolved(self, problem: Unusable) -> None:
        """A tenant can be synced again, as far as this problem goes."""
        self._conditions.note_resolved(problem)

    def note_credential(self, session: TenantSession) -> None:
        """A tenant is read and written by other credentials than before."""
        self._conditions.note_credential(session)

    def holds_changed(self, session: TenantSession) -> None:
        """Other deletions of a tenant are held than before, or none any more."""
        self._conditions.note_holds(session)

    def _source_problem(self) -> str:
        source = self._source
        if source.has_synced and not source.problem:
            return ""
        return source.problem or "not synced"


def _system_uid(namespaces: Reflector[CachedObject]) -> str:
    """The UID of a cluster's Namespace kube-system, also if unreadable; empty while not known."""
    where = "", SYSTEM_NAMESPACE
    if (found := namespaces.objects.get(where)) is not None:
        return found.metadata.uid
    failed = namespaces.decode_failures.get(where)
    return "" if failed is None else failed.uid


def _kinds(config: SyncerConfiguration) -> Iterable[KindSync]:
    custom = [each.entry for each in config.custom_resources]
    return table.kinds(config.resources, custom, pod_dns=config.pods.dns)


def _replica_name(environment: Mapping[str, str]) -> str:
    """The name of this running replica: its pod's, as the host name is the node's under hostNetwork."""
    return (environment.get("POD_NAME") or socket.gethostname()).lower()
