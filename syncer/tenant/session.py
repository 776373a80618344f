# SPDX-License-Identifier: Apache-2.0
"""One tenant: puts its parts together, and tells each what changed.

Nothing here is shared with other tenants, so that one that hangs holds up itself alone. Each state has its
own file: `api_server` the client, `caches` both sides' objects, `verified_pairs` what agrees,
`compared_kinds` what patrols have compared, `waits` what was looked up, `deletions` and `deletion_judge` what
is missing, `quota` what there is room for.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from daemonkit.fairness.emptying import Holder, emptied
from daemonkit.fairness.scheduler import Account
from daemonkit.fairness.steps import WorkStep, in_steps
from daemonkit.kube.client import CheckedRequester, HostResolver
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Key
from daemonkit.kube.shared_budget import SharedBudget
from daemonkit.kube.store import Added, Change, DecodeFailed, Deleted, Modified, UndecodableDeleted
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import CachedObject, is_verified, unreadable_keys
from syncer.caches.super_change import API_SERVER, NODE, SuperChange
from syncer.caches.super_cluster import SuperCaches
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import SIDES, Side
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.view import SyncSettings
from syncer.core.write_rate import Charge, WriteRate
from syncer.kinds.port import KindSync
from syncer.policy.limits import count_name
from syncer.policy.sync_policy import PolicyUnusable, SyncPolicy, known_or_default
from syncer.sharding.fenced_client import FencedClient
from syncer.sharding.port import TenantOwnership
from syncer.surroundings import COMPONENT, OpenTenant
from syncer.tenant.api_server import TenantApiServer
from syncer.tenant.caches import NOT_WATCHED, TenantCaches
from syncer.tenant.compared_kinds import ComparedKinds
from syncer.tenant.deletion_judge import DeletionJudge
from syncer.tenant.deletions import Deletions, SyncKey
from syncer.tenant.memory import TenantMemory
from syncer.tenant.owned_namespaces import OwnedNamespaces
from syncer.tenant.quota import COUNTED, TenantQuota
from syncer.tenant.verified_pairs import VerifiedPairs
from syncer.tenant.view import TenantView
from syncer.tenant.waits import Lookup, Waits
from syncer.vnodes.desired import vnode_facts
from syncer.vnodes.tenant_vnodes import TenantVNodes

# Objects that are planned again and wait for it, between two turns of the loop: 3 ms.
_WOKEN_BATCH = 500


class SessionOwner(Protocol):
    """Who has the sessions of a process."""

    def enqueue(self, session: "TenantSession", item: SyncKey) -> None:
        """Put an item into the tenant's queue."""

    def queued(self, session: "TenantSession") -> int:
        """How many items of the tenant wait."""

    def holds_changed(self, session: "TenantSession") -> None:
        """Other deletions of the tenant are held than before, or none any more."""

    def out_of_memory(self, session: "TenantSession") -> None:
        """Another tenant has a claim to what is held for this one."""

    def task_failed(self, session: "TenantSession") -> None:
        """One of the session's tasks has failed, and does not run again."""


class SessionSurroundings(msgspec.Struct, frozen=True):
    """What all sessions of a process share. `clock` is monotonic.

    `keys` gives the cluster keys of all tenants, also of other vc-syncers'. `judge`: as of `TenantApiServer`.
    """

    kinds: Mapping[str, KindSync]
    super_cluster: SuperCaches
    super_client: CheckedRequester
    settings: SyncSettings
    ownership: TenantOwnership
    open_client: OpenTenant
    memory: SharedBudget
    user_agent: str = COMPONENT
    max_cache_bytes: int = 512 << 20
    clock: Callable[[], float] = time.monotonic
    keys: Callable[[], Collection[str]] = tuple
    judge: HostResolver | None = None


