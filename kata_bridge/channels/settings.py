# SPDX-License-Identifier: Apache-2.0
"""The part of the configuration that decides which channels lead into a sandbox."""

from dataclasses import dataclass
from pathlib import Path

from kata_bridge.sandboxes.core.runtimes import HandlerChannels


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """`agent_policy_file` is a policy to set where a stock agent refuses iptables calls."""

    handlers: tuple[HandlerChannels, ...]
    shim_directories: tuple[Path, ...]
    agent_policy_file: Path | None
