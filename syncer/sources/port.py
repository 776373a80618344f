# SPDX-License-Identifier: Apache-2.0
"""What a source of tenants publishes."""

from collections.abc import Callable, Mapping

import msgspec

from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Key
from syncer.core.tenant_cluster import TenantCluster
from tenancy import names


class Reachable(msgspec.Struct, frozen=True):
    """A tenant whose control plane runs, with the credentials for it.

    `virtual_cluster` is its object's namespace and name, None for a tenant of a directory. `available_since`:
    when its control plane began to serve, as its condition has it; empty while it does not, and where no
    condition has it.
    """

    cluster: TenantCluster
    access: Access
    virtual_cluster: Key | None = None
    available_since: str = ""


class Unusable(msgspec.Struct, frozen=True):
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


def keys_of(tenants: Mapping[str, TenantState]) -> frozenset[str]:
    """The cluster keys of tenants, also of those that cannot be synced."""
    return frozenset(filter(None, map(_key_of, tenants.values())))


def without_overlaps(tenants: Mapping[str, TenantState]) -> Mapping[str, TenantState]:
    """The tenants, but that one of a directory whose key begins with another's and a hyphen is unusable.

    Each replica decides so by all keys, whichever tenants it holds. Keys of VirtualClusters are made of names
    that people choose freely, `acme` and `acme-test`: there the tenant of the shorter key makes no namespace
    whose super name begins with the longer one.
    """
    overlapping = names.overlapping(_key_of(each) for each in tenants.values() if _is_of_directory(each))
    if not overlapping:
        return tenants
    return {
        source: overlap_of(state)
        if isinstance(state, Reachable) and _is_of_directory(state) and state.cluster.key in overlapping
        else state
        for source, state in tenants.items()
    }


def overlap_of(state: Reachable) -> Unusable:
    """The problem of a tenant whose namespaces could have the names of another's."""
    return Unusable(
        state.cluster.key, "ClusterKeyTaken", overlap_message(state.cluster.key), state.virtual_cluster
    )


def overlap_message(key: str) -> str:
    """Why a key is refused. It names no other tenant."""
    return (
        f"cluster key {key} and that of another tenant begin alike, up to a hyphen: namespaces of both "
        "could have one name in the super cluster; give this one a key of its own"
    )


def _is_of_directory(state: TenantState) -> bool:
    return state.virtual_cluster is None


def _key_of(state: TenantState) -> str:
    return state.cluster.key if isinstance(state, Reachable) else state.key
