# SPDX-License-Identifier: Apache-2.0
"""The watches at the API server, and their duration."""

import asyncio
from typing import Any

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import EXCLUDING_LABELS, PODS, SERVICES, VIRTUAL_CLUSTERS
from dnsconfig import watch
from dnsconfig.cluster.state import Absence
from dnsconfig.watch import LINGER_S, MAX_NAMESPACES
from tests.unit.dnsconfig.node import SimulatedNode
from tests.unit.dnsconfig.objects import pod, service, tenant, virtual_cluster

pytestmark = pytest.mark.asyncio


async def test_only_this_nodes_pods_and_tenants_are_watched() -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"), *tenant("b", default="10.0.0.2"))
    here.put_pod("a")
    here.storage.put(PODS, pod("b", nodeName="n2"))
    async with here.running():
        assert any(query.get("fieldSelector") == "spec.nodeName=n1" for query in here.transport.queries)
        assert here.watch.dns_namespaces == {"a-kube-system"}
        assert here.watch.count == 3 + 2
        snapshot = here.watch.snapshot()
        assert sorted(snapshot.namespaces or {}) == ["a-kube-system", "a-shop"]
        assert sorted(snapshot.contents["a-kube-system"].services) == ["kube-dns-default"]


async def test_other_services_are_not_kept() -> None:
    here = SimulatedNode()
    other = service("a", "x", "10.0.0.9")
    other["metadata"]["name"] = "metrics"
    here.put(*tenant("a", default="10.0.0.1"), other)
    here.put_pod("a")
    async with here.running():
        assert sorted(here.watch.snapshot().contents["a-kube-system"].services) == ["kube-dns-default"]


async def test_a_tenant_is_watched_for_linger_s_after_its_pods() -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"))
    here.put_pod("a")
    async with here.running():
        here.storage.delete(PODS, "a-shop", "web")
        await asyncio.sleep(LINGER_S / 2)
        assert here.watch.count == 5
        lists = len(here.transport.queries)
        here.put_pod("a")
        await asyncio.sleep(1)
        assert len([q for q in here.transport.queries[lists:] if "watch" not in q]) == 0
        here.storage.delete(PODS, "a-shop", "web")
        await asyncio.sleep(LINGER_S + 1)
        assert here.watch.count == 3


async def test_many_tenants_share_cluster_wide_watches() -> None:
    here = SimulatedNode()
    names = [f"t{number}" for number in range(MAX_NAMESPACES + 1)]
    for number, name in enumerate(names):
        here.put(*tenant(name, default=f"10.0.1.{number}"))
    first = [here.put_pod(name) for name in names[:-1]]
    async with here.running():
        assert here.watch.count == 3 + 2 * MAX_NAMESPACES
        last = here.put_pod(names[-1])
        await asyncio.sleep(0.005)
        assert here.watch.snapshot().contents.keys() >= {f"{name}-kube-system" for name in names[:-1]}
        await asyncio.sleep(LINGER_S + 1)
        assert here.watch.count == 3 + 2
        assert here.servers(last) == [f"10.0.1.{MAX_NAMESPACES}"]
        here.put(service("t0", "default", "10.0.9.9"))
        await asyncio.sleep(1)
        assert here.servers(first[0]) == ["10.0.9.9"]
        # And back.
        here.storage.delete(PODS, f"{names[-1]}-shop", "web")
        await asyncio.sleep(LINGER_S + 1)
        assert here.watch.count == 3 + 2 * MAX_NAMESPACES
        assert here.servers(first[0]) == ["10.0.9.9"]


async def test_ages_are_the_oldest_and_none_before_sync() -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"))
    here.put_pod("a")
    assert here.watch.ages() == {"pods": None, "namespaces": None, "virtualClusters": None}
    assert here.watch.snapshot() == here.watch.snapshot()
    assert not here.watch.snapshot().has_synced
    here.transport.failures = [UnreachableError("away")] * 3
    async with here.running(30):
        ages = here.watch.ages()
        assert sorted(ages) == ["namespaces", "networks", "pods", "services", "virtualClusters"]
        assert all(age is not None for age in ages.values())


async def test_changes_outside_the_transform_cause_no_sync() -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"))
    here.put_pod("a")
    async with here.running():
        syncs = here.metrics.sync_seconds.count
        for number in range(5):
            here.put_pod("a", annotations={"heartbeat": str(number)})
            await asyncio.sleep(0.1)
        assert here.metrics.sync_seconds.count == syncs
        here.put_pod("a", network="blue")
        await asyncio.sleep(0.1)
        assert here.metrics.sync_seconds.count > syncs


async def test_absence_is_confirmed_by_events_not_by_relists() -> None:
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1", blue="10.0.0.2"), *tenant("b"))
    here.put_pod("a")
    here.put_pod("b")

    def absence(tenant_key: str) -> Absence:
        return here.watch.snapshot().contents[f"{tenant_key}-kube-system"].absence

    async def relisted() -> None:
        here.storage.compact()
        here.transport.is_stalled = False
        await asyncio.sleep(200)

    async with here.running():
        # b has only been listed; a's relist has other Services.
        assert (absence("a"), absence("b")) == (Absence.CONFIRMED, Absence.UNCONFIRMED)
        for name in ("kube-dns-default", "kube-dns-blue"):
            here.storage.delete(SERVICES, "a-kube-system", name)
            await asyncio.sleep(1)
            assert absence("a") is Absence.CONFIRMED
        # A later relist that agrees changes nothing.
        here.transport.is_stalled = True
        await asyncio.sleep(200)
        await relisted()
        assert absence("a") is Absence.CONFIRMED
        # A relist that lacks a recreated Service is distrusted again.
        here.put(service("a", "blue", "10.0.0.2"))
        await asyncio.sleep(1)
        here.transport.is_stalled = True
        await asyncio.sleep(200)
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-blue")
        await relisted()
        assert here.watch.snapshot().contents["a-kube-system"].services == {}
        assert absence("a") is Absence.UNCONFIRMED


