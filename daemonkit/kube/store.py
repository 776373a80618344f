# SPDX-License-Identifier: Apache-2.0
"""The synced objects of one kind, and the changes of each list and event. Pure.

The resource version never goes back: a list from a cache that lags, or from a restored backup, would restore
deleted objects and their former owners. Such a list is refused whole.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from daemonkit.fairness.emptying import emptied
from daemonkit.kube.resources import Identity, Key, KubeObject, is_older
from daemonkit.kube.watch import Bookmark, GarbageError, Put, Removed, Undecodable

T = TypeVar("T", bound=KubeObject)


class Added(msgspec.Struct, Generic[T], frozen=True):
    key: Key
    value: T


class Modified(msgspec.Struct, Generic[T], frozen=True):
    """The same object (by its UID) changed."""

    key: Key
    old: T
    value: T


class Deleted(msgspec.Struct, Generic[T], frozen=True):
    """An object was deleted; `old` is its last observed state."""

    key: Key
    old: T


class DecodeFailed(msgspec.Struct, frozen=True):
    """An object cannot be decoded, or is too large. If it could be before, a `Deleted` precedes this."""

    key: Key
    reason: str
    uid: str = ""
    is_too_large: bool = False
    kept: object = None
    """The fields that the reflector was asked to keep of such an object."""
    size_bytes: int = 0
    """As that of an `Undecodable`."""


class UndecodableDeleted(msgspec.Struct, frozen=True):
    """An object that could not be decoded was deleted."""

    key: Key


Change = Added[T] | Modified[T] | Deleted[T] | DecodeFailed | UndecodableDeleted


class RegressedError(ValueError):
    """The server offers a state that is older than the one that we hold."""

    def __init__(self, known: str, offered: str) -> None:
        super().__init__(f"resource version {offered} is older than {known}")
        self.known = known
        self.offered = offered


def key_of(metadata: Identity) -> Key:
    return metadata.namespace, metadata.name


# Of a list, what is compared in one step: within some milliseconds.
_PIECE = 5_000


class Replacement(msgspec.Struct, Generic[T], frozen=True):
    """What a list has, and the changes to it from what is held, deletions first."""

    objects: dict[Key, T]
    failures: dict[Key, DecodeFailed]
    version: str
    changes: list[Change[T]]

    def parts(self, most: int) -> Iterator[list[Change[T]]]:
        """The changes in parts of about so many; those of one object are in one part."""
        failed = {each.key: each for each in self.changes if isinstance(each, DecodeFailed)}
        if not failed:
            yield from _slices(self.changes, most)
            return
        part: list[Change[T]] = []
        for change in self.changes:
            if isinstance(change, DecodeFailed):
                if failed.pop(change.key, None) is None:
                    continue  # it was with the end of the object
            elif len(part) >= most and part[-1].key != change.key:
                yield part
                part = []
            part.append(change)
            if isinstance(change, Deleted) and (unreadable := failed.pop(change.key, None)) is not None:
                part.append(unreadable)
        yield part


def _slices(changes: list[Change[T]], most: int) -> Iterator[list[Change[T]]]:
    """The changes in slices of about so many; those of one object follow each other, and are in one slice."""
    begin, end = 0, most
    while end < len(changes):
        if changes[end - 1].key == changes[end].key:
            end += 1
            continue
        yield changes[begin:end]
        begin, end = end, end + most
    yield changes[begin:]


class Store(Generic[T]):
    """Objects by (namespace, name), at one resource version.

    `decode_failures` holds the undecodable objects that exist, `undecodable` only their reasons. Their
    last known state is not served, as it may be wrong; callers can distinguish them from missing objects.
    `size_of` gives the bytes of what is held; where that takes less later, `note_compressed` has to follow.
    """

    def __init__(self, size_of: Callable[[T | DecodeFailed], int] | None = None) -> None:
        self._size_of = size_of
        self.held_bytes = 0
        """Of all that is held; 0 if that is not measured. Kept with each change: nothing is counted anew."""
        self._version = ""
        self._objects: dict[Key, T] = {}
        self._decode_failures: dict[Key, DecodeFailed] = {}
        self.objects: Mapping[Key, T] = MappingProxyType(self._objects)
        """The live objects, read only. Take a copy before the next await."""
        self.decode_failures: Mapping[Key, DecodeFailed] = MappingProxyType(self._decode_failures)

    @property
    def version(self) -> str:
        """The newest version of a list, event or bookmark; empty before the first list."""
        return self._version

    @property
    def undecodable(self) -> Mapping[Key, str]:
        return {key: each.reason for key, each in self._decode_failures.items()}

    def forget(self) -> Generator[None, None, None]:
        """Hold nothing: what was held ends in steps. The version stays: it is no new beginning."""
        yield from emptied(self._objects, self._decode_failures)
        self.held_bytes = 0

    def replace(self, items: Iterable[Put[T] | Undecodable], version: str) -> list[Change[T]]:
        """Apply a whole list; return its changes, deletions first.

        Raises RegressedError if the list is older than what is held, GarbageError if it has no
        version; nothing is changed then.
        """
        steps = self.comparing(items, version)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: Replacement[T] = end.value
                self.take(found.version, found.changes)
                return found.changes

    def comparing(
        self, items: Iterable[Put[T] | Undecodable], version: str
    ) -> Generator[None, None, "Replacement[T]"]:
        """Compare a list with what is held, as `replace` does; yields between two pieces of the work.

        Nothing is changed before `take`, and nothing else may change the store until then.
        """
        if not version:
            raise GarbageError("a list without a resource version")
        self._refuse_older(version)
        objects: dict[Key, T] = {}
        failures: dict[Key, DecodeFailed] = {}
        for count, item in enumerate(items, 1):
            # Of an object that a list has twice the last one counts.
            if isinstance(item, Put):
                metadata = item.value.metadata
                key = metadata.namespace, metadata.name
                objects[key] = item.value
                if failures:
                    failures.pop(key, None)
            else:
                key = key_of(item.metadata)
                failures[key] = decode_failed(item)
                objects.pop(key, None)
            if count % _PIECE == 0:
                yield
        changes: list[Change[T]] = []
        for count, (key, old) in enumerate(self._objects.items(), 1):
            if key not in objects:
                changes.append(Deleted(key, old))
            if count % _PIECE == 0:
                yield
        is_first = not self._objects
        for count, (key, value) in enumerate(objects.items(), 1):
            if is_first:
                changes.append(Added(key, value))
            else:
                changes += difference(key, self._objects.get(key), value)
            if count % _PIECE == 0:
                yield
        changes += [each for key, each in failures.items() if self._decode_failures.get(key) != each]
        changes += [
            UndecodableDeleted(key)
            for key in self._decode_failures
            if key not in failures and key not in objects
        ]
        return Replacement(objects, failures, version, changes)

    def take_part(self, changes: Iterable[Change[T]]) -> None:
        """Take over some changes of a `Replacement`, in their order; the version stays until `take`."""
        for change in changes:
            match change:
                case Added(key, value) | Modified(key, _, value):
                    self._put(key, value)
                case Deleted(key):
                    self._pop(key)
                case DecodeFailed(key):
                    self._put_failure(key, change)
                case UndecodableDeleted(key):
                    self._pop_failure(key)

    def take(self, version: str, changes: Iterable[Change[T]]) -> None:
        """Take over the changes of a `Replacement` that are left: what is held is the whole list now.

        An object that is as it was stays the one that it is.
        """
        self.take_part(changes)
        self._version = version

    def apply(self, event: Put[T] | Removed | Undecodable | Bookmark) -> list[Change[T]]:
        """Take over one event. Raises RegressedError, and changes nothing then, if it is older."""
        match event:
            case Bookmark(version):
                self._advance(version)
                return []
            case Put(value):
                self._advance(value.metadata.resource_version)
                key = key_of(value.metadata)
                return difference(key, self._put(key, value), value)
            case Removed(metadata):
                self._advance(metadata.resource_version)
                key = key_of(metadata)
                if self._pop_failure(key) is not None:
                    return [UndecodableDeleted(key)]
                return self._drop(key)
            case Undecodable(metadata):
                self._advance(metadata.resource_version)
                key, failure = key_of(metadata), decode_failed(event)
                if self._decode_failures.get(key) == failure:
                    return []  # writing such an object again and again causes no work
                self._put_failure(key, failure)
                return [*self._drop(key), failure]

    def note_compressed(self, value: T, less_bytes: int) -> bool:
        """An object takes so much less than it did; returns whether it is held."""
        is_held = self._objects.get(key_of(value.metadata)) is value
        if is_held and self._size_of is not None:
            self.held_bytes -= less_bytes
        return is_held

    def _drop(self, key: Key) -> list[Change[T]]:
        old = self._pop(key)
        return [] if old is None else [Deleted(key, old)]

    # What is held changes here alone, and its bytes with it.

    def _put(self, key: Key, value: T) -> T | None:
        """Returns the object that was there."""
        old = self._objects.get(key)
        self._objects[key] = value
        if self._decode_failures:
            self._pop_failure(key)
        if self._size_of is not None:
            self.held_bytes += self._size_of(value) - (0 if old is None else self._size_of(old))
        return old

    def _pop(self, key: Key) -> T | None:
        old = self._objects.pop(key, None)
        if old is not None and self._size_of is not None:
            self.held_bytes -= self._size_of(old)
        return old

    def _put_failure(self, key: Key, failure: DecodeFailed) -> None:
        self._pop_failure(key)
        self._decode_failures[key] = failure
        if self._size_of is not None:
            self.held_bytes += self._size_of(failure)

    def _pop_failure(self, key: Key) -> DecodeFailed | None:
        old = self._decode_failures.pop(key, None)
        if old is not None and self._size_of is not None:
            self.held_bytes -= self._size_of(old)
        return old

    def _advance(self, version: str) -> None:
        self._refuse_older(version)
        self._version = version

    def _refuse_older(self, version: str) -> None:
        if is_older(version, self._version):
            raise RegressedError(self._version, version)


def decode_failed(item: Undecodable) -> DecodeFailed:
    """What is held in the place of such an object."""
    metadata = item.metadata
    return DecodeFailed(
        key_of(metadata), item.reason, metadata.uid, item.is_too_large, item.kept, item.size_bytes
    )


def difference(key: Key, old: T | None, new: T) -> list[Change[T]]:
    """The changes by an object that takes the place of another, or of none."""
    if old is None:
        return [Added(key, new)]
    if old.metadata.uid != new.metadata.uid:
        # Deleted and made anew while we were not looking: another object under the same name.
        return [Deleted(key, old), Added(key, new)]
    if old.metadata.resource_version == new.metadata.resource_version:
        return []
    return [Modified(key, old, new)]
