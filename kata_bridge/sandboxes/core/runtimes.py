# SPDX-License-Identifier: Apache-2.0
"""Which sandboxes are guests of ours, by their runtime, and the ways into them."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kata_bridge.sandboxes.core.sandbox import Sandbox

# `stock` is the shim, and the stock agent behind it where the shim is silent.
KATA_CHANNELS = ("agent", "stock")


@dataclass(frozen=True, slots=True)
class Runtime:
    """Handlers of RuntimeClasses (patterns; "" is the default handler) and the ways to try."""

    handlers: tuple[str, ...]
    channels: tuple[str, ...]


def channels_of(sandbox: Sandbox, runtimes: Sequence[Runtime], *, has_shim: bool) -> tuple[str, ...]:
    """The ways into a sandbox, best first; none at all: it is no guest of ours.

    A pod in the host's network is never one: its packets cross the host's own rules. The first
    runtime that names the handler decides. A handler that none names is Kata if the sandbox has a
    shim management socket, however it is called, and is left alone if not.
    """
    if sandbox.is_host_network:
        return ()
    if sandbox.channels:
        return sandbox.channels
    for runtime in runtimes:
        if any(fnmatchcase(sandbox.runtime_handler, pattern) for pattern in runtime.handlers):
            return runtime.channels
    return KATA_CHANNELS if has_shim else ()
