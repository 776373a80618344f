# SPDX-License-Identifier: Apache-2.0
"""Events that the state machine of a guest (`machine`) takes, and actions that it returns. Pure."""

import enum
from dataclasses import dataclass

from bridge_api.messages import Capabilities, Flow, ResultCode
from kata_bridge.channels.port import GuestState
from ruleset.document import Ruleset


class DriftKind(enum.Enum):
    """How a guest that held the desired ruleset stopped holding it."""

    DRIFTED = "drifted"  # its rules differ from those that were applied
    LOST = "lost"  # it holds no rules of ours: flushed, or rebooted
    REPLACED = "replaced"  # it holds another ruleset of ours: a late or foreign push


# ---- events


@dataclass(frozen=True, slots=True)
class SandboxAdded:
    """The sandbox runs."""


@dataclass(frozen=True, slots=True)
class SandboxRemoved:
    """The sandbox was stopped."""


@dataclass(frozen=True, slots=True)
class ChannelChanged:
    """An agent attached or left, or a socket appeared: the channel must be selected again."""


@dataclass(frozen=True, slots=True)
class DesiredChanged:
    """A client set a ruleset; `flush` are the flows to delete once it is applied."""

    ruleset: Ruleset
    flush: tuple[Flow, ...]
    ticket: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; see `GuestMachine.due_s`."""


@dataclass(frozen=True, slots=True)
class StateReported:
    """The guest reported its state without a request."""

    state: GuestState


@dataclass(frozen=True, slots=True)
class ProbeSucceeded:
    """A probe found a channel."""

    capabilities: Capabilities
    state: GuestState


@dataclass(frozen=True, slots=True)
class StateReturned:
    """A push or a check succeeded."""

    state: GuestState


@dataclass(frozen=True, slots=True)
class FlushSucceeded: ...


@dataclass(frozen=True, slots=True)
class FullRulesetNeeded: ...


@dataclass(frozen=True, slots=True)
class CallRefused:
    message: str


@dataclass(frozen=True, slots=True)
class GuestUnreachable:
    message: str


@dataclass(frozen=True, slots=True)
class GuestNotInjectable:
    message: str


CallOutcome = (
    ProbeSucceeded
    | StateReturned
    | FlushSucceeded
    | FullRulesetNeeded
    | CallRefused
    | GuestUnreachable
    | GuestNotInjectable
)
GuestMachineEvent = (
    SandboxAdded | SandboxRemoved | ChannelChanged | DesiredChanged | Tick | StateReported | CallOutcome
)


# ---- actions


@dataclass(frozen=True, slots=True)
class ProbeChannel:
    """Select a channel, probe it and read the guest's state."""


@dataclass(frozen=True, slots=True)
class PushRuleset:
    """Apply `ruleset`; as a delta if the guest is known to hold `base`."""

    ruleset: Ruleset
    base: Ruleset | None
    flush: tuple[Flow, ...]
    flush_sequence: int  # the latest request whose flows are in `flush`


@dataclass(frozen=True, slots=True)
class CheckState: ...


@dataclass(frozen=True, slots=True)
class FlushFlows:
    """Delete the flows of an earlier push whose outcome is unknown."""

    flows: tuple[Flow, ...]
    flush_sequence: int


@dataclass(frozen=True, slots=True)
class SetRulesetReply:
    """Complete the SetRuleset request that `ticket` names."""

    ticket: int
    code: ResultCode
    message: str
    generation: int
    digest: str


@dataclass(frozen=True, slots=True)
class RecordDrift:
    """Log and count one drift, or with None the repair of one."""

    drift: DriftKind | None


@dataclass(frozen=True, slots=True)
class CancelProbe:
    """Cancel the probe in flight and drop its outcome: a better channel may have opened."""


GuestCall = ProbeChannel | PushRuleset | CheckState | FlushFlows
GuestAction = GuestCall | SetRulesetReply | RecordDrift | CancelProbe
