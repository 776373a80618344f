# SPDX-License-Identifier: Apache-2.0
"""The resolv.conf in guests whose mount is a copy, over a guest's own agent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bridge_api.messages import ResultCode
from daemonkit.tasks import Tasks
from devkit.kata.fake_channel import FakeChannel, FakeChannelProvider
from kata_bridge.channels.port import NotInjectable
from kata_bridge.guests import resolv_conf_sync
from kata_bridge.guests.registry import GuestRegistry
from kata_bridge.guests.resolv_conf_sync import GuestResolvConfSync
from tests.functional.kata_bridge.served_bridge import ServedBridge, bridge, ruleset
from tests.waiting import until

pytestmark = pytest.mark.asyncio

TEXT, OTHER = "nameserver 10.1.0.10\n", "nameserver 10.1.0.11\n"


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[ServedBridge]:
    async with bridge(tmp_path, FakeChannelProvider()) as running:
        yield running


class Texts(dict[str, str]):
    """The desired resolv.conf of each sandbox, and what writes them into guests."""

    def __init__(self, guests: GuestRegistry, tasks: Tasks) -> None:
        self._sync = GuestResolvConfSync(guests, lambda sandbox: self.get(sandbox, ""), tasks)
        guests.add_change_handler(self._sync.sync)

    def set(self, sandbox: str, text: str) -> None:
        self[sandbox] = text
        self._sync.sync(sandbox)


@pytest_asyncio.fixture
async def texts(node: ServedBridge, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Texts]:
    monkeypatch.setattr(resolv_conf_sync, "RETRY_S", 0.02)
    tasks = Tasks("copies")
    yield Texts(node.guests, tasks)
    await tasks.close(1.0)


async def test_resolv_conf_is_written_at_first_and_when_changed(node: ServedBridge, texts: Texts) -> None:
    texts["g"] = TEXT
    (guest,) = node.add("g")
    await until(lambda: guest.resolv_conf == TEXT)
    texts.set("g", OTHER)
    await until(lambda: guest.resolv_conf == OTHER)
    texts.set("g", OTHER)
    assert guest.calls.count("resolv_conf") == 2


async def test_unreachable_guest_gets_the_latest_when_it_is_back(node: ServedBridge, texts: Texts) -> None:
    (guest,) = node.add("g")
    await until(lambda: node.guests.drivers["g"].machine.observed is not None)
    guest.is_reachable = False
    for text in (TEXT, OTHER):
        texts.set("g", text)
    await until(lambda: guest.calls.count("resolv_conf") > 1)
    guest.is_reachable = True
    await until(lambda: guest.resolv_conf == OTHER)


async def test_read_only_resolv_conf_is_not_tried_again(
    node: ServedBridge, texts: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the file is the mount itself, read-only, and needs no copy."""

    async def read_only(self: FakeChannel, text: str) -> None:
        self.calls.append("resolv_conf")
        raise NotInjectable("read-only file system")

    monkeypatch.setattr(FakeChannel, "set_resolv_conf", read_only)
    texts["g"] = TEXT
    (guest,) = node.add("g")
    await until(lambda: "resolv_conf" in guest.calls)
    texts.set("g", TEXT)
    await until(lambda: node.guests.drivers["g"].machine.observed is not None)
    assert guest.calls.count("resolv_conf") == 1


async def test_rebooted_guest_gets_its_resolv_conf_again(node: ServedBridge) -> None:
    """Its agent is another, and its resolv.conf is its image's."""
    node.add("g")
    await until(lambda: node.guests.drivers["g"].machine.observed is not None)
    await node.guests.set_resolv_conf("g", TEXT)
    booted = node.provider.channels["g"] = FakeChannel()
    node.guests.channel_changed("g")
    await until(lambda: booted.resolv_conf == TEXT)
    node.guests.channel_changed("g")
    await until(lambda: booted.calls.count("probe") == 2)
    assert booted.calls.count("resolv_conf") == 1


async def test_resolv_conf_set_while_unreachable_is_written_later(node: ServedBridge) -> None:
    (guest,) = node.add("g")
    await until(lambda: node.guests.drivers["g"].machine.observed is not None)
    guest.is_reachable = False
    for text in (TEXT, OTHER):
        assert (await node.guests.set_resolv_conf("g", text)).code is ResultCode.UNREACHABLE
    booted = node.provider.channels["g"] = FakeChannel()
    node.guests.channel_changed("g")
    await until(lambda: booted.resolv_conf == OTHER)


async def test_failed_restore_does_not_hold_up_the_rules(
    node: ServedBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.add("g")
    await until(lambda: node.guests.drivers["g"].machine.observed is not None)
    await node.guests.set_resolv_conf("g", TEXT)

    async def read_only(self: FakeChannel, text: str) -> None:
        self.calls.append("resolv_conf")
        raise NotInjectable("read-only file system")

    monkeypatch.setattr(FakeChannel, "set_resolv_conf", read_only)
    booted = node.provider.channels["g"] = FakeChannel(ruleset=ruleset(1))
    node.guests.channel_changed("g")
    await until(lambda: node.guests.drivers["g"].machine.last_reported.generation == 1)
    assert booted.calls.count("resolv_conf") == 1
