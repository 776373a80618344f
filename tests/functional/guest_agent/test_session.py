# SPDX-License-Identifier: Apache-2.0
"""Requests to an agent process over mTLS, and its results."""

import subprocess
from pathlib import Path

import pytest

from bridge_api.messages import Capabilities, Flow
from daemonkit.version import VERSION
from kata_bridge.channels.port import GuestRefused, GuestState, NeedsFull, Unreachable
from kata_bridge.guest_certificates import GuestCertificates
from ruleset.delta import RulesetDelta, difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend
from tests.functional.guest_agent.conftest import AgentServerNode, StartAgent
from tests.waiting import until

RULE = "-d 10.0.%d.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.%d:80"


def ruleset(generation: int, pod: int, services: int = 1) -> Ruleset:
    rules = tuple(RULE % (service, pod) for service in range(services))
    objects = {"nat/OUTPUT": ("-j VCN-SERVICES",), "nat/VCN-SERVICES": rules}
    return make_ruleset(generation, [Document(Family.IPV4, Backend.IPTABLES, objects)])


FIRST, SECOND = ruleset(1, 1), ruleset(2, 2)


def change() -> RulesetDelta:
    delta = difference(FIRST, SECOND)
    assert delta is not None
    return delta


def change_rules(agent: subprocess.Popen[str], line: str) -> None:
    assert agent.stdin is not None
    agent.stdin.write(f"{line}\n")
    agent.stdin.flush()


@pytest.mark.asyncio
async def test_each_request_gets_a_response(
    node: AgentServerNode, short_dir: Path, start_agent: StartAgent
) -> None:
    start_agent(node.credentials.issue("sb").directory)
    channel = await node.channel("sb")
    assert channel.hello_state == GuestState(0, "", False)
    assert await channel.probe() == Capabilities("agent", ("iptables",), True, True, True, True, VERSION)
    assert await channel.state() == GuestState(0, "", False)
    with pytest.raises(NeedsFull):
        await channel.apply(change(), [])
    assert await channel.apply(FIRST, [Flow("udp", "10.0.0.1", 53)]) == GuestState(1, FIRST.digest, False)
    assert await channel.apply(change(), []) == GuestState(2, SECOND.digest, False)
    assert await channel.read_back() == SECOND.documents
    bad = {"nat/VCN-SERVICES": ("-j VCN-A --modprobe /bin/sh",)}
    worse = make_ruleset(3, [Document(Family.IPV4, Backend.IPTABLES, bad)])
    with pytest.raises(GuestRefused, match="--modprobe /bin/sh"):
        await channel.apply(worse, [])
    await channel.flush_conntrack([Flow("udp", "10.0.0.1")])
    await channel.set_resolv_conf("nameserver 10.0.0.10\n")
    assert (short_dir / "agent0" / "resolv.conf").read_text() == "nameserver 10.0.0.10\n"
    assert await channel.state() == GuestState(2, SECOND.digest, False)


@pytest.mark.asyncio
async def test_a_large_ruleset_is_applied(node: AgentServerNode, start_agent: StartAgent) -> None:
    start_agent(node.credentials.issue("sb").directory)
    channel = await node.channel("sb")
    rules = tuple(RULE % (service % 250, service // 250) for service in range(20_000))
    objects = {"nat/OUTPUT": ("-j VCN-SERVICES",), "nat/VCN-SERVICES": rules}
    large = make_ruleset(1, [Document(Family.IPV4, Backend.IPTABLES, objects)])
    assert (await channel.apply(large, [])).digest == large.digest
    assert await channel.read_back() == large.documents


@pytest.mark.asyncio
async def test_an_agent_attaches_over_tcp(node: AgentServerNode, start_agent: StartAgent) -> None:
    port = await node.links.listen_tcp("127.0.0.1", 0)
    start_agent(node.credentials.issue("sb").directory, f"127.0.0.1:{port}")
    channel = await node.channel("sb")
    assert channel.transport == "tcp"
    assert (await channel.apply(FIRST, [])).digest == FIRST.digest


@pytest.mark.asyncio
async def test_an_agent_attaches_over_hybrid_vsock(
    node: AgentServerNode, short_dir: Path, start_agent: StartAgent
) -> None:
    for _ in range(2):  # as after the bridge probed the shim again
        await node.links.listen_hybrid("sb", short_dir / "clh.sock", 1033)
    start_agent(node.credentials.issue("sb").directory, f"unix:{short_dir}/clh.sock_1033")
    channel = await node.channel("sb")
    assert channel.transport == "hybrid-vsock"
    assert (await channel.apply(FIRST, [])).digest == FIRST.digest
    node.links.forget("sb")
    assert not (short_dir / "clh.sock_1033").exists()


@pytest.mark.asyncio
async def test_drift_is_reported_unsolicited(node: AgentServerNode, start_agent: StartAgent) -> None:
    agent = start_agent(node.credentials.issue("sb").directory)
    channel = await node.channel("sb")
    await channel.apply(FIRST, [])
    change_rules(agent, "ipv4 nat VCN-SERVICES")
    await until(lambda: bool(node.states))
    assert node.states == [("sb", GuestState(1, FIRST.digest, True))]
    assert await channel.apply(FIRST, []) == GuestState(1, FIRST.digest, False)


@pytest.mark.asyncio
async def test_many_agents_attach_at_once(node: AgentServerNode, start_agent: StartAgent) -> None:
    for number in range(5):
        start_agent(node.credentials.issue(f"sb{number}").directory)
    channels = [await node.channel(f"sb{number}") for number in range(5)]
    for number, channel in enumerate(channels):
        await channel.apply(ruleset(number, number), [])
    for number, channel in enumerate(channels):
        assert await channel.state() == GuestState(number, ruleset(number, number).digest, False)


@pytest.mark.asyncio
async def test_an_agent_waits_for_its_credentials(
    node: AgentServerNode, short_dir: Path, start_agent: StartAgent
) -> None:
    issued = node.credentials.issue("sb").directory
    late = short_dir / "late"
    agent = start_agent(late)
    issued.rename(late)
    await node.channel("sb")
    assert agent.poll() is None


@pytest.mark.asyncio
async def test_an_agent_attaches_again_after_a_node_restart(short_dir: Path, start_agent: StartAgent) -> None:
    first = AgentServerNode(GuestCertificates.open(short_dir / "state"), short_dir / "agents.sock")
    await first.start()
    await first.links.listen_unix(short_dir / "node.sock")
    agent = start_agent(first.credentials.issue("sb").directory)
    channel = await first.channel("sb")
    await channel.apply(FIRST, [])
    await first.links.stop()
    assert channel.ended
    with pytest.raises(Unreachable):
        await channel.state()

    second = AgentServerNode(GuestCertificates.open(short_dir / "state"), short_dir / "agents.sock")
    await second.start()
    try:
        await second.links.listen_unix(short_dir / "node.sock")
        channel = await second.channel("sb")
        assert channel.hello_state == GuestState(1, FIRST.digest, False)
        assert (await channel.apply(change(), [])).digest == SECOND.digest
    finally:
        await second.links.stop()
    assert agent.poll() is None


@pytest.mark.asyncio
async def test_an_agent_attaches_again_after_a_close(node: AgentServerNode, start_agent: StartAgent) -> None:
    start_agent(node.credentials.issue("sb").directory)
    channel = await node.channel("sb")
    await channel.close()
    await until(lambda: len(node.attached) == 2)
    assert node.detached == [channel]
    assert await node.attached[1].state() == GuestState(0, "", False)
