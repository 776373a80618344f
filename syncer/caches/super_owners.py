# SPDX-License-Identifier: Apache-2.0
"""Whose each super namespace is by its annotations, and whose one was that went before what is in it."""

from collections.abc import Callable, Mapping, Set

from tenancy import names
from tenancy.super_names import SuperNames
from tenancy.super_namespaces import SuperNamespaceOwner

_Owner = SuperNamespaceOwner | names.Refused


class SuperOwners:
    """Kept with each change of a Namespace.

    `has_objects` says whether objects of a super namespace are cached.
    """

    def __init__(self, has_objects: Callable[[str], bool]) -> None:
        self._has_objects = has_objects
        self._of: dict[str, _Owner] = {}
        self._last: dict[str, SuperNamespaceOwner] = {}
        # Of each tenant's key its super namespaces: they are found without looking at what all others have.
        self._owned: dict[str, dict[str, SuperNamespaceOwner]] = {}
        self.names = SuperNames()
        self.changes = 0
        """How often a super namespace may have become another's."""
        self.by_namespace: Mapping[str, _Owner] = self._of
        """Without the super cluster's own. Read only."""
        self.last: Mapping[str, SuperNamespaceOwner] = self._last
        """Of those that are gone, as long as objects of them are cached: their ends may be seen later."""

    def of_key(self, key: str) -> list[tuple[str, SuperNamespaceOwner]]:
        """The super namespaces with this cluster key in their annotations."""
        return list(self._owned.get(key, {}).items())

    def or_last(self, super_namespace: str) -> _Owner | None:
        """Whose a super namespace is, or was if it went before objects that are cached still."""
        return self._of.get(super_namespace) or self._last.get(super_namespace)

    def key(self, super_namespace: str) -> str | None:
        """The cluster key of the tenant that a super namespace is of."""
        owner = self._of.get(super_namespace)
        return owner.key if isinstance(owner, SuperNamespaceOwner) else None

    def key_or_last(self, super_namespace: str) -> str | None:
        """As `key`, also if the end of the super namespace has been seen before that of what is in it."""
        owner = self.or_last(super_namespace)
        return owner.key if isinstance(owner, SuperNamespaceOwner) else None

    def set(self, super_namespace: str, owner: _Owner | None) -> None:
        """A super namespace has another owner; None if it has none, or was deleted."""
        self.changes += 1
        before = self._of.pop(super_namespace, None)
        if isinstance(before, SuperNamespaceOwner):
            self.names.remove(super_namespace, before.key)
            del self._owned[before.key][super_namespace]
            if not self._owned[before.key]:
                del self._owned[before.key]
            if owner is None and self._has_objects(super_namespace):
                self._last[super_namespace] = before
        if owner is not None:
            self._of[super_namespace] = owner
            self._last.pop(super_namespace, None)
        if isinstance(owner, SuperNamespaceOwner):
            self.names.add(super_namespace, owner.key, owner.namespace)
            self._owned.setdefault(owner.key, {})[super_namespace] = owner

    def objects_changed(self, super_namespaces: Set[str]) -> None:
        """Objects of these changed: of what is gone, one without any is forgotten."""
        for namespace in super_namespaces & self._last.keys():
            if not self._has_objects(namespace):
                del self._last[namespace]
