# SPDX-License-Identifier: Apache-2.0
"""What a source of tenants publishes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Key
from syncer.core.tenant_cluster import TenantCluster


@dataclass(frozen=True, slots=True)
class Reachable:
    """A tenant whose control plane runs, with the credentials for it.

    `virtual_cluster` is its object's namespace and name, None for a tenant of a directory.
    """

    cluster: TenantCluster
    access: Access
    virtual_cluster: Key | None = None


@dataclass(frozen=True, slots=True)
class Unusable:
    """A tenant that cannot be synced: (reason, message) as in a condition. No secret is in it."""

    key: str
    reason: str
    message: str
    virtual_cluster: Key | None = None


TenantState = Reachable | Unusable

IS_SUPER_CLUSTER = "the kubeconfig leads to the super cluster itself; give the tenant's own"
"""The message of a tenant that the syncer would copy into itself."""

UNUSABLE_REASONS = ("ClusterKeyRefused", "ClusterKeyTaken", "CredentialsUnusable", "VirtualClusterUnusable")
"""Every reason of an `Unusable`."""

PublishTenants = Callable[[Mapping[str, TenantState]], None]
"""Called with all tenants by source name: for a VirtualCluster `<namespace>/<name>/<uid>`."""
