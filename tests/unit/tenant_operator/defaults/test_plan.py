# SPDX-License-Identifier: Apache-2.0
"""What is applied and removed in a tenant, and what is left as it is."""

from collections.abc import Sequence

import pytest

from tenant_operator.defaults.desired import DesiredList, DesiredObject
from tenant_operator.defaults.inventory import EntryState, Inventory, InventoryEntry
from tenant_operator.defaults.kept import kept
from tenant_operator.defaults.kinds import TenantRef
from tenant_operator.defaults.plan import (
    ApplyDefault,
    DefaultsPlan,
    DefaultsStep,
    LiveObjectState,
    RemoveDefault,
    applied,
    needed,
    plan,
)
from tenant_operator.model.objects import OPERATOR, Object
from tests.unit.tenant_operator.defaults import manifests
from tests.unit.tenant_operator.defaults.manifests import (
    config_map,
    definition,
    desired,
    live,
    namespace,
    widget,
)

A = config_map("a", x="1")
REF = manifests.ref_of(A)
APPLIED, RELEASED = EntryState.APPLIED, EntryState.RELEASED


def entry(
    manifest: Object, uid: str = "u1", digest: str = "d1", state: EntryState = APPLIED
) -> InventoryEntry:
    ref = manifests.ref_of(manifest)
    return InventoryEntry(
        ref.api_version, ref.kind, ref.name, manifests.path_of(ref), digest, ref.namespace, uid, state
    )


def planned(
    objects: Sequence[DesiredObject],
    entries: Sequence[InventoryEntry],
    *values: Object | None,
    missing: Sequence[Object] = (),
) -> DefaultsPlan:
    """The plan, with these live objects; `missing` do not exist."""
    states = {manifests.ref_of(each): LiveObjectState(each) for each in values if each is not None}
    states.update({manifests.ref_of(each): LiveObjectState() for each in missing})
    found = plan(DesiredList(tuple(objects)), Inventory("", tuple(entries)), states)
    # What is kept of an answer is enough for the same plan.
    known = {each.ref: each for each in objects}
    cut = {
        ref: LiveObjectState(each.value and kept(ref, each.value, known.get(ref)))
        for ref, each in states.items()
    }
    assert plan(DesiredList(tuple(objects)), Inventory("", tuple(entries)), cut) == found
    return found


def with_identity(manifest: Object, uid: str = "u1") -> Object:
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid, "resourceVersion": "7"}}


def test_what_is_missing_is_made_without_force() -> None:
    each = desired(A)
    assert planned([each], [], missing=[A]) == DefaultsPlan((ApplyDefault(each, A, False),), Inventory())


def test_what_is_applied_needs_nothing() -> None:
    objects = DesiredList((desired(A),))
    found = planned([desired(A)], [entry(A)], live(A, "u1"))
    assert found == DefaultsPlan((), Inventory(objects.digest, (entry(A),)))


def test_a_changed_manifest_is_applied_to_what_was_read() -> None:
    each = desired(config_map("a", x="2"), "d2")
    found = planned([each], [entry(A)], live(A, "u1"))
    assert found.steps == (ApplyDefault(each, with_identity(each.manifest), True),)
    assert found.inventory == Inventory("", (entry(A),))


def test_fields_that_the_tenant_took_are_left_out() -> None:
    before, after = config_map("a", x="1", y="1"), desired(config_map("a", x="2", y="2"), "d2")
    managers: dict[str, Object] = {OPERATOR: {"f:data": {"f:x": {}}}, "kubectl-edit": {"f:data": {"f:y": {}}}}
    found = planned([after], [entry(before)], live(before, "u1", managers))
    assert found.steps == (ApplyDefault(after, with_identity(config_map("a", x="2")), True),)


