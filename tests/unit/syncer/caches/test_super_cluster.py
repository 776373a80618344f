# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest

from daemonkit.fairness.scheduler import TenantScheduler
from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, SERVICES
from daemonkit.kube.store import Added, Change, DecodeFailed, Deleted
from daemonkit.tasks import Tasks
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object, Storage
from syncer.caches.cached_object import CachedMetadata, CachedObject
from syncer.caches.held_events import MAX_EVENT_BYTES
from syncer.caches.namespace_services import MAX_SERVICES, MAX_SERVICES_BYTES
from syncer.caches.super_change import SuperChange
from syncer.caches.super_cluster import SuperCaches
from syncer.kinds import event, persistent_volume, table
from tenancy import keys

pytestmark = pytest.mark.asyncio


def _namespace(key: str, namespace: str) -> Object:
    notes = {keys.CLUSTER: key, keys.NAMESPACE: namespace, keys.UID: "n", keys.VC_UID: "u"}
    return {"metadata": {"name": f"{key}-{namespace}", "annotations": notes}}


def _config_map(namespace: str, name: str) -> Object:
    return {"metadata": {"namespace": namespace, "name": name, "labels": {keys.VC_NAME: "v"}}}


def _volume(name: str, claim_namespace: str) -> Object:
    claim = {"namespace": claim_namespace, "name": "c"}
    return {"metadata": {"name": name}, "spec": {"claimRef": claim}}


async def test_what_a_tenant_has_is_found_by_its_namespaces() -> None:
    """Not by looking at what all tenants have: a patrol of each would cost the square of their number."""
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), lambda _: None)
    tasks = Tasks("test")
    for namespace in ("web", "db"):
        cluster.storage.put(NAMESPACES, _namespace("red", namespace))
    cluster.storage.put(NAMESPACES, _namespace("green", "web"))
    for namespace, name in (("red-web", "a"), ("red-web", "b"), ("red-db", "a"), ("green-web", "c")):
        cluster.storage.put(CONFIG_MAPS, _config_map(namespace, name))
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    assert [name for name, _ in caches.owners.of_key("red")] == ["red-db", "red-web"]
    assert list(caches.names_in("ConfigMap", "red-web")) == ["a", "b"]
    cluster.storage.delete(CONFIG_MAPS, "red-web", "a")
    cluster.storage.delete(CONFIG_MAPS, "red-db", "a")
    cluster.storage.delete(NAMESPACES, "", "red-db")
    foreign = cluster.storage.get(NAMESPACES, "", "green-web")
    cluster.storage.put(NAMESPACES, foreign | {"metadata": foreign["metadata"] | {"annotations": {}}})
    await asyncio.sleep(1)
    assert [name for name, _ in caches.owners.of_key("red")] == ["red-web"]
    assert caches.owners.of_key("green") == []
    assert list(caches.names_in("ConfigMap", "red-web")) == ["b"]
    assert list(caches.names_in("ConfigMap", "red-db")) == []
    await tasks.close(1.0)


@pytest.mark.parametrize(
    ("count", "ports", "is_read"),
    [(MAX_SERVICES, 1, True), (MAX_SERVICES + 1, 1, False), (2, MAX_SERVICES_BYTES // 20, False)],
)
async def test_services_that_take_long_to_read_give_no_variables(
    count: int, ports: int, is_read: bool
) -> None:
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), lambda _: None)
    tasks = Tasks("test")
    for number in range(count):
        service = _config_map("red-web", f"s-{number}") | {"spec": {"ports": [{"port": 1}] * ports}}
        cluster.storage.put(SERVICES, service)
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    assert len(caches.services.of("red-web")) == (count if is_read else 0)
    await tasks.close(1.0)


async def test_control_plane_addresses_are_cached() -> None:
    """Each plan of the tenant's Endpoints in `default` asks for them."""
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    syncs = table.kinds(())
    caches = SuperCaches(InProcessClient(cluster), syncs, lambda _: None)
    endpoints = next(each.kind.resource for each in syncs if each.kind.kind == "Endpoints")
    service = _config_map("red", "apiserver") | {
        "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}
    }
    cluster.storage.put(SERVICES, service)
    tasks = Tasks("test")
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    found = caches.addresses.of_control_plane("red")
    assert found == {"10.0.0.1"}
    assert caches.addresses.of_control_plane("red") is found
    subsets = [{"addresses": [{"ip": "10.1.0.1"}]}]
    cluster.storage.put(endpoints, _config_map("red", "apiserver") | {"subsets": subsets})
    await asyncio.sleep(1)
    assert caches.addresses.of_control_plane("red") == {"10.0.0.1", "10.1.0.1"}
    cluster.storage.delete(SERVICES, "red", "apiserver")
    await asyncio.sleep(1)
    assert caches.addresses.of_control_plane("red") == {"10.1.0.1"}
    await tasks.close(1.0)


