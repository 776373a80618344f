# SPDX-License-Identifier: Apache-2.0
"""The nodes that may be asked, and how often they are listed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from daemonkit.kube.client import UnreachableError
from tenant_operator.edge.ready_nodes import FRESH_S, MAX_PAGES, ReadyNodes
from tests.unit.fake_clock import FakeClock
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers, unreachable

pytestmark = pytest.mark.asyncio

NODES = "GET /api/v1/nodes"


def node(name: str, ready: str = "True", kind: str = "InternalIP") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}, {"type": kind, "address": f"ip-{name}"}],
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready},
            ],
        },
    }


def page(*nodes: dict[str, Any], token: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7", "continue": token}, "items": list(nodes)}


async def test_nodes_that_are_ready_and_have_an_address() -> None:
    answers = FakeAnswers(
        {
            NODES: [
                page(node("a"), node("b", "False"), node("c", "Unknown"), token="more"),
                page(node("d"), node("e", kind="ExternalIP"), {"metadata": {"name": "new"}}),
            ]
        }
    )
    parts: Any = answers
    assert await ReadyNodes(parts, FakeClock()).addresses() == {"a": "ip-a", "d": "ip-d"}
    assert [params.get("continue") for _, params in answers.requests] == [None, "more"]


async def test_one_list_serves_all_tenants_of_a_minute() -> None:
    answers, clock = FakeAnswers({NODES: page(node("a"))}), FakeClock()
    parts: Any = answers
    nodes = ReadyNodes(parts, clock)
    await asyncio.gather(*(nodes.addresses() for _ in range(1_000)))
    clock.now += FRESH_S - 1
    assert await nodes.addresses() == {"a": "ip-a"}
    assert len(answers.requests) == 1
    clock.now += 1
    await nodes.addresses()
    assert len(answers.requests) == 2


async def test_list_that_never_ends_is_cut() -> None:
    answers = FakeAnswers({NODES: page(node("a"), token="more")})
    parts: Any = answers
    assert await ReadyNodes(parts, FakeClock()).addresses() == {"a": "ip-a"}
    assert len(answers.requests) == MAX_PAGES


async def test_failed_list_is_not_kept() -> None:
    answers = FakeAnswers({NODES: [unreachable(), page(node("a"))]})
    parts: Any = answers
    nodes = ReadyNodes(parts, FakeClock())
    with pytest.raises(UnreachableError):
        await nodes.addresses()
    assert await nodes.addresses() == {"a": "ip-a"}
