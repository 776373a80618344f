# SPDX-License-Identifier: Apache-2.0
"""Which sandboxes are guests, by their runtime handler, and the channels to try for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kata_bridge.sandboxes.core.sandbox import Sandbox

CHANNELS = ("agent", "stock", "netns")
# `stock` is the shim, and the stock agent behind it where the shim does not answer.
KATA_CHANNELS = ("agent", "stock")


@dataclass(frozen=True, slots=True)
class HandlerChannels:
    """Handlers of RuntimeClasses (patterns; "" is the default handler), and their channels, best first."""

    handlers: tuple[str, ...]
    channels: tuple[str, ...]


def channels_of(sandbox: Sandbox, runtimes: Sequence[HandlerChannels], *, has_shim: bool) -> tuple[str, ...]:
    """The channels to try for a sandbox, best first; none for one that is not a guest.

    A pod in the host's network is never a guest: its packets cross the host's own rules. The first entry
    that matches the handler decides. A handler that no entry matches is taken for Kata if the sandbox has a
    shim management socket, and is unmanaged if not.
    """
    if sandbox.is_host_network:
        return ()
    if sandbox.channels:
        return sandbox.channels
    for runtime in runtimes:
        if any(fnmatchcase(sandbox.runtime_handler, pattern) for pattern in runtime.handlers):
            return runtime.channels
    return KATA_CHANNELS if has_shim else ()
