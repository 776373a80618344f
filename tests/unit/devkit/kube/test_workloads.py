# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from daemonkit.kube.resources import Resource
from daemonkit.tasks import Tasks
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.storage import Object, Selection, Storage
from devkit.kube.workloads import (
    DEPLOYMENTS,
    PERSISTENT_VOLUME_CLAIMS,
    STATEFUL_SETS,
    FakeWorkloads,
    Scale,
    scale_at_once,
)

pytestmark = pytest.mark.asyncio

READY = {
    "observedGeneration": 1,
    "replicas": 2,
    "updatedReplicas": 2,
    "readyReplicas": 2,
    "availableReplicas": 2,
}


@contextlib.asynccontextmanager
async def running(cluster: Cluster, scale: Scale = scale_at_once) -> AsyncIterator[None]:
    tasks = Tasks("workloads")
    tasks.spawn(FakeWorkloads(cluster, scale).run(), "workloads")
    yield
    await tasks.close(1.0)


def cluster(max_history: int = 10_000) -> Cluster:
    return Cluster(Storage(max_history=max_history), ClusterSettings(), clock=lambda: 0.0)


def made(found: Cluster, resource: Resource, name: str, replicas: int = 2, **spec: object) -> Object:
    value = {"metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": replicas, **spec}}
    return found.create(resource, value)


def status(found: Cluster, resource: Resource, name: str) -> Object | None:
    value: Object | None = found.storage.get(resource, "default", name).get("status")
    return value


async def test_statuses_follow_specs() -> None:
    found = cluster()
    made(found, DEPLOYMENTS, "before")
    async with running(found):
        await asyncio.sleep(1.0)
        made(found, STATEFUL_SETS, "later")
        await asyncio.sleep(1.0)
        assert [status(found, *each) for each in ((DEPLOYMENTS, "before"), (STATEFUL_SETS, "later"))] == [
            READY
        ] * 2
        found.update(
            DEPLOYMENTS, found.storage.get(DEPLOYMENTS, "default", "before") | {"spec": {"replicas": 0}}
        )
        await asyncio.sleep(1.0)
        none = dict.fromkeys(READY, 0) | {"observedGeneration": 2}
        assert status(found, DEPLOYMENTS, "before") == none
        revision = found.storage.revision
        await asyncio.sleep(60.0)
        assert found.storage.revision == revision


async def test_what_is_not_ready_is_looked_at_again() -> None:
    found, calls = cluster(), []

    async def scale(workload: Object, replicas: int) -> int:
        calls.append((workload["metadata"]["name"], replicas))
        return min(len(calls), replicas) if len(calls) > 3 else 0

    async with running(found, scale):
        made(found, DEPLOYMENTS, "slow")
        await asyncio.sleep(0.05)
        assert status(found, DEPLOYMENTS, "slow") == READY | {"readyReplicas": 0, "availableReplicas": 0}
        await asyncio.sleep(1.0)
        assert status(found, DEPLOYMENTS, "slow") == READY
        found.delete(DEPLOYMENTS, "default", "slow")
        await asyncio.sleep(1.0)
        assert calls[-1] == ("slow", 0)
        assert len(calls) == len([each for each in calls if each[1]]) + 1


async def test_stateful_sets_claim_their_volumes() -> None:
    found = cluster()
    template = {"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {"storageClassName": "x"}}
    async with running(found):
        made(found, STATEFUL_SETS, "etcd", volumeClaimTemplates=[template])
        await asyncio.sleep(1.0)
        claims = found.storage.select(Selection(PERSISTENT_VOLUME_CLAIMS))
        assert [(each["metadata"]["name"], each["metadata"]["labels"], each["spec"]) for each in claims] == [
            (f"data-etcd-{number}", {"a": "b"}, {"storageClassName": "x"}) for number in range(2)
        ]


async def test_a_compacted_history_loses_no_workload() -> None:
    found = cluster(max_history=20)
    async with running(found):
        await asyncio.sleep(1.0)
        for number in range(40):
            made(found, DEPLOYMENTS, f"d{number}")
        await asyncio.sleep(1.0)
        assert [status(found, DEPLOYMENTS, f"d{number}") for number in range(40)] == [READY] * 40
