# SPDX-License-Identifier: Apache-2.0
"""The node's condition `VcnodePodStartBlocked`. It has numbers only: every tenant can read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kata_bridge.start_gate.core.decision import Reason

CONDITION, NO_POD_BLOCKED = "VcnodePodStartBlocked", "NoPodBlocked"

# Most pods are blocked for a moment; the condition must not flap with them.
MIN_BLOCKED_S = 10.0

REASON_MESSAGES = {
    Reason.OWNERSHIP: "have invalid ownership annotations",
    Reason.NETWORK: "wait for their network",
    Reason.RULES: "wait for their Services",
    Reason.RESOLVER: "wait for their resolver",
}


@dataclass(frozen=True, slots=True)
class BlockedPods:
    """How many pods have been blocked for `MIN_BLOCKED_S` or longer, in all and for each reason."""

    count: int = 0
    by_reason: Mapping[Reason, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeCondition:
    is_blocked: bool
    reason: str
    message: str


def condition_of(blocked: BlockedPods) -> NodeCondition:
    """The condition for these pods; its reason is that of most of them."""
    if not blocked.count:
        return NodeCondition(False, NO_POD_BLOCKED, "the start gate blocks no pod")
    counts = [(reason, blocked.by_reason[reason]) for reason in Reason if blocked.by_reason.get(reason)]
    most = max(counts, key=lambda each: each[1], default=(Reason.RULES, 0))[0]
    parts = "; ".join(f"{count} {REASON_MESSAGES[reason]}" for reason, count in counts)
    return NodeCondition(True, most.value, f"pods blocked by the start gate: {blocked.count} ({parts})")