@contextlib.asynccontextmanager
async def _followed() -> AsyncIterator[tuple[Storage, list[SuperChange]]]:
    """A super cluster whose caches are synced, and what they report from then on."""
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    seen: list[SuperChange] = []
    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), seen.append)
    tasks = Tasks("test")
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    yield cluster.storage, seen
    await tasks.close(1.0)


def _reported(seen: list[SuperChange]) -> list[tuple[str, str, str, bool]]:
    return [(each.kind, each.namespace, each.name, each.is_deleted) for each in seen]


async def test_what_came_before_its_namespace_is_reported_with_it() -> None:
    """Each kind has a watch of its own, and any may be behind. What is reported already is not again."""
    async with _followed() as (storage, seen):
        storage.put(CONFIG_MAPS, _config_map("red-web", "a"))
        storage.put(CONFIG_MAPS, _config_map("green-web", "b"))
        storage.put(persistent_volume.KIND.resource, _volume("v", "red-web"))
        await asyncio.sleep(1)
        assert seen == []
        storage.put(NAMESPACES, _namespace("red", "web"))
        await asyncio.sleep(1)
        assert _reported(seen) == [
            ("Namespace", "", "web", False),
            ("ConfigMap", "web", "a", False),
            ("PersistentVolume", "", "v", False),
        ]
        # What else became of the object until now was not reported.
        assert seen[1].version == ""
        seen.clear()
        found = storage.get(NAMESPACES, "", "red-web")
        storage.put(NAMESPACES, found | {"metadata": found["metadata"] | {"labels": {"a": "b"}}})
        await asyncio.sleep(1)
        assert _reported(seen) == [("Namespace", "", "web", False)]


async def test_what_came_before_its_namespace_is_reported_in_steps() -> None:
    """10 000 objects took 0.4 s in one step. What goes meanwhile is reported once, by its own event."""
    async with _followed() as (storage, seen):
        for number in range(500):
            storage.put(CONFIG_MAPS, _config_map("red-web", f"c{number}"))
        await asyncio.sleep(1)
        storage.put(NAMESPACES, _namespace("red", "web"))
        most = 0
        while len(seen) < 501:
            before = len(seen)
            await asyncio.sleep(0)  # pace: iterations are counted
            most = max(most, len(seen) - before)
        assert most <= 200  # a slice of the loop may have two steps


async def test_each_of_several_changes_in_one_piece_has_its_version() -> None:
    """The caches have all of them by then."""
    async with _followed() as (storage, seen):
        storage.put(NAMESPACES, _namespace("red", "web"))
        storage.put(CONFIG_MAPS, _config_map("red-web", "a"))
        await asyncio.sleep(1)
        seen.clear()
        versions = []
        for resource, value in (
            (NAMESPACES, _namespace("red", "web")),
            (CONFIG_MAPS, _config_map("red-web", "a")),
        ):
            for text in ("b", "c"):
                value["metadata"]["labels"] = {keys.VC_NAME: "v", "text": text}
                storage.put(resource, value)
                versions.append(str(storage.revision))
        storage.delete(CONFIG_MAPS, "red-web", "a")
        await asyncio.sleep(1)
        assert sorted(each.version for each in seen) == sorted(["", *versions])


async def test_what_goes_after_its_namespace_is_reported() -> None:
    """Whoever counts super objects hears of the end of each, in whatever order it is seen."""
    async with _followed() as (storage, seen):
        storage.put(NAMESPACES, _namespace("red", "web"))
        for name in ("a", "b"):
            storage.put(CONFIG_MAPS, _config_map("red-web", name))
        await asyncio.sleep(1)
        storage.delete(NAMESPACES, "", "red-web")
        await asyncio.sleep(1)
        seen.clear()
        for name in ("a", "b"):
            storage.delete(CONFIG_MAPS, "red-web", name)
        await asyncio.sleep(1)
        assert _reported(seen) == [("ConfigMap", "web", "a", True), ("ConfigMap", "web", "b", True)]
        assert {each.key for each in seen} == {"red"}
        seen.clear()
        storage.put(CONFIG_MAPS, _config_map("red-web", "c"))
        await asyncio.sleep(1)
        assert seen == []


