# SPDX-License-Identifier: Apache-2.0
"""What can happen to a guest, and what its state machine (`guest`) can ask for."""

import enum
from dataclasses import dataclass

from bridge_api.messages import Capabilities, Flow, ResultCode
from kata_bridge.channels.port import GuestState
from ruleset.document import Ruleset


class Loss(enum.Enum):
    """How a guest that had what is desired came not to have it."""

    DRIFTED = "drifted"  # its rules are not those that were applied
    LOST = "lost"  # it holds none of ours: flushed whole, or rebooted
    REPLACED = "replaced"  # it holds another ruleset of ours: a late or foreign push


# ---- events


@dataclass(frozen=True, slots=True)
class Began:
    """The sandbox is there."""


@dataclass(frozen=True, slots=True)
class ChannelChanged:
    """An agent attached or left, a socket appeared: the way in has to be chosen again."""


@dataclass(frozen=True, slots=True)
class Desired:
    """A ruleset was set; `flush` are the flows to delete once it is in."""

    ruleset: Ruleset
    flush: tuple[Flow, ...]
    ticket: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The sandbox is no more."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; see `GuestMachine.due_s`."""


@dataclass(frozen=True, slots=True)
class Reported:
    """The guest says, unasked, what it holds."""

    state: GuestState


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe found a way in, and this behind it."""

    capabilities: Capabilities
    state: GuestState


@dataclass(frozen=True, slots=True)
class Stated:
    """A push or a check ended well."""

    state: GuestState


@dataclass(frozen=True, slots=True)
class Flushed: ...


@dataclass(frozen=True, slots=True)
class NeededFull: ...


@dataclass(frozen=True, slots=True)
class WasRefused:
    text: str


@dataclass(frozen=True, slots=True)
class WasUnreachable:
    text: str


@dataclass(frozen=True, slots=True)
class WasNotInjectable:
    text: str


Result = Probed | Stated | Flushed | NeededFull | WasRefused | WasUnreachable | WasNotInjectable
Event = Began | ChannelChanged | Desired | Gone | Tick | Reported | Result


# ---- actions


@dataclass(frozen=True, slots=True)
class Probe:
    """Choose a channel, probe it and ask for the guest's state."""


@dataclass(frozen=True, slots=True)
class Push:
    """Apply `ruleset`; as a delta if the guest is known to hold `base`."""

    ruleset: Ruleset
    base: Ruleset | None
    flush: tuple[Flow, ...]
    owed: int  # which flows these are; for the machine alone


@dataclass(frozen=True, slots=True)
class Check: ...


@dataclass(frozen=True, slots=True)
class Flush:
    """Delete flows that an earlier push was to delete, of which it is not known how it ended."""

    flows: tuple[Flow, ...]
    owed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell whoever holds `ticket`."""

    ticket: int
    code: ResultCode
    text: str
    generation: int
    digest: str


@dataclass(frozen=True, slots=True)
class Note:
    """Log and count, once for each occurrence: a loss, or (None) that one was repaired."""

    loss: Loss | None


@dataclass(frozen=True, slots=True)
class Abandon:
    """Give up the probe that is under way, and tell no result of it: a better way in has opened."""


Call = Probe | Push | Check | Flush
Action = Call | Answer | Note | Abandon
