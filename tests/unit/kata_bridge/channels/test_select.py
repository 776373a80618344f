# SPDX-License-Identifier: Apache-2.0
from typing import cast

import pytest

from devkit.kata.fake_channel import FakeChannel, FakeChannelProvider
from kata_bridge.channels.port import Channel, NotInjectable, Unreachable
from kata_bridge.channels.select import CachedChannelProvider, ChannelProvider, select_channel
from kata_bridge.sandboxes.core.sandbox import Sandbox

SANDBOX = Sandbox(id="s", namespace="n", name="p", uid="u")
NOT_ATTACHED = Unreachable("not attached")

pytestmark = pytest.mark.asyncio


async def _selected(is_booting: bool = False, **providers: FakeChannelProvider) -> str:
    by_name: dict[str, ChannelProvider] = dict(providers)
    return (await select_channel(SANDBOX, tuple(providers), by_name, is_booting=is_booting)).name


async def test_first_channel_that_responds_is_selected() -> None:
    stock = FakeChannelProvider()
    assert await _selected(agent=FakeChannelProvider(), stock=stock) == "agent"
    assert stock.channels == {}


async def test_next_channel_is_probed_when_one_fails() -> None:
    assert await _selected(agent=FakeChannelProvider(NOT_ATTACHED), stock=FakeChannelProvider()) == "stock"


async def test_message_names_the_failure_of_each_channel() -> None:
    stock = FakeChannelProvider()
    stock.channels["s"] = FakeChannel(is_reachable=False)
    with pytest.raises(Unreachable, match=r"^agent: not attached; stock: the fake guest is unreachable$"):
        await _selected(agent=FakeChannelProvider(NOT_ATTACHED), stock=stock)


async def test_agent_may_still_attach_while_the_guest_boots() -> None:
    agent = FakeChannelProvider(NOT_ATTACHED)
    refused = FakeChannelProvider(NotInjectable("its policy forbids it"))
    with pytest.raises(Unreachable):
        await _selected(is_booting=True, agent=agent, stock=refused)
    with pytest.raises(NotInjectable, match=r"^agent: not attached; stock: its policy forbids it$"):
        await _selected(agent=agent, stock=refused)


async def test_channel_without_a_provider_is_named() -> None:
    with pytest.raises(NotInjectable, match=r"^agent: not configured on this node$"):
        await select_channel(SANDBOX, ("agent",), {}, is_booting=False)
    with pytest.raises(NotInjectable, match="the configuration names no channel"):
        await select_channel(SANDBOX, (), {}, is_booting=False)


async def test_cached_channel_lives_as_long_as_its_sandbox() -> None:
    closed: list[str] = []

    class _Channel:
        async def close(self) -> None:
            closed.append("s")

    kept = CachedChannelProvider(lambda _: cast("Channel", _Channel()))
    first = await kept.open(SANDBOX)
    assert await kept.open(SANDBOX) is first
    await kept.forget("s")
    await kept.forget("s")
    assert closed == ["s"]
    assert await kept.open(SANDBOX) is not first
