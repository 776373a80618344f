# SPDX-License-Identifier: Apache-2.0
"""Plans what the queue brings, and has the plans carried out.

An item is one object of one tenant, both directions. `syncer.kinds` decides its plan, whose two halves are
carried out, fail and are tried again by themselves.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from daemonkit import logs
from daemonkit.fairness.emptying import Holder
from daemonkit.fairness.lease import Lease
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.store import DecodeFailed
from daemonkit.tasks import Tasks
from syncer.caches import shapes
from syncer.caches.cached_object import CachedObject, has_moved
from syncer.core import unknown
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import (
    DIRECTIONS,
    SIDES,
    Conflict,
    Create,
    Delete,
    Direction,
    Half,
    IssueTokens,
    Patch,
    Plan,
    Refusal,
    Side,
    Wait,
)
from syncer.kinds import unknown_policy
from syncer.kinds.port import KindSync
from syncer.metrics import SyncerMetrics, failure_cause
from syncer.policy.sync_policy import PolicyUnusable
from syncer.tenant.deletions import SyncKey
from syncer.tenant.owned_namespaces import NAMESPACE
from syncer.tenant.quota import COUNTED, NOT_COUNTED
from syncer.tenant.session import TenantSession
from syncer.tenant.waits import Lookup
from syncer.work.action_writer import (
    ActionWriter,
    ForeignNamespaceError,
    NotReadyError,
    PairVersions,
    TooLargeError,
)
from syncer.work.queue import WorkQueue
from syncer.work.slots import Slots
from syncer.work.void_patches import state_of

# Plans and writes to the super cluster at once. Who waits for a tenant's API server gives its place back.
SLOTS = 64
# Plans of one item in a row, each with an object that was found in the way.
_MAX_REPLANS = 3
# Up to which an object is loaded, planned and written within a millisecond or two.
_LARGE_BYTES = 64 << 10
# After which a wait that lasts is reported.
LOOK_AGAIN_S = 2.5

_log = logs.get(__name__)


class Reports(Protocol):
    """Where tenants read what became of their objects."""

    def forget_object(self, session: TenantSession, item: SyncKey) -> None:
        """Neither side has the object any more."""

    async def planned(self, session: TenantSession, item: SyncKey, plan: Plan, tenant: Object | None) -> bool:
        """Report refusals, a wait or a conflict, or that there is none any more.

        False for a wait that is not worth a report yet: look again soon.
        """

    async def failed(
        self, session: TenantSession, item: SyncKey, error: Exception, tenant: Object | None
    ) -> None:
        """Report that an API server refused a write."""


class _Existing(NamedTuple):
    """What stands in the way of a creation in one direction."""

    direction: Direction
    side: Side
    value: Object


class _FailedHalf(NamedTuple):
    """A half that failed, as its digest, when the same may be tried again, and what it waits for."""

    digest: bytes
    due_s: float
    waiting: Plan | None


_NONE_FAILED: Mapping[Direction, _FailedHalf] = {}


class Engine:
    """`run` works until cancelled."""

    def __init__(
        self,
        kinds: Mapping[str, KindSync],
        queue: WorkQueue,
        metrics: SyncerMetrics,
        writer: ActionWriter,
        reports: Reports,
        tasks: Tasks,
        slots: Slots,
        item_done: Callable[[], None],
    ) -> None:
        self._kinds = kinds
        self._queue = queue
        self._metrics = metrics
        self._writer = writer
        self._reports = reports
        self._tasks = tasks
        self._slots = slots
        self._item_done = item_done
        # By a tenant's cluster key.
        self._conflicts: dict[str, dict[SyncKey, str]] = {}
        self._failed: dict[str, dict[tuple[SyncKey, Direction], _FailedHalf]] = {}

    def forget(self, session: TenantSession) -> tuple[Holder, ...]:
        """The tenant is no longer synced. Returns what was noted of its objects, to be emptied in steps."""
        key = session.tenant.key
        return self._conflicts.pop(key, {}), self._failed.pop(key, {})

    def conflict_count(self) -> int:
        """How many objects of all tenants have another object in their way."""
        return sum(map(len, self._conflicts.values()))

    def conflict(self, session: TenantSession, item: SyncKey) -> str:
        """What is in the way of an object; empty if nothing is."""
        return self._conflicts.get(session.tenant.key, {}).get(item, "")

    async def run(self) -> None:
        """Take items until cancelled, each into a task of its own."""
        while True:
            place = await self._slots.acquire()
            session, item = await self._queue.get()
            self._tasks.spawn(session.account.run(self._work(session, item, place)), "reconcile")

    async def _work(self, session: TenantSession, item: SyncKey, place: Lease) -> None:
        try:
            with self._slots.work_in(place):
                await self._reconcile(session, item)
        except Exception as error:  # noqa: BLE001 - else one object of one tenant stops all
            # Of the plan, or of a report about it: there is nothing to compare the next try with.
            self._note_failure(session, item, Direction.DOWN, error)
        finally:
            self._queue.done(session, item)
            self._item_done()

    def _note_failure(
        self, session: TenantSession, item: SyncKey, direction: Direction, error: Exception
    ) -> float:
        """Count it, and have this direction of the item tried again; returns when."""
        retry_after_s: float | None = None
        match error:
            case ForeignNamespaceError():
                cause = "foreignNamespace"
            case NotReadyError():
                cause, retry_after_s = "notReady", error.retry_after_s
                session.last_error = f"{item[0]} {item[1]}/{item[2]}: {error}"[:500]
            case ApiError() | UnreachableError():
                cause = failure_cause(error)
                retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
                session.last_error = f"{item[0]} {item[1]}/{item[2]}: {error}"[:500]
            case _:
                # A bug, triggered by one object. The others must go on, and this one is tried again.
                cause = failure_cause(error)
                session.last_error = f"{item[0]} {item[1]}/{item[2]}: {type(error).__name__} in the syncer"
                _log.error(
                    "reconcile failed unexpectedly",
                    tenant=session.tenant.key,
                    kind=item[0],
                    object=f"{item[1]}/{item[2]}",
                    error=error,
                    traceback=logs.trace(error),
                )
        self._metrics.failures.labels(cause).inc()
        return self._queue.retry(session, item, direction, retry_after_s or 0.0)

    async def _reconcile(self, session: TenantSession, item: SyncKey) -> None:
        cached = session.caches.pair(item)
        if not session.is_attached:
            return
        if (unreadable := session.caches.unreadable(item)) is not None:
            await self._hold_unreadable(session, item, cached, *unreadable)
            return
        if cached.is_empty:
            self._reports.forget_object(session, item)
            session.forget_object(item)
            self._note_conflict(session, item, None)
            for direction in DIRECTIONS:
                self._note_success(session, item, direction)
            return
        if not session.is_due(item, cached):
            return
        sync = self._kinds[item[0]]
        # To load, to plan and to write a large object are steps of their own.
        is_large = _is_large(cached)
        tenant = None if cached.tenant is None else cached.tenant.load()
        if is_large:
            await asyncio.sleep(0)
        found = None if cached.super is None else cached.super.load()
        if is_large:
            await asyncio.sleep(0)
            if not _still_cached(session, item, cached):
                self._queue.add(session, item)  # a plan is of what is there when it is made
                return
        objects = Pair(tenant, found)
        directions: Collection[Direction] = DIRECTIONS
        for _ in range(_MAX_REPLANS):
            existing = await self._plan_once(session, sync, item, objects, directions, is_large=is_large)
            if existing is None:
                return
            # What went down has been done, and the caches may not have it yet.
            directions = (Direction.UP,) if existing.direction is Direction.UP else directions
            objects = _with_existing(session, item, existing)
        self._queue.add(session, item)

    async def _hold_unreadable(
        self,
        session: TenantSession,
        item: SyncKey,
        cached: Pair[CachedObject],
        side: Side,
        failed: DecodeFailed,
    ) -> None:
        """One of both objects is there, and what it is now is not known: the other stays as it is.

        But a super object goes that may not be there whatever the tenant's is.
        """
        plan = unreadable_plan(side, failed)
        if side is Side.SUPER:
            own = cached.tenant
            await self._report(session, item, plan, None if own is None else own.load())
            return
        subject: Object = {"metadata": {"namespace": item[1], "name": item[2], "uid": failed.uid}}
        found = None if cached.super is None else cached.super.load()
        if _is_large(cached):
            await asyncio.sleep(0)
            if not _still_cached(session, item, cached):
                self._queue.add(session, item)
                return
        if found is not None:
            view = session.view()
            deletions = self._kinds[item[0]].plan_unreadable((item[1], item[2]), found, view)
            session.note_looked(item, view.looked)
            plan = replace(plan, down=replace(plan.down, actions=deletions))
        await self._report(session, item, plan, subject)
        versions = PairVersions(None, _version(cached.super), {})
        await self._carry_out_half(session, item, plan.down, versions, subject)
        self._note_success(session, item, Direction.DOWN)

    async def _plan_once(
        self,
        session: TenantSession,
        sync: KindSync,
        item: SyncKey,
        objects: Pair[Object],
        directions: Collection[Direction],
        *,
        is_large: bool,
    ) -> _Existing | None:
        """Plan, and carry out these directions. Returns what stands in the way: then plan again with it."""
        tenant, found = objects.tenant, objects.super
        states = {Side.TENANT: state_of(tenant), Side.SUPER: state_of(found)}
        planned = states[Side.TENANT][1], states[Side.SUPER][1]
        versions = PairVersions(*planned, states)
        view, generation = session.view(), session.plan_generation
        plan = sync.plan((item[1], item[2]), objects, view)
        plan = unknown.hold(
            plan, view.unknown, has_tenant=tenant is not None, holds_changes=sync.holds_changes
        )
        if (policy_wait := view.policy_wait) is not None:
            plan = unknown_policy.hold(plan, sync, policy_wait)
        elif isinstance(session.policy, PolicyUnusable) and _creates_in_super(plan):
            plan = replace(plan, down=Half(wait=unknown_policy.wait_for(session.policy)))
        whole = plan
        postponed = self._failed_before(session, item, plan, directions)
        if Direction.DOWN in directions and Direction.DOWN not in postponed:
            plan = session.quota.admit(item, plan, found)
        elif session.quota.is_not_summed(item):
            session.quota.admit(item, plan, found)
        self._metrics.plans.inc()
        is_stopped, actions = plan.is_stopped, plan.actions
        # Before any request: what changes during one has the item planned again.
        # But not what the plan makes itself: the tokens of a pod.
        looked = view.looked - {
            (Side.SUPER, "Secret", each.namespace, each.secret_name)
            for each in actions
            if isinstance(each, IssueTokens)
        }
        if plan.down.wait is NOT_COUNTED:
            looked |= {(Side.SUPER, *COUNTED)}
        session.note_looked(item, looked if is_stopped else _of_others(looked, item))
        if is_large:
            await asyncio.sleep(0)
        waiting = [each.waiting for each in postponed.values() if each.waiting is not None]
        if is_stopped:
            await self._report(session, item, plan, tenant)
        elif waiting:
            await self._report(session, item, waiting[0], tenant)  # it lasts by now: no try says so again
        is_done = True
        if actions:
            self._queue.begin_writes(session, item)
        for direction in DIRECTIONS:
            half = plan.half(direction)
            if direction in postponed or direction not in directions:
                is_done = is_done and not half.actions
                continue
            try:
                there = await self._carry_out_half(session, item, half, versions, tenant)
            except Exception as error:  # noqa: BLE001 - what fails in one direction does not stop the other
                due_s = self._note_failure(session, item, direction, error)
                failed = _FailedHalf(_digest(whole.half(direction)), due_s, _waiting(error))
                self._failed.setdefault(session.tenant.key, {})[item, direction] = failed
                if direction is Direction.DOWN and versions.super_version != planned[1]:
                    # A part of it is written: that is reserved until the caches have it.
                    session.quota.written(item, versions.super_version, session.caches.of_super(item))
                elif direction is Direction.DOWN and _is_not_written(error):
                    session.quota.forget(item)
                is_done = False
                continue
            if there is not None:
                return _Existing(direction, *there)
            if direction is Direction.DOWN and session.quota.is_reserved(item):
                session.quota.written(item, versions.super_version, session.caches.of_super(item))
            self._note_success(session, item, direction)
        if not is_done:
            return None
        if not is_stopped:
            # Not before: a pod's condition that is taken back and set again at each try is two changes, and
            # each change of a pod has it tried again at once.
            is_deleted = any(isinstance(each, Delete) and each.side is Side.TENANT for each in actions)
            await self._report(session, item, plan, None if is_deleted else tenant)
        # What waits or conflicts is looked at again by each patrol, whatever it waits for.
        is_settled = plan.wait is None and plan.conflict is None and not plan.is_partial
        is_settled = is_settled and not session.waits.is_woken(item) and generation == session.plan_generation
        if is_settled and versions.tenant_version is not None and versions.super_version is not None:
            now = session.caches.pair(item)
            # An answer to a patch has all writes before it, also those of others that came after the plan.
            # Where events have come meanwhile, the item is queued again: that plan finds out whether both
            # sides agree.
            has_changed = has_moved(now.tenant, planned[0]) or has_moved(now.super, planned[1])
            if not (actions and has_changed):
                session.note_verified(item, versions.tenant_version, versions.super_version, now)
        return None

    def _failed_before(
        self, session: TenantSession, item: SyncKey, plan: Plan, directions: Collection[Direction]
    ) -> Mapping[Direction, _FailedHalf]:
        """The halves of a plan that failed as they are, and that wait for the end of their backoff."""
        if not self._failed.get(session.tenant.key):
            return _NONE_FAILED
        tried = {each: self._postpone(session, item, each, plan.half(each)) for each in directions}
        return {each: failed for each, failed in tried.items() if failed is not None}

    def _postpone(
        self, session: TenantSession, item: SyncKey, direction: Direction, half: Half
    ) -> _FailedHalf | None:
        """Leave the very half that failed until its backoff ends; returns that, None if it is due."""
        failed = self._failed.get(session.tenant.key, {}).get((item, direction))
        if failed is None or failed.digest != _digest(half):
            return None
        wait_s = self._queue.wait_s(failed.due_s)
        if wait_s <= 0:
            return None
        self._queue.add_after(session, item, wait_s)
        return failed

    def _note_success(self, session: TenantSession, item: SyncKey, direction: Direction) -> None:
        if direction is Direction.DOWN:
            session.write_rate.forget(item)  # a place that was not used: nothing more is to be written
        if (failed := self._failed.get(session.tenant.key)) is not None:
            failed.pop((item, direction), None)
        self._queue.forget(session, item, direction)

    async def _carry_out_half(
        self,
        session: TenantSession,
        item: SyncKey,
        half: Half,
        versions: PairVersions,
        subject: Object | None,
    ) -> tuple[Side, Object] | None:
        """Carry out all actions, after a refused one those that stand apart.

        Returns the object that stands in the way of a creation, with its side.
        """
        missing: NotReadyError | None = None
        refused: ApiError | None = None
        try:
            for action in half.actions:
                if refused is not None and not (isinstance(action, Patch) and action.is_separate):
                    continue
                try:
                    existing = await self._writer.carry_out(session, item, action, versions)
                except ApiError as error:
                    if not _is_refusal(error):
                        raise
                    refused, existing = refused or error, None
                except NotReadyError as error:
                    if not isinstance(action, IssueTokens):
                        raise
                    # Nothing that follows needs them: the tenant sees a status while they are not issued.
                    missing, existing = error, None
                if existing is not None:
                    return existing
            if refused is not None:
                raise refused
            if missing is not None:
                raise missing
        except NotReadyError as error:
            await self._report(session, item, error.plan, subject)
            raise
        except ApiError as error:
            await self._reports.failed(session, item, error, subject)
            raise
        finally:
            # An exception refers to the frames that it passes: the plan would be garbage of a circle.
            refused = missing = None
        return None

    async def _report(
        self, session: TenantSession, item: SyncKey, plan: Plan, subject: Object | None
    ) -> None:
        if not session.is_attached:
            return  # what was reported is forgotten, and is not to be remembered anew
        if not await self._reports.planned(session, item, plan, subject):
            self._queue.add_after(session, item, LOOK_AGAIN_S)
        self._note_conflict(session, item, plan.conflict)

    def _note_conflict(self, session: TenantSession, item: SyncKey, conflict: Conflict | None) -> None:
        known = self._conflicts.get(session.tenant.key)
        if conflict is None:
            if known is not None:
                known.pop(item, None)
        elif known is None or known.get(item) != conflict.message:
            self._conflicts.setdefault(session.tenant.key, {})[item] = conflict.message
            _log.warning(
                "a super object stands in the way of a tenant's, it is left as it is",
                tenant=session.tenant.key,
                kind=item[0],
                object=f"{item[1]}/{item[2]}",
                reason=conflict.message,
            )


def _still_cached(session: TenantSession, item: SyncKey, cached: Pair[CachedObject]) -> bool:
    """Whether both objects are still the cached ones, of a tenant that is still synced."""
    now = session.caches.pair(item)
    has_changed = any(has_moved(now.of(side), _version(cached.of(side))) for side in SIDES)
    return session.is_attached and not has_changed


def _with_existing(session: TenantSession, item: SyncKey, existing: _Existing) -> Pair[Object]:
    """Both objects, with the one that was found in the place of what the cache has."""
    cached = session.caches.pair(item).other(existing.side)
    other = None if cached is None else cached.load()
    return Pair(other, other).replaced(existing.side, existing.value)


def _version(cached: CachedObject | None) -> str:
    return "" if cached is None else cached.version


def unreadable_plan(side: Side, failed: DecodeFailed) -> Plan:
    """The plan of an object that is there on this side and cannot be read: nothing is done, and why."""
    if side is Side.SUPER:
        return Plan(Half(wait=Wait(unknown.SUPER_UNREADABLE, f"it stays as it is: {failed.reason}")))
    return Plan(Half(refusals=(Refusal(*shapes.path_and_message(failed.reason)),)))


def _is_large(cached: Pair[CachedObject]) -> bool:
    tenant, found = cached
    return (tenant is not None and tenant.json_bytes > _LARGE_BYTES) or (
        found is not None and found.json_bytes > _LARGE_BYTES
    )


def _waiting(error: Exception) -> Plan | None:
    """What is reported while a half waits that failed so."""
    return error.plan if isinstance(error, NotReadyError) else None


def _is_not_written(error: Exception) -> bool:
    """Whether it is known that nothing was written, and that the same will not be."""
    return isinstance(error, TooLargeError) or (isinstance(error, ApiError) and error.status.code < 500)


def _is_refusal(error: ApiError) -> bool:
    """Whether it is what was sent that the API server will not have."""
    return 400 <= error.status.code < 500 and error.status.code != 429


def _creates_in_super(plan: Plan) -> bool:
    return any(isinstance(each, Create) and each.side is Side.SUPER for each in plan.down.actions)


def _digest(half: Half) -> bytes:
    """By which the same half is known again, without what it writes; empty if it writes nothing."""
    if not half.actions:
        return b""
    return hashlib.blake2b(msgspec.json.encode(half.actions), digest_size=16).digest()


def _of_others(looked: Collection[Lookup], item: SyncKey) -> Collection[Lookup]:
    """What was looked up, unless that is the item's own namespace alone.

    All objects look at that. When it goes, both sides of the item go, and their own events say so.
    """
    own = NAMESPACE, "", item[1]
    return looked if any(each[1:] != own for each in looked) else ()
