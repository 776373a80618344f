# SPDX-License-Identifier: Apache-2.0
"""When changes are pushed, and how guests and kata-bridge come, change and go."""

import asyncio

import pytest

from bridge_api.messages import ResultCode
from kubeproxy_ext.compute.sync_rate import GAP_S
from tests.unit.kubeproxy_ext.nodes import node

pytestmark = pytest.mark.asyncio


async def test_first_change_is_pushed_at_once_then_batches() -> None:
    it = node()
    it.bridge.add("g", "a")
    async with it.running():
        it.pushed_at.clear()
        started = asyncio.get_running_loop().time()
        for number in range(10):
            it.put_slice("a", "web", f"10.0.0.{number}")
            await asyncio.sleep(0.004)
        await asyncio.sleep(1)
        assert len(it.pushed_at) == 2
        first, second = it.pushed_at
        assert first - started < 0.01
        assert second - first == pytest.approx(GAP_S, abs=0.002)
        assert "10.0.0.9:8080" in it.text("g")


async def test_new_guest_of_a_synced_tenant_does_not_wait() -> None:
    it = node()
    it.bridge.add("g1", "a")
    async with it.running():
        renders = it.controller.rulesets.render_count
        it.put_slice("a", "web", "10.0.0.5")
        await asyncio.sleep(0.011)
        it.bridge.add("g2", "a", ips=("10.244.0.7",))
        await asyncio.sleep(0.001)
        assert it.text("g2") != ""
        await asyncio.sleep(1)
        assert it.text("g1") == it.text("g2")
        assert it.controller.rulesets.render_count == renders + 1


async def test_changed_and_removed_guests_drop_their_rulesets() -> None:
    it = node()
    it.bridge.add("g1", "a")
    it.bridge.add("g2", "b")
    async with it.running():
        assert len(it.controller.rulesets) == 2
        it.bridge.remove("g2")
        it.bridge.change("g1", networks=("blue",))
        await asyncio.sleep(1)
        assert "10.96.0.1" not in it.text("g1")
        assert (len(it.controller.rulesets), list(it.controller.guest_specs)) == (1, ["g1"])
        await asyncio.sleep(300)
        assert list(it.controller.tenants) == ["a"]


async def test_guest_may_come_to_share_an_older_ruleset() -> None:
    it = node()
    it.bridge.add("g1", "a", ips=("10.244.0.7",))
    async with it.running():
        # Without an address it gets both families; with one it shares g1's rules.
        it.bridge.add("g2", "a", ips=())
        await asyncio.sleep(1)
        assert len(it.installed_ruleset("g2").documents) == 2
        it.bridge.change("g2", ips=("10.244.0.8",))
        await asyncio.sleep(5)
        assert it.text("g2") == it.text("g1") != ""
        assert [each.result.code for each in it.bridge.requests_for("g2")] == [ResultCode.APPLIED] * 2


async def test_reconnect_submits_every_ruleset() -> None:
    it = node()
    it.bridge.add("g1", "a")
    async with it.running():
        it.bridge.lose_state()
        it.put_slice("a", "web", "10.0.0.5")
        await asyncio.sleep(10)
        assert "10.0.0.5" in it.text("g1")
        assert it.pusher.problem == ""
        # kata-bridge has every ruleset again, to repair from.
        assert it.bridge.guests["g1"].desired is not None


async def test_refusal_is_reported_once() -> None:
    it = node()
    guest = it.bridge.add("g1", "a")
    guest.next_results = [(ResultCode.REFUSED, "line 3: -j X")] * 3
    async with it.running():
        page = it.report.explain({"guest": "g1"}, 0.0)
        assert page.status == 200
        assert b"REFUSED: line 3: -j X" in page.body
        await asyncio.sleep(700)
        assert "10.96.0.1" not in it.text("g1")
        await asyncio.sleep(300)
        assert "10.96.0.1" in it.text("g1")
