# SPDX-License-Identifier: Apache-2.0
"""Whether a pump test would find a product of two lists, however it is written."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.pump import ABSENT, Schema, Sizes, peak_bytes, steps, superlinear

_PORTS, _NOTES = "spec.ports", "metadata.annotations"


def _found(work: Callable[[dict[str, Any]], object]) -> list[str]:
    schema = Schema("Service", {"status": ABSENT})

    def measure(sizes: Sizes) -> int:
        service = schema.object(sizes)
        return steps(lambda: work(service))

    return superlinear(measure, schema.places())


def _nested_loop(service: dict[str, Any]) -> object:
    return [(a, b) for a in service["spec"]["ports"] for b in service["metadata"]["annotations"]]


def _membership(service: dict[str, Any]) -> object:
    ports = service["spec"]["ports"]
    return [each for each in ports if each not in ports[::-1]]


def _search_of_a_text(service: dict[str, Any]) -> object:
    note = next(iter(service["metadata"]["annotations"].values()))
    return [each for each in service["spec"]["ports"] if each["name"] in note]


def _copy_of_a_text(service: dict[str, Any]) -> object:
    return [service["spec"]["externalName"].replace("a", "b") for _ in service["spec"]["ports"]]


@pytest.mark.parametrize(
    ("work", "culprits"),
    [
        (_nested_loop, [f"{_NOTES} x {_PORTS}"]),
        (_membership, [_PORTS]),
        (_search_of_a_text, [f"metadata.annotations[] x {_PORTS}"]),
        (_copy_of_a_text, [f"spec.externalName x {_PORTS}"]),
    ],
)
def test_a_product_is_found_and_named(work: Callable[[dict[str, Any]], object], culprits: list[str]) -> None:
    assert _found(work) == culprits


def _visit(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_visit, value.values()))
    return sum(map(_visit, value)) if isinstance(value, list) else len(value) if isinstance(value, str) else 1


@pytest.mark.parametrize(
    "work",
    [
        _visit,
        repr,
        lambda service: sorted(service["metadata"]["labels"]),
        lambda service: service == dict(service),
    ],
)
def test_linear_work_is_not_found(work: Callable[[dict[str, Any]], object]) -> None:
    assert _found(work) == []


def test_work_is_the_same_in_every_run() -> None:
    pod = Schema("Pod").object({"spec.volumes": 5})
    assert len({steps(lambda: _visit(pod)) for _ in range(3)}) == 1


def test_memory_is_that_of_the_call_alone() -> None:
    held = bytes(4 << 20)
    assert 1 << 20 <= peak_bytes(lambda: bytes(1 << 20)) < 2 << 20
    assert held


def test_an_object_grows_by_the_sum_of_what_is_pumped() -> None:
    schema = Schema("Pod", {"spec.initContainers": ABSENT, "metadata.name": "a"})
    pod = schema.object({"spec.containers": 3, "spec.containers[].env": 5, "spec.containers[].image": 2})

    assert [len(each["env"]) for each in pod["spec"]["containers"]] == [5, 1, 1]
    assert [len(each["image"]) for each in pod["spec"]["containers"]] == [105, 9, 9]
    assert pod["metadata"]["name"] == "a"
    assert "initContainers" not in pod["spec"]
