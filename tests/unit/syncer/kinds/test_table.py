# SPDX-License-Identifier: Apache-2.0
"""The table of kinds."""

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING
from syncer.kinds import table
from syncer.kinds.port import KindSync, Scope
from tests.unit.syncer.kinds.objects import plan, super_object, tenant_object

_DOWN = [
    each
    for each in (*table.DEFAULT, *table.OPTIONAL.values())
    if each.scope is Scope.NAMESPACED and each.kind.kind != "Event"
]
# Those that some kind translates, and what becomes of them.
_NAMES = {
    translated
    for each in _DOWN
    for name in ("a", "default", "kubernetes", "kube-root-ca.crt")
    for translated in (name, each.super_name(name))
}


def test_the_kinds_are_upstreams_and_four_more() -> None:
    assert [each.kind.kind for each in table.DEFAULT] == [
        "Namespace",
        "StorageClass",
        "ServiceAccount",
        "ConfigMap",
        "Secret",
        "Service",
        "Endpoints",
        "EndpointSlice",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "Pod",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Event",
    ]
    assert {name: each.kind.kind for name, each in table.OPTIONAL.items()} == {
        "ingress": "Ingress",
        "priorityclass": "PriorityClass",
        "crd": "CustomResourceDefinition",
        "runtimeclass": "RuntimeClass",
        "ingressclass": "IngressClass",
    }


def test_no_kind_is_there_twice() -> None:
    found = [str(each.kind.resource) for each in (*table.DEFAULT, *table.OPTIONAL.values())]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("sync", _DOWN, ids=lambda each: each.kind.kind)
def test_no_two_objects_have_one_super_object(sync: KindSync) -> None:
    """Else each is deleted for the other, again and again: one of both stays in the tenant, and says so."""
    kind = sync.kind.kind
    for name in sorted(_NAMES):
        if sync.tenant_name(sync.super_name(name)) == name:
            continue
        there = super_object(kind, sync.super_name(name), uid="s-7", owner="t-7")
        own = plan(sync, tenant_object(kind, name), there)
        assert own.actions == ()
        assert own.refusals != ()
        assert sync.plan(("ns", name), Pair(None, there), FakeView()) == NOTHING
