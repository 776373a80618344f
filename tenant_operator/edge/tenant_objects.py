# SPDX-License-Identifier: Apache-2.0
"""The objects of all tenants, packed by tenant and kind; those of a few tenants unpacked, while they change.

An object is kept for its VirtualCluster alone: in the root namespace of that, or its administrator's
kubeconfig (`core.observed.is_own`). What carries the labels of one that does not exist may be of one that is
still to be listed, or was deleted and kept its volumes: that is kept for a bounded number of namespaces.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from sys import intern

from daemonkit.kube.paged_store import PagedStore
from daemonkit.kube.resources import Key
from daemonkit.kube.store import Deleted
from tenancy import keys
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import is_own
from tenant_operator.core.packed_objects import ObjectCodec
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import VirtualCluster

# Kinds of tenants: a page has those of a tenant one behind the other, and a new tenant's change kind by kind.
MAX_UNPACKED = 24
# Of no VirtualCluster that is known, each with a few kilobytes.
MAX_ORPHANS = 1024
# Of a list, what is looked at in one step.
_PIECE = 50

Unpacked = dict[Ref, LiveObject]


def place_of(ref: Ref) -> str:
    """Under which name an object is packed with others: its namespace, or for a tenant's kubeconfig that and
    its name, as there are all VirtualClusters of that namespace."""
    if ref.kind == "Namespace":
        return ref.name
    is_kubeconfig = ref.kind == "Secret" and ref.name.endswith(keys.TENANT_KUBECONFIG_SUFFIX)
    if is_kubeconfig and ref.name != names.SYNCER_CLIENT:
        return f"{ref.namespace}/{ref.name}"
    return ref.namespace


def places_of(cluster: VirtualCluster) -> tuple[str, ...]:
    """Where a VirtualCluster's objects may be."""
    meta, root = cluster.metadata, cluster.key
    kubeconfig = place_of(Ref("Secret", meta.namespace, names.tenant_kubeconfig(meta.name)))
    return (root, kubeconfig) if isinstance(root, str) else (kubeconfig,)


