# SPDX-License-Identifier: Apache-2.0
"""Has tokens issued and renewed. Its state is in the Secrets' annotations: a restart finds it there.

A token is bound to the tenant's pod, so it is revoked with that. Its Secret is deleted once the super pod is
gone. What becomes of a pod's tokens is decided in `pod_record`, and asked of servers in `token_requests`.
"""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator

import msgspec

from daemonkit import logs
from daemonkit.fairness.scheduler import AccountRun, without_account
from daemonkit.fairness.steps import WorkStep
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.tasks import Tasks
from syncer.core.due_times import DueTimes
from syncer.core.objects import Object, annotations_of, uid_of
from syncer.core.plan import Conflict, IssueTokens, Wait
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.write_rate import FREE
from syncer.tokens.documents import MAX_TOKENS, PodTokens, parse_secret, pod_tokens, requests_of
from syncer.tokens.pod_record import FIRST_BACKOFF_S, PodRecord, TenantBackoff
from syncer.tokens.token_requests import (
    NOT_ISSUED,
    NOT_SYNCED,
    MayWrite,
    NotIssuedError,
    RenewalFailure,
    TokenRequests,
)
from tenancy import keys, names

MAX_RENEWALS_IN_FLIGHT = 4
# Where tokens come before their super pod, that is made right after; its retries issue them again.
ORPHAN_AGE_S = 60.0

IssueResult = Wait | Conflict | None
Report = Callable[[str, PodTokens, NotIssuedError | None], Awaitable[None]]

_log = logs.get(__name__)


class TokenCounts(msgspec.Struct):
    """What all tokens cost, for the metrics."""

    issued: int = 0
    renewed: int = 0
    renewals_failed: int = 0
    removed: int = 0
    failures: Counter[RenewalFailure] = msgspec.field(default_factory=Counter)
    """Of renewals, by cause."""


class _TenantTokens(msgspec.Struct, eq=False):
    """`number` differs from that of an earlier tenant with the same key.

    `changes` is how often there was a record for another pod, or other tokens. `orphans_state` is with what
    state of the caches, and with how many changes, all records were found to have a pod.
    """

    key: str
    number: int
    requests: TokenRequests
    run: AccountRun
    records: dict[str, PodRecord] = msgspec.field(default_factory=dict)
    queue: deque[str] = msgspec.field(default_factory=deque)
    in_flight: int = 0
    backoff: TenantBackoff = msgspec.field(default_factory=TenantBackoff)
    tasks: set[asyncio.Task[None]] = msgspec.field(default_factory=set)
    changes: int = 0
    orphans_state: tuple[object, int] | None = None


