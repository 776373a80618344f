# SPDX-License-Identifier: Apache-2.0
"""The channel to stock guests over sockets, with each kind of shim, agent and image."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bridge_api.messages import Capabilities
from devkit.kata.agent_policy import OPENED_POLICY, STOCK_POLICY, PolicyEngine, parse
from devkit.kata.fake_agent import EARLY, IMAGE, MISSPELT, AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.fake_shim import Flavour
from devkit.kata.guest_tables import FakeTables
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestRefused, GuestState, NotInjectable, Unreachable
from kata_bridge.channels.stock.channel import StockChannel, stock_channel
from ruleset.model import Family
from tests.waiting import until_it_succeeds

pytestmark = pytest.mark.asyncio

BOTH = (Family.IPV4, Family.IPV6)
_SHORT_S = 0.4
GO, RUST = Flavour.GO, Flavour.RUST
flavours = pytest.mark.parametrize("flavour", Flavour)


def channel(kata: FakeKata, *, policy: str | None = None, hold_s: float = 60.0) -> StockChannel:
    return stock_channel(kata.sandbox_id, roots=kata.roots, timeout_s=_SHORT_S, hold_s=hold_s, policy=policy)


@flavours
@pytest.mark.parametrize("is_hybrid", [False, True])
async def test_ruleset_is_applied_once(short_dir: Path, flavour: Flavour, *, is_hybrid: bool) -> None:
    quirks = AgentQuirks(policy=parse(OPENED_POLICY))
    async with FakeKata(short_dir, FakeTables(), flavour=flavour, quirks=quirks, is_hybrid=is_hybrid) as kata:
        ruleset = sample(7, families=BOTH)
        one = channel(kata)

        assert await one.probe() == Capabilities(
            channel="shim", backends=("iptables",), ipv6=True, version="3.32.0"
        )
        kata.agent.pushes.clear()
        applied = GuestState(7, ruleset.digest, has_drifted=False)
        assert await one.apply(ruleset, ()) == applied
        assert [push.is_ipv6 for push in kata.agent.pushes] == [False, True]
        assert await one.state() == applied
        assert await one.apply(ruleset, ()) == applied
        assert await one.read_back() == ruleset.documents

        again = channel(kata)  # kata-bridge was restarted
        await again.probe()
        assert await again.state() == replace(applied, generation=0)
        assert await again.apply(ruleset, ()) == applied
        assert len(kata.agent.pushes) == 2
        assert {push.at_once for push in kata.agent.pushes} == {1}


@dataclass(frozen=True)
class Row:
    """The outcome of a guest that differs; `quirks` are built anew for each test."""

    name: str
    outcome: type[Exception]
    why: str
    quirks: dict[str, object] = field(default_factory=dict)


ROWS = [
    Row("old agent", NotInjectable, "older than 2.5", {"has_iptables_calls": False}),
    Row(
        "blocked endpoint",
        NotInjectable,
        "the kata-agent's configuration blocks GetIPTablesRequest: add it to `allowed`",
        {"allowed_endpoints": frozenset()},
    ),
    Row(
        "no rule, regorus",
        NotInjectable,
        "no rule for GetIPTablesRequest, .* add `default GetIPTablesRequest := true` to it",
        {"policy": parse(STOCK_POLICY)},
    ),
    Row(
        "no rule, OPA",
        NotInjectable,
        "policy denies GetIPTablesRequest",
        {"policy": parse(STOCK_POLICY, PolicyEngine.OPA)},
    ),
    Row(
        "only reading is allowed",
        NotInjectable,
        "no rule for SetIPTablesRequest",
        {"policy": parse(STOCK_POLICY + "default GetIPTablesRequest := true\n")},
    ),
    Row("no iptables", NotInjectable, "the guest image lacks iptables", {"files": frozenset()}),
    Row(
        "no iptables-restore where it is looked for",
        NotInjectable,
        "the guest image lacks iptables",
        {"paths": MISSPELT, "files": frozenset(path for path in IMAGE if path.startswith("/usr"))},
    ),
    Row("no nf_tables", NotInjectable, "the guest kernel lacks nf_tables", {"has_nf_tables": False}),
    Row(
        "stdin is not read",
        Unreachable,
        "is not available now; trying again: timeout waiting",
        {"is_stdin_stuck": True},
    ),
]


@flavours
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_reason_why_a_guest_takes_no_rules(short_dir: Path, flavour: Flavour, row: Row) -> None:
    quirks = AgentQuirks(**row.quirks)  # type: ignore[arg-type] # a table of keywords
    tables = FakeTables()
    async with FakeKata(short_dir, tables, flavour=flavour, quirks=quirks) as kata:
        for call in (channel(kata).probe(), channel(kata).state(), channel(kata).apply(sample(7), ())):
            with pytest.raises(row.outcome, match=row.why):
                await call

        assert tables.save(Family.IPV4) == ""
        assert "SetPolicy" not in kata.agent.calls


async def test_silent_rust_shim_without_its_agent_is_unreachable(short_dir: Path) -> None:
    quirks = AgentQuirks(files=frozenset())
    async with FakeKata(short_dir, FakeTables(), flavour=RUST, quirks=quirks) as kata:
        kata.shim.url = "vsock://4294967294:1024"
        with pytest.raises(
            Unreachable, match=r"connection closed, not an HTTP reply; vsock://4294967294:1024"
        ):
            await channel(kata).probe()


@flavours
@pytest.mark.parametrize(
    ("quirks", "why"),
    [
        ({"paths": MISSPELT}, "runs ip6tables-save where it should restore .* pull request 13789"),
        (
            {"paths": EARLY, "files": frozenset(path for path in IMAGE if "/ip6" not in path)},
            "the guest image lacks ip6tables",
        ),
    ],
)
async def test_guest_without_ipv6_gets_ipv4(
    short_dir: Path, flavour: Flavour, quirks: dict[str, object], why: str
) -> None:
    made = AgentQuirks(**quirks)  # type: ignore[arg-type] # a table of keywords
    async with FakeKata(short_dir, FakeTables(), flavour=flavour, quirks=made) as kata:
        one = channel(kata)
        assert not (await one.probe()).ipv6

        assert (await one.apply(sample(7), ())).digest == sample(7).digest
        assert (await one.state()).digest == sample(7).digest
        with pytest.raises(GuestRefused, match=why):
            await one.apply(sample(8, families=BOTH), ())


@flavours
async def test_booting_guest_is_unreachable_until_it_is_up(short_dir: Path, flavour: Flavour) -> None:
    async with FakeKata(short_dir, FakeTables(), flavour=flavour, is_booting=True) as kata:
        one = channel(kata)
        with pytest.raises(Unreachable):
            await one.probe()

        await kata.shim.boot()

        assert (await one.probe()).channel == "shim"
        assert (await one.apply(sample(7), ())).digest == sample(7).digest


async def test_old_shim_is_bypassed(short_dir: Path) -> None:
    async with FakeKata(short_dir, FakeTables()) as kata:
        kata.shim.is_old = True
        one = channel(kata)

        assert (await one.probe()).channel == "ttrpc"
        assert (await one.apply(sample(7), ())).digest == sample(7).digest
        assert [request for request in kata.shim.requests if "iptables" in request] == ["GET /iptables"]


async def test_dead_shim_is_bypassed(short_dir: Path) -> None:
    async with FakeKata(short_dir, FakeTables()) as kata:
        one = channel(kata)
        await one.probe()
        await kata.shim.crash()

        assert (await one.apply(sample(7), ())).digest == sample(7).digest


@flavours
async def test_refused_rule_is_quoted_end_to_end(short_dir: Path, flavour: Flavour) -> None:
    tables = FakeTables()
    tables.iptables[Family.IPV4].refused = "10.96.0.2/32"
    async with FakeKata(short_dir, tables, flavour=flavour) as kata:
        with pytest.raises(GuestRefused) as caught:
            await channel(kata).apply(sample(7), ())

    assert str(caught.value).startswith(
        "iptables in the guest refused the rules: /usr/sbin/iptables-restore failed: iptables-restore: line "
    )
    assert str(caught.value).endswith(
        ": -A VCN-SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:8080"
    )


# ---- without a response


@flavours
async def test_unanswered_push_blocks_the_next(short_dir: Path, flavour: Flavour) -> None:
    async with FakeKata(short_dir, FakeTables(), flavour=flavour) as kata:
        one = channel(kata)
        await one.probe()
        kata.agent.pushes.clear()
        kata.quirks.delay_s = 2 * _SHORT_S
        with pytest.raises(Unreachable, match="no reply within"):
            await one.apply(sample(7), ())  # the reading took too long
        assert kata.agent.pushes == []
        kata.quirks.delay_s = 0.0

        kata.quirks.restore_delay_s = 3 * _SHORT_S
        with pytest.raises(Unreachable, match="no reply within"):
            await one.apply(sample(7), ())
        with pytest.raises(
            Unreachable, match=r"a push was not answered and may still take effect for (60|59) s"
        ):
            await one.apply(sample(7), ())
        async with asyncio.timeout(10):
            await kata.agent.until_idle()
        kata.quirks.restore_delay_s = 0.0

        # It happened after all, so the next may begin.
        assert (await one.apply(sample(7), ())).digest == sample(7).digest
        assert (await one.apply(sample(8, 3), ())).digest == sample(8, 3).digest
        assert [push.at_once for push in kata.agent.pushes] == [1, 1]


async def test_lost_push_is_repeated_after_its_hold(short_dir: Path) -> None:
    async with FakeKata(short_dir, FakeTables()) as kata:
        one = channel(kata, hold_s=0.2)
        await one.probe()
        kata.quirks.is_mute = True
        with pytest.raises(Unreachable):
            await one.apply(sample(7), ())
        kata.quirks.is_mute = False
        state = await until_it_succeeds(lambda: one.apply(sample(7), ()), Unreachable, within_s=10)
        assert state.digest == sample(7).digest


@flavours
async def test_silent_shim_is_waited_for_until_the_deadline(short_dir: Path, flavour: Flavour) -> None:
    async with FakeKata(short_dir, FakeTables(), flavour=flavour) as kata:
        kata.shim.is_silent = True
        async with asyncio.timeout(3 * _SHORT_S):
            with pytest.raises(Unreachable, match="no reply within"):
                await channel(kata).probe()


async def test_missing_version_does_not_fail_the_probe(short_dir: Path) -> None:
    async with FakeKata(short_dir, FakeTables()) as kata:
        kata.shim.url = "not an address"

        assert await channel(kata).probe() == Capabilities(channel="shim", backends=("iptables",), ipv6=True)


# ---- policy

REPLACEMENT = OPENED_POLICY


@flavours
async def test_policy_is_replaced_if_configured(short_dir: Path, flavour: Flavour) -> None:
    quirks = AgentQuirks(policy=parse(STOCK_POLICY))
    async with FakeKata(short_dir, FakeTables(), flavour=flavour, quirks=quirks) as kata:
        one = channel(kata, policy=REPLACEMENT)

        assert (await one.apply(sample(7), ())).digest == sample(7).digest
        assert kata.agent.calls.count("SetPolicy") == 1
        assert quirks.policy == parse(REPLACEMENT)


@flavours
async def test_sealed_policy_is_reported(short_dir: Path, flavour: Flavour) -> None:
    sealed = STOCK_POLICY.replace("SetPolicyRequest := true", "SetPolicyRequest := false")
    async with FakeKata(
        short_dir, FakeTables(), flavour=flavour, quirks=AgentQuirks(policy=parse(sealed))
    ) as kata:
        with pytest.raises(NotInjectable, match=r"no rule for Get.* cannot be replaced either"):
            await channel(kata, policy=REPLACEMENT).probe()


async def test_insufficient_replacement_policy_is_set_once(short_dir: Path) -> None:
    async with FakeKata(short_dir, FakeTables(), quirks=AgentQuirks(policy=parse(STOCK_POLICY))) as kata:
        with pytest.raises(NotInjectable, match="no rule for GetIPTablesRequest"):
            await channel(kata, policy=STOCK_POLICY).probe()
        assert kata.agent.calls.count("SetPolicy") == 1
