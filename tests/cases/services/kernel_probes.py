# SPDX-License-Identifier: Apache-2.0
"""Probes of a real kernel: packets are sent from a namespace in which the rules are loaded.

A set of endpoints gets so many packets that an expected endpoint is missed with a probability below
`MISSED`; an unexpected one is found with the same certainty.
"""

import math
from collections.abc import Callable, Sequence

from ruleset.model import Endpoint
from ruletrace.packet import Outcome, PacketVerdict, format_outcomes
from tests.cases.services.lab import Lab
from tests.cases.services.packet_checks import PacketCheck
from tests.cases.services.probe import DROP_S, TIMEOUT_S, ProbeResult

MISSED = 1e-9
_STUCK_TIMES = 8


def times(endpoints: int) -> int:
    """How many packets find each of so many equally likely endpoints, and one unexpected."""
    possible = endpoints + 1
    return math.ceil(math.log(possible / MISSED) / -math.log(1 - 1 / possible))


def ports(packet_checks: Sequence[PacketCheck]) -> set[int]:
    """The ports to listen on: those of endpoints, and of packets that may pass."""
    found = {packet_check.packet.port for packet_check in packet_checks}
    for packet_check in packet_checks:
        found |= {outcome.port for outcome in packet_check.expected if isinstance(outcome, Endpoint)}
    return found


def probe_failures(
    lab: Lab, packet_check: PacketCheck, reload: Callable[[], None] | None = None
) -> list[str]:
    """The failures of one packet check; empty if it passes.

    With `reload`, affinity is on: the guest's remembered clients are cleared before each packet.
    """
    packet, expected = packet_check.packet, packet_check.expected
    ends = sum(isinstance(outcome, Endpoint) for outcome in expected)
    is_drop = expected == {PacketVerdict.DROP}
    timeout_s = DROP_S if is_drop else TIMEOUT_S
    found: set[Outcome] = set()
    for _ in range(times(ends) if ends else 1):
        if reload is not None:
            reload()
        seen = lab.probe.send(packet.protocol, packet.destination, packet.port, timeout_s, is_watched=is_drop)
        wrong = _mismatch(seen, packet_check)
        if wrong:
            return [wrong]
        found.add(_outcome(seen))
        if reload is not None and ends > 1:
            wrong = _affinity_mismatch(lab, packet_check, seen)
            if wrong:
                return [wrong]
    if packet_check.is_routed and found != expected:
        return [f"{format_outcomes(found)}, not {format_outcomes(expected)}"]
    return []


def _mismatch(seen: ProbeResult, packet_check: PacketCheck) -> str:
    """What is wrong with one packet, apart from which expected endpoint it reached."""
    if not packet_check.is_routed:
        return "" if seen.verdict == "unreach" else f"{seen.verdict}, not unreach"
    if seen.verdict not in ("endpoint", "pass", "reject", "drop"):
        return seen.verdict
    outcome = _outcome(seen)
    if outcome not in packet_check.expected:
        return f"{format_outcomes([outcome])}, not {format_outcomes(packet_check.expected)}"
    if seen.reached is None:
        return ""
    source = packet_check.packet.source
    if seen.reached.source != source:
        return f"{seen.reached.endpoint} saw {seen.reached.source}, not {source}"
    is_own = seen.reached.ip == source
    if (seen.reached.where == "guest") != is_own:
        return f"{seen.reached.endpoint} is in the wrong namespace: {seen.reached.where}"
    return ""


def _affinity_mismatch(lab: Lab, packet_check: PacketCheck, first: ProbeResult) -> str:
    packet = packet_check.packet
    for _ in range(_STUCK_TIMES):
        again = lab.probe.send(packet.protocol, packet.destination, packet.port)
        if _outcome(again) != _outcome(first):
            seen = [format_outcomes([_outcome(one)]) for one in (first, again)]
            return f"affinity: {seen[0]} and then {seen[1]}"
    return ""


def _outcome(seen: ProbeResult) -> Outcome:
    if seen.verdict == "endpoint" and seen.reached is not None:
        return seen.reached.endpoint
    return {"pass": PacketVerdict.PASS, "reject": PacketVerdict.REJECT, "drop": PacketVerdict.DROP}.get(
        seen.verdict, PacketVerdict.UNKNOWN
    )
