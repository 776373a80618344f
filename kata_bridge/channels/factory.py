# SPDX-License-Identifier: Apache-2.0
"""Makes the channels that the configuration names."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from daemonkit import logs
from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.channels.port import Channel, NotInjectable
from kata_bridge.channels.select import CachedChannelProvider, ChannelProvider
from kata_bridge.channels.settings import ChannelSettings
from kata_bridge.channels.stock.policy_file import read_policy
from kata_bridge.channels.stock.shim import shim_socket
from kata_bridge.metrics import KataBridgeMetrics
from kata_bridge.sandboxes.core.runtimes import channels_of
from kata_bridge.sandboxes.core.sandbox import Sandbox

if TYPE_CHECKING:
    from kata_bridge.channels.agent.registry import AgentRegistry

_log = logs.get(__name__)


class ChannelFactory:
    """`netns_state` is where netns channels save what they applied; None: nowhere."""

    def __init__(
        self,
        settings: ChannelSettings,
        agents: "AgentRegistry | None",
        executor: NetnsExecutor,
        metrics: KataBridgeMetrics,
        netns_state: Path | None,
    ) -> None:
        self._settings = settings
        self._agents = agents
        self._executor = executor
        self._metrics = metrics
        self._netns_state = netns_state

    def configure(self, settings: ChannelSettings) -> None:
        """Use other settings; channels that are open stay as they are."""
        self._settings = settings

    def channels_of(self, sandbox: Sandbox) -> tuple[str, ...]:
        """The channels to try for a sandbox, best first; none for an unmanaged sandbox."""
        try:
            has_shim = shim_socket(sandbox.id, self._settings.shim_directories) is not None
        except ValueError:
            has_shim = False
        return channels_of(sandbox, self._settings.handlers, has_shim=has_shim)

    def providers(self) -> Mapping[str, ChannelProvider]:
        """The providers by the names of their channels in the configuration."""
        providers: dict[str, ChannelProvider] = {
            "stock": CachedChannelProvider(self._stock),
            "netns": CachedChannelProvider(self._netns),
        }
        if self._agents is not None:
            providers["agent"] = self._agents
        return providers

    def remove_stale_state(self, running: Collection[str]) -> None:
        """Remove what netns channels saved of sandboxes that were stopped while kata-bridge was down."""
        if self._netns_state is None:
            return
        for file in self._netns_state.iterdir():
            if file.name not in running:
                file.unlink(missing_ok=True)

    # Each kind of channel is loaded when the first guest needs it: most nodes have one kind.

    def _stock(self, sandbox: Sandbox) -> Channel:
        from kata_bridge.channels.stock.channel import stock_channel

        policy = read_policy(self._settings.agent_policy_file)[0]
        if policy is not None and sandbox.agent_policy_lock:
            _log.info("agent policy of a guest is kept", guest=sandbox.id, reason=sandbox.agent_policy_lock)
            policy = None
        try:
            return stock_channel(
                sandbox.id,
                roots=self._settings.shim_directories,
                policy=policy,
                # Where the sandbox's addresses are unknown, the guest is asked.
                has_ipv6=not sandbox.ips or any(":" in ip for ip in sandbox.ips),
            )
        except ValueError as error:
            raise NotInjectable(str(error)) from None

    def _netns(self, sandbox: Sandbox) -> Channel:
        from kata_bridge.channels.netns.channel import NetnsChannel

        state_path = None if self._netns_state is None else self._netns_state / sandbox.id
        return NetnsChannel(sandbox, self._executor, state_path, self._metrics.state_errors)
