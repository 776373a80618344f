# SPDX-License-Identifier: Apache-2.0
"""Which tenants are synced: attaches those that a source publishes, and detaches the others."""

import asyncio
import zlib
from collections.abc import Generator, Mapping
from typing import Protocol

import msgspec

from daemonkit import logs
from daemonkit.kube.credentials import CredentialsError
from daemonkit.tasks import Tasks
from syncer.core.tenant_cluster import TenantCluster
from syncer.sources.port import IS_SUPER_CLUSTER, Reachable, TenantState, Unusable, overlap_of
from syncer.tenant.session import TenantSession
from tenancy import names

# For a tenant's requests under way to end.
_CLOSE_S = 2.0
# How soon a control plane that went back is noticed: each look takes 0.1 ms for each tenant.
_POLL_S = 5.0
# A session without one of its tasks is begun anew, and lists everything.
_REOPEN_S = 30.0

MEMORY_IS_OTHERS = (
    "the memory of the process is used up: this tenant had more than its share, which others need now; its "
    "objects are listed anew"
)

_log = logs.get(__name__)


class Attachment(msgspec.Struct):
    """One source's tenant; without a session it has a problem.

    `is_super_cluster`: its API server was found to be the super cluster's. Another state is tried again.
    """

    state: TenantState
    session: TenantSession | None = None
    problem: Unusable | None = None
    is_super_cluster: bool = False


def look_behind_s(key: str) -> int:
    """Of a thousand tenants a fifth is looked at each second."""
    return zlib.crc32(key.encode()) % int(_POLL_S)


class AttachmentOwner(Protocol):
    """Who serves the tenants that are attached."""

    def open_session(self, state: Reachable) -> TenantSession:
        """Build a session, which is not started. Raises CredentialsError."""

    async def attach(self, session: TenantSession) -> bool:
        """A session is synced: plan its objects. False if it ended meanwhile."""

    def detached(self, session: TenantSession) -> tuple[Generator[None, None, None], ...]:
        """A session ends, synced or not: forget it at once, and give back in steps what was held for it."""

    def tenant_changed(self, session: TenantSession, before: TenantCluster) -> None:
        """Its tenant was another before: of another weight, policy, prefix or release."""

    def note_problem(self, problem: Unusable) -> None:
        """A tenant cannot be synced: its VirtualCluster gets a condition."""

    def note_resolved(self, problem: Unusable) -> None:
        """That is over."""

    def note_credential(self, session: TenantSession) -> None:
        """A tenant is read and written by other credentials than before."""

    async def wait_super_synced(self) -> None:
        """Return once the super cluster's objects are known."""

    def is_super_cluster(self, session: TenantSession) -> bool:
        """Whether a synced session reads the super cluster, by whatever address."""


