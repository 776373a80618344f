# SPDX-License-Identifier: Apache-2.0
"""The watches of the super cluster, against a storage without a socket, in virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import NAMESPACES
from daemonkit.tasks import Tasks
from devkit.kube.storage import Object, Storage
from devkit.kube.transport import StorageTransport
from kubeproxy_ext.cache.object_cache import ObjectCache
from kubeproxy_ext.cache.watch_scope import MAX_NAMESPACES
from kubeproxy_ext.compute.objects import ENDPOINT_SLICES, NODES, SERVICES, EndpointSliceObject, NodeObject
from kubeproxy_ext.watch import LINGER_S, Watch
from tenancy import keys
from tests.unit.kubeproxy_ext.cache.test_object_cache import HOLD_S, RecordingState

pytestmark = pytest.mark.asyncio


class RecordingStateWithNode(RecordingState):
    zone: str | None = None

    def put_node(self, item: NodeObject) -> None:
        self.zone = item.metadata.labels.get("topology.kubernetes.io/zone", "")

    def remove_node(self, name: str) -> None:
        self.zone = None


class WatchedCluster:
    """A super cluster and the watches of it."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.transport = StorageTransport(self.storage)
        self.state = RecordingStateWithNode()
        self.cache = ObjectCache(self.state, HOLD_S)
        self.tasks = Tasks("test")
        self.changes = 0
        self.slices: list[tuple[str, EndpointSliceObject]] = []
        self.watch = Watch(
            self.transport,
            "n1",
            self.cache,
            self.state,
            lambda tenant, item: self.slices.append((tenant, item)),
            self._changed,
            self.tasks,
            clock=asyncio.get_running_loop().time,
        )
        for node, zone in (("n1", "z1"), ("n2", "z2")):
            labels = {"topology.kubernetes.io/zone": zone}
            self.storage.put(NODES, {"metadata": {"name": node, "labels": labels}})

    def _changed(self) -> None:
        self.changes += 1

    def put_tenant(self, tenant: str, *namespaces: str, is_labelled: bool = True) -> None:
        for name in namespaces:
            annotations = {keys.CLUSTER: tenant}
            if is_labelled:
                annotations |= {keys.VC_NAMESPACE: "tenants", keys.VC_NAME: tenant}
            super_name = f"{tenant}-{name}"
            self.storage.put(NAMESPACES, {"metadata": {"name": super_name, "annotations": annotations}})

    def put_service(self, tenant: str, namespace: str, name: str, **labels: str) -> None:
        self.storage.put(SERVICES, {"metadata": _metadata(tenant, namespace, name, labels)})
        metadata = _metadata(tenant, namespace, f"{name}-1", labels)
        endpoints = [{"addresses": ["10.0.0.1"]}]
        self.storage.put(ENDPOINT_SLICES, {"metadata": metadata, "endpoints": endpoints})

    def queries(self, verb: str) -> int:
        return sum(("watch" in query) == (verb == "watch") for query in self.transport.queries)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.watch.start()
        await asyncio.sleep(1)
        try:
            yield
        finally:
            assert await self.tasks.close(5.0) == ()


def _metadata(tenant: str, namespace: str, name: str, labels: dict[str, str]) -> Object:
    its = {keys.VC_NAMESPACE: "tenants", keys.VC_NAME: tenant} | labels
    return {"name": name, "namespace": f"{tenant}-{namespace}", "labels": its}


def cluster() -> WatchedCluster:
    made = WatchedCluster()
    for tenant in ("a", "b"):
        made.put_tenant(tenant, "default", "web")
        made.put_service(tenant, "default", f"{tenant}1")
        made.put_service(tenant, "web", f"{tenant}2")
    return made


async def test_without_guests_only_base_kinds_are_watched() -> None:
    cluster_watch = cluster()
    cluster_watch.put_tenant("", "kube-system")
    async with cluster_watch.running():
        assert cluster_watch.watch.has_base_synced
        assert (cluster_watch.watch.count, cluster_watch.queries("list")) == (2, 2)
        assert cluster_watch.state.zone == "z1"
        assert cluster_watch.state.names("namespace") == ["a-default", "a-web", "b-default", "b-web"]
        assert cluster_watch.cache.counts() == (0, 0)
        assert not cluster_watch.watch.has_synced("a")


async def test_only_tenants_with_guests_are_watched() -> None:
    cluster_watch = cluster()
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        assert not cluster_watch.watch.has_synced("a")
        await asyncio.sleep(1)
        assert cluster_watch.watch.has_synced("a")
        assert not cluster_watch.watch.has_synced("b")
        assert (cluster_watch.state.names("service"), cluster_watch.state.names("slice")) == (
            ["a1", "a2"],
            ["a1-1", "a2-1"],
        )
        assert cluster_watch.watch.count == 2 + 2 * 2
        before = cluster_watch.changes
        cluster_watch.put_service("b", "web", "b3")
        await asyncio.sleep(1)
        assert cluster_watch.changes == before
        cluster_watch.put_service("a", "web", "a3")
        await asyncio.sleep(1)
        assert cluster_watch.state.names("service") == ["a1", "a2", "a3"]


async def test_label_selector_excludes_other_proxies() -> None:
    cluster_watch = cluster()
    cluster_watch.put_service("a", "web", "other", **{"service.kubernetes.io/service-proxy-name": "x"})
    cluster_watch.put_service("a", "web", "headless", **{"service.kubernetes.io/headless": ""})
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        await asyncio.sleep(1)
        assert cluster_watch.state.names("service") == ["a1", "a2"]
        assert cluster_watch.state.names("slice") == ["a1-1", "a2-1"]


