# SPDX-License-Identifier: Apache-2.0
"""A guest's machine on a clock of its own, and the values that its transcripts use."""

from bridge_api.messages import Capabilities, Flow, ResultCode
from kata_bridge.channels.port import GuestState
from kata_bridge.guests.core.events import (
    DesiredChanged,
    GuestAction,
    GuestMachineEvent,
    ProbeChannel,
    ProbeSucceeded,
    SandboxAdded,
    SetRulesetReply,
    StateReturned,
    Tick,
)
from kata_bridge.guests.core.machine import GuestMachine
from ruleset.document import Ruleset

AGENT = Capabilities(channel="agent", backends=("iptables",), deltas=True, conntrack=True)
SHIM = Capabilities(channel="shim", backends=("iptables",))
EMPTY = GuestState(0, "", False)
FLOW = Flow(protocol="udp", destination="10.0.0.10", port=53)
OTHER = Flow(protocol="tcp", destination="10.0.0.1", port=443)
CHECK_S = 30.0


def rules(generation: int, digest: str = "") -> Ruleset:
    return Ruleset(generation, digest or f"d{generation}", ())


A, B = rules(1), rules(2)


def state_with(ruleset: Ruleset, *, has_drifted: bool = False) -> GuestState:
    return GuestState(ruleset.generation, ruleset.digest, has_drifted)


def set_reply(ticket: int, code: ResultCode, text: str = "", holds: Ruleset | None = None) -> SetRulesetReply:
    return SetRulesetReply(
        ticket, code, text, holds.generation if holds else 0, holds.digest if holds else ""
    )


class MachineScript:
    """A machine with its clock. The jitter is always 0, so every wait has half of its maximum."""

    def __init__(self, *, capabilities: Capabilities = AGENT) -> None:
        self.machine = GuestMachine(CHECK_S)
        self.now_s = 100.0
        assert self(SandboxAdded()) == (ProbeChannel(),)
        self.capabilities = capabilities

    def __call__(self, event: GuestMachineEvent) -> tuple[GuestAction, ...]:
        return self.machine.handle(event, self.now_s, 0.0)

    def attach(self, state: GuestState = EMPTY) -> tuple[GuestAction, ...]:
        return self(ProbeSucceeded(self.capabilities, state))

    def later(self, seconds: float) -> tuple[GuestAction, ...]:
        self.now_s += seconds
        return self(Tick())

    def wait(self) -> tuple[GuestAction, ...]:
        """Advance the clock to the machine's next deadline."""
        due_s = self.machine.due_s()
        assert due_s is not None
        self.now_s = max(self.now_s, due_s)
        return self(Tick())

    def with_ruleset(self, ruleset: Ruleset) -> "MachineScript":
        """Apply `ruleset` to the guest."""
        self.attach()
        self(DesiredChanged(ruleset, (), 0))
        assert set_reply(0, ResultCode.APPLIED, holds=ruleset) in self(StateReturned(state_with(ruleset)))
        assert self.machine.is_current
        return self
