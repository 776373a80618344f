# SPDX-License-Identifier: Apache-2.0
"""Events (reference 8: event uws)."""

from dataclasses import replace
from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import Side
from syncer.core.view import SyncSettings
from syncer.kinds.event import SYNC
from tests.unit.syncer.kinds.objects import (
    KEY,
    SUPER_NAMESPACE,
    brief,
    created,
    deleting,
    patched,
    plan,
    super_object,
    tenant_object,
)

REF = {
    "kind": "Pod",
    "namespace": SUPER_NAMESPACE,
    "name": "p",
    "uid": "s-1",
    "resourceVersion": "9",
    "fieldPath": "f",
}


def event(ref: Object = REF, **fields: Any) -> Object:
    meta = {"name": "e", "namespace": SUPER_NAMESPACE, "uid": "s-5", "labels": {"l": "1", "vcnode.io/x": "y"}}
    return {"kind": "Event", "metadata": meta, "involvedObject": dict(ref), "reason": "Pulled"} | fields


def view(*kinds: str, with_tenant: bool = True, with_super: bool = True) -> FakeView:
    return FakeView(
        tenant_objects=[tenant_object(kind, "p") for kind in kinds] if with_tenant else [],
        super_objects=[super_object(kind, "p") for kind in kinds] if with_super else [],
    )


def test_an_event_of_a_pod_comes_up_with_the_tenants_names() -> None:
    text = f"{SUPER_NAMESPACE}/p of {KEY} in {KEY}-other/q"
    unknown = {"newer": "x", "metadataOf": {"namespace": SUPER_NAMESPACE}}
    found = event({**REF, "newer": "x"}, message=text, count=3, action="Binding", **unknown)
    body = created(SYNC.plan(("ns", "e"), Pair(None, found), view("Pod")))
    assert body == {
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "ns", "labels": {"l": "1"}},
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "t-1", "fieldPath": "f"},
        "reason": "Pulled",
        "message": "ns/p of  in other/q",
        "count": 3,
        "action": "Binding",
    }


@pytest.mark.parametrize("kind", ["Service", "PersistentVolumeClaim", "Ingress"])
def test_events_of_other_kinds_come_up(kind: str) -> None:
    result = SYNC.plan(("ns", "e"), Pair(None, event({**REF, "kind": kind})), view(kind))
    assert brief(result) == ["create in tenant e"]


@pytest.mark.parametrize(
    ("found", "objects"),
    [
        (None, view("Pod")),
        (deleting(event()), view("Pod")),
        (event({**REF, "kind": "Deployment"}), view("Deployment")),
        (event({**REF, "kind": "Node"}), view("Node")),
        (event({**REF, "namespace": "foreign"}), view("Pod")),
        (event({**REF, "name": "unknown"}), view("Pod")),
        (event(), FakeView()),
        (event({**REF, "uid": "of a former pod"}), view("Pod")),
        (event(), FakeView(tenant_objects=[tenant_object("Pod", "p")], unknown=frozenset({"ns"}))),
    ],
)
def test_events_of_what_the_tenant_has_not_stay(found: Object | None, objects: FakeView) -> None:
    assert SYNC.plan(("ns", "e"), Pair(None, found), objects).actions == ()


def test_the_last_event_of_a_pod_comes_up_in_either_order() -> None:
    for has_tenant, has_super in ((True, False), (False, True)):
        objects = view("Pod", with_tenant=has_tenant, with_super=has_super)
        body = created(SYNC.plan(("ns", "e"), Pair(None, event()), objects))
        assert body["involvedObject"]["uid"] == "t-1"


def test_counts_come_up_too() -> None:
    series = {"count": 4, "lastObservedTime": "2025-01-01T00:00:00.000000Z"}
    objects = view("Pod")
    own = created(SYNC.plan(("ns", "e"), Pair(None, event(count=1)), objects))
    own["metadata"]["uid"] = "t-5"
    later = event(count=9, lastTimestamp="2025-01-01T00:00:00Z", series=series)
    assert patched(SYNC.plan(("ns", "e"), Pair(own, later), objects), Side.TENANT) == {
        "count": 9,
        "lastTimestamp": "2025-01-01T00:00:00Z",
        "series": series,
    }
    assert brief(plan(SYNC, own, event(count=1), objects)) == []


def test_an_event_of_the_tenants_own_is_never_changed_or_deleted() -> None:
    own = tenant_object("Event", "e", involvedObject={"uid": "another"}, reason="Pulled", count=1)
    assert brief(SYNC.plan(("ns", "e"), Pair(own, event(count=9)), view("Pod"))) == []
    assert brief(SYNC.plan(("ns", "e"), Pair(own, None), view("Pod"))) == []


def test_a_related_object_is_the_tenants_or_left_out() -> None:
    related = {"kind": "Pod", "namespace": SUPER_NAMESPACE, "name": "p", "uid": "s-1"}
    body = created(SYNC.plan(("ns", "e"), Pair(None, event(related=related)), view("Pod")))
    assert body["related"] == {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "t-1"}
    foreign = {**related, "namespace": "foreign"}
    assert "related" not in created(SYNC.plan(("ns", "e"), Pair(None, event(related=foreign)), view("Pod")))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("0/2 nodes: 1 had untolerated taint {tenant: rival}.", "0/2 nodes: 1 had untolerated taint."),
        ("1 node(s) had untolerated taint(s) {a: b}, x", "1 node(s) had untolerated taint(s), x"),
        (
            "had untolerated taint {node.kubernetes.io/disk-pressure: }",
            "had untolerated taint {node.kubernetes.io/disk-pressure: }",
        ),
        ("conflicts with vcs-1f00ba-rival-shop/db", "conflicts with ***/db"),
        ("p of web-shop", "p of web-shop"),
    ],
)
def test_messages_name_nobody_else(message: str, expected: str) -> None:
    seen = replace(view("Pod"), others=(("vcs-1f00ba-rival", "shop"),))
    assert created(SYNC.plan(("ns", "e"), Pair(None, event(message=message)), seen))["message"] == expected


def test_events_of_configured_kinds_come_up() -> None:
    found = event({**REF, "kind": "Widget"})
    assert brief(SYNC.plan(("ns", "e"), Pair(None, found), view("Widget"))) == []
    seen = replace(view("Widget"), settings=SyncSettings(custom_resources=("Widget",)))
    body = created(SYNC.plan(("ns", "e"), Pair(None, found), seen))
    assert body["involvedObject"] == {
        "kind": "Widget",
        "namespace": "ns",
        "name": "p",
        "uid": "t-1",
        "fieldPath": "f",
    }


def test_keys_of_the_super_clusters_controllers_stay_below() -> None:
    found = event(REF)
    found["metadata"]["labels"] = {"l": f"in {SUPER_NAMESPACE}", "controller.example/queue": "x"}
    found["metadata"]["annotations"] = {f"k{n:02}": "v" for n in range(40)} | {"policies.example/rule": "x"}
    meta = created(SYNC.plan(("ns", "e"), Pair(None, found), view("Pod")))["metadata"]
    assert meta["labels"] == {"l": "in ns"}
    assert meta["annotations"] == {f"k{n:02}": "v" for n in range(16)}
