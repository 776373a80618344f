# SPDX-License-Identifier: Apache-2.0
"""What a node says of the pods that wait at its gate. Numbers only: a node is everybody's."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kata_bridge.start_gate.core.decision import Kind

# Most pods wait for a moment; a node is not to flap with them.
LONG_S = 10.0

_WORDS = {
    Kind.IDENTITY: ("IdentityUnclear", "cannot be told whose they are"),
    Kind.READINESS: ("NetworkNotReady", "wait for their network"),
    Kind.RULES: ("ServicesMissing", "wait for their Services"),
    Kind.RESOLVER: ("ResolverMissing", "wait for their DNS settings"),
}


@dataclass(frozen=True, slots=True)
class Tally:
    """How many pods have waited for longer than `LONG_S`, by each thing that they wait for."""

    pods: int = 0
    kinds: Mapping[Kind, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Condition:
    is_held: bool
    reason: str
    message: str


def condition_of(tally: Tally) -> Condition:
    """What the node's condition is to say."""
    if not tally.pods:
        return Condition(False, "GateOpen", "no pod waits at the gate")
    waiting = [(kind, tally.kinds[kind]) for kind in Kind if tally.kinds.get(kind)]
    most = max(waiting, key=lambda each: each[1], default=(Kind.RULES, 0))[0]
    parts = "; ".join(f"{count} {_WORDS[kind][1]}" for kind, count in waiting)
    return Condition(True, _WORDS[most][0], f"pods that wait at the gate: {tally.pods} ({parts})")
