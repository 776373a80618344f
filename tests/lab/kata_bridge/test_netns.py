# SPDX-License-Identifier: Apache-2.0
"""The netns channel, with real packet filters in network namespaces."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bridge_api.messages import Flow
from daemonkit.metrics import Registry
from guest_agent.kernel import programs
from guest_agent.kernel.nft import NftFilter
from kata_bridge.channels.netns.channel import NetnsChannel
from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.channels.port import GuestRefused, NeedsFull, NotInjectable, Unreachable
from kata_bridge.sandboxes.core.sandbox import Sandbox
from ruleset.delta import difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend
from tests.lab.namespaces import Lab, LabNamespace
from tests.waiting import until

pytestmark = pytest.mark.asyncio


def _ruleset(generation: int, port: int = 80) -> Ruleset:
    rule = f"-d 10.96.0.1/32 -p tcp -m tcp --dport {port} -j DNAT --to-destination 10.1.0.2:8080"
    objects = {"nat/VCN-SERVICES": (rule,), "nat/OUTPUT": ("-j VCN-SERVICES",)}
    return make_ruleset(generation, (Document(Family.IPV4, Backend.IPTABLES, objects),))


A, B = _ruleset(1), _ruleset(2, 81)


def _sandbox(path: object) -> Sandbox:
    return Sandbox(id="guest", namespace="n", name="p", uid="u", netns=str(path))


@pytest_asyncio.fixture
async def namespaces() -> AsyncIterator[NetnsExecutor]:
    made = NetnsExecutor()
    yield made
    made.close()


def _channel(guest: LabNamespace, namespaces: NetnsExecutor, record: Path | None = None) -> NetnsChannel:
    counter = Registry().counter("vcnode_katabridge_state_errors_total", "x")
    return NetnsChannel(_sandbox(guest.path), namespaces, record, counter)


@pytest.mark.parametrize("variant", ["legacy", "nft"])
async def test_netns_rules_go_into_the_variant_in_use(
    lab: Lab, namespaces: NetnsExecutor, variant: str
) -> None:
    guest = lab.namespace("guest")
    guest.run(f"iptables-{variant}", "-t", "nat", "-A", "OUTPUT", "-d", "192.0.2.1", "-j", "ACCEPT")
    channel = _channel(guest, namespaces)
    assert "iptables" in (await channel.probe()).backends
    assert (await channel.state()).digest == ""
    state = await channel.apply(A, ())
    assert (state.generation, state.digest, state.has_drifted) == (1, A.digest, False)
    saved = guest.run(f"iptables-{variant}-save", "-t", "nat")
    assert "-A VCN-SERVICES -d 10.96.0.1/32" in saved
    # Existing rules stay, and keep their position.
    assert saved.index("-A OUTPUT -d 192.0.2.1/32 -j ACCEPT") < saved.index("-A OUTPUT -j VCN-SERVICES")
    other = "nft" if variant == "legacy" else "legacy"
    assert "VCN-" not in guest.run(f"iptables-{other}-save")
    await channel.close()


async def test_drift_is_repaired_and_intact_rules_stay(lab: Lab, namespaces: NetnsExecutor) -> None:
    guest = lab.namespace("guest")
    channel = _channel(guest, namespaces)
    await channel.probe()
    await channel.apply(A, ())
    before = guest.run("iptables-save", "-c")
    assert not (await channel.state()).has_drifted
    await channel.apply(A, ())
    assert guest.run("iptables-save", "-c").splitlines()[1:-1] == before.splitlines()[1:-1]
    guest.run("iptables", "-t", "nat", "-F", "OUTPUT")
    assert (await channel.state()).has_drifted
    assert not (await channel.apply(A, ())).has_drifted
    assert (await channel.read_back()) == A.documents
    await channel.close()


async def test_netns_delta_needs_its_base(lab: Lab, namespaces: NetnsExecutor) -> None:
    channel = _channel(lab.namespace("guest"), namespaces)
    delta = difference(A, B)
    assert delta is not None
    with pytest.raises(NeedsFull):
        await channel.apply(delta, ())
    await channel.apply(A, ())
    assert (await channel.apply(delta, ())).digest == B.digest
    assert (await channel.read_back()) == B.documents
    await channel.close()


async def test_restart_recognises_installed_rules(
    lab: Lab, namespaces: NetnsExecutor, tmp_path: Path
) -> None:
    guest = lab.namespace("guest")
    first = _channel(guest, namespaces, tmp_path / "guest")
    await first.apply(B, ())
    second = _channel(guest, namespaces, tmp_path / "guest")
    state = await second.state()
    assert (state.generation, state.digest, state.has_drifted) == (2, B.digest, False)
    # Also without the saved record, by the marker; only the generation's number is lost.
    third = _channel(guest, namespaces)
    state = await third.state()
    assert (state.generation, state.digest, state.has_drifted) == (0, B.digest, False)
    for channel in (first, second, third):
        await channel.close()
    assert not (tmp_path / "guest").exists()


async def test_netns_channel_works_with_a_full_disk(
    lab: Lab, namespaces: NetnsExecutor, tmp_path: Path
) -> None:
    channel = _channel(lab.namespace("guest"), namespaces, tmp_path / "no such directory" / "guest")
    assert (await channel.apply(A, ())).digest == A.digest
    await channel.close()


async def test_conntrack_is_flushed_after_the_rules(lab: Lab, namespaces: NetnsExecutor) -> None:
    guest = lab.namespace("guest")
    guest.run("ip", "addr", "add", "10.1.0.1/24", "dev", "lo")
    channel = _channel(guest, namespaces)
    stale = ("-p", "udp", "-s", "10.1.0.1", "-d", "10.96.0.1", "--sport", "999", "--dport", "53")
    reply = ("--reply-src", "10.96.0.1", "--reply-dst", "10.1.0.1", "--reply-port-src", "53")
    guest.run("conntrack", "-I", *stale, *reply, "--reply-port-dst", "999", "-t", "100")
    assert "10.96.0.1" in guest.run("conntrack", "-L")
    await channel.apply(A, (Flow(protocol="udp", destination="10.96.0.1", port=53),))
    assert "10.96.0.1" not in guest.run("conntrack", "-L")
    await channel.close()


async def test_flows_to_what_the_new_rules_lack_end(lab: Lab, namespaces: NetnsExecutor) -> None:
    """Nobody names them: the sender of a whole ruleset may have been started anew."""

    def rules(*ips: str) -> Ruleset:
        lines = tuple(
            f"-d {ip}/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.1.0.9:53" for ip in ips
        )
        objects = {"nat/OUTPUT": ("-j VCN-SERVICES",), "nat/VCN-SERVICES": lines}
        return make_ruleset(len(ips), [Document(Family.IPV4, Backend.IPTABLES, objects)])

    guest = lab.namespace("guest")
    guest.run("ip", "addr", "add", "10.1.0.1/24", "dev", "lo")
    channel = _channel(guest, namespaces)
    await channel.apply(rules("10.96.0.1", "10.96.0.2"), ())
    await channel.close()
    for ip in ("10.96.0.1", "10.96.0.2"):
        sent = ("-p", "udp", "-s", "10.1.0.1", "-d", ip, "--sport", "999", "--dport", "53")
        reply = ("--reply-src", "10.1.0.9", "--reply-dst", "10.1.0.1", "--reply-port-src", "53")
        guest.run("conntrack", "-I", *sent, *reply, "--reply-port-dst", ip[-1] + "99", "-t", "100")
    again = _channel(guest, namespaces)
    await again.apply(rules("10.96.0.1"), ())
    left = guest.run("conntrack", "-L")
    assert "dst=10.96.0.1" in left
    assert "dst=10.96.0.2" not in left
    await again.close()


async def test_namespace_that_cannot_be_entered_is_reported(
    lab: Lab, namespaces: NetnsExecutor, tmp_path: Path
) -> None:
    counter = Registry().counter("vcnode_katabridge_state_errors_total", "x")

    def channel(path: object) -> NetnsChannel:
        return NetnsChannel(_sandbox(path), namespaces, None, counter)

    with pytest.raises(Unreachable, match="No such file"):
        await channel("/run/netns/never-there").probe()
    with pytest.raises(NotInjectable, match="the host's own network"):
        await channel("/proc/self/ns/net").probe()
    (tmp_path / "file").touch()
    with pytest.raises(NotInjectable, match="is not a network namespace"):
        await channel(tmp_path / "file").probe()
    with pytest.raises(NotInjectable, match="neither NRI nor the CRI reports"):
        channel("")


async def test_a_node_without_packet_filter_is_named(
    lab: Lab, namespaces: NetnsExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "DIRECTORIES", ("/none",))
    monkeypatch.setattr(NftFilter, "find", lambda: None)
    missing = "the node has no iptables-restore in /none; the node has no libnftables, and no nft in /none"
    with pytest.raises(NotInjectable, match=f"^the node has no packet filter that works: {missing}$"):
        await _channel(lab.namespace("guest"), namespaces).probe()


async def test_invalid_flow_is_refused(lab: Lab, namespaces: NetnsExecutor) -> None:
    channel = _channel(lab.namespace("guest"), namespaces)
    with pytest.raises(GuestRefused):
        await channel.flush_conntrack((Flow(protocol="icmp", destination="10.0.0.1"),))
    await channel.close()


async def test_closed_channel_releases_the_namespace(lab: Lab, namespaces: NetnsExecutor) -> None:
    guest, other = lab.namespace("guest"), lab.namespace("other")
    lab.link(other, guest, ["10.9.0.1/24"], ["10.9.0.2/24"])
    channel = _channel(guest, namespaces)
    await channel.apply(A, ())
    await channel.close()
    await asyncio.to_thread(subprocess.run, ["ip", "netns", "del", guest.name], check=True)
    # The peer of a link is deleted with its namespace, after the last user of that.
    await until(lambda: "eth0" not in other.run("ip", "-o", "link"), within_s=10)
