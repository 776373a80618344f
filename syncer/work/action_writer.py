# SPDX-License-Identifier: Apache-2.0
"""Carries out the actions of plans: the one place that writes objects of tenants.

Before each write to the super cluster the ownership of the namespace is asked again, because time has passed.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec

from daemonkit.kube.answers import decoded
from daemonkit.kube.client import ApiError, Requester, UnreachableError
from daemonkit.kube.resources import Named
from syncer.caches.cached_object import CachedObject
from syncer.core.answered_size import MAX_ANSWERED_BYTES, MOST_TIMES, answered_bytes
from syncer.core.field_ownership import note_foreign_fields
from syncer.core.objects import Object, SyncedKind, annotations_of, is_deleting
from syncer.core.patches import patched
from syncer.core.plan import (
    Action,
    Bind,
    Conflict,
    Create,
    Delete,
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
from syncer.metrics import SyncerMetrics
from syncer.policy import endpoints
from syncer.tenant.deletions import SyncKey
from syncer.tenant.owned_namespaces import NAMESPACE
from syncer.tenant.session import TenantSession
from syncer.work.slots import Slots
from syncer.work.void_patches import VoidPatches, digest_of
from tenancy import keys

_OBJECT = msgspec.json.Decoder(Object)
_NAMED = msgspec.json.Decoder(Named)


class ForeignNamespaceError(Exception):
    """The super namespace is not the tenant's: nothing was written."""


WRITE_RATE = "WriteRateExceeded"
# It is gone, another one by now, or the server has no time: of what was sent that says nothing.
_AGAIN = frozenset({404, 409, 429, 503, 504})
_TOO_LARGE = Refusal(
    "object",
    f"it would have more than {MAX_ANSWERED_BYTES} bytes as an API server answers it, which writes each <, > "
    "and & as six",
)


class NotReadyError(Exception):
    """What a pod needs is not there yet: its vNode, for which the rest of its plan waits, or its tokens."""

    def __init__(self, why: Wait | Conflict | Refusal, retry_after_s: float = 0.0) -> None:
        super().__init__(why.message)
        self.retry_after_s = retry_after_s
        match why:
            case Wait():
                self.plan = Plan(Half(wait=why))
            case Conflict():
                self.plan = Plan(Half(conflict=why))
            case Refusal():
                self.plan = Plan(Half(refusals=(why,)))


class TooLargeError(NotReadyError):
    """The object would be too large to be read where it is written: nothing was written."""

    def __init__(self) -> None:
        super().__init__(_TOO_LARGE)


class Nodes(Protocol):
    """What provides the vNodes of a tenant."""

    async def ensure(self, session: TenantSession, node: str) -> Wait | Conflict | None:
        """Return None when the tenant has the vNode, else why it has not."""


class Tokens(Protocol):
    """What has tokens of pods issued."""

    async def issue(self, session: TenantSession, action: IssueTokens) -> Wait | Conflict | None:
        """Return None when the Secret has the tokens, else why it has not."""


class PairVersions(msgspec.Struct):
    """The versions after the actions of a plan; None where an action left it unknown."""

    tenant_version: str | None
    super_version: str | None
    states: Mapping[Side, tuple[str, str]]
    """As the plan saw both (`void_patches.state_of`)."""


