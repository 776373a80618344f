# SPDX-License-Identifier: Apache-2.0
"""Reconciles one VirtualCluster: observes, plans, has the steps carried out, and writes the status."""

import asyncio
from collections.abc import Iterable

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import Key, is_older
from tenancy import keys
from tenant_operator.core.observed import Failed, Observed, ProbeResult
from tenant_operator.core.plan import Settings, TenantPlan
from tenant_operator.core.rollouts import LONGEST_S
from tenant_operator.core.status import status_after, status_patch
from tenant_operator.core.steps import is_in_tenant
from tenant_operator.core.tenant import plan
from tenant_operator.core.transitions import Transition, deleted, put_back, transitions
from tenant_operator.edge.caches import SuperClusterCaches
from tenant_operator.edge.executor import Executor
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.surroundings import OperatorSurroundings
from tenant_operator.life.requests import time_of
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import VirtualCluster
from tenant_operator.run.bounded_tenants import BoundedTenants
from tenant_operator.run.probe_queue import ProbeQueue
from tenant_operator.run.queue import ReconcileQueue
from tenant_operator.run.tenant_slots import TenantSlots

# A watch shows a write within milliseconds. Without its event the next plan is made all the same.
OBSERVE_S = 5.0
# Of the workers, so many may wait for API servers of tenants, and of one namespace half of these.
MAX_IN_TENANTS = 4
MAX_OF_NAMESPACE = 2
# Who waits for one of them is planned by then for all else.
OTHERS_S = 5.0
# After this time a control plane that is still not available counts no more as one that starts.
LONGEST_START_S = 60.0

_log = logs.get(__name__)


class ReconcileState(msgspec.Struct):
    """What a restart loses, and finds again: results of probes, and writes that no watch has shown yet."""

    uid: str
    key: Key
    probes: dict[str, ProbeResult] = {}
    failures: tuple[Failed, ...] = ()
    unseen: dict[Ref, str] = {}
    unseen_since: float = 0.0
    waits_for: str = ""
    is_busy: bool = False
    counted: tuple[object, ...] = ()
    starts_at: float | None = None
    in_tenant: asyncio.Timeout | None = None
    waits_for_slot: bool = False


