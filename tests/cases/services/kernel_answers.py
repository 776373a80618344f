# SPDX-License-Identifier: Apache-2.0
"""Answers of a real kernel: the rules are loaded in a namespace, and packets are sent.

A set of endpoints gets so many packets that an expected endpoint is missed with a probability below
`MISSED`, and an unexpected one is found with the same certainty.
"""

import math
from collections.abc import Callable, Sequence

from ruleset.model import Endpoint
from ruletrace.packet import Outcome, PacketVerdict, format_outcomes
from tests.cases.services.lab import Lab
from tests.cases.services.probe import DROP_S, PATIENCE_S, ProbeResult
from tests.cases.services.questions import Question

MISSED = 1e-9
_STUCK_TIMES = 8


def times(endpoints: int) -> int:
    """How often to ask for a set of so many endpoints, each as likely as any, or one more."""
    possible = endpoints + 1
    return math.ceil(math.log(possible / MISSED) / -math.log(1 - 1 / possible))


def ports(questions: Sequence[Question]) -> set[int]:
    """The ports to listen on: endpoints', and those of packets, should they pass."""
    found = {question.packet.port for question in questions}
    for question in questions:
        found |= {outcome.port for outcome in question.wanted if isinstance(outcome, Endpoint)}
    return found


def complaints(lab: Lab, question: Question, reload: Callable[[], None] | None = None) -> list[str]:
    """What is wrong with the answers to one question; empty if nothing is.

    With `reload`, affinity is on: what the guest remembers is forgotten before each packet.
    """
    packet, wanted = question.packet, question.wanted
    ends = sum(isinstance(outcome, Endpoint) for outcome in wanted)
    is_drop = wanted == {PacketVerdict.DROP}
    patience_s = DROP_S if is_drop else PATIENCE_S
    found: set[Outcome] = set()
    for _ in range(times(ends) if ends else 1):
        if reload is not None:
            reload()
        seen = lab.probe.send(
            packet.protocol, packet.destination, packet.port, patience_s, is_watched=is_drop
        )
        wrong = _wrong(seen, question)
        if wrong:
            return [wrong]
        found.add(_outcome(seen))
        if reload is not None and ends > 1:
            wrong = _not_stuck(lab, question, seen)
            if wrong:
                return [wrong]
    if question.is_routed and found != wanted:
        return [f"{format_outcomes(found)}, not {format_outcomes(wanted)}"]
    return []


def _wrong(seen: ProbeResult, question: Question) -> str:
    """Everything about one answer but which of the wanted ends it is."""
    if not question.is_routed:
        return "" if seen.word == "unreach" else f"{seen.word}, not unreach"
    if seen.word not in ("endpoint", "pass", "reject", "drop"):
        return seen.word
    outcome = _outcome(seen)
    if outcome not in question.wanted:
        return f"{format_outcomes([outcome])}, not {format_outcomes(question.wanted)}"
    if seen.reached is None:
        return ""
    source = question.packet.source
    if seen.reached.source != source:
        return f"{seen.reached.endpoint} saw {seen.reached.source}, not {source}"
    is_own = seen.reached.ip == source
    if (seen.reached.where == "guest") != is_own:
        return f"{seen.reached.endpoint} is in the wrong place: {seen.reached.where}"
    return ""


def _not_stuck(lab: Lab, question: Question, first: ProbeResult) -> str:
    packet = question.packet
    for _ in range(_STUCK_TIMES):
        again = lab.probe.send(packet.protocol, packet.destination, packet.port)
        if _outcome(again) != _outcome(first):
            seen = [format_outcomes([_outcome(one)]) for one in (first, again)]
            return f"affinity: {seen[0]} and then {seen[1]}"
    return ""


def _outcome(seen: ProbeResult) -> Outcome:
    if seen.word == "endpoint" and seen.reached is not None:
        return seen.reached.endpoint
    return {"pass": PacketVerdict.PASS, "reject": PacketVerdict.REJECT, "drop": PacketVerdict.DROP}.get(
        seen.word, PacketVerdict.UNKNOWN
    )
