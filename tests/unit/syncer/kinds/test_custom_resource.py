# SPDX-License-Identifier: Apache-2.0
"""Custom resources that the configuration names."""

from syncer.core.plan import Side
from syncer.kinds.custom_resource import CustomResource, Direction, sync_of
from syncer.kinds.port import Scope
from tests.unit.syncer.kinds.objects import brief, created, patched, plan, super_object, tenant_object

WIDGETS = CustomResource("example.com", "v1", "widgets", "Widget")
SYNC = sync_of(WIDGETS)


def test_all_but_status_goes_down_and_status_comes_up() -> None:
    assert (SYNC.kind.api_version, SYNC.kind.resource.plural, SYNC.scope) == (
        "example.com/v1",
        "widgets",
        Scope.NAMESPACED,
    )
    own = tenant_object("Widget", spec={"size": 1}, more=[1], status={"phase": "old"})
    body = created(plan(SYNC, own, None))
    assert {name: body.get(name) for name in ("spec", "more", "status")} == {
        "spec": {"size": 1},
        "more": [1],
        "status": None,
    }
    result = plan(SYNC, own, super_object("Widget", spec={"size": 2}, status={"phase": "new"}))
    assert patched(result) == {"spec": {"size": 1}, "more": [1]}
    assert patched(result, Side.TENANT, "status") == {"status": {"phase": "new"}}


def test_without_the_subresource_no_status_comes_up() -> None:
    sync = sync_of(CustomResource("example.com", "v1", "widgets", "Widget", has_status=False))
    own = tenant_object("Widget", spec={}, status={"phase": "old"})
    assert brief(plan(sync, own, super_object("Widget", spec={}, status={"phase": "new"}))) == []


def test_others_are_published_by_label() -> None:
    sync = sync_of(CustomResource("example.com", "v1", "flavors", "Flavor", Direction.UP))
    assert (sync.scope, sync.kind.resource.is_namespaced) == (Scope.PUBLISHED, False)
    labels = {"tenancy.x-k8s.io/super.public": "true"}
    found = tenant_object("Flavor", "a", "", uid="s-1", meta={"labels": labels}, spec={"cpu": 1})
    assert created(plan(sync, None, found))["spec"] == {"cpu": 1}
