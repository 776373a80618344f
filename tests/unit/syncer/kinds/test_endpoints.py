# SPDX-License-Identifier: Apache-2.0
"""Endpoints (reference 8: endpoints dws and patrol; 6.2 I4)."""

from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object, uid_of
from syncer.core.plan import Delete, Side
from syncer.core.unknown import Unknown
from syncer.kinds import endpoint_slice
from syncer.kinds.endpoints import SYNC
from syncer.kinds.port import KindSync
from tests.unit.syncer.kinds.objects import (
    SUPER_NAMESPACE,
    brief,
    created,
    foreign_object,
    plan,
    super_object,
    tenant_object,
)

WITH = tenant_object("Service", spec={"selector": {"a": "b"}})
WITHOUT = tenant_object("Service", spec={})
REF = {"kind": "Pod", "name": "p", "namespace": "ns", "uid": "t-9", "resourceVersion": "4"}


def endpoints(**address: Any) -> Object:
    return tenant_object("Endpoints", subsets=[{"addresses": [{"ip": "192.0.2.1", **address}]}])


def pod(name: str = "p") -> Object:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SUPER_NAMESPACE, "uid": "s-9"},
        "spec": {"nodeName": "node-1"},
    }


@pytest.mark.parametrize(
    ("services", "expected"),
    [([], ["create in super a"]), ([WITHOUT], ["create in super a"]), ([WITH], [])],
)
def test_they_go_down_where_no_controller_makes_them(services: list[Object], expected: list[str]) -> None:
    assert brief(plan(SYNC, endpoints(), None, FakeView(tenant_objects=services))) == expected


def test_those_of_a_selector_are_left_to_the_super_cluster() -> None:
    """Once the super Service has it: until then they follow the tenant's."""
    view = FakeView(
        tenant_objects=[WITH], super_objects=[super_object("Service", spec={"selector": {"a": "b"}})]
    )
    assert brief(plan(SYNC, endpoints(), super_object("Endpoints", subsets=[]), view)) == []
    view.super_objects = [super_object("Service", spec={})]
    own = super_object("Endpoints", subsets=[])
    assert brief(plan(SYNC, endpoints(), own, view)) == [f"patch object in super {uid_of(own)}"]
    assert brief(plan(SYNC, endpoints(), foreign_object("Endpoints"), view)) == []


def test_those_of_a_selector_that_is_gone_become_the_tenants() -> None:
    left = foreign_object("Endpoints", subsets=[{"addresses": [{"ip": "10.0.0.1"}]}])
    assert brief(plan(SYNC, endpoints(), left, FakeView(tenant_objects=[WITHOUT]))) == [
        "patch object in super s-9"
    ]
    assert brief(plan(SYNC, endpoints(), left, FakeView())) == ["conflict"]


@pytest.mark.parametrize(
    ("address", "pods", "expected"),
    [
        ({"targetRef": REF}, [], {}),
        (
            {"targetRef": REF, "nodeName": "forged", "hostname": "h"},
            [pod()],
            {
                "hostname": "h",
                "targetRef": {"kind": "Pod", "name": "p", "namespace": SUPER_NAMESPACE, "uid": "s-9"},
                "nodeName": "node-1",
            },
        ),
        ({"targetRef": {**REF, "namespace": "other"}}, [pod()], {}),
        ({"targetRef": {**REF, "kind": "Node"}, "nodeName": "node-9"}, [pod()], {}),
    ],
)
def test_references_are_those_of_super_pods(address: Object, pods: list[Object], expected: Object) -> None:
    body = created(plan(SYNC, endpoints(**address), None, FakeView(super_objects=pods)))
    assert body["subsets"] == [{"addresses": [{"ip": "192.0.2.1", **expected}]}]


def test_a_difference_of_references_alone_is_none() -> None:
    own = endpoints(targetRef={**REF, "uid": "another", "resourceVersion": "5"})
    there = created(plan(SYNC, own, None, FakeView(super_objects=[pod()])))
    there["metadata"]["uid"] = "s-1"
    assert brief(plan(SYNC, own, there, FakeView(super_objects=[pod()]))) == []


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ({"ip": "10.1.0.9", "targetRef": REF}, False),
        ({"ip": "10.1.0.9"}, False),
        ({"ip": "10.1.0.9", "targetRef": {**REF, "name": "other"}}, False),
        ({"ip": "10.1.0.8"}, True),
        ({"ip": "10.1.0.8", "targetRef": REF}, True),
        ({"ip": "169.254.169.254"}, True),
        ({"ip": "192.0.2.1"}, False),
    ],
)
def test_private_addresses_are_those_of_the_tenants_pods(address: Object, is_refused: bool) -> None:
    own = tenant_object("Endpoints", subsets=[{"addresses": [address]}])
    there = pod() | {"status": {"podIPs": [{"ip": "10.1.0.9"}]}}
    result = brief(plan(SYNC, own, None, FakeView(super_objects=[there])))
    assert result == (["refused subsets[0].addresses[0].ip"] if is_refused else ["create in super a"])


@pytest.mark.parametrize("target", [{}, {"targetRef": REF}])
@pytest.mark.parametrize(
    ("phase", "host_network"), [("Running", True), ("Succeeded", False), ("Failed", False)]
)
def test_a_pod_without_an_address_of_its_own_vouches_for_none(
    phase: str, host_network: bool, target: Object
) -> None:
    """Its address is the node's, or by now another pod's."""
    own = tenant_object("Endpoints", subsets=[{"addresses": [{"ip": "10.1.0.9", **target}]}])
    status = {"phase": phase, "podIPs": [{"ip": "10.1.0.9"}]}
    there = pod() | {"status": status, "spec": {"hostNetwork": host_network}}
    result = brief(plan(SYNC, own, None, FakeView(super_objects=[there])))
    assert result == ["refused subsets[0].addresses[0].ip"]


def test_what_leads_to_a_pod_that_has_gone_is_removed() -> None:
    """The address may be another tenant's by then."""
    own = tenant_object("Endpoints", subsets=[{"addresses": [{"ip": "10.1.0.9", "targetRef": REF}]}])
    result = plan(SYNC, own, super_object("Endpoints", subsets=own["subsets"]))
    assert brief(result) == ["delete in super s-1", "refused subsets[0].addresses[0].ip"]


@pytest.mark.parametrize("why", ["namespace unreadable", "made again"])
@pytest.mark.parametrize(("kind", "sync"), [("Endpoints", SYNC), ("EndpointSlice", endpoint_slice.SYNC)])
@pytest.mark.parametrize("is_own", [True, False])
def test_what_waits_or_is_made_again_leads_to_nobody_else(
    kind: str, sync: KindSync, why: str, *, is_own: bool
) -> None:
    """A deletion that follows from an absence may be held, so it is not enough."""
    labels = {"kubernetes.io/service-name": "s"}
    body: Object = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}
    if kind == "Endpoints":
        labels, body = {}, {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}
    tenant, found = tenant_object(kind, meta={"labels": labels}, **body), super_object(kind, **body)
    there = pod() | {"status": {"podIPs": [{"ip": "10.0.0.1"}]}}
    view = FakeView(super_objects=[there] if is_own else [])
    if why == "namespace unreadable":
        view.unreadable = frozenset({Unknown(Side.TENANT, "Namespace", "", "ns", "of no shape")})
    else:
        tenant["metadata"]["uid"] = "t-2"
    deletions = [each for each in plan(sync, tenant, found, view).actions if isinstance(each, Delete)]
    assert [each.is_refused for each in deletions if each.is_refused] == ([] if is_own else [True])
    assert bool(deletions) == (why == "made again" or not is_own)
