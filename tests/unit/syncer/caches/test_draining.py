# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import msgspec

from syncer.caches.cached_object import CachedMetadata, CachedObject
from syncer.caches.draining import DrainedNodes

_ADDED = "2026-01-01T00:00:00Z"
_ADDED_S = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()


def _node(*, unschedulable: object = True, time_added: str | None = None) -> CachedObject:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if time_added is not None:
        taint["timeAdded"] = time_added
    spec = {
        "unschedulable": unschedulable,
        "taints": [taint, {"key": "other", "timeAdded": "1999-01-01T00:00:00Z"}],
    }
    return CachedObject(CachedMetadata("n"), msgspec.json.encode({"spec": spec}))


def test_a_cordoned_node_counts_from_its_taint() -> None:
    drains = DrainedNodes()
    drains.pod_moved("red-web", "", "n")
    drains.pod_moved("red-db", "", "other")
    assert drains.note(_ADDED_S) == set()
    drains.node_changed("n", _node(time_added=_ADDED))
    assert drains.note(_ADDED_S + 60) == {"red-web"}
    assert (drains.seconds("red-web"), drains.seconds("red-db")) == (60, 0)
    assert drains.note(_ADDED_S + 60) == set()
    drains.node_changed("n", _node(unschedulable=False))
    assert drains.note(_ADDED_S + 70) == {"red-web"}
    assert drains.seconds("red-web") == 0


def test_without_a_time_it_counts_from_when_it_was_seen() -> None:
    drains = DrainedNodes()
    drains.pod_moved("red-web", "", "n")
    drains.node_changed("n", _node())
    assert drains.note(100) == {"red-web"}
    drains.node_changed("n", _node())
    drains.note(160)
    assert drains.seconds("red-web") == 60
    drains.note(90)  # a clock that was set back
    assert drains.seconds("red-web") == 0


def test_a_drain_is_over_with_the_last_pod_or_the_node() -> None:
    drains = DrainedNodes()
    for name in ("n", "n", "m"):
        drains.pod_moved("red-web", "", name)
    drains.node_changed("n", _node())
    drains.note(0)
    drains.pod_moved("red-web", "n", "")
    drains.note(10)
    assert drains.seconds("red-web") == 10
    drains.pod_moved("red-web", "n", "m")
    assert drains.note(20) == {"red-web"}
    assert drains.seconds("red-web") == 0
    drains.node_changed("m", _node())
    drains.note(30)
    assert drains.note(40) == {"red-web"}
    drains.node_changed("m", None)
    assert drains.note(50) == {"red-web"}
    assert drains.seconds("red-web") == 0


def test_of_a_node_of_another_shape_stays_what_was_known() -> None:
    drains = DrainedNodes()
    drains.pod_moved("red-web", "", "n")
    drains.node_changed("n", _node())
    drains.note(0)
    drains.node_changed("n", _node(unschedulable="no"))
    drains.note(10)
    assert drains.seconds("red-web") == 10
