# SPDX-License-Identifier: Apache-2.0
"""What is known of a tenant's objects on both sides: its own caches, and its part of the super cluster's."""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Protocol

from daemonkit.fairness.steps import WorkStep
from daemonkit.kube import deep_json
from daemonkit.kube.client import ApiClient
from daemonkit.kube.freshness import Failure
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.reflector_log import FirstFailure
from daemonkit.kube.resources import NODES, Key
from daemonkit.kube.store import Change, DecodeFailed
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import MAX_PLANNED_VALUES, CachedObject, is_verified, parse, parser_of
from syncer.caches.super_change import EVENT
from syncer.caches.super_cluster import SuperCaches
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import SIDES, Side
from syncer.kinds.port import SYSTEM_NAMESPACE, KindSync, Scope
from syncer.tenant.deletions import SyncKey
from syncer.tenant.memory import TenantMemory
from syncer.tenant.owned_namespaces import NAMESPACE, HasTenant, OwnedNamespaces
from syncer.vnodes.desired import VNodeFacts, vnode_facts

# Lists past all caches that are older than what is cached, in a row: the storage itself went back.
MIN_REGRESSIONS = 3

# Of these the tenant's objects are only written: it has many, and none goes down.
NOT_WATCHED = frozenset({EVENT})


class CacheOwner(HasTenant, Protocol):
    """Who acts on what changed in the tenant."""

    def objects_changed(self, kind: str, changes: Sequence[Change[CachedObject]]) -> None: ...
    def nodes_changed(self, changes: Sequence[Change[CachedObject]]) -> None: ...


