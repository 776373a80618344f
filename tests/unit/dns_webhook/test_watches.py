# SPDX-License-Identifier: Apache-2.0
"""The webhook's watches of the super cluster, and its unsynced parts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest

from daemonkit.kube.client import MAX_RESPONSE_BYTES
from daemonkit.kube.resources import SERVICES, VIRTUAL_CLUSTERS
from daemonkit.tasks import Tasks
from devkit.kube import wire as wire
from devkit.kube.storage import StatusError, Storage
from devkit.kube.transport import StorageTransport
from dns_webhook.watches import ClusterWatches
from dnsconfig.cluster.state import ClusterState, ResolverSettings
from tests.cluster_states import cluster_state_of
from tests.unit.dnsconfig.node import RESOURCES
from tests.unit.dnsconfig.objects import Json, network, service, tenant, virtual_cluster

pytestmark = pytest.mark.asyncio

DOMAIN = "cluster.local"


class Transport(StorageTransport):
    """A transport that never responds for the resource `silent`."""

    silent = ""

    async def request(
        self, method: str, path: str, params: Mapping[str, str], *, limit_bytes: int = MAX_RESPONSE_BYTES
    ) -> bytes:
        if path.rpartition("/")[2] == self.silent:
            await asyncio.Event().wait()
        return await super().request(method, path, params, limit_bytes=limit_bytes)


class WatchesFixture:
    """A storage, and watches of it on the loop's clock."""

    def __init__(self, *items: Json, has_virtual_clusters: bool = True) -> None:
        self.transport = Transport(Storage())
        self.put(*items)
        clock = asyncio.get_running_loop().time
        self.watches = ClusterWatches(
            self.transport, ResolverSettings(DOMAIN), has_virtual_clusters=has_virtual_clusters, clock=clock
        )

    def put(self, *items: Json) -> None:
        for item in items:
            self.transport.storage.put(RESOURCES[item["kind"]], item)

    @property
    def state(self) -> ClusterState:
        return self.watches.state

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = Tasks("test")
        self.watches.start(tasks)
        try:
            await asyncio.sleep(1)
            yield
        finally:
            await tasks.close(1.0)


def names(cluster: ClusterState) -> tuple[list[str], list[tuple[str, str]], list[tuple[str, str]], list[str]]:
    clusters = [name for _, name in cluster.virtual_clusters]
    return sorted(cluster.namespaces), sorted(cluster.services), sorted(cluster.networks), clusters


async def test_before_the_first_lists_nothing_is_synced() -> None:
    here = WatchesFixture(*tenant("a", default="10.0.0.1"))
    here.transport.is_stalled = True
    async with here.running():
        assert here.watches.missing == (
            *("namespaces", "services", "networks.arktos.futurewei.com"),
            "virtualclusters.tenancy.x-k8s.io",
        )
        cluster = here.state
        assert names(cluster) == ([], [], [], [])
        assert (cluster.synced_namespaces, cluster.has_namespaces, cluster.has_virtual_clusters) == (
            frozenset(),
            False,
            False,
        )


async def test_all_tenants_and_only_dns_services_are_watched() -> None:
    other = service("a", "x", "10.0.0.9")
    other["metadata"]["name"] = "metrics"
    items = [
        *tenant("a", default="10.0.0.1"),
        *tenant("b", blue="10.0.0.2"),
        virtual_cluster("b", "b.example"),
    ]
    here = WatchesFixture(*items, other)
    async with here.running():
        assert here.watches.missing == ()
        cluster = here.state
        expected = cluster_state_of(items)
        assert names(cluster) == names(expected)
        assert (cluster.synced_namespaces, cluster.has_namespaces) == (expected.synced_namespaces, True)
        assert [each.spec.cluster_domain for each in cluster.virtual_clusters_of("b")] == ["b.example"]
        assert {query.get("fieldSelector") for query in here.transport.queries} == {None}


async def test_one_missing_list_leaves_all_namespaces_unsynced() -> None:
    here = WatchesFixture(*tenant("a", default="10.0.0.1"))
    here.transport.silent = "networks"
    async with here.running():
        assert here.watches.missing == ("networks.arktos.futurewei.com",)
        assert here.state.has_namespaces
        assert here.state.synced_namespaces == frozenset()


async def test_state_is_built_again_only_after_a_change() -> None:
    here = WatchesFixture(*tenant("a", default="10.0.0.1"))
    async with here.running():
        cluster = here.state
        assert here.state is cluster
        here.put(network("a", "blue"))
        await asyncio.sleep(1)
        assert ("a-kube-system", "blue") in here.state.networks
        here.transport.storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        await asyncio.sleep(1)
        assert not here.state.services
        # A returned state does not change.
        assert ("a-kube-system", "kube-dns-default") in cluster.services


async def test_undecodable_objects_are_unreadable() -> None:
    bad = network("a", "blue")
    bad["status"] = {"phase": 7}
    here = WatchesFixture(*tenant("a", default="10.0.0.1"), bad)
    async with here.running():
        ((key, why),) = here.state.unreadable.items()
        assert key == ("Network", ("a-kube-system", "blue"))
        assert "Expected `str`" in why
        assert here.watches.unreadable == {"networks a-kube-system/blue": why}


async def test_missing_virtual_clusters_resource_counts_as_empty() -> None:
    here = WatchesFixture(*tenant("a", default="10.0.0.1"))
    here.transport.storage.absent.add(VIRTUAL_CLUSTERS)
    async with here.running():
        assert here.watches.missing == ()
        assert here.state.has_virtual_clusters
        here.transport.storage.absent.clear()
        here.put(virtual_cluster("a", "a.example"))
        await asyncio.sleep(31)
        assert [each.spec.cluster_domain for each in here.state.virtual_clusters_of("a")] == ["a.example"]


async def test_virtual_clusters_can_be_left_unwatched() -> None:
    here = WatchesFixture(*tenant("a", default="10.0.0.1"), has_virtual_clusters=False)
    async with here.running():
        assert here.watches.missing == ()
        assert here.state.has_virtual_clusters


async def test_a_vanished_kind_is_named_with_its_age() -> None:
    here = WatchesFixture(*tenant("a", default="10.0.0.1"))
    async with here.running():
        assert not here.watches.problems
        here.transport.storage.absent.add(SERVICES)
        here.transport.inject(wire.event("ERROR", StatusError(410, "Expired", "too old").status))
        await asyncio.sleep(100)
        (problem,) = here.watches.problems
        assert problem.startswith("services: stale, age 10")
        assert "s: super cluster: services: 404 " in problem
        assert here.watches.missing == ()
