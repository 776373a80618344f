# SPDX-License-Identifier: Apache-2.0
"""The quota of a whole tenant. Pure.

A ResourceQuota holds for one namespace, and a tenant has any number of them. So the syncer keeps the sum of
what went down for a tenant (TenantUsage), and sends down nothing that would exceed it. Besides, each super
namespace gets a ResourceQuota of the tenant's limits: it holds one namespace while no syncer runs.
"""

from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.core.tenant_cluster import TenantCluster
from syncer.policy import quantity
from syncer.policy.refusal_list import RefusalList
from syncer.policy.sync_policy import SyncPolicy
from syncer.policy.usage import NOTHING_USED, Usage
from tenancy import keys

QUOTA_NAME = "vcnode-tenant-quota"

# Names that a quota of Kubernetes makes every container state.
_STATED = {f"{side}.{name}": (side, name) for side in ("requests", "limits") for name in ("cpu", "memory")}
# The syncer makes such objects of its own in super namespaces, which the tenant must not pay for.
_COUNTED_BY_SYNCER = frozenset({"configmaps", "secrets", "services"})


def resource_quota(policy: SyncPolicy, super_namespace: str, tenant: TenantCluster) -> Object | None:
    """The ResourceQuota of one super namespace; None without limits that it could hold."""
    hard = {name: quantity.text(limit) for name, limit in policy.quota if name not in _COUNTED_BY_SYNCER}
    if not hard:
        return None
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": QUOTA_NAME,
            "namespace": super_namespace,
            "labels": {keys.VC_NAME: tenant.vc_name, keys.VC_NAMESPACE: tenant.vc_namespace},
            "annotations": {
                keys.CLUSTER: tenant.key,
                keys.VC_NAME: tenant.vc_name,
                keys.VC_NAMESPACE: tenant.vc_namespace,
            },
        },
        "spec": {"hard": hard},
    }


def refusals(pod: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What each container must state, so that the quota can count it: as with quotas of Kubernetes."""
    stated = [(name, _STATED[name]) for name, _ in policy.quota if name in _STATED]
    if not stated:
        return ()
    found = RefusalList()
    spec = found.fields("spec", pod.get("spec"))
    of_pod = _resources(spec)
    for list_name in ("containers", "initContainers"):
        for index, each in enumerate(found.items(f"spec.{list_name}", spec.get(list_name))):
            path = f"spec.{list_name}[{index}]"
            of_container = _resources(found.fields(path, each))
            for name, (side, resource) in stated:
                if _lacks(of_pod, side, resource) and _lacks(of_container, side, resource):
                    found.add(f"{path}.resources.{side}.{resource}", "is not set", f"quota.hard[{name}]")
    return found.done()


def _resources(value: Any) -> Object:
    resources = value.get("resources")
    return resources if type(resources) is dict else {}


def _lacks(resources: Object, side: str, name: str) -> bool:
    amounts = resources.get(side)
    return type(amounts) is not dict or name not in amounts


class TenantUsage:
    """The sum of what one tenant's objects use in the super cluster, each under a key of the caller's."""

    def __init__(self) -> None:
        self._objects: dict[object, Usage] = {}
        self._total: dict[str, int] = {}

    def try_add(self, key: object, usage: Usage, policy: SyncPolicy) -> Refusal | None:
        """Count an object that is about to go down, or the limit that it would exceed.

        An object that is counted already takes its new usage. It may also shrink above the limit.
        """
        before = self._objects.get(key, NOTHING_USED)
        for name, limit in policy.quota:
            more = usage.get(name, 0) - before.get(name, 0)
            used = self._total.get(name, 0)
            if more > 0 and used + more > limit:
                return Refusal(
                    "spec",
                    f"exceeds the tenant's quota: {name} {quantity.text(more)} more, "
                    f"used {quantity.text(used)} of {quantity.text(limit)} "
                    f"(SyncPolicy field spec.quota.hard[{name}])",
                )
        self.count(key, usage)
        return None

    def count(self, key: object, usage: Usage) -> None:
        """Count an object that is in the super cluster, whatever the limits."""
        self.remove(key)
        counted = {name: amount for name, amount in usage.items() if amount}
        if not counted:
            return
        self._objects[key] = counted
        for name, amount in counted.items():
            self._total[name] = self._total.get(name, 0) + amount

    def remove(self, key: object) -> None:
        """Count an object no more. One that was not counted changes nothing."""
        for name, amount in self._objects.pop(key, NOTHING_USED).items():
            self._total[name] -= amount
            if not self._total[name]:
                del self._total[name]

    def total(self) -> Usage:
        """A copy, of what is not zero."""
        return dict(self._total)