async def test_watches_follow_namespaces() -> None:
    cluster_watch = cluster()
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        await asyncio.sleep(1)
        cluster_watch.put_service("a", "new", "a9")
        cluster_watch.put_tenant("a", "new")
        await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert cluster_watch.watch.has_synced("a")
        assert cluster_watch.state.names("service") == ["a1", "a2", "a9"]
        cluster_watch.storage.delete(NAMESPACES, "", "a-web")
        await asyncio.sleep(1)
        assert cluster_watch.state.names("service") == ["a1", "a9"]
        assert cluster_watch.watch.count == 2 + 2 * 2


async def test_tenant_without_guests_is_followed_for_linger_s() -> None:
    cluster_watch = cluster()
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a", "b"})
        await asyncio.sleep(1)
        lists = cluster_watch.queries("list")
        cluster_watch.watch.follow({"b"})
        end = cluster_watch.watch.next_watch_stop_at
        assert end is not None
        await asyncio.sleep(LINGER_S / 2)
        cluster_watch.watch.follow({"a", "b"})
        assert cluster_watch.watch.next_watch_stop_at is None
        cluster_watch.watch.follow({"b"})
        await asyncio.sleep(LINGER_S)
        assert cluster_watch.queries("list") == lists
        cluster_watch.watch.follow({"b"})
        await asyncio.sleep(1)
        assert cluster_watch.state.names("service") == ["b1", "b2"]
        assert cluster_watch.watch.count == 2 + 2 * 2


async def test_changed_plan_never_misses_objects() -> None:
    cluster_watch = cluster()
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        await asyncio.sleep(1)
        names = [f"n{number}" for number in range(MAX_NAMESPACES)]
        for name in names:
            cluster_watch.put_tenant("a", name)
            cluster_watch.put_service("a", name, f"s-{name}")
        # One that the syncer did not bring down, and that is the tenant's all the same.
        cluster_watch.storage.put(SERVICES, {"metadata": {"name": "by-hand", "namespace": "a-web"}})
        await asyncio.sleep(5)
        assert cluster_watch.state.names("service") == sorted(
            ["a1", "a2", "by-hand", *(f"s-{n}" for n in names)]
        )
        assert (cluster_watch.watch.count, cluster_watch.state.removed) == (2 + 2 * 2, [])
        assert cluster_watch.watch.has_synced("a")
        cluster_watch.storage.put(SERVICES, {"metadata": {"name": "late", "namespace": "a-n3"}})
        await asyncio.sleep(1)
        assert "late" in cluster_watch.state.names("service")


async def test_unlabelled_namespaces_need_cluster_watches() -> None:
    cluster_watch = cluster()
    names = [f"n{number}" for number in range(MAX_NAMESPACES)]
    cluster_watch.put_tenant("a", *names, is_labelled=False)
    for name in names:
        cluster_watch.put_service("a", name, f"s-{name}")
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        await asyncio.sleep(1)
        assert cluster_watch.state.names("service") == sorted(["a1", "a2", *(f"s-{n}" for n in names)])
        assert cluster_watch.watch.count == 2 + 2
        before = cluster_watch.changes
        cluster_watch.put_service("b", "web", "b3")
        await asyncio.sleep(1)
        assert cluster_watch.changes == before


async def test_empty_relist_is_distrusted_and_trusted_later() -> None:
    cluster_watch = cluster()
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        await asyncio.sleep(1)
        cluster_watch.transport.is_stalled = True
        for name, namespace in (("a1", "a-default"), ("a2", "a-web")):
            cluster_watch.storage.delete(SERVICES, namespace, name)
        cluster_watch.storage.compact()
        cluster_watch.transport.heal()
        await asyncio.sleep(100)
        assert cluster_watch.state.names("service") == ["a1", "a2"]
        assert {relist.lacking.namespace for relist in cluster_watch.cache.distrusted} == {
            "a-default",
            "a-web",
        }
        cluster_watch.storage.delete(ENDPOINT_SLICES, "a-web", "a2-1")
        await asyncio.sleep(1)
        assert cluster_watch.state.names("service") == ["a1"]


async def test_without_apiserver_nothing_syncs_and_nothing_is_lost() -> None:
    cluster_watch = cluster()
    cluster_watch.transport.failures = [UnreachableError("connect: refused")] * 6
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        assert not cluster_watch.watch.has_synced("a")
        assert cluster_watch.watch.ages() == dict.fromkeys(
            ("namespaces", "node", "services", "endpointSlices")
        )
        await asyncio.sleep(60)
        assert cluster_watch.watch.has_synced("a")
        cluster_watch.transport.is_stalled = True
        await asyncio.sleep(600)
        assert cluster_watch.state.names("service") == ["a1", "a2"]
        assert all(age is not None and age > 100 for age in cluster_watch.watch.ages().values())


async def test_on_slice_gets_events_but_not_lists() -> None:
    cluster_watch = cluster()
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        await asyncio.sleep(1)
        assert cluster_watch.slices == []
        cluster_watch.put_service("a", "web", "a2")
        await asyncio.sleep(1)
        assert [(tenant, each.metadata.name) for tenant, each in cluster_watch.slices] == [("a", "a2-1")]


async def test_undecodable_objects_are_reported() -> None:
    cluster_watch = cluster()
    async with cluster_watch.running():
        cluster_watch.watch.follow({"a"})
        cluster_watch.storage.put(
            SERVICES, {"metadata": {"name": "odd", "namespace": "a-web"}, "spec": {"ports": 1}}
        )
        await asyncio.sleep(1)
        assert list(cluster_watch.watch.undecodable()) == ["services a-web/odd"]
