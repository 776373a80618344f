# SPDX-License-Identifier: Apache-2.0
"""The stock channel with real iptables, legacy and nft."""

import socket
from pathlib import Path

import pytest

from devkit.kata.agent_policy import OPENED_POLICY, STOCK_POLICY, parse
from devkit.kata.fake_agent import MISSPELT, AgentQuirks
from devkit.kata.fake_kata import FakeKata
from devkit.kata.fake_shim import Flavour
from devkit.kata.guest_tables import NamespaceTables
from devkit.kata.sample_rulesets import sample
from kata_bridge.channels.port import GuestRefused, GuestState, NotInjectable
from kata_bridge.channels.stock.channel import StockChannel, stock_channel
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.names import Backend
from ruleset.render.iptables import HOOKS, render
from tests.lab.namespaces import Lab, LabNamespace

pytestmark = pytest.mark.asyncio

V4, V6 = Family.IPV4, Family.IPV6
BOTH = (V4, V6)


def channel(kata: FakeKata, *, policy: str | None = None) -> StockChannel:
    return stock_channel(kata.sandbox_id, roots=kata.roots, policy=policy)


@pytest.mark.parametrize("flavour", Flavour)
async def test_ruleset_is_applied_once_and_recognised(
    short_dir: Path, tables: NamespaceTables, flavour: Flavour
) -> None:
    quirks = AgentQuirks(policy=parse(OPENED_POLICY))
    async with FakeKata(short_dir, tables, flavour=flavour, quirks=quirks, is_hybrid=True) as kata:
        one = channel(kata)
        assert (await one.probe()).ipv6
        kata.agent.pushes.clear()
        for ruleset in (
            sample(1, 3, families=BOTH),
            sample(2, 7, families=BOTH, affinity_s=10_800),
            sample(3, 2, services=60),
            make_ruleset(4, ()),
            sample(5, families=(V6,)),
        ):
            state = GuestState(ruleset.generation, ruleset.digest, has_drifted=False)
            before = len(kata.agent.pushes)

            assert await one.apply(ruleset, ()) == state
            pushes = len(kata.agent.pushes)
            assert 1 <= pushes - before <= 2
            assert await one.apply(ruleset, ()) == state
            assert await one.state() == state
            assert await one.read_back() == ruleset.documents

            again = channel(kata)  # kata-bridge was restarted
            await again.probe()
            assert await again.state() == GuestState(0, ruleset.digest, has_drifted=False)
            assert await again.apply(ruleset, ()) == state
            assert len(kata.agent.pushes) == pushes


def to(port: int) -> Ruleset:
    """10.96.0.1:80 and [fd00:96::1]:80 go to this port of the backend."""
    documents = []
    for family, address, pod in ((V4, "10.96.0.1", "10.0.0.2"), (V6, "fd00:96::1", "fd00:10::2")):
        target = EndpointSet("team/app:http", Protocol.TCP, False, (Endpoint(pod, port),))
        frontend = Frontend(address, 80, Protocol.TCP, "team/app:http", target)
        documents.append(render(GuestRules(family, (ServiceRules("team/app", (frontend,)),), ())))
    return make_ruleset(port, documents)


@pytest.fixture
def backend(lab: Lab, guest: LabNamespace) -> LabNamespace:
    """Another pod, which the guest reaches; the guest's default route leads there."""
    made = lab.namespace("backend")
    lab.link(guest, made, ["10.0.0.1/24", "fd00:10::1/64"], ["10.0.0.2/24", "fd00:10::2/64"])
    return made


def received_from(guest: LabNamespace, address: str, listener: socket.socket) -> bytes:
    """Connect from the guest to a Service's address; return what the listener sends."""
    with guest.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        client.connect((address, 80))
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"here")
        return client.recv(100)


