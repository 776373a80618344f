# SPDX-License-Identifier: Apache-2.0
"""Tells tenants what became of their objects: an Event, and on a Pod a condition.

The text names the tenant's own objects and fields. What the super cluster answered is passed on with the
tenant's names of its namespaces. Conflicts with others are for the operator alone.
"""

import datetime as dt
from collections.abc import Callable
from typing import NamedTuple

from daemonkit.fairness.emptying import Holder
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.event_recorder import EVENTS, EventSource, InvolvedObject, build_event
from daemonkit.kube.resources import EventReason
from daemonkit.token_bucket import TokenBucket
from syncer.core.objects import Object
from syncer.core.plan import Change, Plan, Wait
from syncer.core.requests import STRATEGIC_MERGE_PATCH
from syncer.kinds import upward
from syncer.metrics import SyncerMetrics
from syncer.tenant.deletions import SyncKey
from syncer.tenant.session import TenantSession
from syncer.work.slots import Slots

COMPONENT = "vc-syncer"
SYNCED_CONDITION = "vcnode.io/Synced"
# client-go's default for one source: 25 at once; then one a second.
BURST = 25
# Objects whose last report is remembered, for each tenant.
MAX_REMEMBERED = 10_000
# Of a tenant's controllers and objects, of which something is otherwise below. An Event that is posted again
# has the same name, and the API server has it already.
MAX_CHANGES = 1_000
# As many as Events have, and enough for people.
MAX_TEXT = 1024
_MAX_SHOWN = 5
# A wait that lasts is reported. `kubectl describe` is rarely faster.
REPORT_WAIT_S = 2.0
# What failed is tried again at least as often. Its answer may be another text each time, such as one with the
# id of the request; and a report changes the object, which has it tried again at once.
FAILED_AGAIN_S = 30.0


class SyncEvent(EventReason):
    """Why an Event is posted about an object of a tenant."""

    REFUSED = "SyncRefused"
    WAITING = "SyncWaiting"
    CONFLICT = "SyncConflict"
    CHANGED = "SyncChanged"
    FAILED = "FailedCreate"
    TOKEN_RENEWAL = "FailedTokenRenewal"  # noqa: S105 - a reason


EVENT_REASONS = {
    SyncEvent.REFUSED: "The tenant's SyncPolicy does not allow the object; the message has the fields.",
    SyncEvent.WAITING: "The object needs another one that is not there yet; the message names it.",
    SyncEvent.CONFLICT: "An object that is not this tenant's has the name in the super cluster; it stays.",
    SyncEvent.CHANGED: "Not all of the object is in the super cluster as it was written; see the message.",
    SyncEvent.FAILED: "The super cluster's API server refused the object; the message has its reason.",
    SyncEvent.TOKEN_RENEWAL: "Tokens that the pod mounts were not renewed and will end; it is tried again.",
}


class _LastReport(NamedTuple):
    """What was last reported about an object, and when."""

    line: str
    at_s: float


