# SPDX-License-Identifier: Apache-2.0
"""What the caches of the super cluster report."""

from typing import NamedTuple

from syncer.caches.cached_object import CachedObject
from tenancy.super_namespaces import SuperNamespaceOwner

NODE = "Node"
EVENT = "Event"
API_SERVER = "APIServer"
"""As the kind of a change: Services or Endpoints of the namespace that a control plane runs in."""
CLUSTER_NETWORKS = "ClusterNetworks"
"""As the kind of a change: what the super cluster is known to have itself."""
POD_ADDRESS = "PodAddress"
"""As the kind of a change: a pod of a tenant has an address, which is the name, or has it no more."""
DRAIN = "Drain"
"""As the kind of a change: how long a node that runs pods of a super namespace has been cordoned."""


class SuperChange(NamedTuple):
    """A super object of a tenant changed: `namespace` and `name` are the tenant's.

    Without a `key` it concerns all tenants: a published object, or a Node. `version` is what it became with
    this change, while the caches have all that came in one piece with it. It is empty if it is gone or cannot
    be read, or if changes may have been left out while its super namespace had no owner. `value` is what a
    namespaced super object is, or last was; None if it was never readable. `owner` is that of its super
    namespace. It is None for a Namespace: who has the key waits for one of an earlier tenant to go.
    """

    kind: str
    key: str | None
    namespace: str
    name: str
    version: str = ""
    is_deleted: bool = False
    is_relisting: bool = False
    value: CachedObject | None = None
    owner: SuperNamespaceOwner | None = None

    @property
    def item(self) -> tuple[str, str, str]:
        return self.kind, self.namespace, self.name
