# SPDX-License-Identifier: Apache-2.0
"""The channel to stock guests on fake table calls: probe, apply, read back."""

import pytest

from bridge_api.messages import Capabilities
from devkit.kata.fake_table_calls import FakeTableCalls
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, NotInjectable
from ruleset.delta import difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.names import Backend
from tests.unit.kata_bridge.channels.stock.stock_guests import BOTH, EMPTY, V4, V6, channel

pytestmark = pytest.mark.asyncio

EACH_KIND = pytest.mark.parametrize(
    "ruleset", [sample(7), sample(7, families=BOTH), sample(7, families=(V6,)), EMPTY]
)


async def test_probe_changes_no_ipv4_rules() -> None:
    guest = FakeTableCalls()

    assert await channel(guest).probe() == Capabilities(
        channel="shim", backends=("iptables",), ipv6=True, version="3.4.0"
    )
    assert [family for family, _ in guest.pushes] == [V4, V6]
    assert guest.tables.save(V4) == ""
    assert ":VCN-PROOF - [0:0]" in guest.tables.save(V6)


async def test_probe_of_a_guest_with_rules_pushes_nothing() -> None:
    guest = FakeTableCalls()
    await channel(guest).apply(sample(7, families=BOTH), ())
    guest.pushes.clear()

    await channel(guest).probe()

    assert guest.pushes == []


@EACH_KIND
async def test_applied_ruleset_is_not_pushed_again(ruleset: Ruleset) -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    expected = GuestState(ruleset.generation, ruleset.digest, has_drifted=False)
    if ruleset is EMPTY:
        await one.apply(sample(6), ())

    assert await one.apply(ruleset, ()) == expected
    assert await one.state() == expected
    guest.pushes.clear()
    assert await one.apply(ruleset, ()) == expected
    assert await channel(guest).apply(ruleset, ()) == expected
    assert guest.pushes == []


@EACH_KIND
async def test_digest_is_read_from_the_guest_after_a_restart(ruleset: Ruleset) -> None:
    guest = FakeTableCalls()
    await channel(guest).apply(ruleset, ())

    assert await channel(guest).state() == GuestState(0, ruleset.digest, has_drifted=False)


async def test_read_back_returns_the_applied_documents() -> None:
    guest = FakeTableCalls()
    ruleset = sample(7, families=BOTH, affinity_s=60)
    one = channel(guest)
    assert await one.read_back() == ()

    await one.apply(ruleset, ())

    assert await one.read_back() == ruleset.documents


async def test_ipv4_only_ruleset_is_checked_by_one_read() -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.reads.clear()

    await one.state()

    assert guest.reads == [V4]


async def test_delta_needs_the_full_ruleset() -> None:
    delta = difference(sample(7), sample(8, 3))
    assert delta is not None

    with pytest.raises(NeedsFull):
        await channel(FakeTableCalls()).apply(delta, ())


async def test_oversized_ruleset_is_refused_before_it_is_sent() -> None:
    guest = FakeTableCalls()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.pushes.clear()
    rules = tuple(f"-d 10.96.0.1/32 -p tcp -m tcp --dport {port} -j RETURN" for port in range(65_000))
    document = Document(V4, Backend.IPTABLES, {"nat/VCN-SERVICES": rules})

    with pytest.raises(
        GuestRefused, match=r"\d+ bytes of rules, \d+ of them ours: a stock Kata guest takes 3670016"
    ):
        await one.apply(make_ruleset(1, [document]), ())

    assert guest.pushes == []
    assert await one.state() == GuestState(7, sample(7).digest, has_drifted=False)


async def test_ruleset_for_nft_alone_is_refused() -> None:
    document = Document(V4, Backend.NFT, {"chain nat-output": ()})

    with pytest.raises(GuestRefused, match="stock Kata takes rules of iptables only, not of nft"):
        await channel(FakeTableCalls()).apply(make_ruleset(1, [document]), ())


async def test_calls_that_stock_kata_lacks() -> None:
    guest = FakeTableCalls()
    one = channel(guest)

    await one.flush_conntrack(())
    with pytest.raises(NotInjectable, match="cannot write a container's resolv"):
        await one.set_resolv_conf("nameserver 10.96.0.10\n")
    await one.close()
    assert (guest.reads, guest.pushes) == ([], [])
