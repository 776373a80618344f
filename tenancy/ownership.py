# SPDX-License-Identifier: Apache-2.0
"""Which super cluster pod a tenant means when it names a pod, and whether it is the tenant's.

Everything that answers "whose pod is this" lives here. The answer comes from what the syncer wrote
on the super pod (annotations, see `keys`), never from taking a name apart: the join of cluster key
and namespace is ambiguous (tenant `a` + namespace `b-c` is also tenant `a-b` + namespace `c`).
"""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owned:
    """One super pod and the tenant pod that it is the body of.

    `containers` are the names a tenant may reach: its own, init and ephemeral ones, never those
    that something in the super cluster injected.
    """

    tenant: str
    namespace: str
    name: str
    uid: str
    super_namespace: str
    super_name: str
    super_uid: str
    containers: frozenset[str]


class NotOwned(enum.Enum):
    """The two ways to have no pod for the caller.

    FOREIGN covers another tenant's pod, a host pod and no pod at all: a caller must not be able to
    tell these apart. UNKNOWN means that we cannot say (not synced, or too old): never a refusal.
    """

    FOREIGN = "foreign"
    UNKNOWN = "unknown"


FOREIGN = NotOwned.FOREIGN
UNKNOWN = NotOwned.UNKNOWN

Verdict = Owned | NotOwned


class OwnerIndex:
    """An immutable picture of this node's tenant pods at one moment.

    Two super pods that claim the same tenant pod cannot be told apart: neither is served, and both
    are listed in `ambiguous` so that the edge can say so loudly.
    """

    __slots__ = ("_by_super", "_by_tenant", "_synced", "ambiguous")

    def __init__(self, pods: Iterable[Owned], *, is_synced: bool = True) -> None:
        by_tenant: dict[str, dict[tuple[str, str], Owned]] = {}
        clashes: dict[tuple[str, str, str], list[Owned]] = {}
        for pod in pods:
            mine = by_tenant.setdefault(pod.tenant, {})
            first = mine.setdefault((pod.namespace, pod.name), pod)
            if first is not pod:
                clashes.setdefault((pod.tenant, pod.namespace, pod.name), [first]).append(pod)
        for tenant, namespace, name in clashes:
            del by_tenant[tenant][namespace, name]
        self.ambiguous: tuple[Owned, ...] = tuple(p for group in clashes.values() for p in group)
        self._by_tenant = by_tenant
        self._by_super = {
            (p.super_namespace, p.super_name): p for mine in by_tenant.values() for p in mine.values()
        }
        self._synced = is_synced

    @classmethod
    def unsynced(cls) -> "OwnerIndex":
        """The index of a daemon that has not heard from its source yet: it knows nothing."""
        return cls((), is_synced=False)

    @property
    def is_synced(self) -> bool:
        return self._synced

    def lookup(self, tenant: str, namespace: str, pod: str) -> Verdict:
        """Answer for one tenant's name of a pod: `Owned`, `FOREIGN`, or `UNKNOWN` before the sync."""
        if not self._synced:
            return UNKNOWN
        mine = self._by_tenant.get(tenant)
        if mine is None:
            return FOREIGN
        return mine.get((namespace, pod), FOREIGN)

    def by_super_name(self, super_namespace: str, super_name: str) -> Owned | None:
        """The tenant pod behind a name that the kubelet uses, for rebuilding its pages."""
        return self._by_super.get((super_namespace, super_name))

    def pods_of(self, tenant: str) -> tuple[Owned, ...]:
        return tuple(self._by_tenant.get(tenant, {}).values())

    def __iter__(self) -> Iterator[Owned]:
        return iter(self._by_super.values())

    def __len__(self) -> int:
        return len(self._by_super)
