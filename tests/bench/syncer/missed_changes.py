# SPDX-License-Identifier: Apache-2.0
"""Changes on both sides while no syncer runs, which the next one has to repair."""

from collections.abc import Sequence
from dataclasses import dataclass

from daemonkit.kube.resources import PODS
from tests.bench.syncer.clients import merge, remove
from tests.bench.syncer.clusters import BenchClusters, BenchTenant
from tests.bench.syncer.fake_node import STARTED_AT
from tests.bench.syncer.loader import NAMESPACE
from tests.bench.syncer.observer import Observer

# Pods of each kind of change.
_EACH = 20

_PodOfTenant = tuple[BenchTenant, str]


@dataclass(frozen=True, slots=True)
class MissedChanges:
    """Pods that were deleted in their tenants, changed in the super cluster, and deleted there."""

    observer: Observer
    deleted: Sequence[_PodOfTenant]
    changed: Sequence[_PodOfTenant]
    evicted: Sequence[_PodOfTenant]
    restarts: int
    """Of the changed pods' container."""

    def are_repaired(self) -> bool:
        """Whether the other side has each change."""
        return (
            not any(self.observer.in_super(tenant.namespace, name) for tenant, name in self.deleted)
            and not any(self.observer.in_tenant(tenant.key, name) for tenant, name in self.evicted)
            and all(
                (found := self.observer.in_tenant(tenant.key, name)) is not None
                and found.restarts == self.restarts
                for tenant, name in self.changed
            )
        )


async def make(clusters: BenchClusters, restarts: int = 7) -> MissedChanges:
    """Change pods of all tenants. `restarts` differs from that of changes which were made before."""
    names = [(tenant, name) for tenant in clusters.tenants for name in _some_pods(clusters, tenant)]
    each = min(_EACH, len(names) // 3)
    deleted, changed, evicted = names[:each], names[each : 2 * each], names[2 * each : 3 * each]
    for tenant, name in deleted:
        await remove(tenant.client, PODS.path(NAMESPACE, name))
    for tenant, name in changed:
        path = f"{PODS.path(tenant.namespace, name)}/status"
        await merge(clusters.super_client, path, {"status": _restarted_status(restarts)})
    for tenant, name in evicted:
        await remove(clusters.super_client, PODS.path(tenant.namespace, name))
    return MissedChanges(clusters.observer, deleted, changed, evicted, restarts)


def _some_pods(clusters: BenchClusters, tenant: BenchTenant) -> list[str]:
    """Pods of a tenant that run on both sides."""
    wanted = 3 * _EACH // len(clusters.tenants) + 1
    found = (
        name
        for (_, name), pod in list(clusters.observer.tenant_pods[tenant.key].objects.items())
        if pod.status.phase == "Running" and clusters.observer.in_super(tenant.namespace, name)
    )
    return [name for name, _ in zip(found, range(wanted), strict=False)]


def _restarted_status(restarts: int) -> dict[str, object]:
    """A merge patch of a status whose container was restarted."""
    container = {
        "name": "main",
        "image": "registry.test/app:1",
        "imageID": "registry.test/app:1",
        "ready": True,
        "started": True,
        "restartCount": restarts,
        "state": {"running": {"startedAt": STARTED_AT}},
    }
    return {"containerStatuses": [container]}
