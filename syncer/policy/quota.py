# SPDX-License-Identifier: Apache-2.0
"""The quota of a whole tenant. Pure."""

from syncer.core.objects import Object
from syncer.core.tenant_cluster import TenantCluster
from syncer.policy.sync_policy import SyncPolicy


def resource_quota(policy: SyncPolicy, super_namespace: str, tenant: TenantCluster) -> Object | None:
    """The ResourceQuota of one super namespace; None without limits."""
    raise NotImplementedError
