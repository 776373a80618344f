# SPDX-License-Identifier: Apache-2.0
"""The super cluster's objects that may be tenants', and whose each is.

One watch a kind for all tenants. An object belongs to the tenant whose annotations its namespace carries
(`tenancy.super_namespaces`); what it claims itself counts only as a second proof, in plans.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from daemonkit.fairness.scheduler import Account
from daemonkit.fairness.steps import WorkStep, in_steps
from daemonkit.kube.byte_budget import OBJECT_BYTES
from daemonkit.kube.freshness import Failure
from daemonkit.kube.reflector import Reflector, Transport
from daemonkit.kube.reflector_log import FirstFailure
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import NODES, PODS, SECRETS, Key
from daemonkit.kube.store import Added, Change, DecodeFailed, Deleted, Modified, UndecodableDeleted
from daemonkit.kube.watch import BoundedParser
from daemonkit.tasks import Tasks
from syncer.caches.cached_object import (
    CachedObject,
    ClaimedObject,
    OwnedObject,
    parse,
    parse_secret,
    parse_super,
    parse_super_pod,
    parse_with_spec,
    unreadable_keys,
)
from syncer.caches.claimed_volumes import ClaimedVolumes
from syncer.caches.draining import DrainedNodes
from syncer.caches.held_events import HeldEvents
from syncer.caches.namespace_services import NamespaceServices
from syncer.caches.stored_objects import StoredObjects
from syncer.caches.stored_totals import StoredTotals
from syncer.caches.super_addresses import SuperAddresses
from syncer.caches.super_change import API_SERVER, CLUSTER_NETWORKS, DRAIN, EVENT, NODE, SuperChange
from syncer.caches.super_owners import SuperOwners
from syncer.core.objects import Object, annotations_of
from syncer.kinds.port import SYSTEM_NAMESPACE, KindSync, Scope
from tenancy import keys
from tenancy.super_namespaces import SuperNamespaceOwner, owner_of

T = TypeVar("T")

# Each takes up to 50 us, as what it is part of is counted and planned again.
_REPORTED_AT_ONCE = 100
# Of these the super cluster, or the syncer beside its own labels, has objects without our labels that matter.
_WITHOUT_LABELS = frozenset({"Namespace", "ServiceAccount", "Event", "PersistentVolume"})
_POD, _SERVICE = "Pod", "Service"
# What says where a tenant's API server is.
_WITH_ADDRESSES = frozenset({"services", "endpoints"})
_IN_NAMESPACES = frozenset({Scope.NAMESPACED, Scope.SYSTEM})

_ObjectChange = Added[CachedObject] | Modified[CachedObject] | Deleted[CachedObject]


class SuperCaches:
    """`on_change` is called for each change, after it is in the caches.

    `on_applied` is called after each piece of a watch, in the step that decoded it: with the bytes of each
    tenant's objects in it, by its key, and of all. For a list it is not called: no tenant caused it.
    """

    def __init__(
        self,
        client: Transport,
        kinds: Iterable[KindSync],
        on_change: Callable[[SuperChange], None],
        *,
        timing: Timing | None = None,
        on_applied: Callable[[Mapping[str, int], int], None] = lambda *_: None,
    ) -> None:
        self._on_change = on_change
        self._tasks: Tasks | None = None
        self._account: Account | None = None
        # Of each tenant's key, how many reports are under way of what came before its namespace.
        self._late: Counter[str] = Counter()
        self._on_applied = on_applied
        self.owners = SuperOwners(self._has_objects)
        self._owner_of, self._owner_or_last = self.owners.by_namespace, self.owners.or_last
        # Of each kind and super namespace: what one tenant has is found without looking at all others'.
        self._names: dict[tuple[str, str], dict[str, None]] = {}
        # Of each kind, how often its cached objects may have become others.
        self._changes: Counter[str] = Counter()
        self.services = NamespaceServices(lambda: self.objects("Service"))
        self.addresses = SuperAddresses(self.owners, self.services.of, self._endpoints_in, on_change)
        self._drained_nodes = DrainedNodes()
        self.stored = StoredTotals()
        self.volumes = ClaimedVolumes(self.stored)
        self._stored_objects = StoredObjects(self.stored, self.volumes)
        # Not `key_or_last`: an Event that comes after the end of its super namespace is not copied.
        self.events = HeldEvents(self.stored, self.owners.key, lambda where: self.objects(EVENT).get(where))
        # What unreadable objects last were: who counts them hears of their end with it.
        self._last_readable: dict[tuple[str, Key], CachedObject] = {}
        self._kinds = {each.kind.kind: each for each in kinds}
        self.reflectors: dict[str, Reflector[CachedObject]] = {}
        for sync in self._kinds.values():
            self.reflectors[sync.kind.kind] = self._follow(client, sync, timing)
        self.reflectors[NODE] = Reflector(client, NODES, parse, on_change=self._nodes_changed, timing=timing)
        self._failing = FirstFailure(self.reflectors.values())

    def _follow(self, client: Transport, sync: KindSync, timing: Timing | None) -> Reflector[CachedObject]:
        return Reflector(
            client,
            sync.kind.resource,
            _parser(sync),
            label_selector=_selector(sync),
            may_be_absent=True,
            delivers_parts=True,
            kept=ClaimedObject if sync.scope is Scope.CLAIMED else OwnedObject,
            on_change=lambda changes: self._apply(sync, changes),
            timing=timing,
        )

    def start(self, tasks: Tasks, account: Account) -> None:
        """Begin to watch; `account` pays for it."""
        self._tasks, self._account = tasks, account

        def spawn(coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
            return tasks.spawn(account.run(coro), f"super {name}")

        for kind, reflector in self.reflectors.items():
            # Nothing counts a page that is there early, and there are few of other kinds.
            spawn(reflector.run(spawn if kind == _POD else None), reflector.name)

    @property
    def has_synced(self) -> bool:
        return all(each.synced.is_set() for each in self.reflectors.values())

    @property
    def failure(self) -> Failure | None:
        """Why one of the kinds cannot be read now; None if all can be."""
        return self._failing.current

    async def wait_synced(self) -> None:
        for reflector in self.reflectors.values():
            await reflector.synced.wait()

    def objects(self, kind: str) -> Mapping[tuple[str, str], CachedObject]:
        """The cached objects of a kind, by (super namespace, super name)."""
        return self.reflectors[kind].objects

    def names_in(self, kind: str, super_namespace: str) -> Collection[str]:
        """The names of a kind's cached objects in a super namespace. Take a copy before the next await."""
        return self._names.get((kind, super_namespace), {}).keys()

    def changes_of(self, kind: str) -> int:
        """A number that is another one after each change of the cached objects of a kind."""
        return self._changes[kind]

    def _endpoints_in(self, namespace: str) -> Iterable[Object]:
        cached = self.objects("Endpoints")
        return (cached[namespace, name].load() for name in self.names_in("Endpoints", namespace))

    # ---- changes

    def _apply(self, sync: KindSync, changes: Sequence[Change[CachedObject]]) -> None:
        # Before the handlers, which may raise: the cache has these changes already.
        self._changes[sync.kind.kind] += 1
        before = self._unreadable_claims(sync, changes)
        self._changed(sync, changes)
        if not self.reflectors[sync.kind.kind].is_relisting:
            parts, whole = dict[str, int](), 0
            places = before | self._unreadable_claims(sync, changes)
            for change in changes:
                namespace, size_bytes = _place_and_size(sync.scope, change, places)
                whole += size_bytes
                owner = self._owner_or_last(namespace)
                if isinstance(owner, SuperNamespaceOwner):
                    parts[owner.key] = parts.get(owner.key, 0) + size_bytes
            self._on_applied(parts, whole)

    def _changed(self, sync: KindSync, changes: Sequence[Change[CachedObject]]) -> None:
        kind = sync.kind.kind
        is_relisting = self.reflectors[kind].is_relisting
        unreadable = unreadable_keys(changes)
        claims_before = self._unreadable_claims(sync, changes)
        self._note_names(kind, changes)
        self._stored_objects.changed(sync, changes)
        has_addresses = sync.kind.resource.plural in _WITH_ADDRESSES
        if has_addresses:
            self.addresses.control_planes_changed(changes)
        if sync.scope is Scope.NAMESPACE:
            self._namespaces_changed(changes, unreadable)
            return
        if sync.scope is Scope.CLAIMED:
            self._volumes_changed(sync, changes, claims_before, unreadable)
            return
        for change in changes:
            if isinstance(change, DecodeFailed):
                continue
            if isinstance(change, UndecodableDeleted):
                if kind == _POD:
                    self.addresses.unreadable_pod_deleted(change.key)
                self._unreadable_deleted(sync, change.key, is_relisting=is_relisting)
                continue
            namespace, name = change.key
            is_unreadable = change.key in unreadable
            is_deleted = isinstance(change, Deleted) and not is_unreadable
            if sync.scope in _IN_NAMESPACES:
                if kind == EVENT:
                    is_held = self.events.changed(change)
                    if not is_held and not (isinstance(change, Deleted) and namespace in self._owner_of):
                        continue
                if kind == _SERVICE:
                    self.services.changed(namespace, name, is_there=not isinstance(change, Deleted))
                elif kind == _POD:
                    self.addresses.pod_changed(change, is_unreadable=is_unreadable)
                    before = "" if isinstance(change, Added) else change.old.drain_node
                    after = "" if isinstance(change, Deleted) else change.value.drain_node
                    self._drained_nodes.pod_moved(namespace, before, after)
                if has_addresses and namespace not in self._owner_of:
                    self._on_change(SuperChange(API_SERVER, namespace, "", ""))
                if isinstance(change, Deleted):
                    if is_unreadable:
                        self._last_readable[kind, change.key] = change.old
                else:
                    self._end_replaced(sync, change, is_relisting=is_relisting)
                self._report(sync, change, _version(change), is_deleted=is_deleted, is_relisting=is_relisting)
            else:
                self._on_change(SuperChange(kind, None, "", name, _version(change), is_deleted, is_relisting))
        if self.owners.last:
            self.owners.objects_changed({each.key[0] for each in changes})

    def _volumes_changed(
        self,
        sync: KindSync,
        changes: Sequence[Change[CachedObject]],
        before: Mapping[Key, str],
        unreadable: Collection[Key],
    ) -> None:
        """Report volumes to whom their claims are of, and were of: also those that cannot be read.

        `before` is where the claims were of those that could not be read before these changes.
        """
        kind, after = sync.kind.kind, self._unreadable_claims(sync, changes)
        is_relisting = self.reflectors[kind].is_relisting
        for change in changes:
            key, version = change.key, ""
            places = {before.get(key), after.get(key)}
            if not isinstance(change, DecodeFailed | UndecodableDeleted):
                places.update(each.claim_namespace for each in _values(change))
                version = _version(change)
            is_deleted = isinstance(change, Deleted | UndecodableDeleted) and key not in unreadable
            owners = (self._owner_of.get(each) for each in places if each)
            for owner in dict.fromkeys(owners):
                if isinstance(owner, SuperNamespaceOwner):
                    self._on_change(
                        SuperChange(
                            kind, owner.key, "", key[1], version, is_deleted, is_relisting, owner=owner
                        )
                    )

    def _unreadable_claims(self, sync: KindSync, changes: Sequence[Change[CachedObject]]) -> dict[Key, str]:
        """Where the claims are of those of the changed volumes that cannot be read."""
        if sync.scope is not Scope.CLAIMED:
            return {}
        found = ((each.key, self.unreadable_claim(sync.kind.kind, each.key)) for each in changes)
        return {key: namespace for key, namespace in found if namespace}

    def unreadable_claim(self, kind: str, key: Key) -> str:
        """The super namespace of the claim of a volume that cannot be read; empty if that is not known."""
        return self._stored_objects.unreadable_place(kind, key)

    def _report(
        self,
        sync: KindSync,
        change: _ObjectChange,
        version: str,
        *,
        is_deleted: bool,
        is_relisting: bool,
    ) -> None:
        # Of one that was deleted, whose its super namespace was if that went first.
        namespace = change.key[0]
        owner = self._owner_or_last(namespace) if is_deleted else self._owner_of.get(namespace)
        name = sync.tenant_name(change.key[1])
        if isinstance(owner, SuperNamespaceOwner) and name is not None:
            if sync.scope is Scope.SYSTEM and owner.namespace != SYSTEM_NAMESPACE:
                return
            value = change.old if isinstance(change, Deleted) else change.value
            self._on_change(
                SuperChange(
                    sync.kind.kind,
                    owner.key,
                    "" if sync.scope is Scope.SYSTEM else owner.namespace,
                    name,
                    version,
                    is_deleted,
                    is_relisting,
                    value,
                    owner,
                )
            )

    def _end_replaced(
        self, sync: KindSync, change: Added[CachedObject] | Modified[CachedObject], *, is_relisting: bool
    ) -> None:
        """Report the end of an unreadable object in whose place a list has another one."""
        last = self._last_readable.pop((sync.kind.kind, change.key), None)
        if last is not None and last.metadata.uid != change.value.metadata.uid:
            self._report(sync, Deleted(change.key, last), "", is_deleted=True, is_relisting=is_relisting)

    def _unreadable_deleted(self, sync: KindSync, key: Key, *, is_relisting: bool) -> None:
        """One that could not be read was deleted. Of a namespaced one it is known whose it was."""
        kind, name = sync.kind.kind, sync.tenant_name(key[1])
        owner = self._owner_or_last(key[0])
        last = self._last_readable.pop((kind, key), None)
        if sync.scope is Scope.NAMESPACED and isinstance(owner, SuperNamespaceOwner) and name is not None:
            self._on_change(
                SuperChange(kind, owner.key, owner.namespace, name, "", True, is_relisting, last, owner)
            )

    def _namespaces_changed(
        self, changes: Sequence[Change[CachedObject]], unreadable: Collection[tuple[str, str]]
    ) -> None:
        has_synced, found = self.has_synced, set[str]()
        is_relisting = self.reflectors["Namespace"].is_relisting
        for change in changes:
            if isinstance(change, DecodeFailed):
                continue
            if change.key in unreadable and not isinstance(change, UndecodableDeleted):
                continue  # it stays whose it was
            name = change.key[1]
            before, after = self._owner_of.get(name), None
            if isinstance(change, Added | Modified):
                after = owner_of(name, annotations_of(change.value.load()))
            self.owners.set(name, after)
            self.stored.own(name, after.key if isinstance(after, SuperNamespaceOwner) else None)
            for owner in dict.fromkeys((before, after)):
                if isinstance(owner, SuperNamespaceOwner):
                    version = _version(change)
                    self._on_change(
                        SuperChange(
                            "Namespace", owner.key, "", owner.namespace, version, is_relisting=is_relisting
                        )
                    )
            if has_synced and after != before and isinstance(after, SuperNamespaceOwner):
                found.add(name)
        if found and self._tasks is not None and self._account is not None:
            owners = filter(None, map(self._owner_of.get, found))
            late = [each.key for each in owners if isinstance(each, SuperNamespaceOwner)]
            self._late.update(late)
            report = in_steps(self._report_cached(found))
            self._tasks.spawn(
                self._account.run(report),
                "what came before its namespace",
                when_over=lambda: self._end_late(late),
            )

    def _end_late(self, keys_of_tenants: Collection[str]) -> None:
        self._late.subtract(keys_of_tenants)
        self._late = +self._late

    def has_reported(self, key: str) -> bool:
        """Whether all that is cached of a tenant has been reported; else it still is, after its namespace."""
        return not self._late[key]

    def _report_cached(self, super_namespaces: Collection[str]) -> Generator[None, None, None]:
        """Report in steps what is in super namespaces that are seen after it. Of Events nothing was kept.

        It is reported as it is by then; what is gone was reported by its own event.
        """
        step = WorkStep(_REPORTED_AT_ONCE)
        for kind, sync in self._kinds.items():
            cached = self.reflectors[kind].objects
            if sync.scope in _IN_NAMESPACES and kind != EVENT:
                for namespace in super_namespaces:
                    for name in tuple(self.names_in(kind, namespace)):
                        if (found := cached.get((namespace, name))) is not None:
                            if found.addresses:
                                self.addresses.report(namespace, found.addresses)
                            change = Added((namespace, name), found)
                            self._report(sync, change, "", is_deleted=False, is_relisting=False)
                        if step.count():
                            yield
            elif sync.scope is Scope.CLAIMED:
                for namespace in super_namespaces:
                    for name in tuple(self.volumes.names_of(kind, namespace)):
                        # It may have gone, or be another owner's, since the step before.
                        owner, found = self._owner_of.get(namespace), cached.get(("", name))
                        is_there = found is not None and found.claim_namespace == namespace
                        if is_there and isinstance(owner, SuperNamespaceOwner):
                            self._on_change(SuperChange(kind, owner.key, "", name, owner=owner))
                        if step.count():
                            yield

    def _has_objects(self, super_namespace: str) -> bool:
        return any((kind, super_namespace) in self._names for kind in self._kinds)

    def _note_names(self, kind: str, changes: Sequence[Change[CachedObject]]) -> None:
        for change in changes:
            where = kind, change.key[0]
            if isinstance(change, Added):
                self._names.setdefault(where, {})[change.key[1]] = None
            elif isinstance(change, Deleted):
                found = self._names.get(where, {})
                found.pop(change.key[1], None)
                if not found:
                    self._names.pop(where, None)

    def drain_seconds(self, super_namespace: str) -> float:
        """For how long one of the nodes that run its pods has been cordoned; 0 if none is."""
        return self._drained_nodes.seconds(super_namespace)

    def note_draining(self, now_s: float) -> None:
        """Take the time, by the wall clock."""
        for super_namespace in self._drained_nodes.note(now_s):
            owner = self._owner_of.get(super_namespace)
            if isinstance(owner, SuperNamespaceOwner):
                self._on_change(SuperChange(DRAIN, owner.key, owner.namespace, ""))

    def _nodes_changed(self, changes: Sequence[Change[CachedObject]]) -> None:
        unreadable, is_other = unreadable_keys(changes), False
        for change in changes:
            # Of one that cannot be read the networks stay.
            if isinstance(change, UndecodableDeleted):
                self._drained_nodes.node_changed(change.key[1], None)
                is_other |= self.addresses.node_changed(change.key[1], None)
            elif not isinstance(change, DecodeFailed) and change.key not in unreadable:
                node = None if isinstance(change, Deleted) else change.value
                self._drained_nodes.node_changed(change.key[1], node)
                is_other |= self.addresses.node_changed(change.key[1], node)
        if is_other:
            self._on_change(SuperChange(CLUSTER_NETWORKS, None, "", ""))
        for change in changes:
            self._on_change(SuperChange(NODE, None, "", change.key[1]))


