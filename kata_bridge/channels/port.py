# SPDX-License-Identifier: Apache-2.0
"""What kata-bridge asks of a way into a guest, whichever it is.

A channel has one caller, who never overlaps two calls on it. Every call ends: implementations give
each of their waits a deadline and raise `Unreachable` when it has passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bridge_api.messages import Capabilities, Flow
from ruleset.delta import RulesetDelta
from ruleset.document import Document, Ruleset


class Unreachable(Exception):  # noqa: N818 - named as the outcome it is in the interface
    """The guest does not answer, or not yet: worth another try. The text names the hop."""


class NotInjectable(Exception):  # noqa: N818 - named as the outcome it is in the interface
    """No try helps while this guest lives as it is. The text tells a person why, and the remedy."""


class GuestRefused(Exception):  # noqa: N818 - named as the outcome it is in the interface
    """The guest's packet filter said no. The text has the offending line."""


class NeedsFull(Exception):  # noqa: N818 - named as the outcome it is in the interface
    """A delta came whose base is not what the guest has."""


@dataclass(frozen=True, slots=True)
class GuestState:
    """What a guest holds of ours; `digest` is empty when it holds nothing.

    `has_drifted`: the kernel's rules are not those that were applied under `digest`.
    """

    generation: int
    digest: str
    has_drifted: bool


class Channel(Protocol):
    """One way into one guest. All methods raise `Unreachable` and `NotInjectable`."""

    async def probe(self) -> Capabilities:
        """Find out what the guest can do."""
        ...

    async def state(self) -> GuestState:
        """Ask the guest, not memory, what it holds: the drift check."""
        ...

    async def apply(self, ruleset: Ruleset | RulesetDelta, flush: Sequence[Flow]) -> GuestState:
        """Make the guest hold `ruleset`, then delete the conntrack entries of `flush`.

        Nothing is changed or flushed if it is there already. Raises `Refused`, and `NeedsFull` for
        a delta that has another base.
        """
        ...

    async def read_back(self) -> tuple[Document, ...]:
        """Return our objects as the guest's packet filter holds them now."""
        ...

    async def flush_conntrack(self, flows: Sequence[Flow]) -> None: ...

    async def set_resolv_conf(self, text: str) -> None: ...

    async def close(self) -> None:
        """Let go of what the channel holds open; the guest's rules stay."""
        ...