class Attachments:
    """What is attached now, by source and by cluster key."""

    def __init__(self, owner: AttachmentOwner, tasks: Tasks) -> None:
        self._owner = owner
        self._tasks = tasks
        self._failed: set[TenantSession] = set()
        # Those that are looked after at the same second.
        self._attached: list[dict[str, TenantSession]] = [{} for _ in range(int(_POLL_S))]
        self._second = 0
        self.by_source: dict[str, Attachment] = {}
        self.sessions: dict[str, TenantSession] = {}
        """By cluster key."""

    def update(self, tenants: Mapping[str, TenantState]) -> None:
        """Take what a source publishes: all its tenants."""
        for source in [each for each in self.by_source if each not in tenants]:
            self._end(source)
        for source, state in tenants.items():
            known = self.by_source.get(source)
            if (
                known is not None
                and known.state == state
                and (known.problem is None or known.is_super_cluster)
            ):
                continue
            match state:
                case Unusable():
                    self._set_problem(source, state, state)
                case Reachable():
                    self._use(source, state)

    def _use(self, source: str, state: Reachable) -> None:
        known = self.by_source.get(source)
        if known is not None and known.session is not None:
            if known.session.tenant.key == state.cluster.key:
                self._end_problem(known)
                before = known.session.tenant
                known.session.api_server.use(state.access)
                known.session.change_tenant(state.cluster)
                available_since = known.state.available_since if isinstance(known.state, Reachable) else ""
                known.state = state
                if state.available_since not in ("", available_since):
                    # It was woken, or an outage is over: what failed meanwhile waits for up to half a minute.
                    known.session.caches.retry_now()
                self._owner.note_credential(known.session)
                if before != state.cluster:
                    self._owner.tenant_changed(known.session, before)
                return
            self._end(source)
        other = self.sessions.get(state.cluster.key)
        if other is not None:
            message = (
                f"cluster key {state.cluster.key} belongs to another tenant; give this one a key of its own"
            )
            self._set_problem(source, state, Unusable("", "ClusterKeyTaken", message, state.virtual_cluster))
            return
        is_of_directory = state.virtual_cluster is None
        if is_of_directory and any(names.overlaps(key, state.cluster.key) for key in self.sessions):
            # Its key is the shorter one, and came later.
            self._set_problem(source, state, overlap_of(state))
            return
        try:
            session = self._owner.open_session(state)
        except CredentialsError as error:
            unusable = Unusable(state.cluster.key, "CredentialsUnusable", str(error), state.virtual_cluster)
            self._set_problem(source, state, unusable)
            return
        if known is not None:
            self._end_problem(known)
        self.by_source[source] = Attachment(state, session)
        self.sessions[state.cluster.key] = session
        _log.info("tenant found, listing its objects", tenant=session.tenant.key)
        session.start()
        session.tasks.spawn(self._attach_when_synced(session), "attach")

    async def _attach_when_synced(self, session: TenantSession) -> None:
        await session.caches.wait_synced()
        await self._owner.wait_super_synced()
        if self._owner.is_super_cluster(session):
            self._refuse_super_cluster(session)
            return
        if not await self._owner.attach(session):
            return
        key = session.tenant.key
        self._attached[look_behind_s(key)][key] = session
        self._owner.note_credential(session)
        _log.info("tenant synced", tenant=key)

    def poll(self) -> None:
        """Look after a fifth of the attached tenants. Call it each second."""
        self._second = (self._second + 1) % len(self._attached)
        for key, session in list(self._attached[self._second].items()):
            if self.sessions.get(key) is not session:
                continue  # it ended with another one
            try:
                self._look_after(session)
            # A bug in what one tenant's data leads to: it is opened anew, and the others are served.
            except Exception as error:  # noqa: BLE001 - else one tenant stops all
                _log.error("a look at a tenant failed", tenant=key, error=error, traceback=logs.trace(error))
                self.note_failure(session)

    def _look_after(self, session: TenantSession) -> None:
        session.note_queued()
        # Rotated credentials may lead elsewhere.
        if self._owner.is_super_cluster(session):
            self._refuse_super_cluster(session)
        elif session.caches.has_regressed:
            _log.warning(
                "tenant's control plane went back, restored or wiped: listing its objects anew",
                tenant=session.tenant.key,
            )
            self._reopen(session)

    def _source_of(self, session: TenantSession) -> str | None:
        return next((name for name, each in self.by_source.items() if each.session is session), None)

    def _refuse_super_cluster(self, session: TenantSession) -> None:
        """An address of the super cluster that differs in its text from the known one."""
        source = self._source_of(session)
        if source is None:
            return
        state = self.by_source[source].state
        self._end(source)
        problem = Unusable(session.tenant.key, "CredentialsUnusable", IS_SUPER_CLUSTER, state.virtual_cluster)
        self._set_problem(source, state, problem)
        self.by_source[source].is_super_cluster = True

    def _reopen(self, session: TenantSession) -> None:
        """Begin anew, as after a start: what is missing now is no deletion that was seen."""
        source = self._source_of(session)
        if source is None:
            return
        state = self.by_source[source].state
        self._end(source)
        self.update({name: each.state for name, each in self.by_source.items()} | {source: state})
        if (opened := self.sessions.get(session.tenant.key)) is not None:
            opened.resume_rate(session)  # else who is opened anew writes all anew at once

    def note_failure(self, session: TenantSession) -> None:
        """Open the session of a tenant anew, later: one of its tasks has failed, and does not run again."""
        if session not in self._failed and self.sessions.get(session.tenant.key) is session:
            self._failed.add(session)
            self._tasks.spawn(self._reopen_later(session), f"reopen {session.tenant.key}")

    def note_out_of_memory(self, session: TenantSession) -> None:
        """Open the session of a tenant anew: what it holds is given back, and it lists as far as it may.

        Another tenant has a claim to the memory beyond this one's share.
        """
        if session not in self._failed and self.sessions.get(session.tenant.key) is session:
            self._failed.add(session)
            _log.warning(
                "memory is used up: the tenant that takes most is listed anew", tenant=session.tenant.key
            )
            self._tasks.spawn(self._reopen_now(session), f"give back memory of {session.tenant.key}")

    async def _reopen_now(self, session: TenantSession) -> None:
        self._failed.discard(session)
        self._reopen(session)
        if (opened := self.sessions.get(session.tenant.key)) is not None:
            opened.memory.note_problem(MEMORY_IS_OTHERS)

    async def _reopen_later(self, session: TenantSession) -> None:
        await asyncio.sleep(_REOPEN_S)
        self._failed.discard(session)
        self._reopen(session)

    def _end_problem(self, known: Attachment) -> None:
        problem, known.problem = known.problem, None
        if problem is not None:
            _log.info("tenant can be synced again", tenant=problem.key, reason=problem.reason)
            self._owner.note_resolved(problem)

    def _set_problem(self, source: str, state: TenantState, problem: Unusable) -> None:
        known = self.by_source.get(source)
        if known is None:
            known = self.by_source[source] = Attachment(state)
        # A session goes on with the credentials it has: what replaced them may be a mistake.
        known.state = state
        known.is_super_cluster = False
        if known.problem != problem:
            if known.problem is not None and known.problem.reason != problem.reason:
                self._owner.note_resolved(known.problem)
            known.problem = problem
            _log.warning(
                "tenant cannot be synced", tenant=problem.key, reason=problem.reason, problem=problem.message
            )
            self._owner.note_problem(problem)

    def _end(self, source: str) -> None:
        ended = self.by_source.pop(source)
        if ended.session is not None:
            key = ended.session.tenant.key
            del self.sessions[key]
            self._attached[look_behind_s(key)].pop(key, None)
            held = self._owner.detached(ended.session)
            _log.info("tenant is no longer synced", tenant=key)
            self._tasks.spawn(ended.session.close(_CLOSE_S, held), f"close {key}")

    async def close(self) -> None:
        """End all sessions."""
        self.by_source.clear()
        for attached in self._attached:
            attached.clear()
        while self.sessions:
            _, session = self.sessions.popitem()
            await session.close(_CLOSE_S)
