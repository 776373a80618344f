# SPDX-License-Identifier: Apache-2.0
"""The addresses that the pods of each super namespace hold. Two pods in their node's network share one."""

from collections import Counter
from collections.abc import Collection

from daemonkit.kube.resources import Key
from daemonkit.kube.store import Added, Deleted, Modified
from syncer.caches.cached_object import CachedObject

# Pairs of a tenant and an address, of all tenants. Who asks beyond hears of all addresses.
MAX_FOLLOWED = 20_000


class AddressListeners:
    """Which tenants listen to an address, by their cluster keys. None stops: who asked may ask again."""

    def __init__(self, most: int = MAX_FOLLOWED) -> None:
        self._most = most
        self._count = 0
        self._of: dict[str, set[str]] = {}
        self._of_all: set[str] = set()

    def follow(self, key: str, address: str) -> None:
        """Have a tenant listen to this address from now on."""
        found = self._of.get(address)
        if (found is not None and key in found) or key in self._of_all:
            return
        if self._count >= self._most:
            self._of_all.add(key)
            return
        self._count += 1
        self._of.setdefault(address, set()).add(key)

    def of(self, address: str) -> Collection[str]:
        """Who listens to an address."""
        found = self._of.get(address, set())
        return found | self._of_all if self._of_all else found


class PodAddresses:
    """Kept with each change of a pod. One that cannot be read any more keeps what it had: it may run."""

    def __init__(self) -> None:
        self._unreadable: dict[Key, tuple[str, ...]] = {}
        self._of: dict[str, Counter[str]] = {}
        # Nearly always it is one.
        self._holders: dict[str, tuple[str, ...]] = {}

    def of(self, super_namespace: str) -> Collection[str]:
        """Those of one super namespace. Read only: they are shared."""
        return self._of.get(super_namespace, {}).keys()

    def holders(self, address: str) -> tuple[str, ...]:
        """The super namespaces whose pods have an address."""
        return self._holders.get(address, ())

    def changed(
        self,
        change: Added[CachedObject] | Modified[CachedObject] | Deleted[CachedObject],
        *,
        is_unreadable: bool = False,
    ) -> Collection[str]:
        """A pod came, changed or went. Returns the addresses that its super namespace gained or lost.

        `is_unreadable`: it is there, and what it is now is not known.
        """
        if isinstance(change, Deleted):
            if not is_unreadable:
                return self._move(change.key[0], change.old.addresses, ())
            if change.old.addresses:
                self._unreadable[change.key] = change.old.addresses
            return ()
        before = self._unreadable.pop(change.key, ()) if isinstance(change, Added) else change.old.addresses
        return self._move(change.key[0], before, change.value.addresses)

    def unreadable_deleted(self, key: Key) -> Collection[str]:
        """A pod went that could not be read. Returns what its super namespace lost."""
        return self._move(key[0], self._unreadable.pop(key, ()), ())

    def _move(self, namespace: str, before: tuple[str, ...], after: tuple[str, ...]) -> Collection[str]:
        if before == after:
            return ()
        moved: list[str] = []
        found = self._of.get(namespace)
        if found is None:
            found = self._of[namespace] = Counter()
        for address in after:
            found[address] += 1
            if found[address] == 1:
                self._holders[address] = (*self.holders(address), namespace)
                moved.append(address)
        for address in before:
            found[address] -= 1
            if not found[address]:
                del found[address]
                self._end(address, namespace)
                moved.append(address)
        if not found:
            del self._of[namespace]
        return moved

    def _end(self, address: str, namespace: str) -> None:
        left = tuple(each for each in self._holders[address] if each != namespace)
        if left:
            self._holders[address] = left
        else:
            del self._holders[address]