@pytest.mark.parametrize(
    ("entries", "value", "expected"),
    [
        # Unchanged in the list: the tenant deleted it, made another one, annotated it, took all fields.
        ([entry(A)], None, entry(A, state=RELEASED)),
        ([entry(A)], live(A, "u2"), entry(A, state=RELEASED)),
        ([entry(A)], live(A, "u1", released=True), entry(A, state=RELEASED)),
        ([entry(A)], live(A, "u1", {"kubectl": {"f:data": {}}}), entry(A, state=RELEASED)),
        # Changed in the list.
        ([entry(A, digest="d0")], live(A, "u1", released=True), entry(A, state=RELEASED)),
        ([entry(A, digest="d0")], live(A, "u2"), entry(A, state=RELEASED)),
        ([entry(A, digest="d0")], live(A, "u1", {"kubectl": {"f:data": {}}}), entry(A, state=RELEASED)),
        (
            [entry(A, digest="d0")],
            live(A, "u1", {OPERATOR: {"f:data": {".": {}}}, "kubectl": {"f:data": {"f:x": {}}}}),
            entry(A, state=RELEASED),
        ),
    ],
)
def test_what_the_tenant_took_over_stays_its_own(
    entries: list[InventoryEntry], value: Object | None, expected: InventoryEntry
) -> None:
    found = planned([desired(A)], entries, value, missing=[A] if value is None else [])
    assert (found.steps, found.inventory.entries, found.waits_for) == ((), (expected,), ())


def test_what_was_there_before_is_the_tenants() -> None:
    found = planned([desired(A)], [], live(A, "u1", {"helm": {"f:data": {}}}))
    assert found.steps == ()
    assert found.inventory.entries == (entry(A, uid="", state=RELEASED),)
    assert found.problems == ("ConfigMap a/a was there before, and stays the tenant's",)


def test_a_namespace_that_was_there_is_no_problem() -> None:
    value = namespace("kube-system")
    assert planned([desired(value)], [], live(value, "u1", {})).problems == ()


def test_a_deleted_object_is_made_again_once_it_changes() -> None:
    gone = entry(A, state=RELEASED)
    each = desired(A, "d2")
    assert planned([each], [gone], missing=[A]).steps == (ApplyDefault(each, A, False),)
    assert planned([desired(A)], [gone], missing=[A]).steps == ()


def test_a_lost_inventory_finds_what_was_applied() -> None:
    each = desired(A)
    assert planned([each], [], live(A, "u1")).steps == (ApplyDefault(each, with_identity(A), True),)


@pytest.mark.parametrize(
    ("value", "is_applied"),
    [
        (live(A, "u1"), False),
        (None, True),
        (live(config_map("a", x="9"), "u1"), True),
        (live(A, "u2"), True),
        (live(config_map("a", x="9"), "u1", released=True), True),
    ],
)
def test_essential_objects_are_restored(value: Object | None, is_applied: bool) -> None:
    each = desired(A, is_essential=True)
    found = planned([each], [entry(A)], value, missing=[A] if value is None else [])
    assert found.steps == ((ApplyDefault(each, A, True),) if is_applied else ())


def test_an_essential_object_is_applied_once_in_a_pass() -> None:
    """The API server may store it otherwise than it was applied."""
    each = desired(A, is_essential=True)
    states = {REF: LiveObjectState(live(config_map("a", x="other"), "u1"))}
    inventory = Inventory("", (entry(A),))
    assert plan(DesiredList((each,)), inventory, states, {REF}).steps == ()


def test_objects_wait_for_their_definition() -> None:
    crd = definition()
    objects = [desired(crd), desired(widget("w")), desired(A)]
    found = planned(objects, [], missing=[crd, widget("w"), A])
    assert found.steps == (ApplyDefault(objects[0], crd, False), ApplyDefault(objects[2], A, False))
    assert found.waits_for == ("CustomResourceDefinition widgets.example.com to be established",)
    served = {**live(crd, "u1"), "status": {"conditions": [{"type": "Established", "status": "True"}]}}
    found = planned(objects, [entry(crd)], served, missing=[widget("w"), A])
    assert found.steps == (ApplyDefault(objects[1], widget("w"), False), ApplyDefault(objects[2], A, False))
    assert found.waits_for == ()


