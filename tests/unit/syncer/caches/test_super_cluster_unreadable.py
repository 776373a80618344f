# SPDX-License-Identifier: Apache-2.0
"""What cannot be read in the super cluster counts, in every order of what becomes of it."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.fairness.scheduler import TenantScheduler
from daemonkit.kube.resources import NAMESPACES
from daemonkit.kube.store import Store
from daemonkit.kube.watch import Put, Removed, Undecodable
from daemonkit.tasks import Tasks
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object, Storage
from syncer.caches.cached_object import CachedMetadata, CachedObject
from syncer.caches.super_change import SuperChange
from syncer.caches.super_cluster import SuperCaches
from syncer.kinds import persistent_volume, table
from tenancy import keys
from tests.unit.syncer.planes import TOO_MANY_LABELS, grow

_STATES = ("absent", "readable", "unreadable")
_STEPS = st.lists(st.tuples(st.sampled_from(_STATES), st.sampled_from("ab"), st.integers(1, 9)), max_size=20)


def _ignore(_: SuperChange) -> None: ...


@settings(deadline=None, max_examples=50)
@given(_STEPS)
def test_each_object_counts_once(steps: list[tuple[str, str, int]]) -> None:
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    caches = SuperCaches(InProcessClient(cluster), table.kinds(()), _ignore)
    caches.stored.own("red-web", "red")
    kind = next(each for each in table.kinds(()) if each.kind.kind == "ConfigMap")
    store: Store[CachedObject] = Store()
    there: dict[str, tuple[str, int]] = {}
    for version, (state, name, size) in enumerate(steps, 1):
        meta = CachedMetadata(name, "red-web", "u", str(version))
        there.pop(name, None)
        if state == "absent":
            changes = store.apply(Removed(meta))
        else:
            there[name] = state, size
            value = Put(CachedObject(meta, b"x" * size))
            changes = store.apply(value if state == "readable" else Undecodable(meta, "odd", size_bytes=size))
        caches._changed(kind, changes)  # noqa: SLF001 - as the watch does
        found = caches.stored.of("red")
        assert found.stored_bytes == _sum(there, "readable")
        assert found.unreadable_bytes == _sum(there, "unreadable")
        assert found.counts["ConfigMap"] == len(there)


@pytest.mark.asyncio
async def test_volumes_that_cannot_be_read_count() -> None:
    """As those of the claim's super namespace, by what can be read of them, or else could be before."""
    cluster = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0)
    caches, tasks = SuperCaches(InProcessClient(cluster), table.kinds(()), _ignore), Tasks("test")
    volumes = persistent_volume.KIND.resource
    for key in ("red", "green"):
        notes = {keys.CLUSTER: key, keys.NAMESPACE: "web", keys.UID: "n", keys.VC_UID: "u"}
        cluster.storage.put(NAMESPACES, {"metadata": {"name": f"{key}-web", "annotations": notes}})
    cluster.storage.put(volumes, _volume("from-the-first", "red-web", TOO_MANY_LABELS))
    cluster.storage.put(volumes, _volume("free", None, TOO_MANY_LABELS))
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    assert _volumes(caches, "red") == 1
    cluster.storage.put(volumes, _volume("grows", "red-web", {}))
    await asyncio.sleep(1)
    assert _volumes(caches, "red") == 2
    unreadable_bytes = caches.stored.of("red").unreadable_bytes
    grow(cluster.storage, volumes, "", "grows")
    await asyncio.sleep(1)
    assert _volumes(caches, "red") == 2
    assert caches.stored.of("red").unreadable_bytes == pytest.approx(2 * unreadable_bytes)
    # Where the claim is cannot be read either.
    cluster.storage.put(volumes, _volume("odd", "red-web", {}))
    for name, spec in (("grows", 5), ("odd", 5), ("odd", 6)):
        await asyncio.sleep(1)
        assert _volumes(caches, "red") == 3
        cluster.storage.put(volumes, {"metadata": {"name": name}, "spec": spec})
    await asyncio.sleep(1)
    assert _volumes(caches, "red") == 3
    cluster.storage.put(volumes, _volume("from-the-first", "green-web", TOO_MANY_LABELS))
    await asyncio.sleep(1)
    assert (_volumes(caches, "red"), _volumes(caches, "green")) == (2, 1)
    cluster.storage.put(volumes, _volume("from-the-first", "green-web", {}))
    for name in ("grows", "odd", "free"):
        cluster.storage.delete(volumes, "", name)
    await asyncio.sleep(1)
    assert (_volumes(caches, "red"), _volumes(caches, "green")) == (0, 1)
    assert caches.stored.all.unreadable_bytes == 0
    await tasks.close(1.0)


