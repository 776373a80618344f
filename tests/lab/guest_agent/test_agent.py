# SPDX-License-Identifier: Apache-2.0
"""Agent processes in namespaces, with real iptables and nft."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable

import pytest

from kata_bridge.channels.port import GuestRefused, GuestState
from ruleset.document import Document, make_ruleset
from ruleset.model import Family
from tests.lab.guest_agent.conftest import LabNode
from tests.lab.guest_agent.tools import (
    IPTABLES_NFT,
    LEGACY,
    NFT,
    TOOLS,
    attached,
    change,
    installed,
    prepared,
    ruleset,
)
from tests.waiting import until

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_ruleset_and_a_delta_are_applied(node: LabNode, tool: str) -> None:
    guest = prepared(node.guest("sb"), tool)
    channel = await attached(node, guest, "sb")
    capabilities = await channel.probe()
    assert capabilities.backends == ("nft", "iptables")
    assert capabilities.ipv6
    assert capabilities.conntrack
    both = (Family.IPV4, Family.IPV6)
    first, second = ruleset(tool, 1, 1, *both), ruleset(tool, 2, 3, *both)
    assert await channel.apply(first, []) == GuestState(1, first.digest, False)
    assert await channel.read_back() == first.documents
    assert await channel.apply(change(first, second), []) == GuestState(2, second.digest, False)
    assert await channel.read_back() == second.documents
    assert await channel.state() == GuestState(2, second.digest, False)
    if tool != NFT:
        output = [
            line for line in installed(guest.namespace, tool).split("\n") if line.startswith("-A OUTPUT")
        ]
        assert output[-1] == "-A OUTPUT -j VCN-SERVICES"
        assert "-A OUTPUT -d 192.0.2.1/32 -j ACCEPT" in output


FOREIGN_CHANGES: list[tuple[str, Callable[[str], tuple[str, ...]]]] = [
    ("flushes nat", lambda tool: ("nft", "flush", "ruleset") if tool == NFT else (tool, "-t", "nat", "-F")),
    (
        "takes one rule",
        lambda tool: (
            ("nft", "flush", "chain", "ip", "vcnode", "nat-output")
            if tool == NFT
            else (tool, "-t", "nat", "-D", "VCN-SERVICES", "1")
        ),
    ),
]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "foreign_change", [each[1] for each in FOREIGN_CHANGES], ids=[each[0] for each in FOREIGN_CHANGES]
)
async def test_foreign_change_is_detected_and_reverted(
    node: LabNode, tool: str, foreign_change: Callable[[str], tuple[str, ...]]
) -> None:
    guest = prepared(node.guest("sb"), tool)
    channel = await attached(node, guest, "sb")
    first = ruleset(tool, 1, 2)
    await channel.apply(first, [])
    guest.namespace.run(*foreign_change(tool))
    await until(lambda: bool(node.states))
    assert node.states == [("sb", GuestState(1, first.digest, True))]
    assert await channel.state() == GuestState(1, first.digest, True)
    assert await channel.apply(first, []) == GuestState(1, first.digest, False)
    assert await channel.read_back() == first.documents


@pytest.mark.parametrize("tool", TOOLS)
async def test_check_sees_a_change_just_before_it(node: LabNode, tool: str) -> None:
    guest = prepared(node.guest("sb"), tool)
    channel = await attached(node, guest, "sb")
    await channel.apply(ruleset(tool, 1, 2), [])
    if tool == NFT:
        guest.namespace.run("nft", "add", "rule", "ip", "vcnode", "nat-output", "accept")
    else:
        # The size stays, so only the content differs.
        guest.namespace.run(
            tool,
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


@pytest.mark.parametrize("tool", TOOLS)
async def test_foreign_rules_and_traffic_are_no_drift(node: LabNode, tool: str) -> None:
    guest = prepared(node.guest("sb"), tool)
    channel = await attached(node, guest, "sb")
    first = ruleset(tool, 1, 2)
    await channel.apply(first, [])
    tool = IPTABLES_NFT if tool == NFT else tool
    guest.namespace.run(tool, "-t", "nat", "-A", "PREROUTING", "-j", "RETURN")
    guest.namespace.run(tool, "-A", "INPUT", "-s", "192.0.2.2", "-j", "DROP")
    with guest.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM) as traffic:
        traffic.sendto(b"x", ("127.0.0.1", 9))
    assert await channel.state() == GuestState(1, first.digest, False)


async def test_backend_change_removes_the_old_rules(node: LabNode) -> None:
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


@pytest.mark.parametrize("tool", [LEGACY, IPTABLES_NFT, NFT])
async def test_refused_ruleset_keeps_the_installed_one(node: LabNode, tool: str) -> None:
    guest = prepared(node.guest("sb"), tool)
    channel = await attached(node, guest, "sb")
    first = ruleset(tool, 1, 2)
    await channel.apply(first, [])
    (document,) = first.documents
    objects = dict(document.objects)
    if tool == NFT:
        objects["chain nat-output"] = (*objects["chain nat-output"], "goto VCN-SVC-NOWHERE")
    else:
        objects["nat/VCN-SERVICES"] = (*objects["nat/VCN-SERVICES"], "-d 10.96.0.9/32 -j VCN-SVC-NOWHERE")
    bad = make_ruleset(2, [Document(Family.IPV4, document.backend, objects)])
    with pytest.raises(GuestRefused, match=r"VCN-SVC-NOWHERE|table nat"):
        await channel.apply(bad, [])
    assert await channel.state() == GuestState(1, first.digest, False)
    assert await channel.read_back() == first.documents


async def test_a_revoked_certificate_is_rejected(node: LabNode) -> None:
    guest, other = node.guest("sb"), node.guest("other")
    guest.credentials = node.directory / "copy"
    shutil.copytree(other.credentials, guest.credentials)
    node.credentials.revoke("other")
    guest.start()
    good = await attached(node, node.guest("good"), "good")
    assert await good.state() == GuestState(0, "", False)
    assert node.links.channel("other") is None
    assert node.links.channel("sb") is None