def test_what_is_being_deleted_is_waited_for() -> None:
    value = live(A, "u1")
    value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for objects in ([desired(A, "d2")], []):
        found = planned(objects, [entry(A)], value)
        assert (found.steps, found.waits_for) == ((), ("ConfigMap a/a to be deleted",))
        assert found.inventory == Inventory("", (entry(A),))


def test_what_was_not_read_is_not_decided() -> None:
    found = plan(DesiredList((desired(A),)), Inventory("", (entry(widget("w")),)), {})
    assert found.steps == ()
    assert found.waits_for == ("ConfigMap a/a to be read", "Widget w to be read")
    assert found.inventory.entries == (entry(widget("w")),)


B, C = config_map("b", x="1"), config_map("c", x="1")


def removal(manifest: Object) -> DefaultsStep:
    ref = manifests.ref_of(manifest)
    return RemoveDefault(ref, manifests.path_of(ref), "u1", "7")


def test_what_left_the_list_is_removed_last_first() -> None:
    found = planned([desired(A)], [entry(A), entry(B), entry(C)], live(A, "u1"), live(B, "u1"), live(C, "u1"))
    assert found.steps == (removal(C), removal(B))
    assert found.inventory == Inventory("", (entry(A), entry(B), entry(C)))


@pytest.mark.parametrize(
    ("known", "value"),
    [
        (entry(B), None),
        (entry(B), live(B, "u2")),
        (entry(B), live(B, "u1", released=True)),
        (entry(B), live(B, "u1", {"kubectl": {"f:data": {}}})),
        (entry(B, state=RELEASED), live(B, "u1")),
        (entry(B, uid=""), live(B, "u1")),
    ],
)
def test_what_is_not_ours_is_never_removed(known: InventoryEntry, value: Object | None) -> None:
    found = planned([], [known], value, missing=[B] if value is None else [])
    assert found == DefaultsPlan((), Inventory(DesiredList().digest, ()))


def test_a_namespace_is_never_removed() -> None:
    value = namespace("a")
    found = planned([], [entry(value)], live(value, "u1"))
    assert (found.steps, found.inventory.entries) == ((), ())
    assert found.problems == (
        "Namespace a has left the list and stays, as it may hold data: delete it by hand",
    )


@pytest.mark.parametrize(("has_objects", "is_removed"), [(None, False), (True, False), (False, True)])
def test_a_definition_with_objects_is_never_removed(has_objects: bool | None, is_removed: bool) -> None:
    crd = definition()
    states = {manifests.ref_of(crd): LiveObjectState(live(crd, "u1"), has_objects)}
    found = plan(DesiredList(), Inventory("", (entry(crd),)), states)
    assert found.steps == ((removal(crd),) if is_removed else ())
    assert found.inventory.entries == (entry(crd),)
    assert bool(found.problems) is not is_removed


def test_all_that_a_plan_compares_is_read() -> None:
    objects = DesiredList((desired(A), desired(B)))
    found = needed(objects, Inventory("", (entry(B), entry(widget("w")))))
    assert found == {
        manifests.ref_of(B): "/api/v1/namespaces/a/configmaps/b",
        TenantRef("example.com/v1", "Widget", "", "w"): "/apis/example.com/v1/widgets/w",
        REF: "/api/v1/namespaces/a/configmaps/a",
    }


def test_an_answer_is_entered_with_its_uid() -> None:
    assert applied(desired(A), live(A, "u9")) == entry(A, "u9")
    assert applied(desired(A), {"metadata": {"uid": 3}}) == entry(A, "")
    assert applied(desired(A), {}) == entry(A, "")


@pytest.mark.parametrize("broken", [{}, {"metadata": 3}, {"metadata": {"managedFields": [3, {}]}}])
def test_a_broken_answer_is_nobodys(broken: Object) -> None:
    """A tenant's API server may answer anything."""
    states = {REF: LiveObjectState(broken)}
    assert plan(DesiredList((desired(A, "d2"),)), Inventory("", (entry(A),)), states).steps == ()
