# SPDX-License-Identifier: Apache-2.0
"""Plans what the queue brings, and carries the plans out: the one place that writes.

An item is one object of one tenant, both directions. `syncer.kinds` decides its plan, whose two halves are
carried out, fail and are tried again by themselves. Before each write to the super cluster the ownership of
the namespace is asked again, because time has passed.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from daemonkit import logs
from daemonkit.fairness.lease import Lease
from daemonkit.kube import deep_json
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.resources import Named
from daemonkit.kube.store import DecodeFailed
from daemonkit.tasks import Tasks
from syncer.caches import shapes
from syncer.caches.cached_object import CachedObject, has_moved
from syncer.core import unknown
from syncer.core.field_ownership import note_foreign_fields
from syncer.core.objects import Object, SyncedKind, annotations_of, is_deleting, version_of
from syncer.core.pair import Pair
from syncer.core.plan import (
    Action,
    Bind,
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
from syncer.core.requests import ApiRequest, read_path, request_of
from syncer.kinds.port import KindSync, Scope
from syncer.metrics import SyncerMetrics, failure_cause
from syncer.policy.sync_policy import PolicyUnusable
from syncer.tenant.deletions import SyncKey
from syncer.tenant.owned_namespaces import NAMESPACE
from syncer.tenant.session import TenantSession
from syncer.tenant.waits import Lookup
from syncer.work.queue import WorkQueue
from syncer.work.slots import Slots
from syncer.work.void_patches import VoidPatches, digest_of, state_of
from tenancy import keys

# Plans and writes to the super cluster at once. Who waits for a tenant's API server gives its place back.
SLOTS = 64
# Plans of one item in a row, each with an object that was found in the way.
_MAX_REPLANS = 3
# Up to which an object is loaded, planned and written within a millisecond or two.
_LARGE_BYTES = 64 << 10
# After which a wait that lasts is reported.
LOOK_AGAIN_S = 2.5

T = TypeVar("T")

_OBJECT = msgspec.json.Decoder(Object)
_NAMED = msgspec.json.Decoder(Named)
_log = logs.get(__name__)


class ForeignNamespaceError(Exception):
    """The super namespace is not the tenant's: nothing was written."""


class NotReadyError(Exception):
    """What a pod needs is not there yet: its vNode, for which the rest of its plan waits, or its tokens."""

    def __init__(self, why: Wait | Conflict) -> None:
        super().__init__(why.message)
        self.plan = Plan(Half(wait=why) if isinstance(why, Wait) else Half(conflict=why))


class Nodes(Protocol):
    """What provides the vNodes of a tenant."""

    async def ensure(self, session: TenantSession, node: str) -> Wait | Conflict | None:
        """Return None when the tenant has the vNode, else why it has not."""


class Tokens(Protocol):
    """What has tokens of pods issued."""

    async def issue(self, session: TenantSession, action: IssueTokens) -> Wait | Conflict | None:
        """Return None when the Secret has the tokens, else why it has not."""


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


@dataclass(slots=True)
class _Result:
    """The versions after the actions of a plan; None where an action left it unknown."""

    tenant_version: str | None
    super_version: str | None
    states: Mapping[Side, tuple[str, str]]
    """As the plan saw both (`void_patches.state_of`)."""


class _Existing(NamedTuple):
    """What stands in the way of a creation in one direction."""

    direction: Direction
    side: Side
    value: Object


class _FailedHalf(NamedTuple):
    """A half that failed, as its digest, and when the same may be tried again."""

    digest: bytes
    due_s: float


