# SPDX-License-Identifier: Apache-2.0
"""What the engine needs of a kind. Pure."""

import enum
from typing import Protocol

from daemonkit.kube.resources import Key
from syncer.core.objects import Object, SyncedKind
from syncer.core.pair import Pair
from syncer.core.plan import Delete, Plan
from syncer.core.view import View

SYSTEM_NAMESPACE = "kube-system"


class Scope(enum.Enum):
    """Which super objects belong to a tenant's object.

    NAMESPACED: the one of the same name in the tenant's super namespace. PUBLISHED: the one of the same name
    in the whole cluster, whose label lets all tenants see it. CLAIMED: a cluster-scoped object whose
    `spec.claimRef.namespace` is a super namespace of the tenant. NAMESPACE: Namespaces themselves.
    SYSTEM: of a tenant's cluster-scoped object, the one in the super namespace of `SYSTEM_NAMESPACE`.
    """

    NAMESPACED = "namespaced"
    PUBLISHED = "published"
    CLAIMED = "claimed"
    NAMESPACE = "namespace"
    SYSTEM = "system"


class KindSync(Protocol):
    """How one kind is synced. Each module of `syncer.kinds` has one as `SYNC`; `table` lists them."""

    @property
    def kind(self) -> SyncedKind: ...
    @property
    def scope(self) -> Scope: ...
    @property
    def holds_changes(self) -> bool:
        """Whether a change of the super object waits while something that its plan looked up is unknown."""

    def super_name(self, name: str) -> str:
        """The name in the super cluster of the tenant's object of this name."""

    def tenant_name(self, super_name: str) -> str | None:
        """The inverse; None for names that no tenant's object has in the super cluster."""

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        """Plan one object. `objects` has the tenant's and the super cluster's: at least one of them is there.

        `key` is the tenant's (namespace, name). Neither object is changed.
        """

    def plan_unreadable(self, key: Key, found: Object, view: View) -> tuple[Delete, ...]:
        """The deletion of a super object, if the tenant's is there and cannot be read; else it stays.

        It goes if it may not be there whatever the tenant's is by now.
        """


class SameName:
    """For kinds whose objects have one name on both sides. They wait for what is unknown."""

    holds_changes = True

    def plan_unreadable(self, key: Key, found: Object, view: View) -> tuple[Delete, ...]:
        del key, found, view
        return ()

    def super_name(self, name: str) -> str:
        return name

    def tenant_name(self, super_name: str) -> str | None:
        return super_name