class TenantObjects:
    """`cluster_of` finds the VirtualCluster of a UID."""

    def __init__(self, kinds: Sequence[str], cluster_of: Callable[[str], VirtualCluster | None]) -> None:
        self._at = {kind: at for at, kind in enumerate(kinds)}
        self._kinds = kinds
        self._codecs = [ObjectCodec(kind) for kind in kinds]
        self._cluster_of = cluster_of
        self._packed: dict[str, list[bytes | None]] = {}
        self._unpacked: OrderedDict[tuple[str, int], Unpacked] = OrderedDict()
        self._changed: set[tuple[str, int]] = set()
        self._orphans: OrderedDict[str, str] = OrderedDict()
        self.counts = [0] * len(kinds)
        """Objects of each kind."""

    def of(self, cluster: VirtualCluster) -> Unpacked:
        """What was made for a VirtualCluster."""
        uid, found = cluster.metadata.uid, Unpacked()
        for place in places_of(cluster):
            for ref, live in self._all(place):
                if live.metadata.owner_uid == uid and is_own(cluster, ref):
                    found[ref] = live
        return found

    def left_of(self, uid: str) -> Unpacked:
        """What was made for a VirtualCluster that may be deleted."""
        cluster = self._cluster_of(uid)
        if cluster is not None:
            return self.of(cluster)
        places = [place for place, owner in self._orphans.items() if owner == uid]
        every = (pair for place in places for pair in self._all(place))
        return {ref: live for ref, live in every if live.metadata.owner_uid == uid}

    def get(self, ref: Ref) -> LiveObject | None:
        """One object."""
        place, at = place_of(ref), self._at.get(ref.kind)
        if at is None or place not in self._packed:
            return None
        return self._open(place, at).get(ref)

    def put(self, ref: Ref, live: LiveObject) -> LiveObject | None:
        """Keep an object, if it may be a VirtualCluster's. Returns the one that was there."""
        uid = live.metadata.owner_uid
        cluster = self._cluster_of(uid)
        if not uid or (cluster is not None and not is_own(cluster, ref)):
            return self.pop(ref)
        place, at = place_of(ref), self._at[ref.kind]
        if place not in self._packed:
            self._packed[place] = [None] * len(self._kinds)
        if cluster is None:
            self._note_orphan(place, uid)
        found = self._open(place, at)
        before = found.get(ref)
        if before != live:
            found[ref] = live
            self._changed.add((place, at))
        self.counts[at] += before is None
        return before

    def pop(self, ref: Ref) -> LiveObject | None:
        """An object is deleted. Returns it."""
        place, at = place_of(ref), self._at[ref.kind]
        if place not in self._packed:
            return None
        found = self._open(place, at)
        before = found.pop(ref, None)
        if before is not None:
            self._changed.add((place, at))
            self.counts[at] -= 1
            if not found:
                self._close((place, at))
        return before

    def claim(self, cluster: VirtualCluster) -> None:
        """A VirtualCluster came: what was kept for it is its own."""
        for place in places_of(cluster):
            self._orphans.pop(place, None)

    def release(self, cluster: VirtualCluster) -> None:
        """A VirtualCluster is deleted."""
        for place in places_of(cluster):
            if place in self._packed:
                self._note_orphan(place, cluster.metadata.uid)

    def pack(self, cluster: VirtualCluster) -> None:
        """It does not change for now."""
        for place in places_of(cluster):
            for at in range(len(self._kinds)):
                self._close((place, at))

    def forget(self) -> None:
        """Nothing is known."""
        for each in (self._packed, self._unpacked, self._changed, self._orphans):
            each.clear()
        self.counts[:] = [0] * len(self._kinds)

    def missing(
        self, kind: str, listed: Mapping[str, set[str]]
    ) -> Generator[None, None, list[tuple[Ref, LiveObject]]]:
        """Those of a kind that are not listed. `listed` are names, by place; yields between two pieces."""
        at, found = self._at[kind], []
        for number, place in enumerate(list(self._packed)):
            if number % _PIECE == 0:
                yield
            known = listed.get(place, ())
            if self._count(place, at) > len(known):
                every = self._read(place, at).items()
                found += [(ref, live) for ref, live in every if ref.name not in known]
        return found

    def keys_of(self, at: int) -> Iterator[Key]:
        """All objects of the kind at this place among kinds."""
        for place in list(self._packed):
            yield from ((ref.namespace, ref.name) for ref in self._read(place, at))

    def _note_orphan(self, place: str, uid: str) -> None:
        self._orphans[place] = uid
        while len(self._orphans) > MAX_ORPHANS:
            eldest, _ = self._orphans.popitem(last=False)
            self._drop(eldest)

    def _drop(self, place: str) -> None:
        if place in self._packed:
            for at in range(len(self._kinds)):
                self.counts[at] -= self._count(place, at)
                self._unpacked.pop((place, at), None)
                self._changed.discard((place, at))
            del self._packed[place]

    def _all(self, place: str) -> Iterator[tuple[Ref, LiveObject]]:
        if place in self._packed:
            for at in range(len(self._kinds)):
                yield from self._read(place, at).items()

    def _count(self, place: str, at: int) -> int:
        found = self._unpacked.get((place, at))
        if found is not None:
            return len(found)
        packed = self._packed[place][at] if place in self._packed else None
        return 0 if packed is None else ObjectCodec.count(packed)

    def _read(self, place: str, at: int) -> Unpacked:
        """Those of a tenant and kind, to be read alone."""
        found = self._unpacked.get((place, at))
        if found is not None:
            return found
        packed = self._packed[place][at] if place in self._packed else None
        return {} if packed is None else self._codecs[at].unpack(packed)

    def _open(self, place: str, at: int) -> Unpacked:
        """Those of a tenant and kind, which may be changed."""
        slot = place, at
        if slot in self._unpacked:
            self._unpacked.move_to_end(slot)
            return self._unpacked[slot]
        found = self._unpacked[slot] = self._read(place, at)
        while len(self._unpacked) > MAX_UNPACKED:
            self._close(next(iter(self._unpacked)))
        return found

    def _close(self, slot: tuple[str, int]) -> None:
        found = self._unpacked.pop(slot, None)
        if found is None or slot not in self._changed:
            return
        self._changed.discard(slot)
        place, at = slot
        packed = self._packed[place]
        packed[at] = self._codecs[at].pack(found.values(), is_sample=place not in self._orphans)
        if not found:
            packed[at] = None
            if not any(packed) and not any(where == place for where, _ in self._unpacked):
                del self._packed[place]
                self._orphans.pop(place, None)


class _Listed(Mapping[Key, LiveObject]):
    """The objects of one kind, which are unpacked one tenant after the other."""

    def __init__(self, objects: TenantObjects, kind: str, at: int) -> None:
        self._objects, self._kind, self._at = objects, kind, at

    def __len__(self) -> int:
        return self._objects.counts[self._at]

    def __iter__(self) -> Iterator[Key]:
        return self._objects.keys_of(self._at)

    def __getitem__(self, key: Key) -> LiveObject:
        found = self._objects.get(Ref(self._kind, *key))
        if found is None:
            raise KeyError(key)
        return found


class KindStore(PagedStore[LiveObject]):
    """The objects of one kind among those of all tenants, for the watch of that kind."""

    def __init__(self, objects: TenantObjects, kind: str, at: int) -> None:
        super().__init__()
        self._of_tenants = objects
        self._kind = kind
        self._listed: dict[str, set[str]] = {}
        self.objects = _Listed(objects, kind, at)

    def forget(self) -> Generator[None, None, None]:
        self._of_tenants.forget()
        yield

    def _put(self, key: Key, value: LiveObject) -> LiveObject | None:
        self._pop_failure(key)
        return self._of_tenants.put(Ref(self._kind, *key), value)

    def _pop(self, key: Key) -> LiveObject | None:
        return self._of_tenants.pop(Ref(self._kind, *key))

    def _begin(self) -> None:
        self._listed = {}

    def _note(self, key: Key) -> None:
        # Tenants' objects have the same names.
        place = place_of(Ref(self._kind, *key))
        self._listed.setdefault(place, set()).add(intern(key[1]))

    def _missing(self) -> Generator[None, None, Sequence[Deleted[LiveObject]]]:
        found: Iterable[tuple[Ref, LiveObject]] = yield from self._of_tenants.missing(
            self._kind, self._listed
        )
        self._listed = {}
        return [Deleted((ref.namespace, ref.name), live) for ref, live in found]