class TokenIssuer:
    """The tokens of all tenants' pods.

    `owns` says whether a super namespace is a tenant's now: it is asked before each write. `report` gets
    each failed renewal, and None once it succeeds. `wall` is the time of day in seconds; `jitter`
    draws from 0 to 1.
    """

    def __init__(
        self,
        super_client: Requester,
        owns: Callable[[str, str], bool],
        report: Report,
        tasks: Tasks,
        wall: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._super_client = super_client
        self._owns = owns
        self._report = report
        self._tasks = tasks
        self._wall = wall
        self._jitter = jitter
        self._tenants: dict[str, _TenantTokens] = {}
        self._due: DueTimes[tuple[str, int, str]] = DueTimes()
        """By a tenant's cluster key and number, and the UID of one of its pods."""
        self._numbers = itertools.count()
        self._has_work = asyncio.Event()
        self.counts = TokenCounts()

    # ---- What the engine reports

    def add_tenant(
        self,
        cluster: TenantCluster,
        client: Requester,
        super_client: Requester | None = None,
        may_write: MayWrite = lambda *_: FREE,
        run: AccountRun = without_account,
    ) -> None:
        """Serve a tenant. One that is there under the same key is replaced.

        `super_client` is the super cluster's for this tenant's objects. `may_write` is as in `TokenRequests`.
        `run` has the tenant pay for renewals.
        """
        key = cluster.key
        for _ in self.remove_tenant(key):
            pass
        requests = TokenRequests(
            cluster,
            client,
            super_client or self._super_client,
            lambda: self._is_served(added),
            lambda namespace: self._owns(key, namespace),
            may_write,
            self._wall,
        )
        added = self._tenants[key] = _TenantTokens(key, next(self._numbers), requests, run)

    def remove_tenant(self, key: str) -> Generator[None, None, None]:
        """Forget a tenant at once, and in steps what was known of its tokens.

        Its Secrets stay in the super cluster: the next replica that syncs the tenant uses them.
        """
        removed = self._tenants.pop(key, None)
        for task in () if removed is None else removed.tasks:
            task.cancel()
        return self._forget_records(removed)

    def _forget_records(self, removed: _TenantTokens | None) -> Generator[None, None, None]:
        step = WorkStep()
        while removed is not None and removed.records:
            uid, _ = removed.records.popitem()
            self._due.forget(_due_key(removed, uid))
            if step.count():
                yield

    def secret_seen(self, secret: Object) -> None:
        """A super Secret with the label `POD_TOKENS`, as it is now: all of them after a start."""
        tenant = self._tenants.get(annotations_of(secret).get(keys.CLUSTER, ""))
        found = parse_secret(secret)
        if tenant is None or found is None:
            return
        record = tenant.records.get(found.uid)
        if record is None:
            record = tenant.records[found.uid] = PodRecord(found, uid_of(secret))
        elif not record.take_over(found, uid_of(secret)):
            return
        tenant.changes += 1
        self._schedule_renewal(tenant, record)

    def secret_gone(self, secret: Object) -> None:
        """A super Secret with the label was deleted. While its pod is there it is made again."""
        tenant = self._tenants.get(annotations_of(secret).get(keys.CLUSTER, ""))
        found = parse_secret(secret)
        record = None if tenant is None or found is None else tenant.records.get(found.uid)
        if tenant is not None and record is not None and record.lose(uid_of(secret)):
            self._schedule(tenant, record, 0.0)

    def pod_gone(self, key: str, pod_uid: str) -> None:
        """The super pod of this tenant's pod is no more: its Secret is deleted."""
        tenant = self._tenants.get(key)
        record = None if tenant is None else tenant.records.get(pod_uid)
        if tenant is not None and record is not None and record.leave():
            self._schedule(tenant, record, 0.0)

    def remove_orphans(
        self, key: str, may_have_pod: Callable[[PodTokens], bool], state: object = None
    ) -> Generator[None, None, int]:
        """Delete in steps the Secrets of pods that have no super pod for sure; return how many.

        Young ones stay: those of a pod that was made with a node are issued before its super pod is there.
        Fit for each patrol: with an equal `state`, by which `may_have_pod` answers, none is looked at again
        once all had pods.
        """
        tenant = self._tenants.get(key)
        if tenant is None:
            return 0
        if state is not None and tenant.orphans_state == (state, tenant.changes):
            return 0
        last_s, count, step = self._wall() - ORPHAN_AGE_S, 0, WorkStep()
        begun, is_settled = (state, tenant.changes), True
        for uid, record in list(tenant.records.items()):
            is_current = self._is_served(tenant) and tenant.records.get(uid) is record
            is_old = not record.is_leaving and record.issued_s < last_s
            if not (is_current and is_old):
                is_settled = False
            elif not may_have_pod(record.pod):
                self.pod_gone(key, uid)
                count += 1
            if step.count():
                yield
        tenant.orphans_state = begun if is_settled and not count else None
        return count

    # ---- What the engine asks

    async def issue(self, key: str, action: IssueTokens, super_namespace: str) -> IssueResult:
        """Have the Secret there with tokens; None once it is. Again for the same pod it costs nothing."""
        tenant = self._tenants.get(key)
        if tenant is None:
            return Wait(NOT_ISSUED, NOT_SYNCED)
        # They stand in paths, and a tenant's API server may serve any.
        parts = (action.secret_name, action.namespace, action.name, action.service_account)
        if not all(names.is_pod_name(each) for each in parts):
            return Wait(NOT_ISSUED, "the pod, its namespace or its service account has no valid name")
        if not 0 < len(action.tokens) <= MAX_TOKENS:
            return Wait(NOT_ISSUED, f"a pod has at most {MAX_TOKENS} tokens")
        record = tenant.records.get(action.uid)
        if record is not None:
            if record.is_removing:
                return Wait(NOT_ISSUED, "tokens of an earlier pod are being removed")
            if record.stay():
                self._schedule_renewal(tenant, record)
            if record.has(action):
                return None
        pod = pod_tokens(action, super_namespace, ())
        try:
            issued = await tenant.requests.issue(pod, action.tokens)
            pod = pod_tokens(action, super_namespace, issued)
            secret_uid = await tenant.requests.write(pod, issued, "")
        except NotIssuedError as error:
            return error.wait
        if secret_uid is None:
            return Conflict(f"Secret {super_namespace}/{action.secret_name} is not of the tokens of the pod")
        self.counts.issued += len(issued)
        if self._is_served(tenant):
            record = tenant.records[action.uid] = PodRecord(pod, secret_uid)
            tenant.changes += 1
            self._schedule_renewal(tenant, record)
        return None

    def _is_served(self, tenant: _TenantTokens) -> bool:
        """Whether it was not removed, nor replaced under its key."""
        return self._tenants.get(tenant.key) is tenant

    def waiting(self, key: str) -> int:
        """How many pods of a tenant have a renewal that failed."""
        tenant = self._tenants.get(key)
        return 0 if tenant is None else sum(1 for each in tenant.records.values() if each.failures)

    # ---- The timer

    async def run(self) -> None:
        """Renew in time; runs until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._has_work.clear()
            for key, number, uid in self._due.take(loop.time()):
                tenant = self._tenants.get(key)
                is_current = tenant is not None and tenant.number == number
                record = tenant.records.get(uid) if tenant is not None and is_current else None
                if tenant is not None and record is not None and not record.is_queued:
                    record.is_queued = True
                    tenant.queue.append(uid)
                    self._start(tenant)
            first_s = self._due.first_s
            try:
                async with asyncio.timeout(None if first_s is None else first_s - loop.time()):
                    await self._has_work.wait()
            except TimeoutError:
                pass

    def _schedule(self, tenant: _TenantTokens, record: PodRecord, wait_s: float) -> None:
        uid = record.pod.uid
        if not self._is_served(tenant) or tenant.records.get(uid) is not record:
            return  # another one has its time by now
        if self._due.set(_due_key(tenant, uid), asyncio.get_running_loop().time() + wait_s):
            self._has_work.set()

    def _schedule_renewal(self, tenant: _TenantTokens, record: PodRecord) -> None:
        self._schedule(tenant, record, record.renewal_wait_s(self._wall()))

    def _start(self, tenant: _TenantTokens) -> None:
        if tenant.in_flight >= MAX_RENEWALS_IN_FLIGHT:
            return
        tenant.in_flight += 1

        def end() -> None:
            tenant.in_flight -= 1

        task = self._tasks.spawn(tenant.run(self._work(tenant)), f"tokens {tenant.key}", when_over=end)
        tenant.tasks.add(task)
        task.add_done_callback(tenant.tasks.discard)

    async def _work(self, tenant: _TenantTokens) -> None:
        while tenant.queue:
            uid = tenant.queue.popleft()
            record = tenant.records.get(uid)
            if record is None:
                continue
            record.is_queued = False
            try:
                if record.is_leaving:
                    await self._remove(tenant, record)
                elif self._due.is_due(_due_key(tenant, uid), asyncio.get_running_loop().time()):
                    await self._renew(tenant, record)
            # A tenant's API server may answer anything, and a task that fails here ends the daemon.
            except Exception as error:  # noqa: BLE001 - else one tenant stops all
                # Not the error's text, nor its trace: it may have a token.
                name = type(error).__name__
                _log.error("tokens of a pod failed unexpectedly", tenant=tenant.key, error=name)
                message = f"the answer to a TokenRequest is not understood: {name}"
                self._note_failure(tenant, record, NotIssuedError(message, RenewalFailure.TENANT_REFUSES))
                if record.is_leaving:
                    self._schedule(tenant, record, FIRST_BACKOFF_S)

    # ---- One pod

    async def _renew(self, tenant: _TenantTokens, record: PodRecord) -> None:
        blocked_s = tenant.backoff.wait_s(record.pod.uid, asyncio.get_running_loop().time())
        if blocked_s:
            self._schedule(tenant, record, blocked_s)
            return
        try:
            issued = await tenant.requests.issue(record.pod, requests_of(record.due()))
            pod = record.renewed(each.lifetime for each in issued)
            secret_uid = await tenant.requests.write(pod, issued, record.secret_uid)
            if secret_uid is None:
                message = f"Secret {pod.secret_name} stands in the way of the pod's tokens"
                raise NotIssuedError(message, RenewalFailure.NAME_CONFLICT)
        except NotIssuedError as error:
            if error.is_secret_gone:
                record.secret_uid = ""
            self._note_failure(tenant, record, error)
            if not record.is_leaving:
                await self._report(tenant.key, record.pod, error)
            return
        tenant.backoff.note_answer()
        had_failed = record.note_renewed(pod, secret_uid)
        self.counts.renewed += len(issued)
        if record.is_leaving:
            self._schedule(tenant, record, 0.0)
        else:
            self._schedule_renewal(tenant, record)
        if had_failed:
            await self._report(tenant.key, pod, None)

    def _note_failure(self, tenant: _TenantTokens, record: PodRecord, error: NotIssuedError) -> None:
        self.counts.renewals_failed += 1
        self.counts.failures[error.cause] += 1
        jitter = self._jitter()
        wait_s = record.note_failure(jitter)
        if error.cause is RenewalFailure.TENANT_UNREACHABLE:
            wait_s = tenant.backoff.note_failure(asyncio.get_running_loop().time(), jitter)
        self._schedule(tenant, record, 0.0 if record.is_leaving else wait_s)

    async def _remove(self, tenant: _TenantTokens, record: PodRecord) -> None:
        record.is_removing = True
        try:
            self.counts.removed += await tenant.requests.remove(record.pod, record.secret_uid)
        except (ApiError, UnreachableError):
            self._schedule(tenant, record, record.note_failure(self._jitter()))
            return
        finally:
            record.is_removing = False
        uid = record.pod.uid
        if tenant.records.get(uid) is record:
            del tenant.records[uid]
            if self._is_served(tenant):
                self._due.forget(_due_key(tenant, uid))


def _due_key(tenant: _TenantTokens, uid: str) -> tuple[str, int, str]:
    return tenant.key, tenant.number, uid