async def test_absence_is_confirmed_by_other_services_of_the_namespace() -> None:
    here = SimulatedNode()
    other = service("a", "default", "10.0.0.9")
    other["metadata"]["name"] = "metrics-server"
    here.put(*tenant("a", default="10.0.0.1"))
    here.put_pod("a")

    def absence() -> Absence:
        return here.watch.snapshot().contents["a-kube-system"].absence

    async with here.running():
        here.transport.is_stalled = True
        await asyncio.sleep(200)
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        here.storage.compact()
        here.transport.is_stalled = False
        await asyncio.sleep(200)
        assert absence() is Absence.UNCONFIRMED
        # As in kubeproxy-ext, one Service that is there ends the distrust, and is not needed from then on.
        syncs = here.metrics.sync_seconds.count
        here.put(other)
        await asyncio.sleep(1)
        assert absence() is Absence.CONFIRMED
        assert here.metrics.sync_seconds.count > syncs
        here.storage.delete(SERVICES, "a-kube-system", "metrics-server")
        await asyncio.sleep(1)
        assert absence() is Absence.CONFIRMED


@pytest.mark.parametrize("label", EXCLUDING_LABELS)
async def test_absence_is_not_confirmed_by_excluded_services(label: str) -> None:
    """kubeproxy-ext does not list such Services: its rules stay, and so must the resolver."""
    here = SimulatedNode()
    excluded = [service("a", name, "10.0.0.9", labels={label: ""}) for name in ("x", "y")]
    excluded[0]["metadata"]["name"] = "etcd-peers"
    here.put(*tenant("a", default="10.0.0.1"), *excluded)
    here.put_pod("a")

    def absence() -> Absence:
        return here.watch.snapshot().contents["a-kube-system"].absence

    async with here.running():
        assert absence() is Absence.CONFIRMED
        here.transport.is_stalled = True
        await asyncio.sleep(200)
        here.storage.delete(SERVICES, "a-kube-system", "kube-dns-default")
        here.storage.compact()
        here.transport.is_stalled = False
        await asyncio.sleep(200)
        assert absence() is Absence.UNCONFIRMED
        # Their deletion confirms nothing, either.
        for name in ("etcd-peers", "kube-dns-y"):
            here.storage.delete(SERVICES, "a-kube-system", name)
            await asyncio.sleep(1)
            assert absence() is Absence.UNCONFIRMED
        # Without the label it is one of those that kubeproxy-ext lists, as soon as the event is there.
        here.put(excluded[0])
        await asyncio.sleep(1)
        assert absence() is Absence.UNCONFIRMED
        excluded[0]["metadata"]["labels"] = {}
        here.put(excluded[0])
        await asyncio.sleep(1)
        assert absence() is Absence.CONFIRMED


async def test_without_virtual_clusters_the_default_domain_applies() -> None:
    here = SimulatedNode()
    here.storage.absent.add(VIRTUAL_CLUSTERS)
    here.put(*tenant("a", default="10.0.0.1"), *tenant("b", default="10.0.0.2"))
    first, second = here.put_pod("a"), here.put_pod("b")
    async with here.running():
        assert (here.servers(first), here.servers(second)) == (["10.0.0.1"], ["10.0.0.2"])
        assert (
            "search shop.svc.cluster.local svc.cluster.local cluster.local" in here.bridge.resolv_confs[first]
        )
        assert here.watch.snapshot().has_synced
        # Installed later, each counts for its own tenant.
        here.storage.absent.clear()
        here.put(virtual_cluster("b", "b.example"))
        await asyncio.sleep(31)
        assert "search shop.svc.b.example" in here.bridge.resolv_confs[second]
        assert "search shop.svc.cluster.local" in here.bridge.resolv_confs[first]


async def test_a_namespace_is_grouped_only_after_its_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    went: list[str] = []
    by_namespace = watch._by_namespace  # noqa: SLF001 - the test counts it

    def counted(reflector: Any) -> Any:
        went.append(reflector.name)
        return by_namespace(reflector)

    monkeypatch.setattr(watch, "_by_namespace", counted)
    here = SimulatedNode()
    here.put(*tenant("a", default="10.0.0.1"), *tenant("b", default="10.0.0.2"))
    here.put(*(service("a", f"net{number}", "10.0.1.1") for number in range(50)))
    for number in range(5):
        here.put_pod("a", f"web-{number}")
    mine = here.put_pod("b")
    async with here.running():
        went.clear()
        for number in range(5):
            here.put_pod("b", labels={"version": str(number)}, network="default")
            here.put(service("b", "default", f"10.0.2.{number}"))
            await asyncio.sleep(1)
        assert here.servers(mine) == ["10.0.2.4"]
        # Services and Networks of b, once for each change of a Service; of a nothing.
        assert len(went) == 2 * 5
