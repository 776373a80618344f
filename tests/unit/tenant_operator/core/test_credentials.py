# SPDX-License-Identifier: Apache-2.0
"""Certificates are issued again by a person's request, and not as often as a program asks."""

from __future__ import annotations

from typing import Any

from tenant_operator.core.steps import IssueLeaf
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster

REQUEST = "vcnode.io/rotate-certificates"


def issued(world: FakeWorld, request: str) -> int:
    """How many certificates the request has issued by now."""
    world.cluster["metadata"].setdefault("annotations", {})[REQUEST] = request
    count = 0
    for _ in range(6):
        made = world.plan()
        for step in made.steps:
            count += isinstance(step, IssueLeaf)
            world.carry_out(step)
        world.finish(made)
    return count


def message(world: FakeWorld) -> str:
    conditions: list[Any] = world.cluster["status"]["conditions"]
    return str(next(each["message"] for each in conditions if each["type"] == "CertificatesValid"))


def test_first_request_is_served_at_once() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    assert issued(world, "one") > 5
    assert "request" not in message(world)


def test_next_request_waits_for_its_hour() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    count = issued(world, "one")
    world.now_s += 600
    assert issued(world, "two") == 0
    assert message(world).endswith(
        "The request to issue all certificates again is served at 2027-01-15T09:00:00Z: one an hour is."
    )
    due_in_s = world.plan().check_again_s
    assert due_in_s is not None
    assert due_in_s <= 3000
    world.now_s += 3000
    assert issued(world, "two") == count
    assert "request" not in message(world)


def test_a_loop_of_requests_costs_a_bounded_number() -> None:
    world = FakeWorld(virtual_cluster())
    world.run()
    count, total = issued(world, "0"), 0
    for number in range(1, 25):
        world.now_s += 600
        total += issued(world, str(number))
    # Four hours, and what is renewed by its age meanwhile is none.
    assert total == 4 * count