@pytest.mark.asyncio
async def test_each_state_of_a_volume_is_reported_and_paid() -> None:
    """By whose claim it is of, and by whose it was: a patrol is minutes away."""
    cluster, seen = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0), list[tuple[str | None, bool]]()
    paid = Counter[str]()

    def note(change: SuperChange) -> None:
        if change.kind == "PersistentVolume":
            seen.append((change.key, change.is_deleted))

    caches = SuperCaches(
        InProcessClient(cluster), table.kinds(()), note, on_applied=lambda parts, _: paid.update(parts)
    )
    tasks, volumes = Tasks("test"), persistent_volume.KIND.resource
    for key in ("red", "green"):
        notes = {keys.CLUSTER: key, keys.NAMESPACE: "web", keys.UID: "n", keys.VC_UID: "u"}
        cluster.storage.put(NAMESPACES, {"metadata": {"name": f"{key}-web", "annotations": notes}})
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    odd = TOO_MANY_LABELS

    async def step(claim_namespace: str | None, labels: dict[str, str]) -> tuple[set[object], set[str]]:
        seen.clear()
        paid.clear()
        cluster.storage.put(volumes, _volume("v", claim_namespace, labels))
        await asyncio.sleep(1)
        return set(seen), {key for key, size_bytes in paid.items() if size_bytes > 20_000 or not labels}

    assert await step("red-web", odd) == ({("red", False)}, {"red"})
    assert await step("red-web", {}) == ({("red", False)}, {"red"})
    assert await step("red-web", odd) == ({("red", False)}, {"red"})
    assert await step("green-web", odd) == ({("red", False), ("green", False)}, {"green"})
    assert await step(None, {}) == ({("green", False)}, {"green"})
    assert await step("red-web", odd) == ({("red", False)}, {"red"})
    seen.clear()
    paid.clear()
    cluster.storage.delete(volumes, "", "v")
    await asyncio.sleep(1)
    assert (seen, list(paid)) == ([("red", True)], ["red"])
    await tasks.close(1.0)


@pytest.mark.asyncio
async def test_an_unreadable_namespace_is_paid_by_its_owner() -> None:
    cluster, paid = Cluster(Storage(), ClusterSettings(), clock=lambda: 0.0), Counter[str]()
    caches = SuperCaches(
        InProcessClient(cluster), table.kinds(()), _ignore, on_applied=lambda parts, _: paid.update(parts)
    )
    tasks = Tasks("test")
    notes = {keys.CLUSTER: "red", keys.NAMESPACE: "web", keys.UID: "n", keys.VC_UID: "u"}
    cluster.storage.put(NAMESPACES, {"metadata": {"name": "red-web", "annotations": notes}})
    caches.start(tasks, TenantScheduler().open("super cluster"))
    await caches.wait_synced()
    grow(cluster.storage, NAMESPACES, "", "red-web")
    await asyncio.sleep(1)
    assert paid["red"] > 20_000
    await tasks.close(1.0)


def _volume(name: str, claim_namespace: str | None, labels: dict[str, str]) -> Object:
    spec = {} if claim_namespace is None else {"claimRef": {"namespace": claim_namespace, "name": "c"}}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _volumes(caches: SuperCaches, key: str) -> int:
    return caches.stored.of(key).counts["PersistentVolume"]


def _sum(there: dict[str, tuple[str, int]], wanted: str) -> int:
    return sum(size for state, size in there.values() if state == wanted)