async def test_what_replaced_an_unreadable_object_ends_it() -> None:
    """A list shows another object of the name: what counted the former one hears of its end."""
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    seen: list[SuperChange] = []
    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), seen.append)
    tasks = Tasks("test")
    cluster.storage.put(NAMESPACES, _namespace("red", "web"))
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    seen.clear()
    kind = next(each for each in table.kinds(()) if each.kind.kind == "ConfigMap")
    key = "red-web", "a"
    former, other = (CachedObject(CachedMetadata("a", "red-web", uid, "1"), b"") for uid in ("u1", "u2"))
    batches: list[list[Change[CachedObject]]] = [
        [Added(key, former)],
        [Deleted(key, former), DecodeFailed(key, "too large", "u1")],
        [Added(key, other)],
        [Deleted(key, other), DecodeFailed(key, "too large", "u2")],
        [Added(key, other)],
    ]
    for batch in batches:
        caches._changed(kind, batch)  # noqa: SLF001 - in the order of a list
    found = [(each.is_deleted, each.value.metadata.uid) for each in seen if each.value is not None]
    assert found == [
        (False, "u1"),
        (False, "u1"),
        (True, "u1"),
        (False, "u2"),
        (False, "u2"),
        (False, "u2"),
    ]
    await tasks.close(1.0)


async def test_a_piece_is_counted_by_owner() -> None:
    """By their bytes. Of a list nobody is: no tenant has made the super cluster be read again."""
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    parts, whole = Counter[str](), list[int]()

    def note(found: Mapping[str, int], of_all: int) -> None:
        parts.update(found)
        whole.append(of_all)

    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), lambda _: None, on_applied=note)
    tasks = Tasks("test")
    for key in ("red", "green"):
        cluster.storage.put(NAMESPACES, _namespace(key, "web"))
        cluster.storage.put(CONFIG_MAPS, _config_map(f"{key}-web", "a"))
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    assert sum(whole) == 0
    cluster.storage.put(CONFIG_MAPS, _config_map("red-web", "b") | {"data": {"k": "x" * 10_000}})
    cluster.storage.put(CONFIG_MAPS, _config_map("green-web", "b"))
    cluster.storage.put(CONFIG_MAPS, _config_map("kube-system", "b") | {"data": {"k": "x" * 5_000}})
    await asyncio.sleep(1)
    small, red = parts["green"], parts["red"]
    assert 1_000 < small < 2_000
    assert red - small == pytest.approx(10_000, abs=100)
    assert sum(whole) - red - 2 * small == pytest.approx(5_000, abs=100)
    cluster.storage.put(persistent_volume.KIND.resource, _volume("v", "red-web"))
    cluster.storage.put(NAMESPACES, _namespace("green", "db"))
    await asyncio.sleep(1)
    assert 1_000 < parts["green"] - small < 2_000
    assert 1_000 < parts["red"] - red < 2_000
    cluster.storage.delete(CONFIG_MAPS, "green-web", "b")
    await asyncio.sleep(1)
    assert 2_000 < parts["green"] - small < 4_000
    await tasks.close(1.0)


async def test_events_of_a_tenant_are_bounded_memory() -> None:
    """A tenant's pods bring about as many as they come and go."""
    cluster, reported = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0), list[str]()

    def note(change: SuperChange) -> None:
        if change.kind == "Event" and not change.is_deleted:
            reported.append(change.name)

    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), note)
    tasks = Tasks("test")
    cluster.storage.put(NAMESPACES, _namespace("red", "web"))
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    size_bytes = 1 << 20
    for namespace in ("red-web", "kube-system"):
        for number in range(20):
            meta = {"namespace": namespace, "name": f"e-{number:02}"}
            cluster.storage.put(event.KIND.resource, {"metadata": meta, "message": "x" * size_bytes})
    await asyncio.sleep(1)
    assert reported == [f"e-{number:02}" for number in range(15)]
    held = sum(each.size_bytes for each in caches.objects("Event").values())
    assert held < MAX_EVENT_BYTES
    totals = caches.stored.of("red")
    assert 15 * size_bytes < totals.event_bytes <= MAX_EVENT_BYTES
    assert caches.stored.all.event_bytes == totals.event_bytes
    assert totals.memory_bytes > totals.event_bytes
    # What has expired makes room, also with the rest of what was left out.
    for number in range(20):
        cluster.storage.delete(event.KIND.resource, "red-web", f"e-{number:02}")
    await asyncio.sleep(1)
    assert caches.stored.of("red").event_bytes == 0
    cluster.storage.put(
        event.KIND.resource, {"metadata": {"namespace": "red-web", "name": "later"}, "message": "x"}
    )
    await asyncio.sleep(1)
    assert reported[15:] == ["later"]
    await tasks.close(1.0)


