# SPDX-License-Identifier: Apache-2.0
"""Which way into a guest is taken, and what is said when there is none.

The ways are tried in the order of the configuration; the first that answers a probe is taken. While
one way may still open (a guest boots, its agent has yet to attach) the guest is unreachable; when
each of them has said that no try helps, it is not injectable, and both texts name every way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge_api.messages import Capabilities
from kata_bridge.channels.port import Channel, NotInjectable, Unreachable
from kata_bridge.sandboxes.core.sandbox import Sandbox


class ChannelProvider(Protocol):
    """Has the channels of one kind, each for as long as its sandbox lives."""

    async def open(self, sandbox: Sandbox) -> Channel:
        """Return the channel; the probe comes after it.

        Raises `Unreachable` while the way may still open, and `NotInjectable`.
        """
        ...

    async def forget(self, sandbox: str) -> None:
        """The sandbox is gone, and so is its channel."""
        ...


class CachedChannelProvider:
    """An opener whose channels are made once for a sandbox: they may remember what they did."""

    def __init__(self, make: Callable[[Sandbox], Channel]) -> None:
        """`make` may raise `NotInjectable`."""
        self._make = make
        self._channels: dict[str, Channel] = {}

    async def open(self, sandbox: Sandbox) -> Channel:
        channel = self._channels.get(sandbox.id)
        if channel is None:
            channel = self._channels[sandbox.id] = self._make(sandbox)
        return channel

    async def forget(self, sandbox: str) -> None:
        channel = self._channels.pop(sandbox, None)
        if channel is not None:
            await channel.close()


@dataclass(frozen=True, slots=True)
class SelectedChannel:
    """The way that answered."""

    name: str
    channel: Channel
    capabilities: Capabilities


async def choose(
    sandbox: Sandbox, names: Sequence[str], openers: Mapping[str, ChannelProvider], *, is_young: bool
) -> SelectedChannel:
    """Probe the ways `names` in order and return the first that answers.

    `is_young`: the guest may still be booting. Afterwards an agent that has not attached is taken
    for one that the guest's image does not have. Raises `Unreachable` and `NotInjectable`.
    """
    said: list[str] = []
    may_open = False
    for name in names:
        opener = openers.get(name)
        if opener is None:
            said.append(f"{name}: not configured on this node")
            continue
        try:
            channel = await opener.open(sandbox)
            return SelectedChannel(name, channel, await channel.probe())
        except Unreachable as error:
            # The agent alone can be missing without anyone to say so.
            may_open = may_open or is_young or name != "agent"
            said.append(f"{name}: {error}")
        except NotInjectable as error:
            said.append(f"{name}: {error}")
    text = "; ".join(said) or "no way into it is configured"
    raise Unreachable(text) if may_open else NotInjectable(text)
