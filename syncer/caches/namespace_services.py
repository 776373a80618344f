# SPDX-License-Identifier: Apache-2.0
"""The Services of each super namespace, decoded: variables of pods are made of them, and addresses read."""

from collections.abc import Callable, Mapping

from daemonkit.kube.resources import Key
from syncer.caches.cached_object import CachedObject
from syncer.core.objects import Object

# Of one namespace, for the variables of its pods: these are read in about 5 ms.
MAX_SERVICES = 1_000
MAX_SERVICES_BYTES = 1 << 20


class NamespaceServices:
    """`cached` gives all that are cached, by (super namespace, name)."""

    def __init__(self, cached: Callable[[], Mapping[Key, CachedObject]]) -> None:
        self._cached = cached
        self._names: dict[str, set[str]] = {}
        self._decoded: dict[str, tuple[Object, ...]] = {}

    def of(self, super_namespace: str) -> tuple[Object, ...]:
        """In order of their names. Read only: they are shared.

        None if they are too many or too large: they are decoded in one step, after each change of one.
        """
        found = self._decoded.get(super_namespace)
        if found is None:
            cached = self._cached()
            ordered = sorted(self._names.get(super_namespace, ()))
            own = [cached[super_namespace, name] for name in ordered]
            is_much = len(own) > MAX_SERVICES or sum(each.size_bytes for each in own) > MAX_SERVICES_BYTES
            found = () if is_much else tuple(each.load() for each in own)
            self._decoded[super_namespace] = found
        return found

    def changed(self, super_namespace: str, name: str, *, is_there: bool) -> None:
        """One changed. `is_there`: as an object that is cached; one that cannot be read is not."""
        found = self._names.setdefault(super_namespace, set())
        (found.add if is_there else found.discard)(name)
        if not found:
            del self._names[super_namespace]
        self._decoded.pop(super_namespace, None)