class TenantCaches:
    """Built without connecting; `start` begins. Nothing here decides, and nothing is changed by a look."""

    def __init__(
        self,
        owner: CacheOwner,
        reader: ApiClient,
        kinds: Mapping[str, KindSync],
        super_cluster: SuperCaches,
        namespaces: OwnedNamespaces,
        memory: TenantMemory,
    ) -> None:
        self._memory = memory
        self._owner = owner
        self._reader = reader
        self._kinds = kinds
        self._super = super_cluster
        self._namespaces = namespaces
        # Of each kind, how often its objects here, and what is noted at them, may have become others.
        self._changes: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self.nodes: Reflector[CachedObject] = Reflector(
            reader, NODES, parse, budget=memory.budget, delivers_parts=True, on_change=owner.nodes_changed
        )
        self.reflectors: dict[str, Reflector[CachedObject]] = {
            name: self._follow(sync) for name, sync in kinds.items() if name not in NOT_WATCHED
        }
        self._failing = FirstFailure(self.reflectors.values())

    def _follow(self, sync: KindSync) -> Reflector[CachedObject]:
        kind = sync.kind.kind
        return Reflector(
            self._reader,
            sync.kind.resource,
            parser_of(kind, _most_values(sync)),
            budget=self._memory.budget,
            may_be_absent=True,
            delivers_parts=True,
            on_change=lambda changes: self._changed(kind, changes),
        )

    def _changed(self, kind: str, changes: Sequence[Change[CachedObject]]) -> None:
        # Before the handlers, which may raise: the cache has these changes already.
        self._changes[kind] += 1
        self._owner.objects_changed(kind, changes)

    # ---- life

    def start(self, tasks: Tasks) -> None:
        for name, reflector in (*self.reflectors.items(), ("Node", self.nodes)):
            tasks.spawn(reflector.run(), name)

    def retry_now(self) -> None:
        """The tenant's API server serves again: what waits after failures asks it at once."""
        for reflector in (*self.reflectors.values(), self.nodes):
            reflector.retry_now()

    def forget(self) -> Generator[None, None, None]:
        """Give back in steps what is held: references in circles would keep it for long."""
        for reflector in (*self.reflectors.values(), self.nodes):
            yield from reflector.forget()

    def note_compressed(self, kind: str, cached: CachedObject, less_bytes: int) -> None:
        """A tenant's object takes so much less memory than it did."""
        self.reflectors[kind].note_compressed(cached, less_bytes)

    async def wait_synced(self) -> None:
        for reflector in (*self.reflectors.values(), self.nodes):
            await reflector.synced.wait()

    @property
    def has_synced(self) -> bool:
        return all(each.synced.is_set() for each in self.reflectors.values())

    @property
    def is_relisting(self) -> bool:
        """Whether a part of a list is known, and what else it lacks is not."""
        both = (*self.reflectors.values(), *self._super.reflectors.values())
        return any(each.is_relisting for each in both)

    @property
    def failure(self) -> Failure | None:
        """Why the tenant's API server cannot be read now; None if it can."""
        if (problem := self._memory.problem) is not None:
            return problem
        return self._failing.current

    @property
    def has_regressed(self) -> bool:
        """Whether the control plane is an older one by now, or another: restored from a backup, or wiped."""
        # Until it lists again, who reads an older state has failed.
        if self._failing.current is None:
            return False
        return any(each.regressions >= MIN_REGRESSIONS for each in self.reflectors.values())

    # ---- one object

    def of_tenant(self, item: SyncKey) -> CachedObject | None:
        """The tenant's object."""
        kind, namespace, name = item
        reflector = self.reflectors.get(kind)
        return None if reflector is None else reflector.objects.get((namespace, name))

    def of_super(self, item: SyncKey) -> CachedObject | None:
        """The super object that belongs to the tenant's of this name; None in a namespace of another owner.

        Of a Namespace also one that another owner has: its plan finds the conflict.
        """
        kind, namespace, name = item
        sync = self._kinds[kind]
        scope, objects = sync.scope, self._super.objects(kind)
        if scope is Scope.NAMESPACED or scope is Scope.SYSTEM:
            super_name = self._namespaces.owned(namespace if scope is Scope.NAMESPACED else SYSTEM_NAMESPACE)
            found = None if super_name is None else objects.get((super_name, sync.super_name(name)))
            # An Event that came before its namespace was known to be a tenant's has no body.
            return found if found is None or found.body or found.verified_with is not None else None
        if scope is Scope.NAMESPACE:
            super_name = self._namespaces.super_name(name)
            return None if super_name is None else objects.get(("", super_name))
        found = objects.get(("", name))
        if found is not None and scope is Scope.CLAIMED:
            return found if self._namespaces.owns(found.claim_namespace) else None
        return found

    def pair(self, item: SyncKey) -> Pair[CachedObject]:
        """Both sides' objects as they are cached now."""
        return Pair(self.of_tenant(item), self.of_super(item))

    def unreadable(self, item: SyncKey) -> tuple[Side, DecodeFailed] | None:
        """The side whose object is there and cannot be read, or is too large; None if both can be."""
        own = self.reflectors.get(item[0])
        if not (self._super.reflectors[item[0]].decode_failures or (own is not None and own.decode_failures)):
            return None
        for side in SIDES:
            if (failed := self.unreadable_on(side, item)) is not None:
                return side, failed
        return None

    def unreadable_on(self, side: Side, item: SyncKey) -> DecodeFailed | None:
        """Why this side's object, which is there, cannot be read; None if it can be, or there is none."""
        kind, namespace, name = item
        if side is Side.TENANT:
            reflector = self.reflectors.get(kind)
            return None if reflector is None else reflector.decode_failures.get((namespace, name))
        failures = self._super.reflectors[kind].decode_failures
        key = self.super_key(item) if failures else None
        failed = None if key is None else failures.get(key)
        if key is None or failed is None or self._kinds[kind].scope is not Scope.CLAIMED:
            return failed
        # Where its claim is not known either, it may be this tenant's.
        claim = self._super.unreadable_claim(kind, key)
        return failed if not claim or self._namespaces.owns(claim) else None

    def super_key(self, item: SyncKey) -> Key | None:
        """Where the super object is, or would be; None where no super namespace can have the name."""
        kind, namespace, name = item
        sync = self._kinds[kind]
        if sync.scope in (Scope.NAMESPACED, Scope.SYSTEM):
            within = SYSTEM_NAMESPACE if sync.scope is Scope.SYSTEM else namespace
            super_name = self._namespaces.super_name(within)
            return None if super_name is None else (super_name, sync.super_name(name))
        super_name = self._namespaces.super_name(name) if sync.scope is Scope.NAMESPACE else name
        return None if super_name is None else ("", super_name)

    def vnode(self, name: str) -> VNodeFacts | DecodeFailed | None:
        """The tenant's vNode, or why it cannot be read; None for a Node of the tenant's own."""
        found = self.nodes.objects.get(("", name))
        return self.nodes.decode_failures.get(("", name)) if found is None else vnode_facts(found.load())

    def overhead(self, runtime_class: str) -> Object | None:
        """What pods of a runtime class of the super cluster take beside their containers, if it is known."""
        item = ("RuntimeClass", "", runtime_class)
        found = self.of_super(item) if item[0] in self._kinds else None
        overhead = None if found is None else found.load().get("overhead")
        fixed = overhead.get("podFixed") if isinstance(overhead, dict) else None
        return fixed if isinstance(fixed, dict) else None

    # ---- many

    @property
    def kinds(self) -> Iterable[str]:
        """The kinds that are synced."""
        return self._kinds

    def state_of(self, kind: str) -> tuple[object, ...]:
        """What a patrol of a kind would compare: while it is equal, a verified pair is verified still."""
        below = self._super
        return (
            self._changes[kind],
            self._notes[kind],
            below.changes_of(kind),
            below.owners.changes,
            self._owner.tenant,
        )

    def note_unverified(self, kind: str) -> None:
        """A pair of a kind may not be verified any more, though neither of its objects changed."""
        self._notes[kind] += 1

    def unverified(
        self, most: int, kinds: Iterable[str] | None = None
    ) -> Iterable[list[tuple[SyncKey, bool]]]:
        """The objects of either side that are not known to agree with the other, and whether that has them.

        For each list so many were looked at: a super object whose own one came before counts as well, and
        each super namespace. A list is right until its reader awaits something.
        """
        found: list[tuple[SyncKey, bool]] = []
        count = 0
        for kind in self._kinds if kinds is None else kinds:
            own = self.reflectors[kind].objects if kind in self.reflectors else {}
            keys, at = list(own), 0
            while at < len(keys):
                part = keys[at : at + most - count]
                found += self._unverified_of(kind, part)
                at, count = at + len(part), count + len(part)
                if count == most:
                    yield found
                    found, count = [], 0
            for item in self.super_items(kind):
                count += 1
                if item is not None and item[1:] not in own and not is_verified(pair := self.pair(item)):
                    found.append((item, pair.is_whole))
                if count == most:
                    yield found
                    found, count = [], 0
        yield found

    def _unverified_of(self, kind: str, keys: Iterable[Key]) -> Iterable[tuple[SyncKey, bool]]:
        """Those of the tenant's objects that are not known to agree, and whether the other side has them."""
        sync, own = self._kinds[kind], self.reflectors[kind].objects
        if sync.scope is not Scope.NAMESPACED:
            pairs = (((kind, *key), self.pair((kind, *key))) for key in keys)
            yield from ((item, pair.is_whole) for item, pair in pairs if not is_verified(pair))
            return
        # A patrol looks at each object of a tenant, and nearly all agree.
        objects, super_name = self._super.objects(kind), sync.super_name
        owned: dict[str, str | None] = {}
        for key in keys:
            if (tenant := own.get(key)) is None:
                continue  # its super object is looked at as one without it
            namespace, name = key
            if namespace not in owned:
                owned[namespace] = self._namespaces.owned(namespace)
            within = owned[namespace]
            found = None if within is None else objects.get((within, super_name(name)))
            if tenant.verified_with != ("" if found is None else found.metadata.resource_version):
                yield (kind, namespace, name), found is not None

    def unreadable_items(self) -> Iterable[SyncKey]:
        """The tenant's objects that are there and cannot be read."""
        for kind, reflector in self.reflectors.items():
            for namespace, name in list(reflector.decode_failures):
                yield kind, namespace, name

    def super_items(self, kind: str) -> Iterable[SyncKey | None]:
        """What the super cluster has of a kind that is the tenant's, or of all tenants; None for each super
        namespace, which may be one of thousands that have none."""
        sync = self._kinds[kind]
        mine = {name: owner.namespace for name, owner in self._super.owners.of_key(self._owner.tenant.key)}
        if sync.scope is Scope.NAMESPACE:
            yield from ((kind, "", namespace) for namespace in mine.values())
        elif sync.scope is Scope.PUBLISHED:
            yield from ((kind, "", name) for _, name in list(self._super.objects(kind)))
        elif sync.scope is Scope.CLAIMED:
            for super_namespace in mine:
                yield None
                yield from (
                    (kind, "", each) for each in list(self._super.volumes.names_of(kind, super_namespace))
                )
        else:
            for super_namespace, namespace in mine.items():
                yield None
                if sync.scope is Scope.SYSTEM and namespace != SYSTEM_NAMESPACE:
                    continue
                for super_name in list(self._super.names_in(kind, super_namespace)):
                    name = sync.tenant_name(super_name)
                    if name is not None:
                        yield kind, "" if sync.scope is Scope.SYSTEM else namespace, name

    def super_objects(self, kind: str) -> Iterable[tuple[SyncKey, CachedObject] | None]:
        """The super objects of a kind, with their items, as they are when it is their turn; None for what
        was looked at beside them."""
        for item in self.super_items(kind):
            found = None if item is None else self.of_super(item)
            yield None if item is None or found is None else (item, found)

    def known(self, side: Side) -> Generator[None, None, Counter[str]]:
        """The tenant's objects of one side, by kind, whose deletion can follow from the other side's: counted
        in steps."""
        found: Counter[str] = Counter()
        step = WorkStep()
        for kind, sync in self._kinds.items():
            # Of what only comes up nothing ends below because a tenant lacks it.
            if side is Side.SUPER and sync.scope is not Scope.PUBLISHED and kind not in NOT_WATCHED:
                for item in self.super_items(kind):
                    found[kind] += item is not None
                    if step.count():
                        yield
            elif side is Side.TENANT and kind in self.reflectors:
                objects = self.reflectors[kind].objects
                if kind != "Pod":
                    found[kind] = len(objects)
                    continue
                for each in list(objects.values()):
                    found[kind] += bool(each.node)
                    if step.count():
                        yield
        return found

    def contents(self, item: SyncKey) -> Counter[str]:
        """How many super objects go with a Namespace, by kind."""
        found: Counter[str] = Counter()
        super_name = self._namespaces.owned(item[2]) if item[0] == NAMESPACE else None
        if super_name is not None:
            for kind, sync in self._kinds.items():
                if sync.scope in (Scope.NAMESPACED, Scope.SYSTEM):
                    found[kind] = len(self._super.names_in(kind, super_name))
        return found


def _most_values(sync: KindSync) -> int:
    """Of what only comes up a plan reads metadata, and a tenant's own may be large: definitions are."""
    return deep_json.MAX_VALUES if sync.scope in (Scope.PUBLISHED, Scope.CLAIMED) else MAX_PLANNED_VALUES
