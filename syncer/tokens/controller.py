# SPDX-License-Identifier: Apache-2.0
"""Has tokens issued and renewed. Its state is in the Secrets' annotations: a restart finds it there.

A token is bound to the tenant's pod, so it is revoked with that. Its Secret is deleted once the super pod is
gone. Texts of tokens are held for the time of two requests, and are in no message.
"""

import asyncio
import enum
import heapq
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field
from typing import Any

import msgspec

from daemonkit import logs
from daemonkit.backoff import backoff_s, spread_s
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.resources import SECRETS, Resource
from daemonkit.tasks import Tasks
from syncer.core.objects import Object, annotations_of, uid_of
from syncer.core.plan import Conflict, IssueTokens, TokenRequest, Wait
from syncer.core.tenant_cluster import TenantCluster
from syncer.tokens.documents import (
    MAX_TOKENS,
    IssuedToken,
    PodTokens,
    is_secret_of,
    issued_token,
    parse_secret,
    pod_tokens,
    refusal_message,
    requests_of,
    secret_of,
    secret_patch,
    token_request,
)
from syncer.tokens.lifetime import due_tokens, jitter_of, next_renewal_s
from tenancy import keys, names

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
NOT_ISSUED = "TokensNotIssued"
NOT_SYNCED = "the tenant is not synced any more"

MAX_RENEWALS_IN_FLIGHT = 4
# Where tokens come before their super pod, that is made right after; its retries issue them again.
ORPHAN_AGE_S = 60.0
MAX_RESPONSE_BYTES = 256 * 1024
# Void entries of the timer are looked for when their number may have doubled, but not below this.
_FEW_ENTRIES = 64
FIRST_BACKOFF_S = 10.0
# A token of the shortest lifetime has 120 s left when its renewal begins, and others have more.
MAX_BACKOFF_S = 60.0
_MERGE_PATCH = "application/merge-patch+json"
_REASON_EXISTS = "AlreadyExists"

IssueResult = Wait | Conflict | None

_log = logs.get(__name__)


class RenewalFailure(enum.StrEnum):
    """Why tokens were not renewed, for the metrics."""

    TENANT_UNREACHABLE = "tenantUnreachable"
    TENANT_REFUSES = "tenantRefuses"
    SUPER_UNREACHABLE = "superUnreachable"
    SUPER_REFUSES = "superRefuses"
    NAMESPACE_NOT_OWNED = "namespaceNotOwned"
    NAME_CONFLICT = "nameConflict"


class NotIssuedError(Exception):
    """A request failed; `wait` says so to the tenant."""

    def __init__(self, message: str, cause: RenewalFailure) -> None:
        super().__init__(message)
        self.wait = Wait(NOT_ISSUED, message)
        self.cause = cause


Report = Callable[[str, PodTokens, NotIssuedError | None], Awaitable[None]]


@dataclass(slots=True)
class TokenCounts:
    """What all tokens cost, for the metrics."""

    issued: int = 0
    renewed: int = 0
    renewals_failed: int = 0
    removed: int = 0
    failures: Counter[RenewalFailure] = field(default_factory=Counter)
    """Of renewals, by cause."""


@dataclass(slots=True)
class _Record:
    """One pod's tokens. `is_leaving`: the super pod is gone; `is_removing`: its Secret is being deleted."""

    pod: PodTokens
    secret_uid: str
    is_leaving: bool = False
    is_removing: bool = False
    is_queued: bool = False
    failures: int = 0
    due_s: float = 0.0


