# SPDX-License-Identifier: Apache-2.0
"""A tenant's control plane, as its VirtualCluster describes it. Pure."""

from dataclasses import dataclass

from tenancy import names


@dataclass(frozen=True, slots=True)
class TenantCluster:
    """Who a tenant is in the super cluster.

    `key` is its cluster key. `uid` is that of the VirtualCluster: another one is another tenant, also under
    the same name. The prefixes are those of its keys that go up (transparent) or neither way (opaque).
    `weight` is its share of the queue; `policy` names its SyncPolicy in `vc_namespace`. `release` is the
    token of the held deletions that a person has released, `restored` that of a restore: what the tenant
    lacks since is held until then.
    """

    key: str
    vc_namespace: str
    vc_name: str
    uid: str
    cluster_domain: str = ""
    transparent_prefixes: tuple[str, ...] = ()
    opaque_prefixes: tuple[str, ...] = ()
    weight: int = 1
    policy: str = "default"
    release: str = ""
    restored: str = ""

    def super_namespace(self, tenant_namespace: str) -> str | names.Refused:
        """The super namespace of one of its namespaces, or why it can have none."""
        return names.super_namespace(self.key, tenant_namespace)
