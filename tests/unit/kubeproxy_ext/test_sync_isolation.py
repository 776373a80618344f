# SPDX-License-Identifier: Apache-2.0
"""No guest delays or changes another, and no event of a tenant reaches another's guests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.kube.resources import SERVICES
from kubeproxy_ext.delivery.queue import DesiredRuleset, RulesetPush
from kubeproxy_ext.delivery.rulesets import GuestSpec
from ruleset.document import Ruleset
from tests.unit.kubeproxy_ext.nodes import EngineNode, node

pytestmark = pytest.mark.asyncio


async def test_slow_guest_delays_no_other_guest() -> None:
    it = node()
    it.bridge.add("g1", "a")
    it.bridge.add("g2", "b")
    async with it.running():
        it.bridge.delay_s = 30.0
        it.put_slice("a", "web", "10.0.0.5")
        await asyncio.sleep(0.1)
        it.bridge.delay_s = 0.0
        it.put_slice("b", "web", "10.0.0.6")
        it.put_slice("a", "web", "10.0.0.7")
        await asyncio.sleep(0.2)
        assert "10.0.0.6" in it.text("g2")
        assert "10.0.0.7" not in it.text("g1")
        await asyncio.sleep(31)
        assert "10.0.0.7" in it.text("g1")


async def test_no_tenant_waits_for_a_larger_one() -> None:
    it = node()
    it.bridge.add("g1", "a")
    it.bridge.add("g2", "b")
    done: list[str] = []
    compute, send = it.controller.rulesets.desired_for, it.pusher.push

    def computed(guests: Mapping[str, GuestSpec]) -> dict[str, DesiredRuleset]:
        tenants = {guest.views[0].tenant or "" for guest in guests.values()}
        it.lag_s += 0.5 if "a" in tenants else 0.0
        done.append(f"computed {' '.join(sorted(tenants))}")
        return compute(guests)

    def sent(push: RulesetPush) -> None:
        done.append(f"sent {' '.join(push.guests)}")
        send(push)

    async with it.running():
        it.controller.rulesets.desired_for = computed  # type: ignore[method-assign]  # what computing takes
        it.pusher.push = sent  # type: ignore[method-assign]  # what order it is in
        it.put_slice("a", "web", "10.0.0.5")
        await asyncio.sleep(2)
        assert done == ["computed a", "sent g1"]
        done.clear()
        it.put_slice("a", "web", "10.0.0.6")
        it.put_slice("b", "web", "10.0.0.7")
        await asyncio.sleep(2)
        assert done == ["computed b", "sent g2", "computed a", "sent g1"]
        done.clear()
        it.bridge.add("g3", "a", ips=("10.9.0.3",))
        it.bridge.add("g4", "b", ips=("10.9.0.4",))
        await asyncio.sleep(2)
        assert done == ["computed b", "sent g4", "computed a", "sent g3"]


# How long computing takes: for the larger tenant, and for any other.
LARGER_S, OTHER_S = 0.5, 0.04


@contextlib.asynccontextmanager
async def running_with_a_larger_tenant(it: EngineNode, larger: str) -> AsyncIterator[list[str]]:
    """A running node, after a change of `larger` was pushed. Yields tenants in the order of computation."""
    done: list[str] = []
    compute = it.controller.rulesets.desired_for

    def computed(guests: Mapping[str, GuestSpec]) -> dict[str, DesiredRuleset]:
        tenants = {guest.views[0].tenant or "" for guest in guests.values()}
        it.lag_s += LARGER_S if larger in tenants else OTHER_S
        done.extend(tenants)
        return compute(guests)

    async with it.running():
        it.controller.rulesets.desired_for = computed  # type: ignore[method-assign]  # what computing takes
        it.put_slice(larger, "web", "10.0.0.5")
        await asyncio.sleep(2)
        yield done


async def test_larger_tenant_is_computed_despite_busy_others() -> None:
    it = node()
    busy = [f"busy{number}" for number in range(4)]
    for number, tenant in enumerate(busy):
        it.put_tenant(tenant)
        it.put(tenant, "web", f"10.96.9.{number}", "10.9.0.1")
        it.bridge.add(f"g-{tenant}", tenant)
    it.bridge.add("g1", "a")
    async with running_with_a_larger_tenant(it, "a") as done:
        for turn in range(200):  # four tenants of 40 ms are due again before all were computed
            for tenant in busy:
                it.put_slice(tenant, "web", f"10.9.1.{turn}")
            if turn == 100:
                done.clear()
                it.put_slice("a", "web", "10.0.0.6")
            await asyncio.sleep(0.002)
        assert "a" in done
        # It waits for as long as its own rules take, not for all the others.
        assert done.index("a") <= LARGER_S / OTHER_S + len(busy)
        assert "10.0.0.6" in it.text("g1")


async def test_new_guests_of_a_larger_tenant_are_computed() -> None:
    it = node()
    for number in range(2):
        it.put_tenant(f"busy{number}")
        it.put(f"busy{number}", "web", f"10.96.9.{number}", "10.9.0.1")
        it.bridge.add(f"g-busy{number}", f"busy{number}")
    it.bridge.add("g1", "a")
    async with running_with_a_larger_tenant(it, "a") as done:
        done.clear()
        it.bridge.add("g2", "a", ips=("10.9.0.200",))
        for number in range(100):
            it.bridge.add(f"n{number}", f"busy{number % 2}", ips=(f"10.9.2.{number}",))
            await asyncio.sleep(0.002)
        assert "a" in done
        assert done.index("a") <= LARGER_S / OTHER_S + 2


async def test_generation_claimed_by_a_guest_does_not_count() -> None:
    it = node()
    it.bridge.add("good", "a")
    async with it.running():
        it.bridge.add("bad", "a", generation=0)
        await asyncio.sleep(1)
        for claimed in ((1 << 64) - 1, 1 << 63, 1 << 62):
            known = it.bridge.guests["bad"]
            known.installed = Ruleset(claimed, "f" * 64, ())
            it.bridge.announce("bad")
            it.put_slice("a", "web", f"10.0.0.{claimed % 199}")
            await asyncio.sleep(2)
            assert f"10.0.0.{claimed % 199}:8080" in it.text("good")
            assert it.installed_ruleset("good").generation < 1 << 53


ForeignEvent = tuple[str, int, int]
FOREIGN_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "slice", "delete", "relist", "guest"]), st.integers(0, 4), st.integers(0, 3)
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(FOREIGN_EVENTS)
async def test_events_of_a_tenant_change_no_byte_sent_to_others(
    events: list[ForeignEvent],
) -> None:
    async def sent_to_first(do: Callable[[EngineNode, ForeignEvent], None]) -> list[bytes]:
        it = node()
        it.bridge.add("g1", "a")
        async with it.running():
            it.bridge.add("g2", "b")
            for number, event in enumerate(events):
                do(it, event)
                await asyncio.sleep(0.03)
                # Meanwhile the first tenant changes too.
                if number % 3 == 0:
                    it.put_slice("a", "web", f"10.0.0.{number}")
                    await asyncio.sleep(0.2)
            await asyncio.sleep(1)
            return [each.data for each in it.bridge.requests_for("g1")]

    alone = await sent_to_first(lambda _node, _apply: None)
    crowded = await sent_to_first(_apply)
    assert crowded == alone


def _apply(it: EngineNode, event: ForeignEvent) -> None:
    what, number, other = event
    match what:
        case "put":
            it.put("b", f"s{number}", f"10.96.1.{number + 1}", *(f"10.1.{other}.{i}" for i in range(other)))
        case "slice":
            it.put_slice("b", f"s{number}", f"10.1.9.{other}")
        case "delete":
            if ("b-default", f"s{number}") in it.controller.state._index.services:  # noqa: SLF001 - to know
                it.storage.delete(SERVICES, "b-default", f"s{number}")
        case "relist":
            it.storage.bump()
        case "guest":
            it.bridge.add(f"b{number}", "b", ips=(f"10.244.1.{other}",))
