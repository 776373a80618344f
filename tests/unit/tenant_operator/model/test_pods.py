# SPDX-License-Identifier: Apache-2.0
"""Quantities of memory, and what a container requests and may use."""

import pytest

from tenant_operator.model import pods
from tenant_operator.model.cluster_version import ComponentSize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("140Mi", 140 << 20),
        ("140MiB", 140 << 20),
        ("1.5Gi", 3 << 29),
        ("100M", 100_000_000),
        ("64Ki", 64 << 10),
        ("1024", 1024),
    ],
)
def test_memory(text: str, expected: int) -> None:
    assert pods.memory_bytes(text) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(1, "1Mi"), (640 << 20, "640Mi"), ((640 << 20) + 1, "641Mi"), (2 << 30, "2Gi")]
)
def test_quantities_are_as_the_api_server_keeps_them(size: int, expected: str) -> None:
    assert pods.memory_quantity(size) == expected


@pytest.mark.parametrize(
    ("memory", "runtime", "limit"),
    [("320Mi", "140MiB", "640Mi"), ("100Mi", "400Mi", "500Mi"), ("96Mi", "", "192Mi")],
)
def test_the_runtime_reaches_its_limit_first(memory: str, runtime: str, limit: str) -> None:
    """Else the kernel ends a process that could have collected its garbage."""
    size = ComponentSize(cpu="10m", memory=memory, go_memory_limit=runtime)
    assert pods.resources(size) == {
        "requests": {"cpu": "10m", "memory": memory},
        "limits": {"memory": limit},
    }


def test_the_go_runtime_s_environment() -> None:
    size = ComponentSize(go_gc=40, go_memory_limit="140Mi")
    assert pods.go_environment(size) == [
        {"name": "GOGC", "value": "40"},
        {"name": "GOMEMLIMIT", "value": "146800640"},
    ]
    assert pods.go_environment(ComponentSize()) == []
