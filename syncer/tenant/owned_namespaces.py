# SPDX-License-Identifier: Apache-2.0
"""Which super namespaces are one tenant's: asked for each look into one, and before each write."""

from collections.abc import Callable, Collection
from typing import Protocol

from syncer.caches.super_cluster import SuperCaches
from syncer.core.tenant_cluster import TenantCluster
from tenancy import names
from tenancy.super_namespaces import SuperNamespaceOwner

NAMESPACE = "Namespace"
# Names of super namespaces that are remembered: a tenant may make and delete Namespaces without end.
MAX_NAMES = 10_000


class HasTenant(Protocol):
    """Who knows the tenant as it is now."""

    @property
    def tenant(self) -> TenantCluster: ...


class OwnedNamespaces:
    """What the annotations of super namespaces say now; nothing of it is remembered but names.

    `keys` gives the cluster keys of all tenants, of all replicas.
    """

    def __init__(
        self, of: HasTenant, super_cluster: SuperCaches, keys: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._of = of
        self._owner_of = super_cluster.owners.by_namespace
        self._keys = keys
        self._super_names: dict[str, str | None] = {}

    def super_name(self, namespace: str) -> str | None:
        """The name that the super namespace of a tenant's namespace has or would have."""
        try:
            return self._super_names[namespace]
        except KeyError:
            if len(self._super_names) >= MAX_NAMES:
                self._super_names.clear()
            found = self._of.tenant.super_namespace(namespace)
            name = self._super_names[namespace] = found if isinstance(found, str) else None
            return name

    def is_reserved_name(self, super_namespace: str) -> bool:
        """Whether the name of a super namespace is another tenant's, by all tenants' keys."""
        return names.is_reserved_name(super_namespace, self._of.tenant.key, self._keys())

    def owned(self, namespace: str) -> str | None:
        """The super namespace that stands for a tenant's, if it exists and is this tenant's."""
        name = self.super_name(namespace)
        if name is None:
            return None
        owner = self.owner(name)
        return name if owner is not None and owner.namespace == namespace else None

    def owns(self, super_namespace: str) -> bool:
        """Whether a super namespace is this tenant's now."""
        return self.owner(super_namespace) is not None

    def owner(self, super_namespace: str) -> SuperNamespaceOwner | None:
        """For which namespace of this tenant a super namespace stands; None if it is not this tenant's."""
        found = self._owner_of.get(super_namespace)
        if not isinstance(found, SuperNamespaceOwner):
            return None
        tenant = self._of.tenant
        return found if found.is_of(tenant.key, tenant.uid) else None