async def test_no_event_is_lost_behind_those_that_have_been_copied() -> None:
    """A large tenant's pods bring about more in an hour than are held at once; each is copied as it comes."""
    cluster, copied, count = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0), list[str](), 20_000

    def copy(change: SuperChange) -> None:
        if change.kind == "Event" and change.value is not None and not change.is_deleted:
            assert change.value.body
            copied.append(change.name)
            caches.events.copied(change.value)

    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), copy)
    tasks = Tasks("test")
    cluster.storage.put(NAMESPACES, _namespace("red", "web"))
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    names = [f"e-{number:05}" for number in range(count)]
    for number, name in enumerate(names):
        meta = {"namespace": "red-web", "name": name}
        cluster.storage.put(event.KIND.resource, {"metadata": meta, "message": "x" * 1_000})
        if number % 500 == 0:
            await asyncio.sleep(1)
    await asyncio.sleep(5)
    assert copied == names
    totals = caches.stored.of("red")
    assert (totals.event_bytes, caches.stored.all.event_bytes) == (0, 0)
    held = sum(each.size_bytes for each in caches.objects("Event").values())
    assert held < totals.copied_event_bytes <= MAX_EVENT_BYTES
    assert caches.stored.all.copied_event_bytes == totals.copied_event_bytes
    assert totals.memory_bytes > totals.copied_event_bytes
    # One that occurs again is read again.
    cluster.storage.put(
        event.KIND.resource, {"metadata": {"namespace": "red-web", "name": "e-00000"}, "message": "again"}
    )
    await asyncio.sleep(1)
    assert copied[count:] == ["e-00000"]
    for name in names:
        cluster.storage.delete(event.KIND.resource, "red-web", name)
    await asyncio.sleep(5)
    assert (totals.event_bytes, totals.copied_event_bytes) == (0, 0)
    await tasks.close(1.0)


async def test_events_after_the_end_of_their_namespace_are_not_held() -> None:
    """No plan copies one, as its tenant's namespace has none below any more; what was held before ends."""
    cluster, seen = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0), list[SuperChange]()
    caches, tasks = SuperCaches(InProcessClient(cluster), table.kinds(()), seen.append), Tasks("test")
    cluster.storage.put(NAMESPACES, _namespace("red", "web"))
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    kinds = {each.kind.kind: each for each in table.kinds(())}
    (place,) = [key for key in caches.objects("Namespace") if key[1] == "red-web"]
    before, after = (
        CachedObject(CachedMetadata(name, "red-web", name, "1"), b"{}" * 100) for name in ("before", "after")
    )
    caches._changed(kinds["Event"], [Added(("red-web", "before"), before)])  # noqa: SLF001 - in this order
    held_bytes = caches.stored.all.event_bytes
    assert held_bytes == caches.stored.of("red").event_bytes > 200
    seen.clear()
    caches._changed(kinds["Namespace"], [Deleted(place, caches.objects("Namespace")[place])])  # noqa: SLF001
    caches._changed(kinds["Event"], [Added(("red-web", "after"), after)])  # noqa: SLF001
    assert (after.body, caches.stored.all.event_bytes) == (b"", held_bytes)
    assert [each.kind for each in seen] == ["Namespace"]
    for event_object in (before, after):
        key = "red-web", event_object.metadata.name
        caches._changed(kinds["Event"], [Deleted(key, event_object)])  # noqa: SLF001
    assert caches.stored.all.event_bytes == 0
    await tasks.close(1.0)


async def test_volumes_that_outlive_their_claims_are_counted() -> None:
    """A tenant whose class retains volumes leaves one with each claim that it makes and deletes."""
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), lambda _: None)
    tasks = Tasks("test")
    for key in ("red", "green"):
        cluster.storage.put(NAMESPACES, _namespace(key, "web"))
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    before = {key: caches.stored.of(key).memory_bytes for key in ("red", "green")}
    volumes = persistent_volume.KIND.resource
    for number in range(10):
        value = _volume(f"v-{number}", "red-web") | {"status": {"phase": "Released", "message": "x" * 1_000}}
        cluster.storage.put(volumes, value)
    cluster.storage.put(volumes, {"metadata": {"name": "free"}, "spec": {}})
    await asyncio.sleep(1)
    red = caches.stored.of("red")
    assert red.counts["PersistentVolume"] == 10
    assert red.memory_bytes - before["red"] > 20_000
    assert caches.stored.of("green").memory_bytes == before["green"]
    # One that an operator gives to another claim is that claim's.
    cluster.storage.put(volumes, _volume("v-0", "green-web"))
    cluster.storage.put(volumes, {"metadata": {"name": "v-1"}, "spec": {}})
    await asyncio.sleep(1)
    assert red.counts["PersistentVolume"] == 8
    assert caches.stored.of("green").counts["PersistentVolume"] == 1
    for number in range(10):
        cluster.storage.delete(volumes, "", f"v-{number}")
    await asyncio.sleep(1)
    assert {key: caches.stored.of(key).memory_bytes for key in ("red", "green")} == before
    await tasks.close(1.0)
