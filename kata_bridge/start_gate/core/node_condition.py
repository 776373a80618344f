# SPDX-License-Identifier: Apache-2.0
"""The node's condition `VcnodePodStartBlocked`. It has numbers only: every tenant can read it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kata_bridge.start_gate.core.decision import Reason

CONDITION, NO_POD_BLOCKED = "VcnodePodStartBlocked", "NoPodBlocked"

# Most pods are blocked for a moment; the condition must not flap with them.
REPORTED_AFTER_S = 10.0

_LONG = f" for {REPORTED_AFTER_S:g} s or longer"

REASON_MESSAGES = {
    Reason.OWNERSHIP: "have invalid ownership annotations",
    Reason.NETWORK: "wait for their network",
    Reason.RULES: "wait for their Services",
    Reason.RESOLVER: "wait for their resolver",
}


@dataclass(frozen=True, slots=True)
class BlockedPods:
    """How many pods have been blocked for `REPORTED_AFTER_S` or longer, in all and for each reason."""

    count: int = 0
    by_reason: Mapping[Reason, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeCondition:
    is_blocked: bool
    reason: str
    message: str


def count_blocked(pods: Iterable[tuple[float, Collection[Reason]]]) -> BlockedPods:
    """Count the pods that the condition reports. Each pod: for how many seconds it is blocked, and why.

    A pod without a reason is not counted: the kubelet has not retried its containers since our start.
    """
    by_reason: Counter[Reason] = Counter()
    count = 0
    for blocked_s, reasons in pods:
        if reasons and blocked_s >= REPORTED_AFTER_S:
            count += 1
            by_reason.update(set(reasons))
    return BlockedPods(count, by_reason)


def condition_of(blocked: BlockedPods) -> NodeCondition:
    """The condition for these pods; its reason is that of most of them."""
    if not blocked.count:
        return NodeCondition(False, NO_POD_BLOCKED, f"the start gate has blocked no pod{_LONG}")
    counts = [(reason, blocked.by_reason[reason]) for reason in Reason if blocked.by_reason.get(reason)]
    most = max(counts, key=lambda each: each[1], default=(Reason.RULES, 0))[0]
    parts = "; ".join(f"{count} {REASON_MESSAGES[reason]}" for reason, count in counts)
    message = f"pods blocked by the start gate{_LONG}: {blocked.count} ({parts})"
    return NodeCondition(True, most.value, message)
