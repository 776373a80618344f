# SPDX-License-Identifier: Apache-2.0
"""What the channel to stock guests does with a guest's two calls, on tables in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kata_bridge.api.messages import Capabilities
from kata_bridge.channels.channel import GuestState, NeedsFull, NotInjectable, Refused, Unreachable
from kata_bridge.channels.stock import StockKata
from kata_bridge.channels.stock_calls import FaultError
from kata_bridge.channels.stock_faults import Fault, NoAnswerError
from kata_bridge.testing.guest_tables import MemoryTables
from kata_bridge.testing.sample_rulesets import sample
from ruleset.delta import difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend

pytestmark = pytest.mark.asyncio

V4, V6 = Family.IPV4, Family.IPV6
BOTH = (V4, V6)
EMPTY = make_ruleset(5, ())


@dataclass
class Guest:
    """The calls of a guest whose iptables are in memory. `fails` are raised, first by first."""

    tables: MemoryTables = field(default_factory=MemoryTables)
    pushes: list[tuple[Family, str]] = field(default_factory=list)
    reads: list[Family] = field(default_factory=list)
    fails: dict[tuple[str, Family], Exception] = field(default_factory=dict)
    is_save_failing: bool = False
    losing: set[Family] = field(default_factory=set)
    released: int = 0
    route: str = "shim"

    async def read(self, family: Family) -> str:
        self._fail("read", family)
        self.reads.append(family)
        return "" if self.is_save_failing else self.tables.save(family)

    async def push(self, family: Family, text: str) -> None:
        self._fail("push", family)
        self.pushes.append((family, text))
        if family in self.losing:
            return
        tool = "ip6tables-restore" if family is V6 else "iptables-restore"
        ended = await self.tables.run(tool, (), text.encode())
        assert ended.code == 0, ended.stderr

    def release(self) -> None:
        self.released += 1

    async def version(self) -> str:
        return "3.4.0"

    def _fail(self, what: str, family: Family) -> None:
        if error := self.fails.get((what, family)):
            raise error


def channel(guest: Guest) -> StockKata:
    return StockKata("abc", guest)


async def test_a_fresh_guest_is_probed_without_a_change_of_ipv4() -> None:
    guest = Guest()

    assert await channel(guest).probe() == Capabilities(
        channel="shim", backends=("iptables",), ipv6=True, version="3.4.0"
    )
    assert [family for family, _ in guest.pushes] == [V4, V6]
    assert guest.tables.save(V4) == ""
    assert ":VCN-PROOF - [0:0]" in guest.tables.save(V6)


async def test_a_guest_that_holds_rules_is_probed_without_a_push() -> None:
    guest = Guest()
    await channel(guest).apply(sample(7, families=BOTH), ())
    guest.pushes.clear()

    await channel(guest).probe()

    assert guest.pushes == []


async def test_the_proof_of_ipv6_lasts() -> None:
    guest = Guest()
    await channel(guest).apply(sample(7), ())
    guest.pushes.clear()

    assert (await channel(guest).probe()).ipv6
    assert (await channel(guest).state()).digest == sample(7).digest
    assert guest.pushes == []


@pytest.mark.parametrize("ruleset", [sample(7), sample(7, families=BOTH), sample(7, families=(V6,)), EMPTY])
async def test_what_is_applied_is_held_and_not_applied_again(ruleset: Ruleset) -> None:
    guest = Guest()
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


@pytest.mark.parametrize("ruleset", [sample(7), sample(7, families=BOTH), sample(7, families=(V6,)), EMPTY])
async def test_another_channel_reads_the_digest_from_the_guest(ruleset: Ruleset) -> None:
    guest = Guest()
    await channel(guest).apply(ruleset, ())

    assert await channel(guest).state() == GuestState(0, ruleset.digest, has_drifted=False)


async def test_what_is_read_back_is_what_was_applied() -> None:
    guest = Guest()
    ruleset = sample(7, families=BOTH, affinity_s=60)
    one = channel(guest)
    assert await one.read_back() == ()

    await one.apply(ruleset, ())

    assert await one.read_back() == ruleset.documents


async def test_ipv6_rules_that_are_no_longer_wanted_go() -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7, families=BOTH), ())

    await one.apply(sample(8), ())

    assert [d.family for d in await one.read_back()] == [V4]
    assert "VCN-SERVICES" not in guest.tables.save(V6)


MESH = """*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A OUTPUT -d 192.0.2.1/32 -j MARK --set-mark 1
COMMIT
"""


async def mesh_first() -> Guest:
    guest = Guest()
    await guest.tables.run("iptables-restore", (), MESH.encode())
    return guest


async def test_a_meshs_rules_keep_their_places_and_come_first() -> None:
    guest = await mesh_first()
    one = channel(guest)

    await one.apply(sample(7), ())
    await one.apply(sample(8, 3), ())

    foreign = [line for line in guest.tables.save(V4).splitlines() if "VCN-" not in line and line[0] == "-"]
    assert foreign == [line for line in MESH.splitlines() if line[0] == "-"]
    assert guest.tables.rules(V4, "nat", "OUTPUT") == ("-p tcp -j ISTIO_OUTPUT", "-j VCN-SERVICES")
    assert all(text.count("*") == 2 and "*mangle" not in text for _, text in guest.pushes[2:])


async def test_a_mesh_that_comes_later_is_let_go_first() -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables.append(V4, "nat", "OUTPUT", "-p tcp -j ACCEPT")

    assert await one.state() == GuestState(7, sample(7).digest, has_drifted=True)
    await one.apply(sample(7), ())

    assert await one.state() == GuestState(7, sample(7).digest, has_drifted=False)
    assert guest.tables.rules(V4, "nat", "OUTPUT") == ("-p tcp -j ACCEPT", "-j VCN-SERVICES")


@pytest.mark.parametrize("is_remembered", [True, False])
@pytest.mark.parametrize(
    ("table", "chain"),
    [("nat", None), ("filter", None), ("nat", "OUTPUT"), ("nat", "VCN-SERVICES"), ("filter", "VCN-SERVICES")],
)
async def test_a_stranger_who_flushes_is_seen(table: str, chain: str | None, *, is_remembered: bool) -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables.flush(V4, table, chain)
    asked = one if is_remembered else channel(guest)

    state = await asked.state()

    assert state.has_drifted
    assert sample(7).digest.startswith(state.digest)
    assert state.digest
    await asked.apply(sample(7), ())
    assert await asked.state() == GuestState(7, sample(7).digest, has_drifted=False)


async def test_a_guest_that_lost_everything_says_nothing_of_a_digest() -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables = MemoryTables()

    assert await one.state() == GuestState(0, "", has_drifted=False)


async def test_a_line_in_our_chain_that_cannot_be_ours_is_drift() -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.tables.append(V4, "nat", "VCN-SERVICES", '-m comment --comment "hello" -j RETURN')

    assert (await channel(guest).state()).has_drifted
    assert await one.read_back() != sample(7).documents
    assert not (await channel(guest).apply(sample(7), ())).has_drifted
    assert await one.read_back() == sample(7).documents


async def test_ipv4_only_rulesets_are_checked_by_one_read() -> None:
    guest = Guest()
    one = channel(guest)
    await one.apply(sample(7), ())
    guest.reads.clear()

    await one.state()

    assert guest.reads == [V4]


async def test_a_delta_needs_the_whole() -> None:
    delta = difference(sample(7), sample(8, 3))
    assert delta is not None

    with pytest.raises(NeedsFull):
        await channel(Guest()).apply(delta, ())


async def test_more_than_a_message_can_bear_is_refused_before_it_is_sent() -> None:
    guest = Guest()
    one = channel(guest)
    await one.probe()
    guest.pushes.clear()
    rules = tuple(f"-d 10.96.0.1/32 -p tcp -m tcp --dport {port} -j RETURN" for port in range(65_000))
    document = Document(V4, Backend.IPTABLES, {"nat/VCN-SERVICES": rules})

    with pytest.raises(
        Refused, match=r"\d+ bytes of rules, \d+ of them ours: a stock Kata guest takes 3670016"
    ):
        await one.apply(make_ruleset(1, [document]), ())

    assert guest.pushes == []


async def test_rules_for_nft_alone_are_refused() -> None:
    document = Document(V4, Backend.NFT, {"chain nat-output": ()})

    with pytest.raises(Refused, match="stock Kata takes rules of iptables only, not of nft"):
        await channel(Guest()).apply(make_ruleset(1, [document]), ())


# ---- IPv6


def fault(kind: Fault, text: str = "why", *, concerns_family: bool = False) -> FaultError:
    return FaultError(kind, text, concerns_family=concerns_family)


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ({("push", V6): fault(Fault.IPV6_SAVES, concerns_family=True)}, "why"),
        ({("read", V6): fault(Fault.NO_BINARY, concerns_family=True)}, "why"),
        ({("push", V6): fault(Fault.POLICY_DENIED)}, "why"),
        ({("push", V6): NoAnswerError("closed")}, "IPv6 rules fail without an answer: closed"),
    ],
)
async def test_a_guest_without_ipv6_has_ipv4(fails: dict[tuple[str, Family], Exception], why: str) -> None:
    guest = Guest(fails=fails)
    one = channel(guest)

    assert not (await one.probe()).ipv6
    assert one.ipv6_problem == why
    assert await one.apply(sample(7), ()) == await one.state()
    pushes = len(guest.pushes)
    with pytest.raises(Refused, match=why):
        await one.apply(sample(8, families=BOTH), ())
    assert len(guest.pushes) == pushes


async def test_ipv6_rules_that_are_taken_and_not_held_are_no_ipv6() -> None:
    one = channel(Guest(losing={V6}))

    assert not (await one.probe()).ipv6
    assert one.ipv6_problem == "the guest says that it took IPv6 rules and does not hold them"


@pytest.mark.parametrize("error", [fault(Fault.TRANSIENT), NoAnswerError("why", may_run=True)])
async def test_what_may_pass_decides_nothing_of_ipv6(error: Exception) -> None:
    with pytest.raises(Unreachable, match="why"):
        await channel(Guest(fails={("push", V6): error})).probe()


async def test_the_guest_of_a_pod_without_ipv6_is_not_asked_for_it() -> None:
    """Each question is a process or two in the guest, while its containers are about to start."""
    guest = Guest()
    one = StockKata("abc", guest, has_ipv6=False)

    assert not (await one.probe()).ipv6
    assert await one.apply(sample(7), ()) == await one.state()
    await one.read_back()
    assert V6 not in [*guest.reads, *(family for family, _ in guest.pushes)]
    assert guest.reads == [V4] * 5
    with pytest.raises(Refused, match="its pod has no IPv6 address"):
        await one.apply(sample(8, families=BOTH), ())


# ---- outcomes


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NoAnswerError("why"), Unreachable),
        (NoAnswerError("why", may_run=True), Unreachable),
        (fault(Fault.TRANSIENT), Unreachable),
        (fault(Fault.UNCLEAR), Unreachable),
        (fault(Fault.RULE), Refused),
        (fault(Fault.TOO_LARGE), Refused),
        (fault(Fault.NO_BINARY, concerns_family=True), Refused),
        (fault(Fault.POLICY_DENIED), NotInjectable),
        (fault(Fault.POLICY_UNDEFINED), NotInjectable),
        (fault(Fault.AGENT_TOO_OLD), NotInjectable),
        (fault(Fault.ENDPOINT_BLOCKED), NotInjectable),
        (fault(Fault.NO_BINARY), NotInjectable),
        (fault(Fault.NO_NF_TABLES), NotInjectable),
        (fault(Fault.NO_TABLE), NotInjectable),
    ],
)
@pytest.mark.parametrize("what", ["read", "push"])
async def test_an_error_is_an_outcome(what: str, error: Exception, outcome: type[Exception]) -> None:
    guest = Guest(fails={(what, V4): error})

    with pytest.raises(outcome, match="why"):
        await channel(guest).probe()


async def test_a_guest_that_prints_nothing_is_pushed_to_once() -> None:
    guest = Guest()
    one = channel(guest)
    await one.probe()
    guest.is_save_failing = True
    guest.pushes.clear()

    with pytest.raises(NotInjectable, match="takes rules and prints none: its iptables-save fails"):
        await one.apply(sample(7), ())
    assert len(guest.pushes) == 1


async def test_a_guest_that_does_not_hold_what_it_took_is_worth_another_try() -> None:
    guest = await mesh_first()
    one = channel(guest)
    await one.probe()
    guest.losing = {V4}

    with pytest.raises(Unreachable, match="took the rules and does not hold them"):
        await one.apply(sample(7), ())


async def test_what_stock_kata_has_not() -> None:
    guest = Guest()
    one = channel(guest)

    await one.flush_conntrack(())
    with pytest.raises(NotInjectable, match="way to a container's resolv"):
        await one.set_resolv_conf("nameserver 10.96.0.10\n")
    await one.close()
    assert (guest.reads, guest.pushes) == ([], [])


# ---- histories

RULESETS = [
    sample(1),
    sample(2, 3),
    sample(3, families=BOTH),
    sample(4, services=1, families=BOTH, affinity_s=60),
    EMPTY,
]
STEPS = st.one_of(
    st.integers(0, len(RULESETS) - 1),
    st.sampled_from(["restart", "flush nat", "flush OUTPUT", "flush filter", "mesh", "reboot"]),
)


@given(st.lists(STEPS, max_size=12))
async def test_after_any_history_the_guest_holds_what_was_applied_and_all_that_is_not_ours(
    steps: Sequence[int | str],
) -> None:
    guest = Guest()
    one = channel(guest)
    mesh: list[str] = []
    for number, step in enumerate(steps):
        match step:
            case int():
                await one.apply(RULESETS[step], ())
                pushes = len(guest.pushes)
                await one.apply(RULESETS[step], ())
                assert len(guest.pushes) == pushes
                assert await one.state() == GuestState(
                    RULESETS[step].generation, RULESETS[step].digest, False
                )
                assert await one.read_back() == RULESETS[step].documents
            case "restart":
                before = await one.state()
                one = channel(guest)
                after = await one.state()
                assert (after.has_drifted, before.digest.startswith(after.digest)) == (
                    before.has_drifted,
                    True,
                )
            case "mesh" if "*nat" in guest.tables.save(V4):
                mesh.append(f"-A OUTPUT -m mark --mark {number} -j RETURN")
                guest.tables.append(V4, "nat", "OUTPUT", mesh[-1].removeprefix("-A OUTPUT "))
            case "flush nat" | "flush OUTPUT" if "*nat" in guest.tables.save(V4):
                guest.tables.flush(V4, "nat", "OUTPUT" if step == "flush OUTPUT" else None)
                mesh.clear()
            case "flush filter" if "*filter" in guest.tables.save(V4):
                guest.tables.flush(V4, "filter")
            case "reboot":
                guest.tables = MemoryTables()
                mesh.clear()
        printed = guest.tables.save(V4).splitlines()
        assert [line for line in printed if line.startswith("-A OUTPUT -m mark")] == mesh
