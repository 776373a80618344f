# SPDX-License-Identifier: Apache-2.0
"""What all kinds have in common that go down (reference 8: create x3, delete x3, and the patrol's rules)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.syncer.fake_view import TENANT, FakeView
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import Create, Delete, Half, Patch, Plan, Side, Wait
from syncer.kinds import table
from syncer.kinds.port import KindSync
from syncer.policy.sync_policy import ClaimPolicy, IngressPolicy, SyncPolicy
from tests.cases.sync.policy import PERMISSIVE
from tests.cases.sync.world import World
from tests.unit.syncer.kinds.objects import (
    SUPER_NAMESPACE,
    brief,
    deleting,
    foreign_object,
    plan,
    super_object,
    tenant_object,
)

# A field of each kind that goes down, with another value.
FIELDS: dict[str, tuple[Object, Object]] = {
    "ConfigMap": ({"data": {"k": "v"}}, {"data": {"k": "w"}}),
    "Secret": ({"data": {"k": "dg=="}}, {"data": {"k": "dw=="}}),
    "ServiceAccount": ({"automountServiceAccountToken": True}, {"automountServiceAccountToken": False}),
    "Service": ({"spec": {"selector": {"a": "1"}}}, {"spec": {"selector": {"a": "2"}}}),
    "Endpoints": (
        {"subsets": [{"addresses": [{"ip": "192.0.2.1"}]}]},
        {"subsets": [{"addresses": [{"ip": "192.0.2.2"}]}]},
    ),
    "PersistentVolumeClaim": (
        {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
        {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
    ),
    "Ingress": ({"spec": {"ingressClassName": "a"}}, {"spec": {"ingressClassName": "b"}}),
    "NetworkPolicy": ({"spec": {"policyTypes": ["Egress"]}}, {"spec": {"policyTypes": ["Ingress"]}}),
    "PodDisruptionBudget": ({"spec": {"minAvailable": 1}}, {"spec": {"minAvailable": 2}}),
}
_SYNCS = {each.kind.kind: each for each in (*table.DEFAULT, *table.OPTIONAL.values())}
DOWNWARD = [pytest.param(_SYNCS[kind], *fields, id=kind) for kind, fields in FIELDS.items()]


@pytest.mark.parametrize(("sync", "fields", "others"), DOWNWARD)
def test_what_the_tenant_has_is_created(sync: KindSync, fields: Object, others: Object) -> None:
    result = plan(sync, tenant_object(sync.kind.kind, **fields), None)
    assert brief(result) == ["create in super a"]
    (action,) = result.actions
    assert isinstance(action, Create)
    assert action.body["metadata"]["namespace"] == SUPER_NAMESPACE
    assert {name: action.body[name] for name in fields} == fields


@pytest.mark.parametrize(("sync", "fields", "others"), DOWNWARD)
def test_what_is_there_already_is_adopted_without_a_write(
    sync: KindSync, fields: Object, others: Object
) -> None:
    kind = sync.kind.kind
    assert brief(plan(sync, tenant_object(kind, **fields), super_object(kind, **fields))) == []


@pytest.mark.parametrize(("sync", "fields", "others"), DOWNWARD)
def test_what_another_tenant_object_left_is_deleted_first(
    sync: KindSync, fields: Object, others: Object
) -> None:
    kind = sync.kind.kind
    result = plan(sync, tenant_object(kind, **fields), super_object(kind, owner="t-0", **fields))
    assert result == Plan(Half((Delete(Side.SUPER, sync.kind, SUPER_NAMESPACE, "a", "s-1"),)))
    ending = deleting(super_object(kind, owner="t-0", **fields))
    assert brief(plan(sync, tenant_object(kind, **fields), ending)) == []


@pytest.mark.parametrize(("sync", "fields", "others"), DOWNWARD)
def test_a_difference_is_repaired(sync: KindSync, fields: Object, others: Object) -> None:
    kind = sync.kind.kind
    result = plan(sync, tenant_object(kind, **fields), super_object(kind, **others))
    assert brief(result) == ["patch object in super s-1"]


@pytest.mark.parametrize(("sync", "fields", "others"), DOWNWARD)
def test_what_the_tenant_deleted_is_deleted(sync: KindSync, fields: Object, others: Object) -> None:
    kind = sync.kind.kind
    found = super_object(kind, **fields)
    expected = Plan(Half((Delete(Side.SUPER, sync.kind, SUPER_NAMESPACE, "a", "s-1"),)))
    assert plan(sync, None, found) == sync.plan(("ns", "a"), Pair(None, found), FakeView())
    assert sync.plan(("ns", "a"), Pair(None, found), FakeView()) == expected
    assert brief(plan(sync, deleting(tenant_object(kind, **fields)), None)) == []
    assert brief(plan(sync, None, deleting(found))) == []


@pytest.mark.parametrize(("sync", "fields", "others"), DOWNWARD)
def test_nothing_that_lacks_our_annotations_is_touched(
    sync: KindSync, fields: Object, others: Object
) -> None:
    kind = sync.kind.kind
    foreign = foreign_object(kind, **others)
    assert brief(plan(sync, None, foreign)) == []
    assert brief(plan(sync, deleting(tenant_object(kind, **fields)), foreign)) == []
    assert brief(plan(sync, tenant_object(kind, **fields), foreign)) == ["conflict"]
    of_another_tenant = super_object(kind, **others)
    of_another_tenant["metadata"]["annotations"]["tenancy.x-k8s.io/cluster"] = "other"
    assert brief(plan(sync, None, of_another_tenant)) == []
    assert brief(plan(sync, tenant_object(kind, **fields), of_another_tenant)) == ["conflict"]


@pytest.mark.parametrize(("sync", "fields", "others"), DOWNWARD)
def test_it_waits_for_its_namespace(sync: KindSync, fields: Object, others: Object) -> None:
    view = FakeView(unknown=frozenset({"ns"}))
    wait = Wait("NamespaceNotSynced", "namespace ns is not in the super cluster yet")
    assert plan(sync, tenant_object(sync.kind.kind, **fields), None, view) == Plan(Half(wait=wait))


_META = st.fixed_dictionaries(
    {},
    optional={
        field: st.dictionaries(
            st.sampled_from(["a", "b", "app.kubernetes.io/name", "tenancy.x-k8s.io/uid", "vcnode.io/x"]),
            st.sampled_from(["1", "2"]),
        )
        for field in ("labels", "annotations")
    },
)


@given(st.sampled_from(sorted(FIELDS)), st.booleans(), _META, _META, st.booleans())
def test_plans_come_to_an_end_and_both_sides_agree(
    kind: str, is_other: bool, meta: Object, stray: Object, has_found: bool
) -> None:
    """Whatever somebody wrote on either side; another plan after the last finds nothing to do."""
    sync, (fields, others) = _SYNCS[kind], FIELDS[kind]
    world = World(TENANT)
    world.create(Side.TENANT, "Namespace", {"metadata": {"name": "ns"}})
    world.create(Side.TENANT, kind, tenant_object(kind, meta=meta, **fields))
    if has_found:
        world.reconcile(kind, "ns", "a")
        found = world.found(sync, "ns", "a")
        assert found is not None
        body = {"metadata": stray, **(others if is_other else {})}
        world.patch(Side.SUPER, (kind, SUPER_NAMESPACE, "a"), body)
    world.reconcile(kind, "ns", "a")
    assert not any(isinstance(each, Patch) for each in world.last_plan.actions)


STATUSES: dict[str, tuple[Object, Object]] = {
    "Service": (
        {"spec": {"externalIPs": ["192.0.2.1"]}},
        {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}},
    ),
    "PersistentVolumeClaim": ({"spec": {"storageClassName": "other"}}, {"phase": "Pending"}),
    "Ingress": ({"spec": {"ingressClassName": "x"}}, {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}),
}


@pytest.mark.parametrize("stop", ["refused", "waits", "ends below"])
@pytest.mark.parametrize("kind", STATUSES)
def test_what_stops_one_way_does_not_stop_the_other(kind: str, stop: str) -> None:
    """A policy that was tightened later: addresses of load balancers and the like still come up."""
    refused, status = STATUSES[kind]
    strict = SyncPolicy(
        claims=ClaimPolicy(storage_classes=frozenset({"none"})),
        ingresses=IngressPolicy(classes=frozenset({"none"})),
    )
    own, there = tenant_object(kind, **refused), super_object(kind, **refused, status=status)
    view = FakeView(policy=strict if stop == "refused" else PERMISSIVE)
    view.unknown = frozenset({"ns"}) if stop == "waits" else frozenset()
    result = plan(_SYNCS[kind], own, deleting(there) if stop == "ends below" else there, view)
    assert (bool(result.down.refusals), bool(result.down.wait)) == (stop == "refused", stop == "waits")
    (shown,) = result.up.actions
    assert isinstance(shown, Patch)
    assert (shown.side, shown.subresource, shown.body) == (Side.TENANT, "status", {"status": status})
    assert result.down.actions == ()


@pytest.mark.parametrize(("sync", "fields", "others"), DOWNWARD)
def test_what_is_being_deleted_is_there_until_it_is_gone(
    sync: KindSync, fields: Object, others: Object
) -> None:
    """A Secret with a finalizer is mounted by new pods; a volume has its data until a backup has run."""
    kind, meta = sync.kind.kind, {"finalizers": ["example.com/backup"]}
    own = deleting(tenant_object(kind, meta=meta, **fields))
    assert brief(plan(sync, own, super_object(kind, **fields))) == []
    assert brief(plan(sync, own, super_object(kind, **others))) == ["patch object in super s-1"]
    assert brief(plan(sync, None, super_object(kind, **fields))) == ["delete in super s-1"]


def test_a_claim_that_its_pods_alone_keep_ends_on_both_sides() -> None:
    """New pods do not get one that is being deleted, on either side."""
    meta = {"finalizers": ["kubernetes.io/pvc-protection"]}
    own = deleting(tenant_object("PersistentVolumeClaim", meta=meta))
    there = super_object("PersistentVolumeClaim")
    assert brief(plan(_SYNCS["PersistentVolumeClaim"], own, there)) == ["delete in super s-1"]
