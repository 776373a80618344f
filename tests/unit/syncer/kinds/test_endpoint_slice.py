# SPDX-License-Identifier: Apache-2.0
"""EndpointSlices."""

from typing import Any

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.kinds.endpoint_slice import SYNC
from tests.unit.syncer.kinds.objects import (
    OWN_LABELS,
    SUPER_NAMESPACE,
    brief,
    created,
    plan,
    super_object,
    tenant_object,
)

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
OF_A = {"kubernetes.io/service-name": "svc"}


def own(labels: dict[str, str] = OF_A, **endpoint: Any) -> Object:
    return tenant_object(
        "EndpointSlice",
        meta={"labels": dict(labels)},
        addressType="IPv4",
        endpoints=[{"addresses": ["192.0.2.1"], **endpoint}],
        ports=[{"name": "http", "port": 80}],
    )


def service(**spec: Any) -> Object:
    return tenant_object("Service", "svc", spec=spec)


def test_a_slice_that_the_tenant_wrote_goes_down() -> None:
    body = created(plan(SYNC, own({**OF_A, MANAGED_BY: "me", "l": "1"}), None))
    assert body["metadata"]["labels"] == {
        "l": "1",
        "kubernetes.io/service-name": "svc",
        MANAGED_BY: "vc-syncer.vcnode.io",
        **OWN_LABELS,
    }
    assert {name: body[name] for name in ("addressType", "endpoints", "ports")} == {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"]}],
        "ports": [{"name": "http", "port": 80}],
    }


@pytest.mark.parametrize(
    ("slice_", "objects", "expected"),
    [
        (own(), [service()], ["create in super a"]),
        (own(), [service(selector={"a": "b"})], []),
        (own({}), [], []),
        (own({**OF_A, MANAGED_BY: "endpointslice-controller.k8s.io"}), [], []),
        (own({**OF_A, MANAGED_BY: "endpointslicemirroring-controller.k8s.io"}), [], []),
        (own(), [service(), tenant_object("Endpoints", "svc")], []),
    ],
)
def test_those_that_the_super_cluster_makes_itself_stay(
    slice_: Object, objects: list[Object], expected: list[str]
) -> None:
    assert brief(plan(SYNC, slice_, None, FakeView(tenant_objects=objects))) == expected


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([service(selector={"a": "b"})], "has a selector"),
        ([service(), tenant_object("Endpoints", "svc")], "have the addresses"),
    ],
)
def test_a_slice_beside_others_is_reported(objects: list[Object], expected: str) -> None:
    (change,) = plan(SYNC, own(), None, FakeView(tenant_objects=objects)).changes
    assert change.path == "metadata.labels[kubernetes.io/service-name]"
    assert expected in change.message
    controllers = own({**OF_A, MANAGED_BY: "endpointslice-controller.k8s.io"})
    assert plan(SYNC, controllers, None, FakeView(tenant_objects=objects)).changes == ()


def test_one_that_the_super_cluster_makes_by_now_is_deleted() -> None:
    view = FakeView(tenant_objects=[service(selector={"a": "b"})])
    assert brief(plan(SYNC, own(), super_object("EndpointSlice"), view)) == ["delete in super s-1"]


def test_a_slice_of_the_super_mirroring_controller_stays() -> None:
    """It copies the annotations of the Endpoints, which are ours."""
    mirrored = super_object("EndpointSlice")
    mirrored["metadata"]["labels"] = {MANAGED_BY: "endpointslicemirroring-controller.k8s.io"}
    assert brief(plan(SYNC, None, mirrored, FakeView())) == []


def test_references_are_those_of_super_pods() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": SUPER_NAMESPACE, "uid": "s-9"},
        "spec": {"nodeName": "node-1"},
    }
    slice_ = own(
        targetRef={"kind": "Pod", "name": "p", "namespace": "ns", "uid": "t-9"}, nodeName="forged", zone="z"
    )
    body = created(plan(SYNC, slice_, None, FakeView(super_objects=[pod])))
    assert body["endpoints"] == [
        {
            "addresses": ["192.0.2.1"],
            "zone": "z",
            "targetRef": {"kind": "Pod", "name": "p", "namespace": SUPER_NAMESPACE, "uid": "s-9"},
            "nodeName": "node-1",
        }
    ]
    assert created(plan(SYNC, slice_, None))["endpoints"] == [{"addresses": ["192.0.2.1"], "zone": "z"}]


def test_what_is_in_sync_is_left_alone() -> None:
    there = created(plan(SYNC, own(), None))
    there["metadata"]["uid"] = "s-1"
    assert brief(plan(SYNC, own(), there)) == []


def test_addresses_without_a_reference_are_of_tenants_pods() -> None:
    """As people write slices by hand. Once the pod has gone, so has the super slice."""
    slice_ = own(addresses=["10.1.0.9"])
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": SUPER_NAMESPACE},
        "status": {"podIPs": [{"ip": "10.1.0.9"}]},
    }
    view = FakeView(super_objects=[pod])
    assert created(plan(SYNC, slice_, None, view))["endpoints"] == [{"addresses": ["10.1.0.9"]}]
    found = super_object("EndpointSlice")
    refused = "refused endpoints[0].addresses[0]"
    assert brief(plan(SYNC, slice_, found)) == ["delete in super s-1", refused]
    assert brief(plan(SYNC, slice_, None)) == [refused]


@pytest.mark.parametrize(
    ("namespace", "name", "address", "expected"),
    [
        ("default", "kubernetes-blue", "10.70.0.2", ["create in super kubernetes-blue"]),
        ("default", "kubernetes-blue", "10.70.0.3", ["wait ApiServerNotKnown"]),
        ("ns", "kubernetes-blue", "10.70.0.2", ["refused endpoints[0].addresses[0]"]),
        ("default", "blue", "10.70.0.2", ["refused endpoints[0].addresses[0]"]),
    ],
)
def test_services_of_networks_lead_to_the_tenants_api_server(
    namespace: str, name: str, address: str, expected: list[str]
) -> None:
    def slice_of(namespace: str, name: str, address: str) -> Object:
        meta = {"labels": {"kubernetes.io/service-name": name}}
        made = tenant_object("EndpointSlice", name, namespace, meta=meta, addressType="IPv4")
        return made | {"endpoints": [{"addresses": [address]}]}

    # What the tenant publishes about itself proves nothing.
    claimed = slice_of("default", "kubernetes", "10.70.0.3")
    view = FakeView(tenant_objects=[claimed], api_server=frozenset({"10.70.0.2"}))
    slice_ = slice_of(namespace, name, address)
    assert brief(SYNC.plan((namespace, name), Pair(slice_, None), view)) == expected
