# SPDX-License-Identifier: Apache-2.0
"""How much one tenant may have in the super cluster, by the names of Kubernetes' object count quota. Pure.

All tenants share the super cluster's etcd, and each watches what all have. So these limits hold without a
SyncPolicy, too; `spec.quota.hard` replaces each by its name.
"""

from collections.abc import Mapping
from types import MappingProxyType

from daemonkit.kube.resources import Resource
from syncer.policy import quantity

STORED_BYTES = "vcnode.io/stored-bytes"
"""The JSON of all that one tenant has in the super cluster, but for Events, which end by themselves."""

# etcd takes 2 GiB by default (https://etcd.io/docs/v3.6/dev-guide/limit/).
_STORED_BYTES = 128 << 20
_OF_OTHERS = 2_000
"""Of each custom resource."""

# Kubernetes is tested up to 10 000 namespaces, 10 000 Services and 150 000 pods in a cluster
# (https://git.k8s.io/community/sig-scalability/configs-and-limits/thresholds.md), which tenants share.
_COUNTS: Mapping[str, int] = MappingProxyType(
    {
        "namespaces": 200,
        "configmaps": 5_000,
        "endpoints": 2_000,
        "persistentvolumeclaims": 2_000,
        "pods": 10_000,
        "secrets": 5_000,
        "serviceaccounts": 2_000,
        "services": 2_000,
        "endpointslices.discovery.k8s.io": 4_000,
        "ingresses.networking.k8s.io": 1_000,
        "networkpolicies.networking.k8s.io": 1_000,
        "networks.arktos.futurewei.com": 100,
        "poddisruptionbudgets.policy": 1_000,
    }
)
COUNT_PREFIX = "count/"
DEFAULTS: Mapping[str, int] = MappingProxyType(
    {COUNT_PREFIX + name: count * quantity.UNIT for name, count in _COUNTS.items()}
    | {STORED_BYTES: _STORED_BYTES * quantity.UNIT}
)
"""In billionths, by name."""

# A ResourceQuota knows these without the prefix as well. `pods` is another: it leaves out those that ended.
_SAME = MappingProxyType(
    {name: COUNT_PREFIX + name for name in ("configmaps", "persistentvolumeclaims", "secrets", "services")}
)
CORE_COUNTS = frozenset(COUNT_PREFIX + name for name in _COUNTS if "." not in name)


def count_name(resource: Resource) -> str:
    """The name of a resource's object count quota, as `count/ingresses.networking.k8s.io`."""
    return f"{COUNT_PREFIX}{resource}"


def in_force(quota: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """The limits of a tenant whose policy has this quota, in billionths."""
    found = dict(DEFAULTS)
    own = dict(quota)
    found.update(own)
    for short, full in _SAME.items():
        if short in own:
            # Both names are the same count: the smaller limit holds.
            found[full] = min(own[short], own.get(full, own[short]))
            del found[short]
    return found


def limit_of(limits: Mapping[str, int], name: str) -> int | None:
    """The limit of a name; custom resources that are not named have one, too."""
    found = limits.get(name)
    if found is None and name.startswith(COUNT_PREFIX):
        return _OF_OTHERS * quantity.UNIT
    return found
