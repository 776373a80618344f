# SPDX-License-Identifier: Apache-2.0
"""The resolv.conf in guests whose mount is a copy, over a guest's own agent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bridge_api.messages import ResultCode
from daemonkit.tasks import Tasks
from kata_bridge.channels.port import NotInjectable
from kata_bridge.guests import resolv_conf_sync
from kata_bridge.guests.resolv_conf_sync import GuestResolvConfSync
from tests.functional.kata_bridge.fake_guests import (
    Bridge,
    FakeChannelProvider,
    FakeGuest,
    bridge,
    ruleset,
    until,
)

pytestmark = pytest.mark.asyncio

TEXT, OTHER = "nameserver 10.1.0.10\n", "nameserver 10.1.0.11\n"


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Bridge]:
    async with bridge(tmp_path, FakeChannelProvider()) as running:
        yield running


@pytest_asyncio.fixture
async def texts(node: Bridge, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, str]]:
    """What guests' resolv.confs are to say; `GuestCopies` hears of guests as in the daemon."""
    monkeypatch.setattr(resolv_conf_sync, "RETRY_S", 0.02)
    tasks = Tasks("copies")
    made: dict[str, str] = {}
    copies = GuestResolvConfSync(node.guests, lambda sandbox: made.get(sandbox, ""), tasks)
    node.guests.on_changed = copies.changed
    yield made
    await tasks.close(1.0)


def changed(node: Bridge, sandbox: str) -> None:
    node.guests.on_changed(sandbox)


async def test_what_is_said_before_and_after_the_guest_answers(node: Bridge, texts: dict[str, str]) -> None:
    texts["g"] = TEXT
    (guest,) = node.place("g")
    await until(lambda: guest.resolv_conf == TEXT)
    texts["g"] = OTHER
    changed(node, "g")
    await until(lambda: guest.resolv_conf == OTHER)
    changed(node, "g")
    assert guest.calls.count("resolv_conf") == 2


async def test_a_guest_that_is_away_gets_the_latest_when_it_is_back(
    node: Bridge, texts: dict[str, str]
) -> None:
    (guest,) = node.place("g")
    await until(lambda: node.guests.drivers["g"].machine.held is not None)
    guest.is_reachable = False
    for text in (TEXT, OTHER):
        texts["g"] = text
        changed(node, "g")
    await until(lambda: guest.calls.count("resolv_conf") > 1, "another try")
    guest.is_reachable = True
    await until(lambda: guest.resolv_conf == OTHER)


async def test_where_it_cannot_be_written_it_is_not_tried_again(
    node: Bridge, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the file is the mount itself, read-only, and needs no copy."""

    async def read_only(self: FakeGuest, text: str) -> None:
        self.calls.append("resolv_conf")
        raise NotInjectable("read-only file system")

    monkeypatch.setattr(FakeGuest, "set_resolv_conf", read_only)
    texts["g"] = TEXT
    (guest,) = node.place("g")
    await until(lambda: "resolv_conf" in guest.calls)
    changed(node, "g")
    await until(lambda: node.guests.drivers["g"].machine.held is not None)
    assert guest.calls.count("resolv_conf") == 1


async def test_a_guest_that_was_booted_anew_gets_it_again_unasked(node: Bridge) -> None:
    """Its agent is another, and its resolv.conf is its image's."""
    node.place("g")
    await until(lambda: node.guests.drivers["g"].machine.held is not None)
    await node.guests.set_resolv_conf("g", TEXT)
    booted = node.opener.guests["g"] = FakeGuest()
    node.guests.channel_changed("g")
    await until(lambda: booted.resolv_conf == TEXT)
    node.guests.channel_changed("g")
    await until(lambda: booted.calls.count("probe") == 2)
    assert booted.calls.count("resolv_conf") == 1


async def test_what_was_said_while_it_was_away_is_written_when_it_is_back(node: Bridge) -> None:
    (guest,) = node.place("g")
    await until(lambda: node.guests.drivers["g"].machine.held is not None)
    guest.is_reachable = False
    for text in (TEXT, OTHER):
        assert (await node.guests.set_resolv_conf("g", text)).code is ResultCode.UNREACHABLE
    booted = node.opener.guests["g"] = FakeGuest()
    node.guests.channel_changed("g")
    await until(lambda: booted.resolv_conf == OTHER)


async def test_a_guest_that_takes_none_any_more_is_served_all_the_same(
    node: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.place("g")
    await until(lambda: node.guests.drivers["g"].machine.held is not None)
    await node.guests.set_resolv_conf("g", TEXT)

    async def read_only(self: FakeGuest, text: str) -> None:
        self.calls.append("resolv_conf")
        raise NotInjectable("read-only file system")

    monkeypatch.setattr(FakeGuest, "set_resolv_conf", read_only)
    booted = node.opener.guests["g"] = FakeGuest(holds=ruleset(1))
    node.guests.channel_changed("g")
    await until(lambda: node.guests.drivers["g"].machine.said.generation == 1)
    assert booted.calls.count("resolv_conf") == 1
