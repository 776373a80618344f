# SPDX-License-Identifier: Apache-2.0
"""Which tenants' kube-system was deleted, and whether a watch event or only a relist reports that. Pure.

A Namespace that exists and cannot be read is not deleted. What an event has reported stays confirmed until
the tenant has a kube-system again.
"""

from collections.abc import Collection, Sequence

from daemonkit.kube.store import Change, DecodeFailed, Deleted, UndecodableDeleted
from dnsconfig.cluster.objects import NamespaceObject
from dnsconfig.cluster.state import Absence, is_kube_system
from tenancy import keys

# More than a super cluster loses while a node's pods still use one: the oldest is dropped then.
MAX_REMEMBERED = 4_096


class RemovedKubeSystems:
    """By name of the super cluster: the tenant, and how its kube-system went."""

    def __init__(self) -> None:
        self._removed: dict[str, tuple[str, Absence]] = {}
        self._undecodable: dict[str, str] = {}  # exist and were a tenant's when they were read last

    @property
    def absences(self) -> dict[str, Absence]:
        """By tenant."""
        return dict(self._removed.values())

    def apply(
        self, changes: Sequence[Change[NamespaceObject]], *, by_relist: bool, present: Collection[str]
    ) -> None:
        """Add the changes of one event or relist. `present` are the tenants that have a kube-system."""
        absence = Absence.UNCONFIRMED if by_relist else Absence.CONFIRMED
        for change in changes:
            name = change.key[1]
            if isinstance(change, Deleted):
                if is_kube_system(change.old):
                    self._removed[name] = change.old.metadata.annotations.get(keys.CLUSTER, ""), absence
            elif isinstance(change, DecodeFailed):
                # A `Deleted` came before, but the Namespace exists.
                if (removed := self._removed.pop(name, None)) is not None:
                    self._undecodable[name] = removed[0]
            elif (tenant := self._undecodable.pop(name, None)) is not None and isinstance(
                change, UndecodableDeleted
            ):
                self._removed[name] = tenant, absence
        self._removed = {name: each for name, each in self._removed.items() if each[0] not in present}
        while len(self._removed) > MAX_REMEMBERED:
            del self._removed[next(iter(self._removed))]
