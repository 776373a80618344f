# SPDX-License-Identifier: Apache-2.0
"""The controllers and kubelets of a fake cluster's Deployments and StatefulSets, without Pod objects.

Their statuses follow their specs. `scale` is the kubelet: it is given a workload with the replicas that it
should have, 0 once it is deleted, and returns how many are ready. Without it all are, at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from daemonkit.kube.resources import Resource
from devkit.kube.cluster import Cluster
from devkit.kube.storage import Object, Selection, StatusError, copied

DEPLOYMENTS = Resource("apps", "v1", "deployments")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims")

Scale = Callable[[Object, int], Awaitable[int]]
# A workload that is not ready is looked at again.
_RETRY_S = 0.1


async def scale_at_once(_: Object, replicas: int) -> int:
    """All replicas run."""
    return replicas


class FakeWorkloads:
    """`run` until it is cancelled, in the loop of the cluster's server."""

    def __init__(self, cluster: Cluster, scale: Scale = scale_at_once) -> None:
        self._cluster = cluster
        self._scale = scale
        self._changed = asyncio.Event()
        self._seen: dict[Resource, int] = {}
        self._behind: set[tuple[Resource, str, str]] = set()
        cluster.storage.on_write.append(self._note)

    async def run(self) -> None:
        """Keep the statuses of all workloads up, those that are there already too."""
        for resource in (DEPLOYMENTS, STATEFUL_SETS):
            await self._list(resource)
        while True:
            self._changed.clear()
            for resource in (DEPLOYMENTS, STATEFUL_SETS):
                await self._follow(resource)
            await self._look_again()
            try:
                async with asyncio.timeout(_RETRY_S if self._behind else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _note(self, resource: Resource | None) -> None:
        if resource in (None, DEPLOYMENTS, STATEFUL_SETS):
            self._changed.set()

    async def _list(self, resource: Resource) -> None:
        self._seen[resource] = self._cluster.storage.revision
        for each in self._cluster.storage.select(Selection(resource)):
            await self._keep(resource, each)

    async def _follow(self, resource: Resource) -> None:
        storage = self._cluster.storage
        try:
            events = storage.events(Selection(resource), self._seen[resource])
        except StatusError:
            await self._list(resource)  # the history is compacted
            return
        self._seen[resource] = storage.revision
        # The last state of each counts.
        for kind, value in {_key(value): (kind, value) for kind, value in events}.values():
            if kind == "DELETED":
                self._behind.discard((resource, *_key(value)))
                await self._scale(value, 0)
            else:
                await self._keep(resource, value)

    async def _look_again(self) -> None:
        for resource, namespace, name in sorted(self._behind, key=str):
            found = self._cluster.storage.peek(resource, namespace, name)
            if found is None:
                self._behind.discard((resource, namespace, name))
            else:
                await self._keep(resource, found)

    async def _keep(self, resource: Resource, workload: Object) -> None:
        namespace, name = _key(workload)
        wanted = int(workload["spec"].get("replicas", 1))
        self._claim_volumes(workload, wanted)
        ready = await self._scale(workload, wanted)
        if ready < wanted:
            self._behind.add((resource, namespace, name))
        else:
            self._behind.discard((resource, namespace, name))
        found = self._cluster.storage.peek(resource, namespace, name)
        if found is None:
            return  # deleted meanwhile: its event is still to come
        status: Object = {
            "observedGeneration": workload["metadata"].get("generation", 1),
            "replicas": wanted,
            "updatedReplicas": wanted,
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        if found.get("status") != status:
            self._cluster.update(resource, copied(found) | {"status": status}, "status")

    def _claim_volumes(self, workload: Object, replicas: int) -> None:
        """Claims of a StatefulSet, which stay when it is scaled down."""
        namespace, name = _key(workload)
        templates: list[Any] = workload["spec"].get("volumeClaimTemplates") or []
        for each in templates:
            for number in range(replicas):
                claim = f"{each['metadata']['name']}-{name}-{number}"
                if self._cluster.storage.has(PERSISTENT_VOLUME_CLAIMS, namespace, claim):
                    continue
                labels = each["metadata"].get("labels") or {}
                metadata = {"name": claim, "namespace": namespace, "labels": labels}
                value = {
                    "kind": "PersistentVolumeClaim",
                    "apiVersion": "v1",
                    "metadata": metadata,
                    "spec": each["spec"],
                }
                try:
                    self._cluster.create(PERSISTENT_VOLUME_CLAIMS, copied(value))
                except StatusError as error:
                    if error.code != 403:
                        raise  # 403: its namespace is ending


def _key(value: Object) -> tuple[str, str]:
    return value["metadata"]["namespace"], value["metadata"]["name"]
