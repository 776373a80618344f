# SPDX-License-Identifier: Apache-2.0
"""The port of channels: what kata-bridge asks of any channel into a guest. Pure.

A channel has one caller, whose calls never overlap. Every call ends: implementations give each of their
waits a deadline and raise `Unreachable` when it has passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge_api.messages import Capabilities, Flow
from ruleset.delta import RulesetDelta
from ruleset.document import Document, Ruleset


class Unreachable(Exception):  # noqa: N818 - named as the outcome it is in the interface
    """The guest does not answer, or not yet: try again. The message names the hop."""


class NotInjectable(Exception):  # noqa: N818 - named as the outcome it is in the interface
    """The guest takes no rules as long as it runs as it is. The message has the reason and the remedy."""


class GuestRefused(Exception):  # noqa: N818 - named as the outcome it is in the interface
    """The guest's packet filter refused the rules. The message has the offending line."""


class NeedsFull(Exception):  # noqa: N818 - named as the outcome it is in the interface
    """The base of a delta is not the ruleset that the guest holds."""


@dataclass(frozen=True, slots=True)
class GuestState:
    """Which ruleset of ours a guest holds; `digest` is empty if it holds none.

    `has_drifted`: the kernel's rules differ from those that were applied under `digest`.
    """

    generation: int
    digest: str
    has_drifted: bool


class Channel(Protocol):
    """One channel into one guest. All methods raise `Unreachable` and `NotInjectable`."""

    async def probe(self) -> Capabilities:
        """Find out what the guest can do."""
        ...

    async def state(self) -> GuestState:
        """Read the state from the guest's packet filter: the drift check."""
        ...

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        """Make the guest hold `ruleset`, then delete the conntrack entries of `flush`.

        Changes and flushes nothing if the guest holds it already. Raises `GuestRefused`, and `NeedsFull`
        for a delta with another base.
        """
        ...

    async def read_back(self) -> tuple[Document, ...]:
        """Return our objects as the guest's packet filter holds them now."""
        ...

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None: ...

    async def set_resolv_conf(self, text: str) -> None: ...

    async def close(self) -> None:
        """Release what the channel holds open; the guest's rules stay."""
        ...