@dataclass(slots=True)
class _TenantTokens:
    cluster: TenantCluster
    client: Requester
    super_client: Requester
    records: dict[str, _Record] = field(default_factory=dict)
    queue: deque[str] = field(default_factory=deque)
    in_flight: int = 0
    failures: int = 0
    blocked_until_s: float = 0.0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


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
        self._heap: list[tuple[float, str, str]] = []
        self._sweep_at = _FEW_ENTRIES
        self._has_work = asyncio.Event()
        self.counts = TokenCounts()

    # ---- What the engine reports

    def add_tenant(
        self, cluster: TenantCluster, client: Requester, super_client: Requester | None = None
    ) -> None:
        """Serve a tenant. One that is there under the same key is replaced.

        `super_client` is the super cluster's for this tenant's objects alone.
        """
        self.remove_tenant(cluster.key)
        self._tenants[cluster.key] = _TenantTokens(cluster, client, super_client or self._super_client)

    def remove_tenant(self, key: str) -> None:
        """Forget a tenant. Its Secrets stay, for whoever serves it next."""
        removed = self._tenants.pop(key, None)
        if removed is not None:
            for task in removed.tasks:
                task.cancel()

    def secret_seen(self, secret: Object) -> None:
        """A super Secret with the label `POD_TOKENS`, as it is now: all of them after a start."""
        tenant = self._tenants.get(annotations_of(secret).get(keys.CLUSTER, ""))
        found = parse_secret(secret)
        if tenant is None or found is None:
            return
        record = tenant.records.get(found.uid)
        if record is None:
            record = tenant.records[found.uid] = _Record(found, uid_of(secret))
        elif record.pod.secret_name != found.secret_name or _issued_s(found) <= _issued_s(record.pod):
            return
        else:
            # Another replica renewed it.
            record.pod, record.secret_uid = found, uid_of(secret)
        self._schedule_renewal(tenant, record)

    def secret_gone(self, secret: Object) -> None:
        """A super Secret with the label was deleted. While its pod is there it is made again."""
        tenant = self._tenants.get(annotations_of(secret).get(keys.CLUSTER, ""))
        found = parse_secret(secret)
        record = None if tenant is None or found is None else tenant.records.get(found.uid)
        if tenant is None or record is None or record.is_leaving or record.secret_uid != uid_of(secret):
            return
        record.secret_uid = ""
        self._schedule(tenant, record, 0.0)

    def pod_gone(self, key: str, pod_uid: str) -> None:
        """The super pod of this tenant's pod is no more: its Secret is deleted."""
        tenant = self._tenants.get(key)
        record = None if tenant is None else tenant.records.get(pod_uid)
        if tenant is not None and record is not None and not record.is_leaving:
            record.is_leaving, record.failures = True, 0
            self._schedule(tenant, record, 0.0)

    def remove_orphans(self, key: str, pod_uids: Set[str]) -> int:
        """Delete the Secrets of pods that are not among these, all that have a super pod; return how many.

        Young ones stay: those of a pod that was made with a node are issued before its super pod is there.
        Fit for each patrol.
        """
        tenant = self._tenants.get(key)
        if tenant is None:
            return 0
        last_s = self._wall() - ORPHAN_AGE_S
        orphans = [
            uid
            for uid, record in tenant.records.items()
            if uid not in pod_uids and not record.is_leaving and _issued_s(record.pod) < last_s
        ]
        for uid in orphans:
            self.pod_gone(key, uid)
        return len(orphans)

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
            self._keep(tenant, record)
            is_same = requests_of(record.pod.tokens) == action.tokens
            if record.secret_uid and is_same and record.pod.secret_name == action.secret_name:
                return None
        pod = pod_tokens(action, super_namespace, ())
        try:
            issued = await self._issue(tenant, pod, action.tokens)
            pod = pod_tokens(action, super_namespace, issued)
            secret_uid = await self._write(tenant, pod, issued, "")
        except NotIssuedError as error:
            return error.wait
        if secret_uid is None:
            return Conflict(f"Secret {super_namespace}/{action.secret_name} is not of the tokens of the pod")
        self.counts.issued += len(issued)
        if self._is_served(tenant):
            record = tenant.records[action.uid] = _Record(pod, secret_uid)
            self._schedule_renewal(tenant, record)
        return None

    def _keep(self, tenant: _TenantTokens, record: _Record) -> None:
        """The super pod is made, or made again: its Secret stays."""
        if record.is_leaving:
            record.is_leaving = False
            self._schedule_renewal(tenant, record)

    def _is_served(self, tenant: _TenantTokens) -> bool:
        """Whether it was not removed, nor replaced under its key."""
        return self._tenants.get(tenant.cluster.key) is tenant

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
            while self._heap and self._heap[0][0] <= loop.time():
                entry = heapq.heappop(self._heap)
                _, key, uid = entry
                tenant, record = self._tenants.get(key), self._record_of(entry)
                if tenant is not None and record is not None and not record.is_queued:
                    record.is_queued = True
                    tenant.queue.append(uid)
                    self._start(tenant)
            wait_s = self._heap[0][0] - loop.time() if self._heap else None
            try:
                async with asyncio.timeout(wait_s):
                    await self._has_work.wait()
            except TimeoutError:
                pass

    def _schedule(self, tenant: _TenantTokens, record: _Record, wait_s: float) -> None:
        record.due_s = asyncio.get_running_loop().time() + wait_s
        if len(self._heap) >= self._sweep_at:
            self._heap = [entry for entry in self._heap if self._record_of(entry) is not None]
            heapq.heapify(self._heap)
            self._sweep_at = max(_FEW_ENTRIES, 2 * len(self._heap))
        heapq.heappush(self._heap, (record.due_s, tenant.cluster.key, record.pod.uid))
        if self._heap[0][0] == record.due_s:
            self._has_work.set()

    def _record_of(self, entry: tuple[float, str, str]) -> _Record | None:
        """The record that is due then; None for an entry that is not its latest, which is void."""
        due_s, key, uid = entry
        tenant = self._tenants.get(key)
        record = None if tenant is None else tenant.records.get(uid)
        return record if record is not None and record.due_s == due_s else None

    def _schedule_renewal(self, tenant: _TenantTokens, record: _Record) -> None:
        now_s = self._wall()
        due_s = next_renewal_s(record.pod.uid, record.pod.tokens, now_s)
        self._schedule(tenant, record, max(0.0, due_s - now_s))

    def _start(self, tenant: _TenantTokens) -> None:
        if tenant.in_flight >= MAX_RENEWALS_IN_FLIGHT:
            return
        tenant.in_flight += 1

        def end() -> None:
            tenant.in_flight -= 1

        task = self._tasks.spawn(self._work(tenant), f"tokens {tenant.cluster.key}", when_over=end)
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
                elif record.due_s <= asyncio.get_running_loop().time():
                    await self._renew(tenant, record)
            # A tenant's API server may answer anything, and a task that fails here ends the daemon.
            except Exception as error:  # noqa: BLE001 - else one tenant stops all
                # Not the error's text, nor its trace: it may have a token.
                name = type(error).__name__
                _log.error("tokens of a pod failed unexpectedly", tenant=tenant.cluster.key, error=name)
                message = f"the answer to a TokenRequest is not understood: {name}"
                self._note_failure(tenant, record, NotIssuedError(message, RenewalFailure.TENANT_REFUSES))
                if record.is_leaving:
                    self._schedule(tenant, record, FIRST_BACKOFF_S)

    # ---- One pod

    async def _renew(self, tenant: _TenantTokens, record: _Record) -> None:
        now = asyncio.get_running_loop().time()
        if now < tenant.blocked_until_s:
            # Spread, so that not all come at once when it is over.
            spread = jitter_of(record.pod.uid, "") * FIRST_BACKOFF_S
            self._schedule(tenant, record, tenant.blocked_until_s - now + spread)
            return
        pod = record.pod
        due = pod.tokens if not record.secret_uid else due_tokens(pod.uid, pod.tokens)
        try:
            issued = await self._issue(tenant, pod, requests_of(due))
            renewed = {each.lifetime.key: each.lifetime for each in issued}
            pod = _with_tokens(pod, renewed)
            secret_uid = await self._write(tenant, pod, issued, record.secret_uid)
            if secret_uid is None:
                message = f"Secret {pod.secret_name} stands in the way of the pod's tokens"
                raise NotIssuedError(message, RenewalFailure.NAME_CONFLICT)
        except NotIssuedError as error:
            self._note_failure(tenant, record, error)
            if not record.is_leaving:
                await self._report(tenant.cluster.key, record.pod, error)
            return
        tenant.failures = 0
        was_failing, record.failures = record.failures > 0, 0
        record.pod, record.secret_uid = pod, secret_uid
        self.counts.renewed += len(issued)
        if record.is_leaving:
            self._schedule(tenant, record, 0.0)
        else:
            self._schedule_renewal(tenant, record)
        if was_failing:
            await self._report(tenant.cluster.key, pod, None)

    def _note_failure(self, tenant: _TenantTokens, record: _Record, error: NotIssuedError) -> None:
        self.counts.renewals_failed += 1
        self.counts.failures[error.cause] += 1
        is_tenant_unreachable = error.cause is RenewalFailure.TENANT_UNREACHABLE
        record.failures += 1
        failures = record.failures
        if is_tenant_unreachable:
            tenant.failures += 1
            failures = tenant.failures
        longest_s = backoff_s(failures, first_s=FIRST_BACKOFF_S, longest_s=MAX_BACKOFF_S)
        wait_s = spread_s(longest_s, self._jitter())
        if is_tenant_unreachable:
            tenant.blocked_until_s = asyncio.get_running_loop().time() + wait_s
        self._schedule(tenant, record, 0.0 if record.is_leaving else wait_s)

    async def _remove(self, tenant: _TenantTokens, record: _Record) -> None:
        pod = record.pod
        if record.secret_uid and self._owns(tenant.cluster.key, pod.super_namespace):
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": record.secret_uid}}
            path = SECRETS.path(pod.super_namespace, pod.secret_name)
            record.is_removing = True
            try:
                await tenant.super_client.request("DELETE", path, {}, msgspec.json.encode(body))
                self.counts.removed += 1
            except (ApiError, UnreachableError) as error:
                # Not found, or another one by now: then there is nothing to delete.
                if not (isinstance(error, ApiError) and error.status.code in (404, 409)):
                    record.failures += 1
                    longest_s = backoff_s(record.failures, first_s=FIRST_BACKOFF_S, longest_s=MAX_BACKOFF_S)
                    self._schedule(tenant, record, spread_s(longest_s, self._jitter()))
                    return
            finally:
                record.is_removing = False
        if tenant.records.get(pod.uid) is record:
            del tenant.records[pod.uid]

    async def _issue(
        self, tenant: _TenantTokens, pod: PodTokens, requests: tuple[TokenRequest, ...]
    ) -> tuple[IssuedToken, ...]:
        """Ask the tenant for tokens. Raises NotIssuedError."""
        path = SERVICE_ACCOUNTS.path(pod.namespace, pod.service_account) + "/token"
        found: list[IssuedToken] = []
        for each in requests:
            body = msgspec.json.encode(token_request(each.audience, each.expiration_s, pod.name, pod.uid))
            try:
                # The tenant's clock decides when it expires: count from before.
                now_s = self._wall()
                answer = await tenant.client.request("POST", path, {}, body, limit_bytes=MAX_RESPONSE_BYTES)
            except ApiError as error:
                message = refusal_message(pod.service_account, pod.namespace, error.status.code)
                raise NotIssuedError(message, RenewalFailure.TENANT_REFUSES) from None
            except UnreachableError:
                message = "the tenant's API server does not answer a TokenRequest"
                raise NotIssuedError(message, RenewalFailure.TENANT_UNREACHABLE) from None
            issued = issued_token(each, answer, now_s)
            if issued is None:
                message = "the tenant's API server answers a TokenRequest without a token"
                raise NotIssuedError(message, RenewalFailure.TENANT_REFUSES)
            found.append(issued)
        return tuple(found)

    async def _write(
        self, tenant: _TenantTokens, pod: PodTokens, issued: tuple[IssuedToken, ...], secret_uid: str
    ) -> str | None:
        """Put tokens into the Secret; return its UID, None if another one has its name.

        Without a `secret_uid` the Secret is made. Raises NotIssuedError, also for one that is gone.
        """
        try:
            if secret_uid:
                return await self._patch(tenant, pod, issued, secret_uid)
            body = secret_of(pod, issued, tenant.cluster)
            try:
                return uid_of(await self._send(tenant, pod, "POST", SECRETS.path(pod.super_namespace), body))
            except ApiError as error:
                if error.status.code != 409 or error.status.reason != _REASON_EXISTS:
                    raise
            path = SECRETS.path(pod.super_namespace, pod.secret_name)
            actual = _decode(await tenant.super_client.request("GET", path, {}))
            if not is_secret_of(actual, pod, tenant.cluster):
                return None
            return await self._patch(tenant, pod, issued, uid_of(actual))
        except ApiError as error:
            # The message of the server may repeat what was sent.
            code = error.status.code
        except UnreachableError:
            message = "the super cluster's API server does not answer"
            raise NotIssuedError(message, RenewalFailure.SUPER_UNREACHABLE) from None
        record = tenant.records.get(pod.uid)
        if secret_uid and code in (404, 409) and record is not None:
            record.secret_uid = ""  # made again by the next try
        message = f"the super cluster refuses the Secret of the tokens ({code})"
        raise NotIssuedError(message, RenewalFailure.SUPER_REFUSES)

    async def _patch(
        self, tenant: _TenantTokens, pod: PodTokens, issued: tuple[IssuedToken, ...], secret_uid: str
    ) -> str:
        path = SECRETS.path(pod.super_namespace, pod.secret_name)
        await self._send(tenant, pod, "PATCH", path, secret_patch(pod, issued, secret_uid))
        return secret_uid

    async def _send(
        self, tenant: _TenantTokens, pod: PodTokens, method: str, path: str, body: Object
    ) -> Object:
        """Write to the super cluster. Raises NotIssuedError if the namespace is not this tenant's."""
        if not self._is_served(tenant):
            # Its API server kept an answer back. Another tenant may have its key and its namespaces by now.
            raise NotIssuedError(NOT_SYNCED, RenewalFailure.NAMESPACE_NOT_OWNED)
        if not self._owns(tenant.cluster.key, pod.super_namespace):
            message = f"namespace {pod.namespace} is not in the super cluster"
            raise NotIssuedError(message, RenewalFailure.NAMESPACE_NOT_OWNED)
        content_type = _MERGE_PATCH if method == "PATCH" else "application/json"
        encoded = msgspec.json.encode(body)
        answer = await tenant.super_client.request(method, path, {}, encoded, content_type=content_type)
        return _decode(answer)


def _decode(body: bytes) -> Object:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreachableError(f"the answer is no object: {type(error).__name__}") from None


def _issued_s(pod: PodTokens) -> float:
    return max(each.issued_s for each in pod.tokens)


def _with_tokens(pod: PodTokens, renewed: dict[str, Any]) -> PodTokens:
    tokens = tuple(renewed.get(each.key, each) for each in pod.tokens)
    return PodTokens(
        pod.namespace,
        pod.name,
        pod.uid,
        pod.service_account,
        pod.super_namespace,
        pod.secret_name,
        tokens,
    )
