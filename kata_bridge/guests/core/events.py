# SPDX-License-Identifier: Apache-2.0
"""What can happen to a guest, and what its state machine (`guest`) can ask for."""

import enum
from dataclasses import dataclass

from bridge_api.messages import Capabilities, Flow, ResultCode
from kata_bridge.channels.port import GuestState
from ruleset.document import Ruleset


class DriftKind(enum.Enum):
    """How a guest that had what is desired came not to have it."""

    DRIFTED = "drifted"  # its rules are not those that were applied
    LOST = "lost"  # it holds none of ours: flushed whole, or rebooted
    REPLACED = "replaced"  # it holds another ruleset of ours: a late or foreign push


# ---- events


@dataclass(frozen=True, slots=True)
class SandboxAdded:
    """The sandbox is there."""


@dataclass(frozen=True, slots=True)
class ChannelChanged:
    """An agent attached or left, a socket appeared: the way in has to be chosen again."""


@dataclass(frozen=True, slots=True)
class DesiredChanged:
    """A ruleset was set; `flush` are the flows to delete once it is in."""

    ruleset: Ruleset
    flush: tuple[Flow, ...]
    ticket: int


@dataclass(frozen=True, slots=True)
class SandboxRemoved:
    """The sandbox is no more."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; see `GuestMachine.due_s`."""


@dataclass(frozen=True, slots=True)
class StateReported:
    """The guest says, unasked, what it holds."""

    state: GuestState


@dataclass(frozen=True, slots=True)
class ProbeSucceeded:
    """A probe found a way in, and this behind it."""

    capabilities: Capabilities
    state: GuestState


@dataclass(frozen=True, slots=True)
class StateReturned:
    """A push or a check ended well."""

    state: GuestState


@dataclass(frozen=True, slots=True)
class FlushSucceeded: ...


@dataclass(frozen=True, slots=True)
class FullRulesetNeeded: ...


@dataclass(frozen=True, slots=True)
class CallRefused:
    text: str


@dataclass(frozen=True, slots=True)
class GuestUnreachable:
    text: str


@dataclass(frozen=True, slots=True)
class GuestNotInjectable:
    text: str


Result = (
    ProbeSucceeded
    | StateReturned
    | FlushSucceeded
    | FullRulesetNeeded
    | CallRefused
    | GuestUnreachable
    | GuestNotInjectable
)
Event = SandboxAdded | ChannelChanged | DesiredChanged | SandboxRemoved | Tick | StateReported | Result


# ---- actions


@dataclass(frozen=True, slots=True)
class ProbeChannel:
    """Choose a channel, probe it and ask for the guest's state."""


@dataclass(frozen=True, slots=True)
class PushRuleset:
    """Apply `ruleset`; as a delta if the guest is known to hold `base`."""

    ruleset: Ruleset
    base: Ruleset | None
    flush: tuple[Flow, ...]
    owed: int  # which flows these are; for the machine alone


@dataclass(frozen=True, slots=True)
class CheckState: ...


@dataclass(frozen=True, slots=True)
class FlushFlows:
    """Delete flows that an earlier push was to delete, of which it is not known how it ended."""

    flows: tuple[Flow, ...]
    owed: int


@dataclass(frozen=True, slots=True)
class SetRulesetReply:
    """Tell whoever holds `ticket`."""

    ticket: int
    code: ResultCode
    text: str
    generation: int
    digest: str


@dataclass(frozen=True, slots=True)
class RecordDrift:
    """Log and count, once for each occurrence: a loss, or (None) that one was repaired."""

    loss: DriftKind | None


@dataclass(frozen=True, slots=True)
class CancelProbe:
    """Give up the probe that is under way, and tell no result of it: a better way in has opened."""


Call = ProbeChannel | PushRuleset | CheckState | FlushFlows
Action = Call | SetRulesetReply | RecordDrift | CancelProbe
