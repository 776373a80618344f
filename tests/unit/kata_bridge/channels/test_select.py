# SPDX-License-Identifier: Apache-2.0
from typing import cast

import pytest

from bridge_api.messages import Capabilities
from kata_bridge.channels.port import Channel, NotInjectable, Unreachable
from kata_bridge.channels.select import CachedChannelProvider, ChannelProvider, choose
from kata_bridge.sandboxes.core.sandbox import Sandbox

SANDBOX = Sandbox(id="s", namespace="n", name="p", uid="u")

pytestmark = pytest.mark.asyncio


class _Way:
    """An opener whose channel answers a probe, or not."""

    def __init__(self, problem: Exception | None = None, *, fails_at_open: bool = False) -> None:
        self.problem, self.fails_at_open = problem, fails_at_open
        self.probes = 0

    async def open(self, _: Sandbox) -> Channel:
        if self.fails_at_open and self.problem is not None:
            raise self.problem
        return cast("Channel", self)

    async def probe(self) -> Capabilities:
        self.probes += 1
        if self.problem is not None:
            raise self.problem
        return Capabilities(channel="x")

    async def forget(self, sandbox: str) -> None: ...


async def _choose(is_young: bool = False, **ways: _Way) -> str:
    openers: dict[str, ChannelProvider] = dict(ways)
    return (await choose(SANDBOX, tuple(ways), openers, is_young=is_young)).name


async def test_the_first_that_answers_is_taken_and_the_next_not_asked() -> None:
    stock = _Way()
    assert await _choose(agent=_Way(), stock=stock) == "agent"
    assert stock.probes == 0


async def test_the_next_is_tried_when_one_does_not_answer() -> None:
    assert await _choose(agent=_Way(Unreachable("not attached"), fails_at_open=True), stock=_Way()) == "stock"


async def test_all_that_was_said_is_said() -> None:
    agent = _Way(Unreachable("not attached"), fails_at_open=True)
    with pytest.raises(Unreachable, match=r"^agent: not attached; stock: no socket$"):
        await _choose(agent=agent, stock=_Way(Unreachable("no socket")))


async def test_while_the_guest_may_be_booting_its_agent_may_come() -> None:
    agent = _Way(Unreachable("not attached"), fails_at_open=True)
    refused = _Way(NotInjectable("its policy forbids it"))
    with pytest.raises(Unreachable):
        await _choose(is_young=True, agent=agent, stock=refused)
    with pytest.raises(NotInjectable, match=r"^agent: not attached; stock: its policy forbids it$"):
        await _choose(agent=agent, stock=refused)


async def test_a_way_that_the_node_does_not_have_is_said() -> None:
    with pytest.raises(NotInjectable, match=r"^agent: not configured on this node$"):
        await choose(SANDBOX, ("agent",), {}, is_young=False)
    with pytest.raises(NotInjectable, match="no way into it is configured"):
        await choose(SANDBOX, (), {}, is_young=False)


async def test_kept_channels_live_as_long_as_their_sandbox() -> None:
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
