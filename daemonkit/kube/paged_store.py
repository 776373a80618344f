# SPDX-License-Identifier: Apache-2.0
"""A store that takes the pages of a list as they come: nothing holds the whole list.

While a list is read, what is held is partly as it was before, as between two events of a watch. What the
list lacks is deleted at its end. A list that ends early leaves what it brought, which is newer than what was
there.
"""

import abc
from collections.abc import Generator, Iterable, Sequence

from daemonkit.kube.resources import Key
from daemonkit.kube.store import (
    Change,
    Deleted,
    Replacement,
    Store,
    T,
    UndecodableDeleted,
    decode_failed,
    difference,
    key_of,
)
from daemonkit.kube.watch import GarbageError, Put, Undecodable


class PagedStore(Store[T], abc.ABC):
    """The daemon decides how objects are held: a subclass has `_put`, `_pop` and `objects`, and what is named
    here."""

    def begin_list(self, version: str) -> None:
        """The first page of a list of this version has come. Raises RegressedError and GarbageError."""
        if not version:
            raise GarbageError("a list without a resource version")
        self._refuse_older(version)
        self._listed_failures: set[Key] = set()
        self._begin()

    def take_page(self, items: Iterable[Put[T] | Undecodable]) -> list[Change[T]]:
        """Take over what a page has."""
        changes: list[Change[T]] = []
        for item in items:
            if isinstance(item, Put):
                key = key_of(item.value.metadata)
                self._note(key)
                changes += difference(key, self._put(key, item.value), item.value)
                continue
            failure = decode_failed(item)
            self._listed_failures.add(failure.key)
            if self._decode_failures.get(failure.key) != failure:
                self._put_failure(failure.key, failure)
                changes += [*self._drop(failure.key), failure]
        return changes

    def comparing(
        self, items: Iterable[Put[T] | Undecodable], version: str
    ) -> Generator[None, None, Replacement[T]]:
        """Delete what the list lacks, after its last page."""
        changes = self.take_page(items)
        changes += yield from self._missing()
        gone = self._decode_failures.keys() - self._listed_failures
        changes += [UndecodableDeleted(key) for key in gone]
        return Replacement({}, {}, version, changes)

    @abc.abstractmethod
    def _begin(self) -> None:
        """Forget which objects were noted."""

    @abc.abstractmethod
    def _note(self, key: Key) -> None:
        """A list has this object."""

    @abc.abstractmethod
    def _missing(self) -> Generator[None, None, Sequence[Deleted[T]]]:
        """Those that are held and were not noted; yields between two pieces of the work."""