class Engine:
    """`run` works until cancelled."""

    def __init__(
        self,
        kinds: Mapping[str, KindSync],
        queue: WorkQueue,
        metrics: SyncerMetrics,
        nodes: Nodes,
        tokens: Tokens,
        reports: Reports,
        tasks: Tasks,
        slots: Slots,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kinds = kinds
        self._queue = queue
        self._metrics = metrics
        self._nodes = nodes
        self._tokens = tokens
        self._reports = reports
        self._tasks = tasks
        self._clock = clock
        self._slots = slots
        self._void_patches = VoidPatches()
        self.conflicts: dict[tuple[str, SyncKey], str] = {}
        self._failed: dict[tuple[str, SyncKey, Direction], _FailedHalf] = {}

    def forget(self, session: TenantSession) -> None:
        """The tenant is no longer synced."""
        for where in [each for each in self.conflicts if each[0] == session.tenant.key]:
            del self.conflicts[where]
        for failed in [each for each in self._failed if each[0] == session.tenant.key]:
            del self._failed[failed]

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

    def _note_failure(
        self, session: TenantSession, item: SyncKey, direction: Direction, error: Exception
    ) -> float:
        """Count it, and have this direction of the item tried again; returns when."""
        retry_after_s: float | None = None
        match error:
            case ForeignNamespaceError():
                cause = "foreignNamespace"
            case NotReadyError():
                cause = "notReady"
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
            await self._hold_unreadable(session, item, *unreadable)
            return
        if cached.is_empty:
            self._reports.forget_object(session, item)
            session.forget_object(item)
            self._note_conflict(session, item, None)
            for direction in Direction:
                self._note_success(session, item, direction)
            return
        if not session.needs_plan(item):
            return
        sync = self._kinds[item[0]]
        tenant = None if cached.tenant is None else cached.tenant.load()
        await _give_way(cached.tenant)
        found = None if cached.super is None else cached.super.load()
        await _give_way(cached.super)
        if not _still_cached(session, item, cached):
            self._queue.add(session, item)  # a plan is of what is there when it is made
            return
        objects = Pair(tenant, found)
        directions: Collection[Direction] = tuple(Direction)
        for _ in range(_MAX_REPLANS):
            existing = await self._plan_once(session, sync, item, objects, directions)
            if existing is None:
                return
            # What went down has been done, and the caches may not have it yet.
            directions = (Direction.UP,) if existing.direction is Direction.UP else directions
            objects = _with_existing(session, item, existing)
        self._queue.add(session, item)

    async def _hold_unreadable(
        self, session: TenantSession, item: SyncKey, side: Side, failed: DecodeFailed
    ) -> None:
        """One of both objects is there, and what it is now is not known: the other stays as it is."""
        plan = Plan(Half(refusals=(Refusal(*shapes.path_and_message(failed.reason)),)))
        subject: Object | None = {
            "metadata": {"namespace": item[1], "name": item[2], "uid": failed.uid},
        }
        if side is Side.SUPER:
            cached = session.caches.of_tenant(item)
            plan = Plan(Half(wait=Wait("SuperObjectUnreadable", f"it stays as it is: {failed.reason}")))
            subject = None if cached is None else cached.load()
        await self._report(session, item, plan, subject)

    async def _plan_once(
        self,
        session: TenantSession,
        sync: KindSync,
        item: SyncKey,
        objects: Pair[Object],
        directions: Collection[Direction],
    ) -> _Existing | None:
        """Plan, and carry out these directions. Returns what stands in the way: then plan again with it."""
        tenant, found = objects.tenant, objects.super
        versions = _Result(
            "" if tenant is None else version_of(tenant),
            "" if found is None else version_of(found),
            {Side.TENANT: state_of(tenant), Side.SUPER: state_of(found)},
        )
        planned = versions.tenant_version, versions.super_version
        view = session.view()
        plan = sync.plan((item[1], item[2]), objects, view)
        plan = unknown.hold(plan, view.unknown, item[0], has_tenant=tenant is not None)
        if isinstance(session.policy, PolicyUnusable) and _creates_in_super(plan):
            plan = replace(plan, down=Half(wait=Wait("SyncPolicyUnusable", session.policy.message)))
        halves = {each: plan.half(each) for each in directions}
        due = {each for each in directions if not self._postpone(session, item, each, halves[each])}
        if Direction.DOWN in due:
            plan = session.quota.admit(item, plan, found)
        self._metrics.plans.inc()
        # Before any request: what changes during one has the item planned again.
        # But not what the plan makes itself: the tokens of a pod.
        looked = view.looked - {
            (Side.SUPER, "Secret", each.namespace, each.secret_name)
            for each in plan.actions
            if isinstance(each, IssueTokens)
        }
        session.note_looked(item, looked if plan.is_stopped else _of_others(looked, item))
        await _give_way(session.caches.of_tenant(item), session.caches.of_super(item))
        if plan.is_stopped:
            await self._report(session, item, plan, tenant)
        is_done = True
        for direction in Direction:
            half = plan.half(direction)
            if direction not in due:
                is_done = is_done and not half.actions
                continue
            try:
                there = await self._carry_out_half(session, item, half, versions, tenant)
            except Exception as error:  # noqa: BLE001 - what fails in one direction does not stop the other
                due_s = self._note_failure(session, item, direction, error)
                digest = _digest(halves[direction])
                self._failed[session.tenant.key, item, direction] = _FailedHalf(digest, due_s)
                if direction is Direction.DOWN and isinstance(error, ApiError) and error.status.code < 500:
                    session.quota.forget(item)
                is_done = False
                continue
            if there is not None:
                return _Existing(direction, *there)
            if direction is Direction.DOWN:
                session.quota.written(item, versions.super_version, session.caches.of_super(item))
            self._note_success(session, item, direction)
        if not is_done:
            return None
        if not plan.is_stopped:
            # Not before: a pod's condition that is taken back and set again at each try is two changes, and
            # each change of a pod has it tried again at once.
            is_deleted = any(isinstance(each, Delete) and each.side is Side.TENANT for each in plan.actions)
            await self._report(session, item, plan, None if is_deleted else tenant)
        # What waits or conflicts is looked at again by each patrol, whatever it waits for.
        is_settled = plan.wait is None and plan.conflict is None and not plan.is_partial
        is_settled = is_settled and not session.waits.is_woken(item)
        # An answer to a patch has all writes before it, also those of others that came after the plan. Where
        # events have come meanwhile, the item is queued again: that plan finds out whether both sides agree.
        if plan.actions and (
            has_moved(session.caches.of_tenant(item), planned[0])
            or has_moved(session.caches.of_super(item), planned[1])
        ):
            is_settled = False
        if is_settled and versions.tenant_version is not None and versions.super_version is not None:
            session.note_verified(item, versions.tenant_version, versions.super_version)
        return None

    def _postpone(self, session: TenantSession, item: SyncKey, direction: Direction, half: Half) -> bool:
        """Leave the very half that failed until its backoff ends; returns whether that is so."""
        failed = self._failed.get((session.tenant.key, item, direction))
        if failed is None or failed.digest != _digest(half):
            return False
        wait_s = self._queue.wait_s(failed.due_s)
        if wait_s > 0:
            self._queue.add_after(session, item, wait_s)
        return wait_s > 0

    def _note_success(self, session: TenantSession, item: SyncKey, direction: Direction) -> None:
        self._failed.pop((session.tenant.key, item, direction), None)
        self._queue.forget(session, item, direction)

    async def _carry_out_half(
        self,
        session: TenantSession,
        item: SyncKey,
        half: Half,
        versions: _Result,
        subject: Object | None,
    ) -> tuple[Side, Object] | None:
        """Carry out all actions. Returns the object that stands in the way of a creation, with its side."""
        missing: NotReadyError | None = None
        try:
            for action in half.actions:
                try:
                    existing = await self._carry_out(session, item, action, versions)
                except NotReadyError as error:
                    if not isinstance(action, IssueTokens):
                        raise
                    # Nothing that follows needs them: the tenant sees a status while they are not issued.
                    missing, existing = error, None
                if existing is not None:
                    return existing
            if missing is not None:
                raise missing
        except NotReadyError as error:
            await self._report(session, item, error.plan, subject)
            raise
        except ApiError as error:
            await self._reports.failed(session, item, error, subject)
            raise
        return None

    async def _report(
        self, session: TenantSession, item: SyncKey, plan: Plan, subject: Object | None
    ) -> None:
        if not session.is_attached:
            return  # what was reported is forgotten, and is not to be remembered anew
        if not await self._reports.planned(session, item, plan, subject):
            self._queue.add_after(session, item, LOOK_AGAIN_S)
        self._note_conflict(session, item, plan.conflict)

    async def _carry_out(
        self, session: TenantSession, item: SyncKey, action: Action, versions: _Result
    ) -> tuple[Side, Object] | None:
        """Carry out one action. Returns the object that stands in the way of a creation."""
        match action:
            case IssueTokens():
                if (full := session.quota.wait_for_room()) is not None:
                    raise NotReadyError(full)
                async with self._slots.yielded():
                    missing = await self._tokens.issue(session, action)
                if missing is not None:
                    raise NotReadyError(missing)
                return None
            case Bind():
                async with self._slots.yielded():
                    missing = await self._nodes.ensure(session, action.node)
                if missing is not None:
                    raise NotReadyError(missing)
                await self._send(session, item, Side.TENANT, "bind", request_of(action))
                versions.tenant_version = None
                return None
            case Delete():
                is_without_super = action.side is Side.TENANT and versions.super_version == ""
                self._note(action.side, versions, None)
                if self._may_delete(session, item, action):
                    if is_without_super:
                        found = await self._unseen_super_object(session, item, action)
                        if found is not None:
                            return Side.SUPER, found
                    with _ignoring(404, 409):
                        await self._send(session, item, action.side, "delete", request_of(action))
                    session.deletions.note_deleted(action.side, item)
                return None
            case Create():
                try:
                    body = await self._send(session, item, action.side, "create", request_of(action))
                except ApiError as error:
                    if error.status.code != 409 or error.status.reason != "AlreadyExists":
                        raise
                    return action.side, await self._read(session, action.side, action.kind, action.body)
            case Patch():
                request, state = request_of(action), versions.states[action.side]
                digest = digest_of(session.tenant.key, item, action, request.body, state)
                if self._void_patches.is_known(digest):
                    return None
                body = await self._send(session, item, action.side, "patch", request)
                if _version_in(body) == state[1]:
                    self._void_patches.note(digest)
        self._note(action.side, versions, body)
        return None

    def _may_delete(self, session: TenantSession, item: SyncKey, action: Delete) -> bool:
        if action.is_refused:
            return True
        other = session.caches.pair(item).other(action.side)
        is_other_deleting = other is not None and is_deleting(other.load())
        return session.deletion_judge.may_delete(action.side, item, is_sure=is_other_deleting)

    async def _unseen_super_object(
        self, session: TenantSession, item: SyncKey, action: Delete
    ) -> Object | None:
        """The super object of one of the tenant's that is to go because it has none; None if that is so.

        The super cluster's watch may lag behind the tenant's. It has then not brought yet what was created.
        """
        sync, cached = self._kinds[item[0]], session.caches.of_tenant(item)
        super_namespace = session.namespaces.super_name(item[1])
        is_going = cached is not None and is_deleting(cached.load())
        if sync.scope is not Scope.NAMESPACED or super_namespace is None or is_going:
            return None
        where: Object = {"metadata": {"namespace": super_namespace, "name": sync.super_name(item[2])}}
        try:
            found = await self._read(session, Side.SUPER, action.kind, where)
        except ApiError as error:
            if error.status.code != 404:
                raise
            return None
        return found if annotations_of(found).get(keys.UID) == action.uid else None

    def _note(self, side: Side, versions: _Result, body: bytes | None) -> None:
        version = None if body is None else _version_in(body)
        if side is Side.SUPER:
            versions.super_version = version
        else:
            versions.tenant_version = version

    async def _send(
        self, session: TenantSession, item: SyncKey, side: Side, verb: str, request: ApiRequest
    ) -> bytes:
        if not session.is_attached:
            # It ended while the tenant's API server kept an answer back. Another may work on the object.
            raise UnreachableError("the tenant is not synced any more")
        self._metrics.requests.labels(side, verb).inc()
        if side is Side.TENANT:
            async with self._slots.yielded():
                return await _ask(session.client, request)
        # Of what is cluster-scoped tenants make Namespaces alone, whose plans know whose they are.
        is_own = session.namespaces.owns(request.namespace) if request.namespace else item[0] == NAMESPACE
        if not is_own:
            raise ForeignNamespaceError(request.namespace)
        return await _ask(session.super_client, request)

    async def _read(self, session: TenantSession, side: Side, kind: SyncedKind, body: Object) -> Object:
        self._metrics.requests.labels(side, "get").inc()
        if side is Side.TENANT:
            async with self._slots.yielded():
                found = await session.client.request("GET", read_path(kind, body), {})
        else:
            found = await session.super_client.request("GET", read_path(kind, body), {})
        value = _decoded(_OBJECT, found)
        return value if side is Side.TENANT else note_foreign_fields(value)

    def _note_conflict(self, session: TenantSession, item: SyncKey, conflict: Conflict | None) -> None:
        where = (session.tenant.key, item)
        before = self.conflicts.get(where)
        if conflict is None:
            self.conflicts.pop(where, None)
        elif before != conflict.message:
            self.conflicts[where] = conflict.message
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
    has_changed = any(has_moved(now.of(side), _version(cached.of(side))) for side in Side)
    return session.is_attached and not has_changed


def _with_existing(session: TenantSession, item: SyncKey, existing: _Existing) -> Pair[Object]:
    """Both objects, with the one that was found in the place of what the cache has."""
    cached = session.caches.pair(item).other(existing.side)
    other = None if cached is None else cached.load()
    return Pair(other, other).replaced(existing.side, existing.value)


def _version(cached: CachedObject | None) -> str:
    return "" if cached is None else cached.version


async def _give_way(*cached: CachedObject | None) -> None:
    """End the step, if it was one of a large object: to load, to plan and to write are steps of their own."""
    if any(each is not None and each.json_bytes > _LARGE_BYTES for each in cached):
        await asyncio.sleep(0)


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


async def _ask(client: Requester, request: ApiRequest) -> bytes:
    return await client.request(
        request.method, request.path, {}, request.body, content_type=request.content_type
    )


def _version_in(body: bytes) -> str:
    return _decoded(_NAMED, body).metadata.resource_version


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """What an API server answered; a tenant's may answer anything. Raises UnreachableError."""
    try:
        if deep_json.has_too_many_values(body):
            raise UnreachableError(f"the answer has more than {deep_json.MAX_VALUES} values")
        return deep_json.decode(decoder, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreachableError(f"the answer is no object: {error}") from None


@contextlib.contextmanager
def _ignoring(*codes: int) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.status.code not in codes:
            raise