class Reconciler:
    """One of all workers; `reconcile` is called for one VirtualCluster at a time."""

    def __init__(
        self,
        settings: Settings,
        caches: SuperClusterCaches,
        super_cluster: SuperClusterWriter,
        executor: Executor,
        probes: ProbeQueue,
        queue: ReconcileQueue,
        metrics: OperatorMetrics,
        outside: OperatorSurroundings,
    ) -> None:
        self._settings = settings
        self._caches = caches
        self._super = super_cluster
        self._executor = executor
        self._probes = probes
        self._queue = queue
        self._metrics = metrics
        self._outside = outside
        self.slots = TenantSlots(MAX_IN_TENANTS, MAX_OF_NAMESPACE, queue.add)
        self.rolling = BoundedTenants(settings.max_rolling, queue.add, outside.wall, LONGEST_S)
        self.starting = BoundedTenants(settings.max_starting, queue.add, outside.monotonic)
        self.states: dict[str, ReconcileState] = {}
        """By the UID of the VirtualCluster."""

    def note_owned(self, uid: str) -> None:
        """An object that was made for the VirtualCluster of this UID changed, came or went."""
        state = self.states.get(uid)
        if state is None:
            return
        self._note_place(state)
        unseen = len(state.unseen)
        self._forget_seen(state)
        # While a plan is carried out, it is not known yet which versions it writes.
        if state.is_busy or len(state.unseen) < unseen:
            self._queue.add_behind_backoff(state.key)
        else:
            self._queue.add(state.key)

    def note_cluster(self, key: Key) -> None:
        """A VirtualCluster came or changed."""
        cluster = self._caches.clusters.objects.get(key)
        if cluster is None:
            return  # it went with the same batch of changes
        uid = cluster.metadata.uid
        state = self.states.setdefault(uid, ReconcileState(uid, key))
        self._note_place(state)
        if cluster.metadata.deletion_timestamp and state.in_tenant is not None:
            # What is done there is to go, and its end waits for no answer.
            state.in_tenant.reschedule(0.0)
            state.in_tenant = None
        counted = _counted(cluster)
        if counted == state.counted:
            self._queue.add_behind_backoff(key)
        else:
            state.counted = counted
            self._queue.add(key)

    def note_gone(self, key: Key, uid: str) -> None:
        """The VirtualCluster of this UID is deleted; another one may have its name already."""
        if self.states.pop(uid, None) is not None:
            self.rolling.forget(key, uid)
            self.starting.forget(key, uid)
        if key not in self._caches.clusters.objects:
            self._queue.forget(key)
            self.slots.give_back(key)

    def forget_all(self) -> None:
        """Another replica leads from now on: what is known of probes and writes gets old."""
        for state in self.states.values():
            state.probes.clear()
            state.unseen.clear()
            state.failures = ()
            state.starts_at = None
        self.rolling.forget_all()
        self.starting.forget_all()
        self.slots.forget_all()

    def use(self, settings: Settings) -> None:
        """Plan by these from now on."""
        self._settings = settings

    def _note_place(self, state: ReconcileState) -> None:
        """Whether it is one of those that get other pods now. What ends holds up no tenant."""
        cluster = self._caches.clusters.objects.get(state.key)
        since = ""
        if cluster is not None and isinstance(cluster.key, str) and not cluster.metadata.deletion_timestamp:
            root = self._caches.get(Ref("Namespace", "", cluster.key))
            since = "" if root is None else root.metadata.annotations.get(keys.ROLLING_SINCE, "")
        self.rolling.note(state.key, state.uid, since)

    async def reconcile(self, key: Key) -> bool | None:
        """Take the next steps. Returns whether one failed; None if none could be planned."""
        cluster = self._caches.clusters.objects.get(key)
        state = None if cluster is None else self.states.get(cluster.metadata.uid)
        if cluster is None or state is None:
            return False
        if self._waits_for_watch(state):
            self._queue.add_after(key, OBSERVE_S)
            return None
        state.is_busy = True
        state.waits_for_slot = False
        try:
            return await self._reconcile(key, cluster, state)
        finally:
            state.is_busy = False
            if not state.waits_for_slot:
                self.slots.give_back(key)
            self.rolling.offer()
            self.starting.offer()
            if not state.unseen:
                self._caches.pack(cluster)

    async def _reconcile(self, key: Key, cluster: VirtualCluster, state: ReconcileState) -> bool | None:
        observed = self._observed(cluster, state)
        made = plan(observed, self._settings)
        state.waits_for = made.waits_for
        self.rolling.wait(key, state.uid, is_waiting=made.waits_for_place)
        # What is refused or another's: no step of it is taken, however long.
        self.rolling.note_refused(state.uid, is_refused=made.key is None)
        if made.takes_place:
            self.rolling.take(state.uid)
        self._note_start(state, made)
        versions: dict[Ref, str] = {}
        try:
            failures, versions, is_cut = await self._carry_out(observed, made, state)
        finally:
            if Ref("Namespace", "", made.key or "") not in versions:
                self.rolling.fail(state.uid)
        tries = 1 + (state.failures[0].tries if state.failures else 0)
        failures = tuple(msgspec.structs.replace(each, tries=tries) for each in failures)
        state.failures = failures
        state.unseen.update(versions)
        state.unseen_since = self._outside.monotonic()
        if not failures:
            self._report(observed, (*put_back(cluster, made), *deleted(made)))
        is_written = await self._write_status(key, observed, made, failures)
        self._metrics.reconciles.labels(
            "failed" if failures else "waiting" if made.steps or made.waits_for else "settled"
        ).inc()
        has_failed = bool(failures) or not is_written
        if is_cut:
            self._queue.add_after(key, OTHERS_S)
        elif made.check_again_s is not None and not has_failed:
            self._queue.add_after(key, made.check_again_s)
        # What failed there has its backoff still.
        return None if is_cut and not has_failed else has_failed

    def _note_start(self, state: ReconcileState, made: TenantPlan) -> None:
        """Whether its control plane starts now. One that does not come up holds its place for a while, and
        one that comes down again takes none: it would take all that there are."""
        self.starting.wait(state.key, state.uid, is_waiting=made.waits_to_start)
        now = self._outside.monotonic()
        if not (made.is_starting or made.is_down):
            state.starts_at = None
        elif made.is_starting and state.uid not in self.starting:
            state.starts_at = now
            self.starting.take(state.uid)
            self._queue.add_after(state.key, LONGEST_START_S)
        if state.starts_at is None or now - state.starts_at >= LONGEST_START_S:
            self.starting.fail(state.uid)

    async def _carry_out(
        self, observed: Observed, made: TenantPlan, state: ReconcileState
    ) -> tuple[tuple[Failed, ...], dict[Ref, str], bool]:
        """As the executor does, and whether the steps in the tenant are left for later: its API server may be
        as slow as the tenant likes, and some workers are always free of all tenants. Probes are asked before
        them, so that the next plan has answers however long the tenant takes. What is done in the super
        cluster waits for none of them."""
        inside = [step for step in made.steps if is_in_tenant(step)]
        outside = [step for step in made.steps if not is_in_tenant(step)]
        failures, versions = await self._executor.carry_out(observed, outside)
        self._probes.ask(state.uid, state.key, made.probes, state.probes)
        if not inside or failures:
            return failures, versions, False
        state.waits_for_slot = not self.slots.take(state.key)
        if state.waits_for_slot:
            return failures, versions, True
        try:
            async with asyncio.timeout(None) as state.in_tenant:
                failures, more = await self._executor.carry_out(observed, inside)
        except TimeoutError:
            # It is being deleted: what these steps write is read anew.
            return (), versions, True
        finally:
            state.in_tenant = None
        return failures, versions | more, False

    def _observed(self, cluster: VirtualCluster, state: ReconcileState) -> Observed:
        source = cluster.spec.restore_from
        return Observed(
            cluster,
            {each.metadata.name: each for each in self._caches.versions.objects.values()},
            self._caches.of(cluster),
            self._outside.wall(),
            dict(state.probes),
            state.failures,
            {each.metadata.name: each.files for each in self._caches.defaults.objects.values()},
            tuple(self._caches.overlapping(cluster)),
            {} if source is None else self._caches.left_of(source.uid),
            self._caches.node_addresses,
            self.rolling.may_take(state.uid),
            self.starting.may_take(state.uid),
        )

    def _waits_for_watch(self, state: ReconcileState) -> bool:
        """Whether a write of ours is not in the caches yet: a plan would repeat it."""
        self._forget_seen(state)
        if state.unseen and self._outside.monotonic() - state.unseen_since >= OBSERVE_S:
            state.unseen.clear()
        return bool(state.unseen)

    def _forget_seen(self, state: ReconcileState) -> None:
        for ref, version in list(state.unseen.items()):
            live = self._caches.get(ref)
            if live is not None and not is_older(live.metadata.resource_version, version):
                del state.unseen[ref]

    async def _write_status(
        self, key: Key, observed: Observed, made: TenantPlan, failures: tuple[Failed, ...]
    ) -> bool:
        """Write what changed of the status. Returns False if that failed."""
        cluster = observed.virtual_cluster
        after = status_after(observed, made, failures)
        patch = status_patch(cluster, after) if made.findings else None
        if patch is None:
            return True
        ref = Ref("VirtualCluster", *key)
        try:
            await self._super.patch(ref, patch, "status")
        except (ApiError, UnreachableError) as error:
            if isinstance(error, ApiError) and error.status.code in (404, 409):
                return error.status.code == 404  # it is gone, or another wrote it: the next plan sees that
            _log.warning("a status cannot be written", virtual_cluster="/".join(key), reason=error)
            return False
        self._report(observed, transitions(cluster.status, after))
        return True

    def _report(self, observed: Observed, found: Iterable[Transition]) -> None:
        """A line for each, of the replica that has written it."""
        meta = observed.virtual_cluster.metadata
        for each in found:
            _log.info(each.message, virtual_cluster=f"{meta.namespace}/{meta.name}", **each.facts)
            created_at = time_of(meta.creation_timestamp)
            if each.is_first and created_at is not None:
                self._metrics.ready_seconds.observe(max(observed.now_s - created_at, 0.0))


def _counted(cluster: VirtualCluster) -> tuple[object, ...]:
    """What people, and vc-syncer, change of it: another value may mend a step that fails. The operator writes
    the rest of its status itself."""
    meta = cluster.metadata
    synced = [(each.reason, each.status) for each in cluster.status.conditions if not each.type]
    return meta.generation, meta.annotations, meta.finalizers, meta.deletion_timestamp, synced
