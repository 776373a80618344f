# SPDX-License-Identifier: Apache-2.0
"""Which results end a measurement of the network programming latency."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bridge_api.client import BridgeUnavailableError
from bridge_api.messages import GuestResult, ResultCode
from tests.unit.kubeproxy_ext.nodes import EngineNode, node

pytestmark = pytest.mark.asyncio


def with_guests() -> EngineNode:
    it = node()
    it.bridge.add("g1", "a")
    it.bridge.add("g2", "a")
    return it


def put_change(it: EngineNode, endpoint: str) -> None:
    it.put_slice("a", "web", endpoint, changed_at=it.wall())


async def lose_change(it: EngineNode) -> None:
    """A change that g2 gets, and the unreachable g1 does not."""
    it.bridge.guests["g1"].unreachable = "no answer"
    put_change(it, "10.0.0.5")
    await asyncio.sleep(20)
    assert measured(it) == (1, 0)


def measured(it: EngineNode) -> tuple[int, float]:
    histogram = it.metrics.programming_duration
    return histogram.count, round(histogram.total)


async def test_change_is_measured_in_each_guest() -> None:
    it = with_guests()
    async with it.running():
        it.bridge.delay_s = 3.0
        put_change(it, "10.0.0.5")
        await asyncio.sleep(2)
        assert measured(it) == (0, 0)
        await asyncio.sleep(2)
        assert measured(it) == (2, 6)


async def test_refused_change_is_measured_when_it_is_applied() -> None:
    it = with_guests()
    async with it.running():
        it.bridge.guests["g1"].next_results = [(ResultCode.REFUSED, "line 3: -j X")]
        put_change(it, "10.0.0.5")
        await asyncio.sleep(1)
        assert measured(it) == (1, 0)
        await asyncio.sleep(400)
        assert measured(it) == (2, 300)


async def test_failed_request_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_result() -> GuestResult:
        raise BridgeUnavailableError("connection refused")

    async def fail(*_: object) -> AsyncIterator[GuestResult]:
        yield await no_result()

    it = with_guests()
    async with it.running():
        with monkeypatch.context() as patch:
            patch.setattr(it.bridge, "set_ruleset", fail)
            put_change(it, "10.0.0.5")
            await asyncio.sleep(0.5)
            assert measured(it) == (0, 0)
        await asyncio.sleep(5)
        assert measured(it)[0] == 2


async def test_change_that_kata_bridge_applies_later_is_measured() -> None:
    it = with_guests()
    async with it.running():
        await lose_change(it)
        it.bridge.guests["g1"].unreachable = ""
        it.bridge.guests["g1"].installed = it.bridge.guests["g1"].desired
        it.bridge.announce("g1")
        await asyncio.sleep(1)
        assert measured(it) == (2, 20)


async def test_changes_behind_a_slow_push_are_measured() -> None:
    it = with_guests()
    async with it.running():
        it.bridge.delay_s = 2.0
        for number in range(4):
            put_change(it, f"10.0.1.{number}")
            await asyncio.sleep(0.5)
        await asyncio.sleep(10)
        # The first push carries one change, the second one the other three.
        assert measured(it) == (8, 2 * round(2.0 + 3.5 + 3.0 + 2.5))


async def test_change_that_was_taken_back_is_not_measured() -> None:
    it = with_guests()
    async with it.running():
        it.bridge.delay_s = 1.0
        put_change(it, "10.0.0.5")
        await asyncio.sleep(0.1)
        put_change(it, "10.0.0.1")
        await asyncio.sleep(3600)
        assert measured(it) == (0, 0)
        put_change(it, "10.0.0.6")
        await asyncio.sleep(5)
        assert measured(it) == (2, 2)


async def test_first_rules_of_a_guest_are_not_measured() -> None:
    it = with_guests()
    async with it.running():
        it.bridge.add("g3", "a", capabilities=None)
        await asyncio.sleep(0.1)
        put_change(it, "10.0.0.5")
        await asyncio.sleep(60)
        assert measured(it) == (2, 0)
        it.bridge.change("g3", capabilities=it.bridge.guests["g1"].guest.capabilities)
        await asyncio.sleep(1)
        assert it.text("g3") == it.text("g1")
        assert measured(it) == (2, 0)


async def test_guest_that_becomes_ineligible_is_not_measured() -> None:
    it = with_guests()
    async with it.running():
        await lose_change(it)
        it.bridge.change("g1", not_injectable="no iptables")
        await asyncio.sleep(1)
        it.bridge.announce("g1")
        await asyncio.sleep(1)
        assert measured(it) == (1, 0)


async def test_result_of_an_ineligible_guest_is_not_measured() -> None:
    it = with_guests()
    async with it.running():
        it.bridge.delay_s = 1.0
        it.bridge.guests["g1"].next_results = [(ResultCode.NOT_INJECTABLE, "no iptables")]
        put_change(it, "10.0.0.5")
        await asyncio.sleep(0.5)
        it.bridge.change("g1", not_injectable="no iptables")
        await asyncio.sleep(3)
        assert measured(it) == (1, 1)
