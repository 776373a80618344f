# SPDX-License-Identifier: Apache-2.0
"""One tenant: its own client, its own caches, and what its objects wait for.

Nothing here is shared with other tenants, so that one that hangs holds up itself alone.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from daemonkit.fairness.scheduler import Account
from daemonkit.kube import deep_json
from daemonkit.kube.byte_budget import ByteBudget
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.freshness import Failure
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.reflector import Reflector, Timing
from daemonkit.kube.resources import NODES, Key
from daemonkit.kube.store import Added, Change, DecodeFailed, Deleted, Modified, UndecodableDeleted
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import (
    MAX_PLANNED_VALUES,
    CachedObject,
    is_verified,
    last_observed,
    parse,
    parser_of,
    unreadable_keys,
)
from syncer.caches.super_cluster import API_SERVER, EVENT, NODE, SuperCaches
from syncer.core.deletion_guard import Hold
from syncer.core.objects import Object, SyncedKind
from syncer.core.plan import Side
from syncer.core.tenant_cluster import TenantCluster
from syncer.core.view import SyncSettings
from syncer.kinds.port import SYSTEM_NAMESPACE, KindSync, Scope
from syncer.policy import addresses
from syncer.policy.limits import count_name
from syncer.policy.sync_policy import DEFAULT, SyncPolicy
from syncer.sharding.fenced_client import CheckedRequester, FencedClient
from syncer.sharding.port import TenantOwnership
from syncer.surroundings import COMPONENT, ApiClient
from syncer.tenant.deletions import Deletions, SyncKey
from syncer.tenant.quota import TenantQuota
from syncer.tenant.view import NAMESPACE, TenantView
from syncer.tenant.waits import Lookup, Waits
from syncer.vnodes.desired import is_own_vnode
from syncer.vnodes.tenant_vnodes import TenantVNodes
from tenancy.super_namespaces import SuperNamespaceOwner

# Requests of one tenant under way at once; kept connections to its API server are as many.
MAX_IN_FLIGHT = 16

# Most of what is cached. Other kinds are smaller, or read with each pod.
_COMPRESSED = frozenset({"Pod"})
# Unconfirmed deletions are judged together: a list that lacks one object may lack all.
GATHER_S = 1.0

# Names of super namespaces that are remembered: a tenant may make and delete Namespaces without end.
_MAX_NAMES = 10_000

# Lists past all caches that are older than what is cached, in a row: the storage itself went back.
MIN_REGRESSIONS = 3

# Of these the tenant's objects are only written: it has many, and none goes down.
NOT_WATCHED = frozenset({EVENT})


class TenantSession:
    """Built without connecting; `start` begins. `enqueue` puts an item into the tenant's queue."""

    def __init__(
        self,
        tenant: TenantCluster,
        access: Access,
        kinds: Mapping[str, KindSync],
        super_cluster: SuperCaches,
        settings: SyncSettings,
        policy: SyncPolicy | str,
        enqueue: Callable[["TenantSession", SyncKey], None],
        super_client: CheckedRequester,
        ownership: TenantOwnership,
        account: Account,
        *,
        open_client: Callable[[Credentials, int, str], ApiClient],
        holds_changed: Callable[["TenantSession"], None] = lambda _: None,
        task_failed: Callable[["TenantSession"], None] = lambda _: None,
        held_tokens: Mapping[Side, str] | None = None,
        virtual_cluster: Key | None = None,
        user_agent: str = COMPONENT,
        timing: Timing | None = None,
        max_cache_bytes: int = 512 << 20,
        clock: Callable[[], float] = time.monotonic,
        new_token: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self.tenant = tenant
        self._policy = policy
        self.last_policy = DEFAULT if isinstance(policy, str) else policy
        """What is in the super cluster was translated by it: it stands while there is no policy."""
        self.settings = settings
        self.virtual_cluster = virtual_cluster
        self._access = access
        self._credentials = Credentials(lambda: self._access)
        self.reader = open_client(self._credentials, MAX_IN_FLIGHT, user_agent)
        self.client = FencedClient(self.reader, ownership, tenant.key, account)
        """Of the tenant's API server."""
        self.super_client = FencedClient(super_client, ownership, tenant.key, account)
        """Of the super cluster's, for this tenant's objects."""
        self._kinds = kinds
        self._super = super_cluster
        self._enqueue = enqueue
        self.account = account
        """Pays for all that is done for the tenant, and ends with the session."""
        self._tasks = Tasks(
            f"tenant {tenant.key}", on_failure=lambda *_: task_failed(self), through=account.run
        )
        self._super_names: dict[str, str | None] = {}
        self._assumed: dict[SyncKey, tuple[str, str]] = {}
        self._waits = Waits()
        self._known_peers: frozenset[str] = frozenset()
        self.vnodes: TenantVNodes | None = None
        self.quota = TenantQuota(
            {name: count_name(sync.kind.resource) for name, sync in kinds.items()},
            lambda: self._super.stored.of(self.tenant.key),
            self._overhead,
        )
        self.cache_budget: ByteBudget[CachedObject] = ByteBudget(
            max_cache_bytes, lambda each: each.size_bytes
        )
        self.nodes: Reflector[CachedObject] = Reflector(
            self.reader, NODES, parse, budget=self.cache_budget, on_change=self._nodes_changed, timing=timing
        )
        self.deletions = Deletions(tenant.key, new_token, clock, held_tokens)
        self._holds_changed = holds_changed
        # What the condition has is to be judged anew, and ends if nothing is held.
        self._reported_holds: dict[Side, Hold] | None = None if held_tokens else {}
        self.is_attached = False
        self.has_patrolled = False
        self._is_judging = False
        self.last_error = ""
        self.network_problem = ""
        self.reflectors: dict[str, Reflector[CachedObject]] = {
            name: self._follow(sync, timing) for name, sync in kinds.items() if name not in NOT_WATCHED
        }

    def _follow(self, sync: KindSync, timing: Timing | None) -> Reflector[CachedObject]:
        kind = sync.kind.kind
        return Reflector(
            self.reader,
            sync.kind.resource,
            parser_of(kind, _most_values(sync)),
            budget=self.cache_budget,
            may_be_absent=True,
            on_change=lambda changes: self._changed(kind, changes),
            timing=timing,
        )

    # ---- life

    def start(self) -> None:
        for name, reflector in (*self.reflectors.items(), ("Node", self.nodes)):
            self._tasks.spawn(reflector.run(), name)

    @property
    def tasks(self) -> Tasks:
        """The tasks that end with the session."""
        return self._tasks

    async def wait_synced(self) -> None:
        for reflector in (*self.reflectors.values(), self.nodes):
            await reflector.synced.wait()

    @property
    def has_synced(self) -> bool:
        return all(each.synced.is_set() for each in self.reflectors.values())

    @property
    def failure(self) -> Failure | None:
        """Why the tenant's API server cannot be read now; None if it can."""
        found = [each.failure for each in self.reflectors.values()]
        return next((each for each in found if each is not None), None)

    @property
    def has_regressed(self) -> bool:
        """Whether the control plane is an older one by now, or another: restored from a backup, or wiped."""
        return any(each.regressions >= MIN_REGRESSIONS for each in self.reflectors.values())

    async def close(self, timeout_s: float) -> None:
        await self._tasks.close(timeout_s)
        await self.reader.close()
        self.account.close()

    def use(self, access: Access) -> None:
        """Take rotated credentials, from the next request on."""
        if access != self._access:
            self._access = access
            self._credentials.reload()

    def change_tenant(self, tenant: TenantCluster) -> None:
        """Take another weight, policy, prefixes or release of the same tenant."""
        before, self.tenant = self.tenant, tenant
        self.account.set_weight(tenant.weight)
        if tenant.release != before.release and self.has_patrolled:
            self.judge_deletions()

    def api_server_peers(self) -> Collection[str]:
        """Where the tenant's API server is by its kubeconfig: the address there, or of the name there."""
        host = addresses.parse(urlsplit(self._access.server).hostname or "")
        return self.reader.peer_addresses if host is None else {*self.reader.peer_addresses, str(host)}

    def api_server_changed(self) -> None:
        """It may have other addresses now: plan again what looked at them."""
        self._wake(Side.SUPER, (API_SERVER, "", ""))

    def check_api_server(self) -> None:
        """Look whether its kubeconfig leads elsewhere by now, as by another answer of DNS."""
        found = frozenset(self.api_server_peers())
        if found != self._known_peers:
            self._known_peers = found
            self.api_server_changed()

    @property
    def policy(self) -> SyncPolicy | str:
        """Its SyncPolicy, or why there is none: then nothing new goes down."""
        return self._policy

    def change_policy(self, policy: SyncPolicy | str) -> bool:
        """Take another policy: all objects are to be planned again. False if it is the same."""
        if policy == self._policy:
            return False
        self._policy = policy
        if isinstance(policy, SyncPolicy):
            self.last_policy = policy
        self.start_quota()
        self.forget_verified()
        return True

    def start_quota(self) -> None:
        """Count what the tenant has in the super cluster against the limits of its policy."""
        self.quota.start(self._policy, self._super_objects)

    def _super_objects(self, kind: str) -> Iterable[tuple[SyncKey, CachedObject]]:
        for item in self._super_items(kind, self._kinds[kind]):
            if (cached := self.cached_super(item)) is not None:
                yield item, cached

    def _overhead(self, runtime_class: str) -> Object | None:
        """What pods of a runtime class of the super cluster take beside their containers, if it is known."""
        item = ("RuntimeClass", "", runtime_class)
        found = self.cached_super(item) if self.has_kind(item[0]) else None
        overhead = None if found is None else found.load().get("overhead")
        fixed = overhead.get("podFixed") if isinstance(overhead, dict) else None
        return fixed if isinstance(fixed, dict) else None

    def retry_refused(self) -> None:
        """Have some objects planned again that had no room: something has ended."""
        for item in self.quota.refused_items():
            self._enqueue(self, item)

    def forget_verified(self) -> None:
        """Have the next patrol plan every object."""
        for reflector in self.reflectors.values():
            for each in reflector.objects.values():
                each.verified_with = None

    def has_kind(self, name: str) -> bool:
        return name in self._kinds

    def sync_of(self, name: str) -> KindSync:
        return self._kinds[name]

    def kind(self, name: str) -> SyncedKind:
        return self._kinds[name].kind

    async def send(
        self, method: str, path: str, body: Object | None = None, *, content_type: str = "application/json"
    ) -> bytes:
        """A request to the tenant's API server. Raises ApiError, UnreachableError."""
        data = None if body is None else msgspec.json.encode(body)
        return await self.client.request(method, path, {}, data, content_type=content_type)

    # ---- caches

    @property
    def namespaces(self) -> Mapping[Key, CachedObject]:
        """The tenant's Namespaces."""
        return self.reflectors[NAMESPACE].objects

    def cached(self, item: SyncKey) -> CachedObject | None:
        """The tenant's object."""
        kind, namespace, name = item
        reflector = self.reflectors.get(kind)
        return None if reflector is None else reflector.objects.get((namespace, name))

    def cached_super(self, item: SyncKey) -> CachedObject | None:
        """The super object that belongs to the tenant's of this name; None in a namespace of somebody else.

        Of a Namespace also one that somebody else has: its plan finds the conflict.
        """
        kind, namespace, name = item
        sync = self._kinds[kind]
        objects = self._super.objects(kind)
        if sync.scope is Scope.NAMESPACE:
            super_name = self.super_name(name)
            return None if super_name is None else objects.get(("", super_name))
        if sync.scope in (Scope.NAMESPACED, Scope.SYSTEM):
            super_name = self.owned_namespace(SYSTEM_NAMESPACE if sync.scope is Scope.SYSTEM else namespace)
            found = None if super_name is None else objects.get((super_name, sync.super_name(name)))
            # An Event that came before its namespace was known to be a tenant's has no body.
            return found if found is None or found.body or found.verified_with is not None else None
        found = objects.get(("", name))
        if found is not None and sync.scope is Scope.CLAIMED:
            owner = self._super.owner(found.claim_namespace)
            return found if isinstance(owner, SuperNamespaceOwner) and self._is_mine(owner) else None
        return found

    def super_name(self, namespace: str) -> str | None:
        """The name that the super namespace has or would have."""
        if namespace not in self._super_names:
            if len(self._super_names) >= _MAX_NAMES:
                self._super_names.clear()
            found = self.tenant.super_namespace(namespace)
            self._super_names[namespace] = found if isinstance(found, str) else None
        return self._super_names[namespace]

    def owned_namespace(self, namespace: str) -> str | None:
        """The super namespace that stands for a tenant's, if it exists and is this tenant's."""
        name = self.super_name(namespace)
        if name is None:
            return None
        owner = self._super.owner(name)
        is_mine = (
            isinstance(owner, SuperNamespaceOwner) and owner.namespace == namespace and self._is_mine(owner)
        )
        return name if is_mine else None

    def owns_super_namespace(self, name: str) -> bool:
        """Whether a super namespace is this tenant's now: asked before each write."""
        owner = self._super.owner(name)
        return isinstance(owner, SuperNamespaceOwner) and self._is_mine(owner)

    def _is_mine(self, owner: SuperNamespaceOwner) -> bool:
        return owner.is_of(self.tenant.key, self.tenant.uid)

    def skip_events(self, before: str) -> None:
        """Count Events as copied that last occurred before a time, as `last_observed` has it.

        They were copied by an earlier run, or are of no use any more: a tenant's API server would be asked
        about each one at every start.
        """
        for item in self._super_items(EVENT, self._kinds[EVENT]):
            found = self.cached_super(item)
            if found is not None and found.body and last_observed(found) < before:
                found.verified_with, found.body = "", b""

    def items(self) -> Iterable[SyncKey]:
        """Every object of either side, whatever its state."""
        for kind, sync in self._kinds.items():
            own = self.reflectors[kind].objects if kind in self.reflectors else {}
            for namespace, name in list(own):
                yield kind, namespace, name
            for item in self._super_items(kind, sync):
                if item[1:] not in own:
                    yield item

    def _super_items(self, kind: str, sync: KindSync) -> Iterable[SyncKey]:
        mine = {name: owner.namespace for name, owner in self._super.owned_namespaces(self.tenant.key)}
        if sync.scope is Scope.NAMESPACE:
            yield from ((kind, "", namespace) for namespace in mine.values())
        elif sync.scope is Scope.PUBLISHED:
            yield from ((kind, "", name) for _, name in list(self._super.objects(kind)))
        elif sync.scope is Scope.CLAIMED:
            found = list(self._super.objects(kind).items())
            yield from ((kind, "", key[1]) for key, each in found if each.claim_namespace in mine)
        else:
            for super_namespace, namespace in mine.items():
                if sync.scope is Scope.SYSTEM and namespace != SYSTEM_NAMESPACE:
                    continue
                for super_name in list(self._super.names_in(kind, super_namespace)):
                    name = sync.tenant_name(super_name)
                    if name is not None:
                        yield kind, "" if sync.scope is Scope.SYSTEM else namespace, name

    def vnode(self, name: str) -> Object | None:
        """The tenant's vNode; None for a Node of the tenant's own."""
        found = self.nodes.objects.get(("", name))
        node = None if found is None else found.load()
        return node if node is not None and is_own_vnode(node) else None

    def super_pods(self) -> Iterable[CachedObject]:
        """The super pods of the tenant."""
        for item in self._super_items("Pod", self._kinds["Pod"]):
            found = self.cached_super(item)
            if found is not None:
                yield found

    # ---- changes

    def _nodes_changed(self, changes: Sequence[Change[CachedObject]]) -> None:
        if self.vnodes is None:
            return
        for change in changes:
            if isinstance(change, Added | Modified):
                self.vnodes.tenant_node_changed(change.key[1], change.value.load())
            elif isinstance(change, Deleted):
                self.vnodes.tenant_node_changed(change.key[1], None)
            self._wake(Side.TENANT, (NODE, *change.key))

    def _changed(self, kind: str, changes: Sequence[Change[CachedObject]]) -> None:
        is_relisting = self.reflectors[kind].is_relisting
        unreadable = unreadable_keys(changes)
        for change in changes:
            item = (kind, *change.key)
            assumed = self._assumed.pop(item, None)
            if isinstance(change, DecodeFailed) or change.key in unreadable:
                if self.is_attached:
                    self._enqueue(self, item)
                    self._wake(Side.TENANT, item)
                continue
            if isinstance(change, Deleted | UndecodableDeleted):
                if is_relisting:
                    self.deletions.suspect(Side.SUPER, item)
                else:
                    self.deletions.note_confirmed(Side.SUPER, item)
            elif assumed is not None and assumed[0] == change.value.version and not is_relisting:
                change.value.verified_with = assumed[1]
                _note_rest(kind, change.value)
            self.touched(Side.TENANT, item)

    def enqueue_unreadable(self) -> None:
        """Have those reported that were unreadable from the first."""
        for kind, reflector in self.reflectors.items():
            for namespace, name in reflector.decode_failures:
                self._enqueue(self, (kind, namespace, name))

    def unreadable(self, item: SyncKey) -> tuple[Side, DecodeFailed] | None:
        """The side whose object is there and cannot be read, or is too large; None if both can be."""
        kind, namespace, name = item
        if (reflector := self.reflectors.get(kind)) is not None:
            failed = reflector.decode_failures.get((namespace, name))
            if failed is not None:
                return Side.TENANT, failed
        failures = self._super.reflectors[kind].decode_failures
        if failures and (key := self._super_key(item)) is not None and key in failures:
            return Side.SUPER, failures[key]
        return None

    def _super_key(self, item: SyncKey) -> Key | None:
        kind, namespace, name = item
        sync = self._kinds[kind]
        if sync.scope in (Scope.NAMESPACED, Scope.SYSTEM):
            super_name = self.super_name(SYSTEM_NAMESPACE if sync.scope is Scope.SYSTEM else namespace)
            return None if super_name is None else (super_name, sync.super_name(name))
        super_name = self.super_name(name) if sync.scope is Scope.NAMESPACE else name
        return None if super_name is None else ("", super_name)

    def super_changed(self, item: SyncKey, *, is_deleted: bool, is_relisting: bool) -> None:
        """A super object of the tenant changed, or one of all tenants."""
        if is_deleted and is_relisting:
            self.deletions.suspect(Side.TENANT, item)
        elif is_deleted:
            self.deletions.note_confirmed(Side.TENANT, item)
        self._forget_verified(item, is_relisting=is_relisting)
        if self.quota.changed(item, self.cached_super(item), is_relisting=is_relisting) and self.is_attached:
            self.retry_refused()
        self.touched(Side.SUPER, item)

    def _forget_verified(self, item: SyncKey, *, is_relisting: bool) -> None:
        """A patch's answer was noted as verified, and it has what others wrote before the patch.

        Each event before that of the answer is such a write, and a new list may have left it out. Of a
        tenant's own objects the first event that is not the answer's ends what was noted.
        """
        cached, found = self.cached(item), self.cached_super(item)
        if cached is None or found is None or item[0] in NOT_WATCHED:
            return
        if is_relisting or found.version != cached.verified_with:
            cached.verified_with = None

    def may_delete(self, side: Side, item: SyncKey, *, is_sure: bool) -> bool:
        """Whether a plan's deletion on this side may be carried out now.

        The first patrol deletes nothing but what is sure: what the other side is deleting as well, or may
        not be there whatever the other side has. A deletion that follows from what a list lacks is judged a
        moment later, with the others of its kind.
        """
        deletions = self.deletions
        if deletions.is_unconfirmed(side, item):
            return deletions.may_delete(side, item)
        if is_sure or (self.has_patrolled and not deletions.is_suspected(side, item)):
            return True
        deletions.propose(side, item)
        if not self._is_judging:
            self._is_judging = True
            self._tasks.spawn(self._judge_soon(), "judge deletions")
        return False

    async def _judge_soon(self) -> None:
        await asyncio.sleep(GATHER_S)
        self._is_judging = False
        self.judge_deletions(is_first_patrol=not self.has_patrolled)

    def judge_deletions(self, *, is_first_patrol: bool = False) -> None:
        """Have the guard judge what is missing without an event, and plan again what it allows."""
        for side in Side:
            items = self.deletions.unconfirmed(side)
            if not items and side not in self.deletions.holds():
                continue
            is_any_allowed = self.deletions.judge(
                side,
                self._known(side),
                self._contents,
                is_first_patrol=is_first_patrol,
                release=self.tenant.release,
            )
            if is_any_allowed and self.is_attached:
                for item in items:
                    self._enqueue(self, item)
        holds = self.deletions.holds()
        if holds != self._reported_holds and (holds or not is_first_patrol):
            self._reported_holds = holds
            self._holds_changed(self)

    def _known(self, side: Side) -> Counter[str]:
        """The tenant's objects of one side, by kind, whose deletion can follow from the other side's."""
        found: Counter[str] = Counter()
        for kind, sync in self._kinds.items():
            if side is Side.SUPER and sync.scope is not Scope.PUBLISHED:
                found[kind] = sum(1 for _ in self._super_items(kind, sync))
            elif side is Side.TENANT and kind in self.reflectors:
                objects = self.reflectors[kind].objects
                found[kind] = (
                    sum(1 for each in objects.values() if each.node) if kind == "Pod" else len(objects)
                )
        return found

    def _contents(self, item: SyncKey) -> Counter[str]:
        """The super objects that go with a Namespace."""
        found: Counter[str] = Counter()
        super_name = self.owned_namespace(item[2]) if item[0] == NAMESPACE else None
        if super_name is not None:
            for kind, sync in self._kinds.items():
                if sync.scope in (Scope.NAMESPACED, Scope.SYSTEM):
                    found[kind] = len(self._super.names_in(kind, super_name))
        return found

    def touched(self, side: Side, item: SyncKey) -> None:
        """An object changed on one side: plan it, and what waited for it."""
        if not self.is_attached:
            return
        # Of what is gone on both sides a report may be left.
        is_gone = self.cached(item) is None and self.cached_super(item) is None and item[0] not in NOT_WATCHED
        if is_gone or self.needs_plan(item):
            self._enqueue(self, item)
        self._wake(side, item)

    def _wake(self, side: Side, item: SyncKey) -> None:
        """Plan again what looked at this object, also what was verified with it as it was."""
        for each in self._waits.wake(side, item):
            self._assumed.pop(each, None)
            for found in (self.cached(each), self.cached_super(each)):
                if found is not None:
                    found.verified_with = None
            self._enqueue(self, each)

    # ---- what was planned

    def needs_plan(self, item: SyncKey) -> bool:
        """Whether a side, or something that was looked at, is not as it was when nothing was to do."""
        return not is_verified(self.cached(item), self.cached_super(item)) or self._waits.is_woken(item)

    @property
    def lookups(self) -> int:
        """How much the tenant's plans look at: bounded by the number of its objects."""
        return self._waits.lookups

    def is_woken(self, item: SyncKey) -> bool:
        """Whether something that the last plan looked at has changed since."""
        return self._waits.is_woken(item)

    def note_verified(self, item: SyncKey, tenant_version: str, super_version: str) -> None:
        """Note that these two versions agree; either may still be on its way into the caches."""
        cached = self.cached(item)
        for side in Side:
            self.deletions.note_confirmed(side, item)
        if item[0] in NOT_WATCHED:
            if (event := self.cached_super(item)) is not None and event.version == super_version:
                # It has been copied, and is not read again.
                event.verified_with, event.body = "", b""
            return
        found = self.cached_super(item)
        if found is not None and found.version == super_version:
            _note_rest(item[0], found)
        else:
            found = None
        if cached is not None and cached.version == tenant_version:
            cached.verified_with = super_version
            _note_rest(item[0], cached)
        elif tenant_version:
            self._assumed[item] = (tenant_version, super_version)
        elif found is not None and cached is None:
            found.verified_with = ""

    def note_looked(self, item: SyncKey, looked: Iterable[Lookup]) -> None:
        """Have the item planned again when one of these changes."""
        if item[0] not in NOT_WATCHED:  # of Events nothing is kept to plan again with
            self._waits.note(item, looked)

    def forget_object(self, item: SyncKey) -> None:
        """Neither side has the object any more: whatever was noted of it ends."""
        self._waits.forget(item)
        self._assumed.pop(item, None)
        for side in Side:
            self.deletions.note_confirmed(side, item)
        if self.quota.forget(item):
            self.retry_refused()

    def view(self) -> TenantView:
        return TenantView(self, self._super, self._kinds)


def _most_values(sync: KindSync) -> int:
    """Of what only comes up a plan reads metadata, and a tenant's own may be large: definitions are."""
    return deep_json.MAX_VALUES if sync.scope in (Scope.PUBLISHED, Scope.CLAIMED) else MAX_PLANNED_VALUES


def _note_rest(kind: str, cached: CachedObject) -> None:
    """Both sides agree, so the object is seldom read from now on."""
    if kind in _COMPRESSED:
        cached.compress()