class TenantReports:
    """The engine's port `Reports`. `wall` is the time of day in seconds, `now` monotonic."""

    def __init__(
        self,
        metrics: SyncerMetrics,
        wall: Callable[[], float],
        now: Callable[[], float],
        slots: Slots,
        *,
        max_remembered: int = MAX_REMEMBERED,
    ) -> None:
        self._metrics = metrics
        self._wall = wall
        self._now = now
        self._slots = slots
        self._max_remembered = max_remembered
        self._last: dict[str, dict[SyncKey, _LastReport]] = {}
        self._waits: dict[str, dict[SyncKey, tuple[Wait, float]]] = {}
        self._failing_renewals: dict[str, dict[str, str]] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._known_changes: dict[str, dict[tuple[str, str, str], str]] = {}
        self._change_buckets: dict[str, TokenBucket] = {}

    def forget(self, session: TenantSession) -> tuple[Holder, ...]:
        """The tenant is no longer synced. Returns what held its reports, to be emptied in steps."""
        key = session.tenant.key
        self._buckets.pop(key, None)
        self._change_buckets.pop(key, None)
        return (
            self._last.pop(key, {}),
            self._waits.pop(key, {}),
            self._failing_renewals.pop(key, {}),
            self._known_changes.pop(key, {}),
        )

    def forget_object(self, session: TenantSession, item: SyncKey) -> None:
        """Neither side has the object any more."""
        self._last.get(session.tenant.key, {}).pop(item, None)
        self._waits.get(session.tenant.key, {}).pop(item, None)

    def last(self, session: TenantSession, item: SyncKey) -> str:
        """What was last reported about an object; empty if it is synced, or nothing was."""
        found = self._last.get(session.tenant.key, {}).get(item)
        return "" if found is None else found.line

    def count(self) -> int:
        """The objects of all tenants that are not synced."""
        return sum(map(len, self._last.values()))

    def reported(self, session: TenantSession) -> dict[SyncKey, str]:
        """All objects of a tenant that are not synced, with the reason."""
        return {item: each.line for item, each in self._last.get(session.tenant.key, {}).items()}

    async def planned(self, session: TenantSession, item: SyncKey, plan: Plan, tenant: Object | None) -> bool:
        if plan.wait is None:
            self._waits.get(session.tenant.key, {}).pop(item, None)
        if tenant is None:
            self._last.get(session.tenant.key, {}).pop(item, None)
            return True
        if plan.refusals:
            shown = "; ".join(f"{each.path}: {each.message}" for each in plan.refusals[:_MAX_SHOWN])
            more = len(plan.refusals) - _MAX_SHOWN
            text = shown + (f"; and {more} more" if more > 0 else "")
            self._metrics.refusals.inc()
            await self._report(session, item, SyncEvent.REFUSED, SyncEvent.REFUSED, text, tenant)
        elif plan.conflict is not None:
            text = "the name is taken in the super cluster; ask its operator, or use another name"
            await self._report(session, item, SyncEvent.CONFLICT, SyncEvent.CONFLICT, text, tenant)
        elif plan.wait is not None:
            if not self._note_wait(session, item, plan.wait):
                return False
            await self._report(session, item, SyncEvent.WAITING, plan.wait.reason, plan.wait.message, tenant)
        else:
            await self._clear(session, item, tenant)
            if plan.changes:
                await self._report_changes(session, item, plan.changes, tenant)
        return True

    async def _report_changes(
        self, session: TenantSession, item: SyncKey, changes: tuple[Change, ...], tenant: Object
    ) -> None:
        """Tell what of an object is otherwise below: once, and once for all objects of one controller.

        It takes nothing from the rate of other reports. What is beyond its own comes with a later plan.
        """
        shown = "; ".join(f"{each.path} {each.message}" for each in changes[:_MAX_SHOWN])
        more = len(changes) - _MAX_SHOWN
        text = (shown + (f"; and {more} more" if more > 0 else ""))[:MAX_TEXT]
        known = self._known_changes.setdefault(session.tenant.key, {})
        whose = item[0], item[1], _controller_of(tenant)
        if known.get(whose) == text:
            return
        if not self._try_acquire(self._change_buckets, session):
            return
        known.pop(whose, None)
        if len(known) >= MAX_CHANGES:
            known.pop(next(iter(known)))
        known[whose] = text
        async with self._slots.yielded():
            await self._post(session, item, SyncEvent.CHANGED, text, tenant)

    async def failed(
        self, session: TenantSession, item: SyncKey, error: Exception, tenant: Object | None
    ) -> None:
        if tenant is None or not isinstance(error, ApiError):
            return
        if error.status.code not in (400, 403, 422) and not error.is_too_large:
            return
        last = self._last.get(session.tenant.key, {}).get(item)
        has_failed = last is not None and last.line.startswith(SyncEvent.FAILED)
        if last is not None and has_failed and self._now() - last.at_s < FAILED_AGAIN_S:
            return
        text = own_names(error.status.message, session)
        await self._report(session, item, SyncEvent.FAILED, SyncEvent.FAILED, text, tenant)

    async def renewal(self, session: TenantSession, item: SyncKey, pod_uid: str, problem: str) -> None:
        """Report that tokens of a pod were not renewed; no `problem` if they are again.

        One Event for as long as the problem is the same. What could not be posted comes with the next try.
        """
        known = self._failing_renewals.setdefault(session.tenant.key, {})
        if not problem:
            known.pop(pod_uid, None)
        elif known.get(pod_uid) != problem:
            pod = {"metadata": {"uid": pod_uid}}
            is_posted = self._try_acquire_report(session) and await self._post(
                session, item, SyncEvent.TOKEN_RENEWAL, problem, pod
            )
            if is_posted:
                if len(known) >= self._max_remembered:
                    known.pop(next(iter(known)))
                known[pod_uid] = problem

    def _note_wait(self, session: TenantSession, item: SyncKey, wait: Wait) -> bool:
        """Note a wait; returns whether it lasts and is worth an Event. Most end with the next change."""
        waits = self._waits.setdefault(session.tenant.key, {})
        known = waits.get(item)
        if known is None and len(waits) >= self._max_remembered:
            return True  # to look at each again and again would be all that is done
        if known is None or known[0] != wait:
            waits[item] = (wait, self._now())
            return False
        return self._now() - known[1] >= REPORT_WAIT_S

    async def _report(
        self, session: TenantSession, item: SyncKey, event: SyncEvent, reason: str, text: str, tenant: Object
    ) -> None:
        text = text[:MAX_TEXT]
        line = f"{reason}: {text}"
        known = self._last.setdefault(session.tenant.key, {})
        last = known.get(item)
        if last is not None and last.line == line:
            return
        is_within_rate = self._try_acquire_report(session)
        if last is None and len(known) >= self._max_remembered:
            if not is_within_rate:
                return  # else each patrol reports all of them anew
            known.pop(next(iter(known)))
        known[item] = _LastReport(line, self._now())
        refused: ApiError | UnreachableError | None = None
        if item[0] == "Pod":
            try:
                await self._set_condition(session, item, tenant, "False", reason, text)
            except (ApiError, UnreachableError) as error:
                refused = error
        if is_within_rate:
            async with self._slots.yielded():
                await self._post(session, item, event, text, tenant)
        if refused is not None:
            known.pop(item, None)
            raise refused  # with the item, the report is tried again

    def _try_acquire_report(self, session: TenantSession) -> bool:
        return self._try_acquire(self._buckets, session)

    def _try_acquire(self, buckets: dict[str, TokenBucket], session: TenantSession) -> bool:
        now = self._now()
        bucket = buckets.get(session.tenant.key)
        if bucket is None:
            bucket = buckets[session.tenant.key] = TokenBucket(BURST, 1.0, BURST, now)
        if bucket.try_acquire(now):
            return True
        self._metrics.events.labels("dropped").inc()
        return False

    async def _clear(self, session: TenantSession, item: SyncKey, tenant: Object) -> None:
        was_reported = self._last.get(session.tenant.key, {}).pop(item, None) is not None
        if item[0] == "Pod" and (was_reported or _is_marked(tenant)):
            await self._set_condition(session, item, tenant, "True", "Synced", "")

    async def _set_condition(
        self, session: TenantSession, item: SyncKey, tenant: Object, status: str, reason: str, message: str
    ) -> None:
        kind = session.kinds[item[0]].kind
        at = dt.datetime.fromtimestamp(self._wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": SYNCED_CONDITION,
            "status": status,
            "reason": reason,
            "message": message[:MAX_TEXT],
            "lastTransitionTime": at,
        }
        body = {"metadata": {"uid": tenant["metadata"].get("uid")}, "status": {"conditions": [condition]}}
        path = kind.resource.path(item[1], item[2]) + "/status"
        async with self._slots.yielded():
            await session.send("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)

    async def _post(
        self, session: TenantSession, item: SyncKey, reason: SyncEvent, text: str, tenant: Object
    ) -> bool:
        kind = session.kinds[item[0]].kind
        involved = InvolvedObject(
            item[1], item[2], str(tenant["metadata"].get("uid", "")), kind.kind, kind.api_version
        )
        at = dt.datetime.fromtimestamp(self._wall(), dt.UTC)
        # Not the cluster key: it is a name of the super cluster.
        source = EventSource(COMPONENT, "", COMPONENT)
        event = build_event(involved, reason, text, source, at)
        try:
            await session.client.request("POST", EVENTS.path(event.namespace), {}, event.body)
        except ApiError as error:
            result = "posted" if error.status.code == 409 else "refused"
        except UnreachableError:
            result = "unreachable"
        else:
            result = "posted"
        self._metrics.events.labels(result).inc()
        return result == "posted"


def own_names(text: str, session: TenantSession) -> str:
    """A text of the super cluster as the tenant may read it."""
    return upward.tenant_text(text, (), session.view())


def _controller_of(tenant: Object) -> str:
    """The uid of the controller whose template an object was made of; its own without one."""
    meta = tenant["metadata"]
    for owner in meta.get("ownerReferences") or ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            return str(owner.get("uid", ""))
    return str(meta.get("uid", ""))


def _is_marked(tenant: Object) -> bool:
    conditions = (tenant.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == SYNCED_CONDITION and each.get("status") == "False" for each in conditions)
