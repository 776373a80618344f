# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from syncer.caches import weights
from syncer.core.objects import Object


def _endpoint(number: int) -> Object:
    """As the controller of Kubernetes writes it."""
    return {
        "addresses": [f"10.1.{number >> 8}.{number & 255}"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "nodeName": "node-1",
        "targetRef": {"kind": "Pod", "name": f"pod-{number}", "namespace": "web", "uid": f"u-{number}"},
        "zone": "a",
    }


def _address(number: int) -> Object:
    target = {"kind": "Pod", "name": f"pod-{number}", "namespace": "web", "uid": f"u-{number}"}
    return {"ip": f"10.1.{number >> 8}.{number & 255}", "nodeName": "node-1", "targetRef": target}


def _texts(count: int) -> dict[str, str]:
    return {f"example.com/key-{number}": "value" for number in range(count)}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("EndpointSlice", {"endpoints": [_endpoint(n) for n in range(1_000)], "ports": [{"port": 80}]}),
        ("Endpoints", {"subsets": [{"addresses": [_address(n) for n in range(1_000)]}]}),
        ("ConfigMap", {"data": _texts(9_000)}),
        ("Service", {"spec": {"selector": _texts(1_000)}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_kubernetes_writes_is_planned(kind: str, fields: dict[str, Any]) -> None:
    """The largest slice and the largest Endpoints that its controllers make, and more than people write."""
    meta = {"name": "a", "labels": _texts(50), "annotations": _texts(50)}
    assert weights.excess(kind, {"metadata": meta, **fields}) is None


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        ("ConfigMap", {"metadata": {"annotations": _texts(4_001)}}, "4001 of metadata.annotations"),
        ("Pod", {"metadata": {"labels": _texts(4_001)}}, "4001 of metadata.labels"),
        ("Service", {"spec": {"selector": _texts(5_000)}}, "5000 of spec.selector"),
        (
            "EndpointSlice",
            {"endpoints": [{"addresses": ["10.0.0.1"] * 100}] * 34},
            "3400 of endpoints[].addresses",
        ),
        ("Widget", {"spec": {"more": [{}] * 20_000}}, ""),
    ],
)
def test_what_takes_long_is_refused_with_the_field(kind: str, value: Object, what: str) -> None:
    found = weights.excess(kind, value)
    shown = f" ({what})" if what else ""
    assert found == f"an object that takes too long to plan{shown}: it counts as more than 20000 values"


def test_fields_of_any_form_have_a_weight() -> None:
    """A custom resource's are as its definition says; all others have the shape of their kind, or null."""
    for value in (None, 1, "text", [], {}, [None], {"a": None}):
        assert weights.weight("EndpointSlice", {"metadata": value, "endpoints": value}) < 10
        assert weights.weight("EndpointSlice", {"endpoints": [{"addresses": value}]}) < 20
