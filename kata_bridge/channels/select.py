# SPDX-License-Identifier: Apache-2.0
"""Selects the channel of a guest: the first in the configuration's order that answers a probe.

While one of the channels may still open (the guest boots, or its agent has yet to attach) the guest is
unreachable. Once all have failed for good it is not injectable. Both messages name every channel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge_api.messages import Capabilities
from kata_bridge.channels.port import Channel, NotInjectable, Unreachable
from kata_bridge.sandboxes.core.sandbox import Sandbox


class ChannelProvider(Protocol):
    """Provides the channels of one kind; each lives as long as its sandbox."""

    async def open(self, sandbox: Sandbox) -> Channel:
        """Return the channel, not yet probed.

        Raises `Unreachable` while the channel may still open, and `NotInjectable`.
        """
        ...

    async def forget(self, sandbox: str) -> None:
        """The sandbox was stopped: drop its channel."""
        ...


class CachedChannelProvider:
    """Makes one channel for each sandbox, which keeps its state between calls."""

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
    """The channel that answered, with its name in the configuration."""

    name: str
    channel: Channel
    capabilities: Capabilities


async def select_channel(
    sandbox: Sandbox, names: Sequence[str], providers: Mapping[str, ChannelProvider], *, is_booting: bool
) -> SelectedChannel:
    """Probe the channels `names` in order and return the first that answers.

    `is_booting`: the guest may still boot. Later, an agent that has not attached is taken for absent
    from the guest's image. Raises `Unreachable` and `NotInjectable`.
    """
    failures: list[str] = []
    may_open = False
    for name in names:
        provider = providers.get(name)
        if provider is None:
            failures.append(f"{name}: not configured on this node")
            continue
        try:
            channel = await provider.open(sandbox)
            return SelectedChannel(name, channel, await channel.probe())
        except Unreachable as error:
            # A missing agent is the one failure that nothing reports.
            may_open = may_open or is_booting or name != "agent"
            failures.append(f"{name}: {error}")
        except NotInjectable as error:
            failures.append(f"{name}: {error}")
    message = "; ".join(failures) or "the configuration names no channel for this runtime handler"
    raise Unreachable(message) if may_open else NotInjectable(message)
