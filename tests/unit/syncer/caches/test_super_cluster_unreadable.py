# SPDX-License-Identifier: Apache-2.0
"""What cannot be read in the super cluster counts, in every order of what becomes of it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.kube.store import Store
from daemonkit.kube.watch import Put, Removed, Undecodable
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Storage
from syncer.caches.cached_object import CachedMetadata, CachedObject
from syncer.caches.super_change import SuperChange
from syncer.caches.super_cluster import SuperCaches
from syncer.kinds import table

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


def _sum(there: dict[str, tuple[str, int]], wanted: str) -> int:
    return sum(size for state, size in there.values() if state == wanted)