class TenantSession:
    """Built without connecting; `start` begins."""

    def __init__(
        self,
        owner: SessionOwner,
        surroundings: SessionSurroundings,
        tenant: TenantCluster,
        access: Access,
        policy: SyncPolicy | PolicyUnusable,
        account: Account,
        *,
        held_tokens: Mapping[Side, str] | None = None,
        virtual_cluster: Key | None = None,
    ) -> None:
        self._owner = owner
        self.kinds = surroundings.kinds
        self.settings = surroundings.settings
        self.tenant = tenant
        self.virtual_cluster = virtual_cluster
        self._policy = policy
        self.last_policy = known_or_default(policy)
        """What is in the super cluster was translated by it: it stands while there is no policy."""
        self.last_known_policy = policy
        """The last that could be read, or why none was: what is below was judged by it."""
        self.account = account
        """Pays for all that is done for the tenant, and ends with the session."""
        self.tasks = Tasks(
            f"tenant {tenant.key}", on_failure=lambda *_: owner.task_failed(self), through=account.run
        )
        """The tasks that end with the session."""
        self._super = surroundings.super_cluster
        self.memory = TenantMemory(
            surroundings.memory,
            surroundings.max_cache_bytes,
            lambda: self._super.stored.of(tenant.key).memory_bytes,
            lambda: owner.out_of_memory(self),
            surroundings.clock,
        )
        self.api_server = TenantApiServer(
            access,
            surroundings.open_client,
            surroundings.user_agent,
            self.memory.budget,
            surroundings.judge,
        )
        ownership, held = surroundings.ownership, self.memory.budget
        self.client = FencedClient(self.api_server.client, ownership, tenant.key, account, held)
        """Of the tenant's API server."""
        self.super_client = FencedClient(surroundings.super_client, ownership, tenant.key, account, held)
        """Of the super cluster's, for this tenant's objects."""
        self.namespaces = OwnedNamespaces(self, self._super, surroundings.keys)
        self.caches = TenantCaches(
            self,
            self.api_server.client,
            self.kinds,
            self._super,
            self.namespaces,
            self.memory,
        )
        self.verified = VerifiedPairs(self.caches, self._super.events.copied)
        self.compared = ComparedKinds(self.caches)
        self.waits = Waits()
        self.deletions = Deletions(tenant.key, lambda: secrets.token_hex(4), surroundings.clock, held_tokens)
        self.deletion_judge = DeletionJudge(
            self, self.deletions, self.caches, self.tasks, has_reported=bool(held_tokens)
        )
        self.quota = TenantQuota(
            {name: count_name(sync.kind.resource) for name, sync in self.kinds.items()},
            lambda: self._super.stored.of(tenant.key),
            self.caches.overhead,
            self.memory.refusal,
            lambda: self._super.has_reported(tenant.key),
            lambda: self.looked_at_changed(COUNTED),
        )
        self._clock = surroundings.clock
        self.write_rate: WriteRate[SyncKey] = WriteRate(self.quota.stored_bytes_limit, surroundings.clock())
        self.vnodes: TenantVNodes | None = None
        self.is_attached = False
        self.plan_generation = 0
        """Raised when everything is to be planned again: what was planned before agrees no more."""
        self._is_closing = False
        self._unused: deque[Holder] = deque()
        self._has_wake_task = False
        self.last_error = ""
        self.network_problem = ""

    # ---- life

    def start(self) -> None:
        self.caches.start(self.tasks)

    async def close(self, timeout_s: float, held: Iterable[Generator[None, None, None]] = ()) -> None:
        """End all that goes on, and give back what is held, in steps; these do so elsewhere."""
        self._is_closing = True
        await self.tasks.close(timeout_s)
        for work in (*held, self._forget()):
            await self.account.run(in_steps(work))
        self.memory.close()
        await self.api_server.client.close()
        self.account.close()

    def _forget(self) -> Generator[None, None, None]:
        yield from self.caches.forget()
        yield from emptied(*self.waits.take_all(), *self.verified.take_all(), *self.deletions.take_all())
        self.let_go(*self.quota.take_all(), self.write_rate.forget_all())
        yield from self._let_go_all()

    def let_go(self, *held: Holder) -> None:
        """Have these emptied in steps: nothing else looks at them any more."""
        is_running = bool(self._unused)
        self._unused.extend(each for each in held if each)
        if self._unused and not is_running and not self._is_closing:
            self.tasks.spawn(in_steps(self._let_go_all()), "what is not used any more")

    def _let_go_all(self) -> Generator[None, None, None]:
        while self._unused:
            yield from emptied(self._unused[0])
            self._unused.popleft()

    def change_tenant(self, tenant: TenantCluster) -> None:
        """Take another weight, policy, prefixes or release of the same tenant."""
        before, self.tenant = self.tenant, tenant
        self.account.set_weight(tenant.weight)
        if tenant.release != before.release and self.deletion_judge.has_patrolled:
            self.deletion_judge.judge_now()

    @property
    def policy(self) -> SyncPolicy | PolicyUnusable:
        """Its SyncPolicy, or why there is none: then nothing new goes down."""
        return self._policy

    def change_policy(self, policy: SyncPolicy | PolicyUnusable) -> bool:
        """Take another policy: all objects are to be counted and planned again. False if it is the same."""
        if policy == self._policy:
            return False
        self._policy = policy
        if isinstance(policy, SyncPolicy):
            self.last_policy = self.last_known_policy = policy
        elif isinstance(self.last_known_policy, PolicyUnusable):
            self.last_known_policy = policy
        self.start_quota()
        self.forget_verified()
        return True

    def start_quota(self) -> None:
        """Take the limits of its policy. `count_quota` is to follow."""
        self.let_go(*self.quota.start(self.last_policy))
        self.write_rate.set_stored_bytes(self.quota.stored_bytes_limit)

    async def count_quota(self) -> None:
        """Count in steps what the tenant has in the super cluster, by the policy that it has at the end."""
        while not self.quota.is_counted:
            await in_steps(self.quota.count(self.caches.super_objects))

    def resume_rate(self, ended: "TenantSession") -> None:
        """Count on from what an earlier session of the tenant has written, which has ended."""
        self.write_rate, ended.write_rate = ended.write_rate, self.write_rate
        self.let_go(self.write_rate.forget_all())

    def write_wait_s(self, item: SyncKey, size_bytes: int) -> float:
        """How long a write of the item to the super cluster must wait; 0 if it is to go out now."""
        return self.write_rate.reserve_s(item, size_bytes, self._clock())

    def try_take_away(self, item: SyncKey, size_bytes: int) -> Charge | None:
        """Charge a write that takes away what may be another tenant's by now; None if it may not go out."""
        return self.write_rate.try_take_away(item, size_bytes, self._clock())

    def try_write_tokens(self, size_bytes: int) -> Charge | None:
        """Charge the write of a Secret of a pod's tokens; None if it may not go out now."""
        return self.write_rate.try_now(size_bytes, self._clock())

    async def send(
        self, method: str, path: str, body: Object | None = None, *, content_type: str = "application/json"
    ) -> bytes:
        """A request to the tenant's API server. Raises ApiError, UnreachableError."""
        data = None if body is None else msgspec.json.encode(body)
        return await self.client.request(method, path, {}, data, content_type=content_type)

    # ---- changes

    def nodes_changed(self, changes: Sequence[Change[CachedObject]]) -> None:
        if self.vnodes is None:
            return
        for change in changes:
            if isinstance(change, Added | Modified):
                value = change.value.load()
                self.vnodes.tenant_node_changed(change.key[1], value)
                if isinstance(change, Modified) and vnode_facts(change.old.load()) == vnode_facts(value):
                    continue
            elif isinstance(change, Deleted):
                self.vnodes.tenant_node_changed(change.key[1], None)
            self._wake(Side.TENANT, (NODE, *change.key))

    def objects_changed(self, kind: str, changes: Sequence[Change[CachedObject]]) -> None:
        is_relisting = self.caches.reflectors[kind].is_relisting
        unreadable = unreadable_keys(changes)
        for change in changes:
            item = (kind, *change.key)
            is_unreadable = isinstance(change, DecodeFailed) or change.key in unreadable
            value = None if is_unreadable or not isinstance(change, Added | Modified) else change.value
            self.verified.tenant_changed(item, value, is_relisting=is_relisting)
            if is_unreadable:
                if self.is_attached:
                    self.enqueue(item)
                    self._wake(Side.TENANT, item)
                continue
            if isinstance(change, Deleted | UndecodableDeleted):
                if is_relisting:
                    self.deletions.suspect(Side.SUPER, item)
                else:
                    self.deletions.note_confirmed(Side.SUPER, item)
            if self.is_attached:
                self._touched(Side.TENANT, item, self.caches.pair(item))
        self.note_queued()

    def super_changed(self, change: SuperChange) -> None:
        """A super object of the tenant changed, or one of all tenants."""
        item, version, is_relisting = change.item, change.version, change.is_relisting
        if change.is_deleted and is_relisting:
            self.deletions.suspect(Side.TENANT, item)
        elif change.is_deleted:
            self.deletions.note_confirmed(Side.TENANT, item)
        self.verified.super_changed(item, version, is_relisting=is_relisting)
        if not (self.is_attached or self.quota.is_summed(item[0])):
            return
        cached = self.caches.pair(item)
        has_room = self.quota.changed(item, cached.super, version, is_relisting=is_relisting)
        if self.is_attached:
            if has_room:
                self._retry_refused()
            self._touched(Side.SUPER, item, cached)

    def looked_at_changed(self, item: SyncKey) -> None:
        """What the super cluster tells without an object of that name: plan again what looked at it."""
        self._wake(Side.SUPER, item)

    def check_api_server(self) -> None:
        """Look whether its kubeconfig leads elsewhere by now."""
        if self.api_server.note_peers():
            self.looked_at_changed((API_SERVER, "", ""))

    def _touched(self, side: Side, item: SyncKey, cached: Pair[CachedObject]) -> None:
        """An object of an attached tenant changed on one side: plan it, and what waited for it."""
        # Of what is gone on both sides a report may be left.
        is_gone = cached.is_empty and item[0] not in NOT_WATCHED
        if is_gone or self.is_due(item, cached):
            self.enqueue(item)
        self._wake(side, item)

    def _wake(self, side: Side, item: SyncKey) -> None:
        """Plan again what looked at this object, also what was verified with it as it was."""
        self._plan_woken(self.waits.wake(side, item))
        if self.waits.has_pending and not self._has_wake_task:
            self._has_wake_task = True
            self.tasks.spawn(self._plan_pending(), "wake")

    def _plan_woken(self, items: Iterable[SyncKey]) -> None:
        for each in items:
            self.verified.end(each)
            self.enqueue(each)

    async def _plan_pending(self) -> None:
        while items := self.waits.take_pending(_WOKEN_BATCH):
            self._plan_woken(items)
            await asyncio.sleep(0)
        # No await from here.
        self._has_wake_task = False

    # ---- what is to be planned

    def enqueue(self, item: SyncKey) -> None:
        self._owner.enqueue(self, item)

    def note_queued(self) -> None:
        """Have what waits in the queue counted as memory. The events that bring more may be refused then."""
        self.memory.note_queued(self._owner.queued(self))

    def enqueue_unreadable(self) -> Generator[None, None, None]:
        """Have those reported, in steps, that were unreadable from the first."""
        step = WorkStep()
        for item in self.caches.unreadable_items():
            self.enqueue(item)
            if step.count():
                yield

    def _retry_refused(self) -> None:
        """Have some objects planned again that had no room: something has ended."""
        for item in self.quota.refused_items():
            self.enqueue(item)

    def plan_again(self, item: SyncKey) -> None:
        """A deletion that waited may be carried out now."""
        if self.is_attached:
            self.enqueue(item)

    def holds_changed(self) -> None:
        self._owner.holds_changed(self)

    def needs_plan(self, item: SyncKey) -> bool:
        """Whether a side, or something that was looked at, is not as it was when nothing was to do."""
        return self.is_due(item, self.caches.pair(item))

    def is_due(self, item: SyncKey, cached: Pair[CachedObject]) -> bool:
        """As `needs_plan`, of what the caches have now."""
        return not is_verified(cached) or self.waits.is_woken(item)

    def forget_verified(self) -> None:
        """Have the next patrol plan every object."""
        self.plan_generation += 1
        self.let_go(*self.verified.take_all())
        for kind, reflector in self.caches.reflectors.items():
            self.caches.note_unverified(kind)
            for each in reflector.objects.values():
                each.verified_with = None

    # ---- what was planned

    def view(self) -> TenantView:
        return TenantView(self, self._super, self.kinds)

    def note_looked(self, item: SyncKey, looked: Iterable[Lookup]) -> None:
        """Have the item planned again when one of these changes."""
        if item[0] not in NOT_WATCHED:  # of Events nothing is kept to plan again with
            self.waits.note(item, looked)

    def note_verified(
        self, item: SyncKey, tenant_version: str, super_version: str, cached: Pair[CachedObject]
    ) -> None:
        """Note that these two versions agree: nothing of them is to be deleted either.

        `cached` is what the caches have now.
        """
        for side in SIDES:
            self.deletions.note_confirmed(side, item)
        self.verified.note(item, tenant_version, super_version, cached)

    def forget_object(self, item: SyncKey) -> None:
        """Neither side has the object any more: whatever was noted of it ends."""
        self.waits.forget(item)
        self.write_rate.forget(item)
        self.verified.forget(item)
        for side in SIDES:
            self.deletions.note_confirmed(side, item)
        if self.quota.forget(item):
            self._retry_refused()
