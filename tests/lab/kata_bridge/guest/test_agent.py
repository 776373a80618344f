# SPDX-License-Identifier: Apache-2.0
"""Agents as processes in namespaces, with the kernel's real iptables and nft."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kata_bridge.api.messages import Flow
from kata_bridge.channels.agent_channel import AgentChannel
from kata_bridge.channels.channel import GuestState, NotInjectable, Refused, Unreachable
from ruleset.delta import RulesetDelta, difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.iptables import render as iptables
from ruleset.model import Capture, Endpoint, Family, GuestRules, Protocol, ServiceRules, Target
from ruleset.names import Backend
from ruleset.nft import render as nft
from tests.lab.kata_bridge.guest.conftest import Guest, Node, libnftables, until
from tests.lab.namespaces import Namespace

# Seconds; a glance of the agent every two.
_SOON = 30.0

LEGACY, IPTABLES_NFT, NFT = "iptables-legacy", "iptables-nft", "nft"
WAYS = (LEGACY, IPTABLES_NFT, NFT)
RENDER = {LEGACY: iptables.render, IPTABLES_NFT: iptables.render, NFT: nft.render}


def rules(pods: int, services: int = 3, family: Family = Family.IPV4) -> GuestRules:
    made = []
    for number in range(services):
        name = f"ns/svc{number}:http"
        four = family is Family.IPV4
        endpoints = tuple(
            Endpoint(f"10.1.{number}.{pod}" if four else f"fd00:{number + 1}::{pod}", 80)
            for pod in range(1, pods + 1)
        )
        ip = f"10.96.0.{number + 1}" if four else f"fd96::{number + 1}"
        capture = Capture(ip, 80, Protocol.TCP, name, Target(name, Protocol.TCP, False, endpoints))
        made.append(ServiceRules(f"ns/svc{number}", (capture,)))
    return GuestRules(family, tuple(made), ("10.96.0.0/12",) if family is Family.IPV4 else ("fd96::/108",))


def ruleset(way: str, generation: int, pods: int, *families: Family) -> Ruleset:
    parts = [RENDER[way](rules(pods, family=family)) for family in families or (Family.IPV4,)]
    return make_ruleset(generation, parts)


def change(old: Ruleset, new: Ruleset) -> RulesetDelta:
    delta = difference(old, new)
    assert delta is not None
    return delta


def prepared(guest: Guest, way: str) -> Guest:
    """Make the guest one in which somebody uses this iptables already, behind whom we have to stand."""
    if way in (LEGACY, IPTABLES_NFT):
        guest.namespace.run(way, "-t", "nat", "-A", "OUTPUT", "-d", "192.0.2.1", "-j", "ACCEPT")
    return guest


def held(namespace: Namespace, way: str) -> str:
    if way == NFT:
        return namespace.run("nft", "list", "table", "ip", "vcnode")
    return namespace.run(f"{way}-save")


async def attached(node: Node, guest: Guest, sandbox: str) -> AgentChannel:
    guest.start()
    return await node.channel(sandbox)


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS)
async def test_a_ruleset_and_a_change(node: Node, way: str) -> None:
    guest = prepared(node.guest("sb"), way)
    channel = await attached(node, guest, "sb")
    capabilities = await channel.probe()
    assert capabilities.backends == ("nft", "iptables")
    assert capabilities.ipv6
    assert capabilities.conntrack
    both = (Family.IPV4, Family.IPV6)
    first, second = ruleset(way, 1, 1, *both), ruleset(way, 2, 3, *both)
    assert await channel.apply(first, []) == GuestState(1, first.digest, False)
    assert await channel.read_back() == first.documents
    assert await channel.apply(change(first, second), []) == GuestState(2, second.digest, False)
    assert await channel.read_back() == second.documents
    assert await channel.state() == GuestState(2, second.digest, False)
    if way != NFT:
        output = [line for line in held(guest.namespace, way).split("\n") if line.startswith("-A OUTPUT")]
        assert output[-1] == "-A OUTPUT -j VCN-SERVICES"
        assert "-A OUTPUT -d 192.0.2.1/32 -j ACCEPT" in output


STRANGERS: list[tuple[str, Callable[[str], tuple[str, ...]]]] = [
    ("flushes nat", lambda way: ("nft", "flush", "ruleset") if way == NFT else (way, "-t", "nat", "-F")),
    (
        "takes one rule",
        lambda way: (
            ("nft", "flush", "chain", "ip", "vcnode", "nat-output")
            if way == NFT
            else (way, "-t", "nat", "-D", "VCN-SERVICES", "1")
        ),
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stranger", [each[1] for each in STRANGERS], ids=[each[0] for each in STRANGERS])
async def test_a_stranger_is_noticed_and_undone(
    node: Node, way: str, stranger: Callable[[str], tuple[str, ...]]
) -> None:
    guest = prepared(node.guest("sb"), way)
    channel = await attached(node, guest, "sb")
    first = ruleset(way, 1, 2)
    await channel.apply(first, [])
    guest.namespace.run(*stranger(way))
    await until(lambda: bool(node.states))
    assert node.states == [("sb", GuestState(1, first.digest, True))]
    assert await channel.state() == GuestState(1, first.digest, True)
    assert await channel.apply(first, []) == GuestState(1, first.digest, False)
    assert await channel.read_back() == first.documents


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS)
async def test_a_check_sees_what_happened_a_moment_ago(node: Node, way: str) -> None:
    guest = prepared(node.guest("sb"), way)
    channel = await attached(node, guest, "sb")
    await channel.apply(ruleset(way, 1, 2), [])
    if way == NFT:
        guest.namespace.run("nft", "add", "rule", "ip", "vcnode", "nat-output", "accept")
    else:
        # Of the same size as before, so that only the content tells.
        guest.namespace.run(
            way,
            "-t",
            "nat",
            "-R",
            "VCN-SERVICES",
            "1",
            "-d",
            "10.96.0.9",
            "-p",
            "tcp",
            "--dport",
            "80",
            "-j",
            "RETURN",
        )
    assert (await channel.state()).has_drifted


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS)
async def test_others_rules_and_traffic_are_no_drift(node: Node, way: str) -> None:
    guest = prepared(node.guest("sb"), way)
    channel = await attached(node, guest, "sb")
    first = ruleset(way, 1, 2)
    await channel.apply(first, [])
    tool = IPTABLES_NFT if way == NFT else way
    guest.namespace.run(tool, "-t", "nat", "-A", "PREROUTING", "-j", "RETURN")
    guest.namespace.run(tool, "-A", "INPUT", "-s", "192.0.2.2", "-j", "DROP")
    with guest.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM) as traffic:
        traffic.sendto(b"x", ("127.0.0.1", 9))
    assert await channel.state() == GuestState(1, first.digest, False)


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_that_was_killed_finds_its_rules_and_applies_nothing(node: Node, way: str) -> None:
    guest = prepared(node.guest("sb"), way)
    channel = await attached(node, guest, "sb")
    first, second = ruleset(way, 1, 2), ruleset(way, 2, 1)
    await channel.apply(first, [])
    guest.stop()
    before = held(guest.namespace, way)
    guest.start()
    again = await node.channel("sb", after=channel)
    assert again.hello_state == GuestState(1, first.digest, False)
    assert _rules(held(guest.namespace, way)) == _rules(before)
    assert await again.apply(first, []) == GuestState(1, first.digest, False)
    assert await again.apply(change(first, second), []) == GuestState(2, second.digest, False)


def _rules(text: str) -> list[str]:
    return [line.partition("[")[0] for line in text.split("\n") if not line.startswith("#")]


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS)
async def test_a_guest_that_was_rebooted_holds_nothing_and_says_so(node: Node, way: str) -> None:
    guest = prepared(node.guest("sb"), way)
    channel = await attached(node, guest, "sb")
    first = ruleset(way, 1, 2)
    await channel.apply(first, [])
    guest.stop()
    # Another kernel state and an empty /run, under the same certificate.
    (guest.files / "state").unlink()
    guest.namespace = node.lab.namespace("again")
    prepared(guest, way).start()
    again = await node.channel("sb", after=channel)
    assert again.hello_state == GuestState(0, "", False)
    assert await again.apply(first, []) == GuestState(1, first.digest, False)


@pytest.mark.asyncio
async def test_rules_that_went_while_the_agent_was_away(node: Node) -> None:
    guest = node.guest("sb")
    channel = await attached(node, guest, "sb")
    first = ruleset(NFT, 1, 2)
    await channel.apply(first, [])
    guest.stop()
    guest.namespace.run("nft", "flush", "ruleset")
    guest.start()
    again = await node.channel("sb", after=channel)
    assert again.hello_state == GuestState(1, first.digest, True)
    assert await again.apply(first, []) == GuestState(1, first.digest, False)


@pytest.mark.asyncio
async def test_one_backend_gives_way_to_the_other(node: Node) -> None:
    guest = node.guest("sb")
    channel = await attached(node, guest, "sb")
    await channel.apply(ruleset(NFT, 1, 2), [])
    second = ruleset(IPTABLES_NFT, 2, 2)
    assert await channel.apply(second, []) == GuestState(2, second.digest, False)
    assert await channel.read_back() == second.documents
    assert "vcnode" not in guest.namespace.run("nft", "list", "tables")
    empty = make_ruleset(3, ())
    assert await channel.apply(empty, []) == GuestState(3, empty.digest, False)
    assert "VCN-" not in guest.namespace.run("nft", "list", "ruleset")


@pytest.mark.asyncio
@pytest.mark.parametrize("way", [LEGACY, IPTABLES_NFT, NFT])
async def test_what_the_kernel_refuses_leaves_what_was_there(node: Node, way: str) -> None:
    guest = prepared(node.guest("sb"), way)
    channel = await attached(node, guest, "sb")
    first = ruleset(way, 1, 2)
    await channel.apply(first, [])
    (document,) = first.documents
    objects = dict(document.objects)
    if way == NFT:
        objects["chain nat-output"] = (*objects["chain nat-output"], "goto VCN-SVC-NOWHERE")
    else:
        objects["nat/VCN-SERVICES"] = (*objects["nat/VCN-SERVICES"], "-d 10.96.0.9/32 -j VCN-SVC-NOWHERE")
    bad = make_ruleset(2, [Document(Family.IPV4, document.backend, objects)])
    with pytest.raises(Refused, match=r"VCN-SVC-NOWHERE|table nat"):
        await channel.apply(bad, [])
    assert await channel.state() == GuestState(1, first.digest, False)
    assert await channel.read_back() == first.documents


@pytest.mark.asyncio
async def test_a_connection_to_a_service_and_stale_entries_of_conntrack(node: Node) -> None:
    guest = node.guest("sb")
    peer = node.lab.namespace("peer")
    node.lab.link(guest.namespace, peer, ["10.1.0.2/24"], ["10.1.0.1/24", "10.1.0.3/24"])
    channel = await attached(node, guest, "sb")

    def service(*pods: str) -> Ruleset:
        target = Target("ns/dns:dns", Protocol.UDP, False, tuple(Endpoint(pod, 5353) for pod in pods))
        capture = Capture("10.96.0.10", 53, Protocol.UDP, "ns/dns:dns", target)
        return make_ruleset(1, [nft.render(GuestRules(Family.IPV4, (ServiceRules("ns/dns", (capture,)),)))])

    await channel.apply(service("10.1.0.1"), [])
    servers = [node.lab.keep(peer.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)]
    for server, ip in zip(servers, ("10.1.0.1", "10.1.0.3"), strict=True):
        server.bind((ip, 5353))
        threading.Thread(target=_echo, args=(server, ip.encode()), daemon=True).start()
    client = node.lab.keep(guest.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM))
    client.settimeout(10)
    client.bind(("10.1.0.2", 40_000))

    def ask() -> bytes:
        client.sendto(b"?", ("10.96.0.10", 53))
        return client.recv(100)

    assert ask() == b"10.1.0.1"
    await channel.apply(service("10.1.0.3"), [])
    assert ask() == b"10.1.0.1"  # as conntrack remembers
    await channel.flush_conntrack([Flow("udp", "10.96.0.10", 53, keep_replies_from=("10.1.0.3:5353",))])
    assert ask() == b"10.1.0.3"
    await channel.flush_conntrack([Flow("udp", "10.96.0.10", 53, keep_replies_from=("10.1.0.3:5353",))])
    assert "10.1.0.3" in guest.namespace.run("conntrack", "-L")
    await channel.flush_conntrack([Flow("udp", "10.96.0.10", 53, reply_source="10.1.0.3", reply_port=5353)])
    assert "10.96.0.10" not in guest.namespace.run("conntrack", "-L")


def _echo(server: socket.socket, name: bytes) -> None:
    while True:
        try:
            _, peer = server.recvfrom(100)
            server.sendto(name, peer)
        except OSError:
            return


@pytest.mark.asyncio
async def test_an_entry_that_was_never_translated(node: Node) -> None:
    guest = node.guest("sb")
    peer = node.lab.namespace("peer")
    node.lab.link(guest.namespace, peer, ["10.1.0.2/24"], ["10.1.0.1/24"])
    channel = await attached(node, guest, "sb")
    await channel.apply(ruleset(NFT, 1, 1), [])
    with guest.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for ip in ("10.80.0.10", "10.80.0.11"):
            client.sendto(b"?", (ip, 53))
    flows = [Flow("udp", "10.80.0.10", 53, never_translated=True), Flow("tcp", "10.80.0.11", 53)]
    await channel.flush_conntrack(flows)
    left = guest.namespace.run("conntrack", "-L")
    assert "10.80.0.11" in left
    assert "10.80.0.10" not in left


@pytest.mark.asyncio
async def test_another_guests_certificate_is_refused(node: Node) -> None:
    guest, other = node.guest("sb"), node.guest("other")
    guest.credentials = node.directory / "copy"
    shutil.copytree(other.credentials, guest.credentials)
    node.credentials.revoke("other")
    guest.start()
    good = await attached(node, node.guest("good"), "good")
    assert await good.state() == GuestState(0, "", False)
    assert node.links.channel("other") is None
    assert node.links.channel("sb") is None


def some_programs(directory: Path, *names: str) -> Path:
    """A /usr/sbin that has these programs and no others."""
    directory.mkdir()
    for name in names:
        shutil.copy(Path("/usr/sbin", name).resolve(), directory / Path("/usr/sbin", name).resolve().name)
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(Path("/usr/sbin", name).resolve().name)
    return directory


V4 = ("iptables-legacy-restore", "iptables-legacy-save")
V6 = ("ip6tables-legacy-restore", "ip6tables-legacy-save")


@pytest.mark.asyncio
async def test_a_guest_with_nothing_but_legacy_iptables_for_ipv4(node: Node) -> None:
    guest = node.guest("sb")
    guest.programs = some_programs(node.directory / "sbin", *V4)
    guest.has_libnftables = False
    channel = await attached(node, guest, "sb")
    capabilities = await channel.probe()
    assert (capabilities.backends, capabilities.ipv6) == (("iptables",), False)
    with pytest.raises(Unreachable, match="no ip6tables-restore and -save beside it"):
        await channel.apply(ruleset(LEGACY, 1, 1, Family.IPV4, Family.IPV6), [])
    with pytest.raises(Unreachable, match="no libnftables, and no nft in"):
        await channel.apply(ruleset(NFT, 1, 1), [])
    first = ruleset(LEGACY, 1, 1)
    assert await channel.apply(first, []) == GuestState(1, first.digest, False)


@pytest.mark.asyncio
async def test_a_guest_without_any_packet_filter(node: Node) -> None:
    guest = node.guest("sb")
    guest.programs = some_programs(node.directory / "sbin")
    guest.has_libnftables = False
    channel = await attached(node, guest, "sb")
    with pytest.raises(NotInjectable, match=r"no iptables-restore in .*; the guest has no libnftables"):
        await channel.probe()


@pytest.mark.asyncio
async def test_nft_without_its_library(node: Node) -> None:
    """As with an nft that is linked with it; ours here needs a copy of it to run."""
    guest = node.guest("sb")
    copy = node.directory / "nft"
    copy.mkdir()
    for path in (Path("/usr/sbin/nft"), libnftables()):
        shutil.copy(path, copy / path.name)
    (copy / libnftables().name).rename(copy / "libnftables.so.1")
    guest.programs = some_programs(node.directory / "sbin")
    (guest.programs / "nft").write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={copy} exec {copy}/nft "$@"\n')
    (guest.programs / "nft").chmod(0o755)
    guest.has_libnftables = False
    channel = await attached(node, guest, "sb")
    assert (await channel.probe()).backends == ("nft",)
    first, second = ruleset(NFT, 1, 2), ruleset(NFT, 2, 3)
    await channel.apply(first, [])
    assert await channel.apply(change(first, second), []) == GuestState(2, second.digest, False)
    (document,) = first.documents
    bad = {**document.objects, "chain nat-output": ("type nat hook output priority -95;", "goto NOWHERE")}
    with pytest.raises(Refused, match=r"line \d+ is .*goto NOWHERE"):
        await channel.apply(make_ruleset(3, [Document(Family.IPV4, Backend.NFT, bad)]), [])
    assert await channel.read_back() == second.documents


@pytest.mark.asyncio
async def test_a_full_disk_where_the_lock_is(node: Node) -> None:
    guest = prepared(node.guest("sb"), LEGACY)
    guest.run_options = "ro"
    channel = await attached(node, guest, "sb")
    with pytest.raises(Unreachable, match="Read-only file system"):
        await channel.apply(ruleset(LEGACY, 1, 1), [])
    assert (await channel.state()).digest == ""
