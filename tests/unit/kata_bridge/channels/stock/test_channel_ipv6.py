# SPDX-License-Identifier: Apache-2.0
"""How the channel finds out whether a stock guest takes IPv6 rules."""

import pytest

from devkit.kata.fake_table_calls import FakeTableCalls
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestRefused, Unreachable
from kata_bridge.channels.stock.channel import StockChannel
from kata_bridge.channels.stock.faults import Fault, NoAnswerError
from ruleset.model import Family
from tests.unit.kata_bridge.channels.stock.stock_guests import BOTH, V4, V6, channel, fault

pytestmark = pytest.mark.asyncio


async def test_ipv6_proof_outlasts_a_restart() -> None:
    guest = FakeTableCalls()
    await channel(guest).apply(sample(7), ())
    guest.pushes.clear()

    assert (await channel(guest).probe()).ipv6
    assert (await channel(guest).state()).digest == sample(7).digest
    assert guest.pushes == []


async def test_undesired_ipv6_rules_are_removed() -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    await one.apply(sample(7, families=BOTH), ())

    await one.apply(sample(8), ())

    assert [d.family for d in await one.read_back()] == [V4]
    assert "VCN-SERVICES" not in guest.tables.save(V6)


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ({("push", V6): fault(Fault.IPV6_SAVES, concerns_family=True)}, "why"),
        ({("read", V6): fault(Fault.NO_BINARY, concerns_family=True)}, "why"),
        ({("push", V6): fault(Fault.POLICY_DENIED)}, "why"),
        ({("push", V6): NoAnswerError("closed")}, "IPv6 rules fail without an answer: closed"),
    ],
)
async def test_guest_without_ipv6_gets_ipv4(fails: dict[tuple[str, Family], Exception], why: str) -> None:
    guest = FakeTableCalls(fails=fails)
    one = channel(guest)

    assert not (await one.probe()).ipv6
    assert one.ipv6_problem == why
    assert await one.apply(sample(7), ()) == await one.state()
    pushes = len(guest.pushes)
    with pytest.raises(GuestRefused, match=why):
        await one.apply(sample(8, families=BOTH), ())
    assert len(guest.pushes) == pushes


async def test_ipv6_rules_that_have_no_effect_are_found() -> None:
    one = channel(FakeTableCalls(losing={V6}))

    assert not (await one.probe()).ipv6
    assert one.ipv6_problem == "the guest took IPv6 rules but does not hold them"


@pytest.mark.parametrize("error", [fault(Fault.TRANSIENT), NoAnswerError("why", may_run=True)])
async def test_transient_failure_does_not_decide_on_ipv6(error: Exception) -> None:
    with pytest.raises(Unreachable, match="why"):
        await channel(FakeTableCalls(fails={("push", V6): error})).probe()


async def test_pod_without_ipv6_address_is_not_probed_for_it() -> None:
    """Each question is a process or two in the guest, while its containers are about to start."""
    guest = FakeTableCalls()
    one = StockChannel("abc", guest, has_ipv6=False)

    assert not (await one.probe()).ipv6
    assert await one.apply(sample(7), ()) == await one.state()
    await one.read_back()
    assert V6 not in [*guest.reads, *(family for family, _ in guest.pushes)]
    assert guest.reads == [V4] * 5
    with pytest.raises(GuestRefused, match="its pod has no IPv6 address"):
        await one.apply(sample(8, families=BOTH), ())
