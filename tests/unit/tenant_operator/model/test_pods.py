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
        {"name": "GOMAXPROCS", "value": "1"},
    ]


@pytest.mark.parametrize(
    ("cpu", "threads"),
    [
        ("1m", "1"),
        ("100m", "1"),
        ("500m", "1"),
        ("501m", "2"),
        ("0.6", "2"),
        ("1", "2"),
        ("1.5", "3"),
        ("4", "8"),
    ],
)
def test_threads_are_twice_the_request(cpu: str, threads: str) -> None:
    shown = pods.go_environment(ComponentSize(cpu=cpu, go_gc=40))
    assert shown[-1] == {"name": "GOMAXPROCS", "value": threads}


def test_go_is_left_as_it_is() -> None:
    assert pods.go_environment(ComponentSize(cpu="4")) == []
