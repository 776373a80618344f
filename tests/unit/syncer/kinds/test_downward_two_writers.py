# SPDX-License-Identifier: Apache-2.0
"""Tenants and controllers of the super cluster write into the same objects, in any order.

The API server's rules are those of `devkit.kube.managed_fields`; the record of a real one is in
tests/unit/syncer/core/test_field_ownership.py.
"""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.kube.resources import NAMESPACES
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.patches import MERGE
from devkit.kube.storage import Storage
from devkit.syncer.fake_view import FakeView
from syncer.caches.cached_object import parse_super, parse_super_pod
from syncer.core.objects import Object, merge_patch
from syncer.core.pair import Pair
from syncer.core.plan import Create, Patch, Side
from syncer.core.requests import request_of
from syncer.kinds import (
    configmap,
    custom_resource,
    ingress,
    persistent_volume_claim,
    secret,
    service,
    service_account,
)
from syncer.kinds.custom_resource import CustomResource
from syncer.kinds.port import KindSync
from syncer.policy.sync_policy import SyncPolicy
from tests.unit.syncer.kinds.objects import SUPER_NAMESPACE, tenant_object

_API = {
    "kind": "Service",
    "metadata": {"namespace": "x", "name": "kubernetes"},
    "spec": {"clusterIP": "10.0.0.1"},
}
_WIDGETS = custom_resource.sync_of(CustomResource("example.com", "v1", "widgets", "Widget"))

_KINDS: dict[str, tuple[KindSync, Object]] = {
    "service": (service.SYNC, {"spec": {"ports": [{"port": 80, "protocol": "TCP"}], "type": "ClusterIP"}}),
    "claim": (persistent_volume_claim.SYNC, {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}),
    "custom resource": (_WIDGETS, {"spec": {"size": 1}}),
    "config map": (configmap.SYNC, {"data": {"k": "v"}}),
    "secret": (secret.SYNC, {"type": "Opaque", "data": {"k": "dg=="}}),
    "service account": (service_account.SYNC, {}),
    "ingress": (ingress.SYNC, {"spec": {"ingressClassName": "public"}}),
}
# Where keys come and go: in metadata always, in the rest where the kind has room for it.
_ROOM = {"custom resource": (("spec",), ("spec", "deep", "deeper"))}
_IN_METADATA = (("metadata", "labels"), ("metadata", "annotations"))


def _set(value: Object, path: tuple[str, ...], key: str, to: str | None) -> None:
    for name in path:
        value = value.setdefault(name, {})
    if to is None:
        value.pop(key, None)
    else:
        value[key] = to


def _get(value: Any, path: tuple[str, ...]) -> Object:
    for name in path:
        value = (value or {}).get(name)
    return value or {}


class Two:
    """A tenant's object, and the super object, of which `theirs` is what others wrote last."""

    def __init__(self, kind: str) -> None:
        self.sync, fields = _KINDS[kind]
        self.tenant = tenant_object(self.sync.kind.kind, **copy.deepcopy(fields))
        self.cluster = Cluster(Storage(), ClusterSettings(has_controllers=False))
        self.cluster.create(NAMESPACES, {"metadata": {"name": SUPER_NAMESPACE}}, "vc-syncer")
        self.view = FakeView(policy=SyncPolicy(), super_objects=[_API])
        self.settle()

    @property
    def found(self) -> Object | None:
        return self.cluster.storage.peek(self.sync.kind.resource, SUPER_NAMESPACE, "a")

    def settle(self) -> int:
        """Plan and carry out until nothing is to do below; the number of writes."""
        for writes in range(5):
            raw = None if self.found is None else msgspec.json.encode(self.found)
            found = None if raw is None else parse_super(raw).load()
            plan = self.sync.plan(("ns", "a"), Pair(copy.deepcopy(self.tenant), found), self.view)
            assert not plan.refusals, plan.refusals
            assert plan.wait is None
            assert plan.conflict is None
            down = [
                each for each in plan.actions if isinstance(each, Create | Patch) and each.side is Side.SUPER
            ]
            if not down:
                return writes
            for action in down:
                request = request_of(action)
                if isinstance(action, Create):
                    value = msgspec.json.decode(request.body)
                    self.cluster.create(self.sync.kind.resource, value, "vc-syncer")
                else:
                    self.patch(request.body, "vc-syncer")
        raise AssertionError(f"two writers: {plan}")

    def patch(self, body: bytes, manager: str) -> None:
        resource = self.sync.kind.resource
        self.cluster.patch(resource, SUPER_NAMESPACE, "a", "", MERGE, body, manager)

    def edit_below(self, path: tuple[str, ...], key: str, to: str | None) -> None:
        assert self.found is not None
        new = copy.deepcopy(self.found)
        _set(new, path, key, to)
        if body := merge_patch(self.found, new):
            self.patch(msgspec.json.encode(body), "kube-vip")


