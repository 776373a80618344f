# SPDX-License-Identifier: Apache-2.0
"""The channels of a configuration, and which sandboxes are guests."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemonkit import logs
from kata_bridge.channels.netns.executor import NetnsExecutor
from kata_bridge.channels.port import Channel, NotInjectable
from kata_bridge.channels.select import CachedChannelProvider, ChannelProvider
from kata_bridge.channels.stock.shim import shim_socket
from kata_bridge.config import KataBridgeConfiguration, policy_of
from kata_bridge.metrics import Metrics
from kata_bridge.sandboxes.core.runtimes import channels_of
from kata_bridge.sandboxes.core.sandbox import Sandbox

if TYPE_CHECKING:
    from kata_bridge.channels.agent.registry import AgentRegistry

_log = logs.get(__name__)


@dataclass(slots=True)
class ChannelFactory:
    """The ways into guests. `config` may be replaced; what is open stays as it was."""

    config: KataBridgeConfiguration
    agents: "AgentRegistry | None"
    namespaces: NetnsExecutor
    metrics: Metrics
    notes: Path | None
    """Where the netns channel notes what it applied; None: nowhere."""

    def channels_of(self, sandbox: Sandbox) -> tuple[str, ...]:
        """The ways to try into a sandbox; none: it is no guest of ours."""
        try:
            has_shim = shim_socket(sandbox.id, self.config.stock.shim_directories) is not None
        except ValueError:
            has_shim = False
        return channels_of(sandbox, self.config.rules(), has_shim=has_shim)

    def openers(self) -> Mapping[str, ChannelProvider]:
        openers: dict[str, ChannelProvider] = {
            "stock": CachedChannelProvider(self._stock),
            "netns": CachedChannelProvider(self._netns),
        }
        if self.agents is not None:
            openers["agent"] = self.agents
        return openers

    def forget_notes(self, living: Collection[str]) -> None:
        """Remove the notes of all other sandboxes: they ended while nobody was here to do it."""
        if self.notes is None:
            return
        for note in self.notes.iterdir():
            if note.name not in living:
                note.unlink(missing_ok=True)

    # Each kind of channel is loaded when the first guest needs it: most nodes have one kind.

    def _stock(self, sandbox: Sandbox) -> Channel:
        from kata_bridge.channels.stock.channel import stock_channel

        policy = policy_of(self.config)[0]
        if policy is not None and sandbox.policy_refusal:
            _log.info("the policy of a guest stays", guest=sandbox.id, reason=sandbox.policy_refusal)
            policy = None
        try:
            return stock_channel(
                sandbox.id,
                roots=self.config.stock.shim_directories,
                policy=policy,
                # Where no source told addresses, the guest is asked.
                has_ipv6=not sandbox.ips or any(":" in ip for ip in sandbox.ips),
            )
        except ValueError as error:
            raise NotInjectable(str(error)) from None

    def _netns(self, sandbox: Sandbox) -> Channel:
        from kata_bridge.channels.netns.channel import NetnsChannel

        state_path = None if self.notes is None else self.notes / sandbox.id
        return NetnsChannel(sandbox, self.namespaces, state_path, self.metrics.state_errors)
