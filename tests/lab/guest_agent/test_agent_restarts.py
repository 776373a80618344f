# SPDX-License-Identifier: Apache-2.0
"""Agents that were killed, or whose guest was rebooted."""

from __future__ import annotations

import pytest

from kata_bridge.channels.port import GuestState
from tests.lab.guest_agent.conftest import LabNode
from tests.lab.guest_agent.tools import NFT, TOOLS, attached, change, installed, prepared, ruleset

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("tool", TOOLS)
async def test_restarted_agent_finds_its_rules_and_applies_nothing(node: LabNode, tool: str) -> None:
    guest = prepared(node.guest("sb"), tool)
    channel = await attached(node, guest, "sb")
    first, second = ruleset(tool, 1, 2), ruleset(tool, 2, 1)
    await channel.apply(first, [])
    guest.stop()
    before = installed(guest.namespace, tool)
    guest.start()
    again = await node.channel("sb", after=channel)
    assert again.hello_state == GuestState(1, first.digest, False)
    assert _rules(installed(guest.namespace, tool)) == _rules(before)
    assert await again.apply(first, []) == GuestState(1, first.digest, False)
    assert await again.apply(change(first, second), []) == GuestState(2, second.digest, False)


def _rules(text: str) -> list[str]:
    return [line.partition("[")[0] for line in text.split("\n") if not line.startswith("#")]


@pytest.mark.parametrize("tool", TOOLS)
async def test_rebooted_guest_reports_no_rules(node: LabNode, tool: str) -> None:
    guest = prepared(node.guest("sb"), tool)
    channel = await attached(node, guest, "sb")
    first = ruleset(tool, 1, 2)
    await channel.apply(first, [])
    guest.stop()
    # A new kernel and an empty /run, with the same certificate.
    (guest.files / "state").unlink()
    guest.namespace = node.lab.namespace("again")
    prepared(guest, tool).start()
    again = await node.channel("sb", after=channel)
    assert again.hello_state == GuestState(0, "", False)
    assert await again.apply(first, []) == GuestState(1, first.digest, False)


async def test_rules_removed_without_the_agent_are_restored(node: LabNode) -> None:
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