async def test_packets_follow_the_applied_rules(
    short_dir: Path, tables: NamespaceTables, guest: LabNamespace, backend: LabNamespace
) -> None:
    with backend.socket(socket.AF_INET6, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", 0))
        listener.listen()
        listener.settimeout(10)
        async with FakeKata(short_dir, tables) as kata:
            await channel(kata).apply(to(listener.getsockname()[1]), ())

            assert received_from(guest, "10.96.0.1", listener) == b"here"
            assert received_from(guest, "fd00:96::1", listener) == b"here"


MESH = """*nat
:MESH_OUT - [0:0]
-A OUTPUT -p tcp -j MESH_OUT
-A MESH_OUT -m mark --mark 0x539 -j RETURN
-A MESH_OUT -d 192.0.2.0/24 -p tcp -j REDIRECT --to-ports 15001
COMMIT
*mangle
-A OUTPUT -d 192.0.2.1/32 -j MARK --set-xmark 0x1/0xffffffff
COMMIT
"""


def foreign(guest: LabNamespace, variant: str) -> list[str]:
    printed = guest.run(f"iptables-{variant}-save").splitlines()
    return [line for line in printed if line.startswith("-A") and "VCN-" not in line]


def hooks(guest: LabNamespace, variant: str) -> list[str]:
    return guest.run(f"iptables-{variant}", "-t", "nat", "-S", "OUTPUT").splitlines()[1:]


async def test_mesh_rules_keep_their_positions(
    short_dir: Path, tables: NamespaceTables, guest: LabNamespace
) -> None:
    guest.run(f"iptables-{tables.variant}-restore", stdin=MESH)
    before = foreign(guest, tables.variant)
    async with FakeKata(short_dir, tables) as kata:
        one = channel(kata)
        for ruleset in (sample(1), sample(2, 5), make_ruleset(3, ()), sample(4)):
            await one.apply(ruleset, ())
            assert foreign(guest, tables.variant) == before

        expected = ["-A OUTPUT -p tcp -j MESH_OUT", "-A OUTPUT -j VCN-SERVICES"]
        assert hooks(guest, tables.variant) == expected

        # A mesh that is set up later appends itself behind our jump, and is moved in front again.
        guest.run(f"iptables-{tables.variant}", "-t", "nat", "-A", "OUTPUT", "-p", "udp", "-j", "RETURN")
        assert (await one.state()).has_drifted
        await one.apply(sample(4), ())
        assert hooks(guest, tables.variant) == [
            "-A OUTPUT -p tcp -j MESH_OUT",
            "-A OUTPUT -p udp -j RETURN",
            "-A OUTPUT -j VCN-SERVICES",
        ]
        assert not (await one.state()).has_drifted


@pytest.mark.parametrize("is_remembered", [True, False])
@pytest.mark.parametrize(
    "command",
    [
        "-t nat -F",
        "-t nat -F OUTPUT",
        "-t nat -F VCN-SERVICES",
        "-t filter -F",
        "-t nat -A VCN-SERVICES -j RETURN",
        "-t nat -I VCN-SERVICES -d 10.96.0.2/32 -j RETURN",
        "-t nat -D OUTPUT -j VCN-SERVICES",
    ],
)
async def test_foreign_change_is_detected_and_repaired(
    short_dir: Path, tables: NamespaceTables, guest: LabNamespace, command: str, *, is_remembered: bool
) -> None:
    ruleset = sample(7, 3)
    async with FakeKata(short_dir, tables) as kata:
        one = channel(kata)
        await one.apply(ruleset, ())
        guest.run(f"iptables-{tables.variant}", *command.split())
        reader = one if is_remembered else channel(kata)

        state = await reader.state()

        assert state.has_drifted
        assert ruleset.digest.startswith(state.digest)
        assert state.digest
        assert await reader.apply(ruleset, ()) == GuestState(7, ruleset.digest, has_drifted=False)
        assert await reader.read_back() == ruleset.documents


async def test_counters_and_packets_are_no_drift(
    short_dir: Path, tables: NamespaceTables, guest: LabNamespace, backend: LabNamespace
) -> None:
    ruleset = sample(7, 3, affinity_s=60)
    async with FakeKata(short_dir, tables) as kata:
        one = channel(kata)
        await one.apply(ruleset, ())
        for number in (1, 2, 3):  # no endpoint, one, three; none of them is served
            with guest.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
                client.setblocking(False)
                client.connect_ex((f"10.96.0.{number}", 80))
        counted = guest.run(f"iptables-{tables.variant}", "-t", "nat", "-nvxL", "VCN-SERVICES")
        assert any(line.split()[0] == "1" for line in counted.splitlines()[2:])

        assert await one.state() == GuestState(7, ruleset.digest, has_drifted=False)
        assert await channel(kata).state() == GuestState(0, ruleset.digest, has_drifted=False)


async def test_rebooted_guest_has_no_ruleset(
    short_dir: Path, tables: NamespaceTables, guest: LabNamespace
) -> None:
    async with FakeKata(short_dir, tables) as kata:
        one = channel(kata)
        await one.apply(sample(7), ())
        for table in ("nat", "filter"):
            guest.run(f"iptables-{tables.variant}", "-t", table, "-F")
            guest.run(f"iptables-{tables.variant}", "-t", table, "-X")

        assert await one.state() == GuestState(0, "", has_drifted=False)


@pytest.mark.parametrize("flavour", Flavour)
async def test_ipv6_bug_of_the_agent_leaves_ipv4(
    short_dir: Path, tables: NamespaceTables, guest: LabNamespace, flavour: Flavour
) -> None:
    async with FakeKata(short_dir, tables, flavour=flavour, quirks=AgentQuirks(paths=MISSPELT)) as kata:
        one = channel(kata)
        assert not (await one.probe()).ipv6
        assert "runs ip6tables-save where it should restore" in (one.ipv6_problem or "")
        assert (await one.apply(sample(7), ())).digest == sample(7).digest
        with pytest.raises(GuestRefused, match="ip6tables-save"):
            await one.apply(sample(8, families=BOTH), ())
        assert await one.state() == GuestState(7, sample(7).digest, has_drifted=False)
        assert "VCN" not in guest.run(f"ip6tables-{tables.variant}-save")


@pytest.mark.parametrize("flavour", Flavour)
async def test_stock_policy_is_refused_and_opened_policy_works(
    short_dir: Path, tables: NamespaceTables, flavour: Flavour
) -> None:
    quirks = AgentQuirks(policy=parse(STOCK_POLICY))
    async with FakeKata(short_dir, tables, flavour=flavour, quirks=quirks) as kata:
        with pytest.raises(NotInjectable, match="no rule for GetIPTablesRequest"):
            await channel(kata).apply(sample(7), ())

        assert not (await channel(kata, policy=OPENED_POLICY).apply(sample(7), ())).has_drifted


@pytest.mark.parametrize("flavour", Flavour)
async def test_rule_refused_by_real_tools_is_quoted(
    short_dir: Path, tables: NamespaceTables, guest: LabNamespace, flavour: Flavour
) -> None:
    bad = "-d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 999.0.0.1:8080"
    document = Document(
        V4, Backend.IPTABLES, {**HOOKS, "nat/VCN-SERVICES": (bad,), "filter/VCN-SERVICES": ()}
    )
    async with FakeKata(short_dir, tables, flavour=flavour) as kata:
        one = channel(kata)
        await one.apply(sample(7), ())
        with pytest.raises(GuestRefused) as caught:
            await one.apply(make_ruleset(8, [document]), ())

        assert str(caught.value).endswith(f" is: -A VCN-SERVICES {bad}")
        # Tables are separate transactions, filter's is first: nat still has the old rules: a drift.
        assert (await one.state()).has_drifted
        assert await one.apply(sample(9), ()) == await one.state()
        assert "999.0.0.1" not in guest.run(f"iptables-{tables.variant}-save")


async def test_largest_ruleset_is_applied(short_dir: Path, tables: NamespaceTables) -> None:
    rules = tuple(f"-d 10.96.{n >> 8}.{n & 255}/32 -p tcp -m tcp --dport 80 -j RETURN" for n in range(50_000))
    large = make_ruleset(8, [Document(V4, Backend.IPTABLES, {"nat/VCN-SERVICES": rules})])
    async with FakeKata(short_dir, tables) as kata:
        assert await channel(kata).apply(large, ()) == GuestState(8, large.digest, has_drifted=False)
        assert 3_000_000 < len(kata.agent.pushes[-1].data) < 3_670_016 or kata.agent.pushes[-1].is_ipv6