class ActionWriter:
    """Writes what actions say, on either side."""

    def __init__(
        self,
        kinds: Mapping[str, KindSync],
        metrics: SyncerMetrics,
        nodes: Nodes,
        tokens: Tokens,
        slots: Slots,
    ) -> None:
        self._kinds = kinds
        self._metrics = metrics
        self._nodes = nodes
        self._tokens = tokens
        self._slots = slots
        self._void_patches = VoidPatches()

    async def carry_out(
        self, session: TenantSession, item: SyncKey, action: Action, versions: PairVersions
    ) -> tuple[Side, Object] | None:
        """Carry out one action, and note the version after it in `versions`.

        Returns the object that stands in the way of a creation. Raises ApiError and UnreachableError,
        ForeignNamespaceError, NotReadyError.
        """
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
                    body = await self._write(session, item, action, request_of(action), None)
                except ApiError as error:
                    if error.status.code != 409 or error.status.reason != "AlreadyExists":
                        raise
                    return action.side, await self._read(session, action.side, action.kind, action.body)
            case Patch():
                request, state = request_of(action), versions.states[action.side]
                void = self._void_patches
                key = session.tenant.key
                # Nearly always none is known: then no digest is needed.
                if void and void.is_known(digest_of(key, item, action, request.body, state)):
                    return None
                there = session.caches.pair(item).of(action.side)
                if self._takes_away(item, action, there):
                    taken = await self._take_away(session, item, action, request, there)
                    if taken is None:
                        return await self.carry_out(session, item, _end_of(action), versions)
                    body = taken
                else:
                    body = await self._write(session, item, action, request, there)
                if _version_in(body) == state[1]:
                    void.note(digest_of(key, item, action, request.body, state))
        self._note(action.side, versions, body)
        return None

    async def _write(
        self,
        session: TenantSession,
        item: SyncKey,
        action: Create | Patch,
        request: ApiRequest,
        there: CachedObject | None,
    ) -> bytes:
        """Create or change an object, `there` as the cache has it.

        Raises NotReadyError if the tenant has written too many bytes to the super cluster for this write too.
        Deletions go out all the same: they take away what may lead to others by now.
        """
        _check_size(action, request, there)
        verb = "create" if isinstance(action, Create) else "patch"
        if action.side is not Side.SUPER:
            return await self._send(session, item, action.side, verb, request)
        size_bytes = _size_bytes(request, there)
        wait_s = session.write_wait_s(item, size_bytes)
        if wait_s > 0:
            why = f"this tenant may write {session.write_rate.per_s} bytes a second to the super cluster"
            raise NotReadyError(Wait(WRITE_RATE, f"{why}, and has written more: this write waits"), wait_s)
        try:
            return await self._send(session, item, action.side, verb, request)
        except ApiError as error:
            # With another code it may have been written.
            if error.status.code < 500:
                session.write_rate.give_back(size_bytes)
            raise

    async def _take_away(
        self,
        session: TenantSession,
        item: SyncKey,
        action: Patch,
        request: ApiRequest,
        there: CachedObject | None,
    ) -> bytes | None:
        """Send a patch that takes something away; None if it does not go out, or is refused.

        The tenant decides what else is in it, and so whether an API server accepts it.
        """
        try:
            _check_size(action, request, there)
        except TooLargeError:
            return None
        charge = session.try_take_away(item, _size_bytes(request, there))
        if charge is None:
            return None
        try:
            return await self._send(session, item, action.side, "patch", request)
        except ApiError as error:
            may_be_written = error.status.code >= 500
            if not may_be_written:
                charge.give_back()
            if error.status.code in _AGAIN:
                raise
            return None  # also where a webhook fails, perhaps at what the tenant has written

    def _takes_away(self, item: SyncKey, action: Patch, there: CachedObject | None) -> bool:
        """Whether a patch of the super object takes away what may lead to another tenant by now."""
        if action.side is not Side.SUPER or self._kinds[item[0]].holds_changes:
            return False
        return there is not None and endpoints.takes_away(there.load(), action.body)

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

    def _note(self, side: Side, versions: PairVersions, body: bytes | None) -> None:
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
        value = decoded(_OBJECT, found)
        return value if side is Side.TENANT else note_foreign_fields(value)


def _check_size(action: Create | Patch, request: ApiRequest, there: CachedObject | None) -> None:
    """Raise TooLargeError for what could not be read after it was written."""
    if _size_bytes(request, there) * MOST_TIMES <= MAX_ANSWERED_BYTES:
        return
    after = request.body
    if there is not None and isinstance(action, Patch):
        after = msgspec.json.encode(patched(there.load(), action))
    if answered_bytes(after) > MAX_ANSWERED_BYTES:
        raise TooLargeError


def _size_bytes(request: ApiRequest, there: CachedObject | None) -> int:
    # However small a patch is, etcd has the whole object once more.
    return len(request.body) + (0 if there is None else there.json_bytes)


def _end_of(action: Patch) -> Delete:
    """The object goes as a whole where it cannot be changed now. What is to stay is made again, and waits.

    A tombstone is small, and what is made again has waited: no tenant fills the history by that.
    """
    return Delete(action.side, action.kind, action.namespace, action.name, action.uid, is_refused=True)


async def _ask(client: Requester, request: ApiRequest) -> bytes:
    return await client.request(
        request.method, request.path, {}, request.body, content_type=request.content_type
    )


def _version_in(body: bytes) -> str:
    return decoded(_NAMED, body).metadata.resource_version


@contextlib.contextmanager
def _ignoring(*codes: int) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.status.code not in codes:
            raise
