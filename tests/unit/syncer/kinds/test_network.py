# SPDX-License-Identifier: Apache-2.0
"""Networks: of a tenant's whole cluster above, in the super namespace of its kube-system below."""

from typing import Any

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Side
from syncer.core.view import PodDns
from syncer.kinds import table
from syncer.kinds.network import SYNC
from tests.unit.syncer.kinds.objects import (
    KEY,
    brief,
    created,
    deleting,
    owner_annotations,
    patched,
    plan,
    super_object,
    tenant_object,
)

_PLACE = f"{KEY}-kube-system"
_READY = {"phase": "Ready", "dnsServiceIP": "10.32.0.10"}


def _own(**fields: Any) -> Object:
    return tenant_object("Network", "blue", "") | {"spec": {"type": "flat"}, "status": _READY} | fields


def _found(owner: str = "t-1", **fields: Any) -> Object:
    made = super_object("Network", "blue") | {"spec": {"type": "flat"}, "status": _READY} | fields
    made["metadata"] |= {"namespace": _PLACE}
    made["metadata"]["annotations"] |= owner_annotations(owner, "kube-system")
    return made


def test_another_tenants_vpc_is_refused() -> None:
    own = _own()
    own["spec"] = {"type": "vpc", "vpcID": "vpc-1"}
    result = plan(SYNC, own, None)
    assert (result.actions, [each.path for each in result.refusals]) == ((), ["spec.vpcID"])


def test_stands_beside_the_dns_services() -> None:
    meta = {"finalizers": ["vcnode.io/networks"], "labels": {"team": "a"}}
    own = _own()
    own["metadata"] |= meta
    result = plan(SYNC, own, None)
    assert created(result) == {
        "kind": "Network",
        "metadata": {
            "name": "blue",
            "namespace": _PLACE,
            "labels": {
                "team": "a",
                "tenancy.x-k8s.io/vcname": "tenant-00",
                "tenancy.x-k8s.io/vcnamespace": "vcs",
            },
            "annotations": owner_annotations(namespace="kube-system"),
        },
        "spec": {"type": "flat"},
    }
    assert result.is_partial  # the status is another write


def test_status_goes_down() -> None:
    result = plan(SYNC, _own(), _found(status={"phase": "Pending", "message": "no address"}))
    assert brief(result) == ["patch status in super s-1"]
    assert patched(result, Side.SUPER, "status") == {"status": {**_READY, "message": None}}
    assert brief(plan(SYNC, _own(), _found())) == []
    assert brief(plan(SYNC, _own(status=None), None)) == ["create in super blue"]


def test_spec_is_the_tenants() -> None:
    result = plan(SYNC, _own(), _found(spec={"type": "vpc", "vpcID": "1"}))
    assert patched(result) == {"spec": {"type": "flat", "vpcID": None}}


def test_stays_while_the_tenants_ends() -> None:
    ending = deleting(_own(status={"phase": "Terminating"}))
    assert brief(plan(SYNC, ending, _found())) == ["patch status in super s-1"]
    assert brief(plan(SYNC, ending, None)) == []
    assert brief(plan(SYNC, None, _found())) == ["delete in super s-1"]


def test_waits_for_the_namespace() -> None:
    view = FakeView(unknown=frozenset({"kube-system"}))
    assert brief(plan(SYNC, _own(), None, view)) == ["wait NamespaceNotSynced"]


def test_foreign_network_stays() -> None:
    foreign = _found()
    foreign["metadata"]["annotations"]["tenancy.x-k8s.io/cluster"] = "vcs-7aad2b-tenant"
    assert brief(plan(SYNC, _own(), foreign)) == ["conflict"]
    assert brief(plan(SYNC, None, foreign)) == []


def test_network_that_was_made_again_replaces_the_first() -> None:
    assert brief(plan(SYNC, _own(), _found("t-0"))) == ["delete in super s-1"]


def test_nodes_that_give_resolvers_need_networks() -> None:
    assert SYNC not in table.kinds(())
    assert SYNC in table.kinds((), pod_dns=PodDns.NODE)