def _place_and_size(
    scope: Scope, change: Change[CachedObject], unreadable: Mapping[Key, str]
) -> tuple[str, int]:
    """The super namespace by which a change is a tenant's, and about how many bytes it came with.

    `unreadable` has where the claims are, or were, of volumes that cannot be read.
    """
    namespace, name = change.key
    if scope is Scope.NAMESPACE:
        namespace = name
    if isinstance(change, DecodeFailed | UndecodableDeleted):
        size_bytes = change.size_bytes if isinstance(change, DecodeFailed) else 0
        return unreadable.get(change.key, namespace), OBJECT_BYTES + size_bytes
    value = change.old if isinstance(change, Deleted) else change.value
    if scope is Scope.CLAIMED:
        namespace = value.claim_namespace or unreadable.get(change.key, "")
    return namespace, OBJECT_BYTES + value.json_bytes


def _values(change: _ObjectChange) -> Iterable[CachedObject]:
    match change:
        case Added(_, value):
            return (value,)
        case Modified(_, old, value):
            return (value,) if old.claim_namespace == value.claim_namespace else (old, value)
        case Deleted(_, old):
            return (old,)


def _version(change: _ObjectChange | UndecodableDeleted) -> str:
    return change.value.metadata.resource_version if isinstance(change, Added | Modified) else ""


def _parser(sync: KindSync) -> BoundedParser[CachedObject]:
    if sync.kind.resource == PODS:
        return parse_super_pod
    if sync.kind.resource == SECRETS:
        return parse_secret
    if sync.scope is Scope.CLAIMED:
        return parse_with_spec
    # Nothing of Events and of what is published is written in the super cluster.
    is_written = sync.scope in (Scope.NAMESPACE, *_IN_NAMESPACES) and sync.kind.kind != EVENT
    return parse_super if is_written else parse


def _selector(sync: KindSync) -> str:
    if sync.scope is Scope.PUBLISHED:
        return f"{keys.SUPER_PUBLIC}=true"
    return "" if sync.kind.kind in _WITHOUT_LABELS else keys.VC_NAME