_EDITS = st.lists(
    st.tuples(
        st.sampled_from(["tenant", "below"]),
        st.integers(0, 3),
        st.sampled_from("ab"),
        st.sampled_from(["1", "2", None]),
    ),
    max_size=12,
)


@pytest.mark.parametrize("kind", _KINDS)
@given(edits=_EDITS)
@settings(max_examples=40, deadline=None)
def test_foreign_keys_survive_ours_follow_and_nobody_fights(
    kind: str, edits: list[tuple[str, int, str, str | None]]
) -> None:
    two = Two(kind)
    places = (*_IN_METADATA, *_ROOM.get(kind, ()))
    own: dict[tuple[tuple[str, ...], str], str] = {}
    theirs: dict[tuple[tuple[str, ...], str], str] = {}
    for who, where, letter, to in edits:
        path, key = places[where % len(places)], f"{who}-{letter}"
        _set(two.tenant, path, key, to) if who == "tenant" else two.edit_below(path, key, to)
        noted = own if who == "tenant" else theirs
        if to is None:
            noted.pop((path, key), None)
        else:
            noted[path, key] = to
        assert two.settle() <= 1
        assert two.settle() == 0
        for place in places:
            there = {
                key: each for key, each in _get(two.found, place).items() if key[:-2] in ("tenant", "below")
            }
            expected = {key: each for (at, key), each in (own | theirs).items() if at == place}
            assert there == expected


def test_a_value_that_another_changed_is_the_tenants_again() -> None:
    two = Two("config map")
    two.edit_below(("data",), "k", "other")
    assert two.settle() == 1
    assert _get(two.found, ("data",)) == {"k": "v"}
    del two.tenant["data"]["k"]
    assert two.settle() == 1
    assert _get(two.found, ("data",)) == {}


def test_a_pods_keys_of_others_stay() -> None:
    """Of a pod only the record of metadata is kept."""
    labels: Object = {"f:own": {}}
    managed = [
        {"manager": "syncer", "fieldsV1": {"f:metadata": {"f:labels": labels, "f:annotations": {"f:n": {}}}}},
    ]
    meta = {
        "name": "a",
        "namespace": SUPER_NAMESPACE,
        "labels": {"own": "x", "cni": "y"},
        "annotations": {"n": "x", "cni.example.com/ip": "10.0.0.1"},
        "managedFields": managed,
    }
    found = parse_super_pod(msgspec.json.encode({"metadata": meta, "spec": {"a": 1}})).load()
    assert found["metadata"]["foreignFields"] == {
        "metadata": {"labels": {"cni": {}}, "annotations": {"cni.example.com/ip": {}}}
    }


@pytest.mark.parametrize("kind", ["config map", "secret"])
def test_content_that_pods_read_is_the_tenants_alone(kind: str) -> None:
    two = Two(kind)
    own = _get(two.found, ("data",))
    two.edit_below(("data",), "more", "eA==")
    assert two.settle() == 1
    assert _get(two.found, ("data",)) == own
