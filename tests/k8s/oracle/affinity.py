# SPDX-License-Identifier: Apache-2.0
"""Services with affinity: a client stays, and a new one may come to any endpoint.

Each round begins with nobody remembered. A client's first packet chooses, the next ones follow.
"""

from collections.abc import Sequence

from ruletrace.packet import Outcome, format_outcomes
from tests.k8s.oracle.asking import times
from tests.k8s.oracle.laboratory import Laboratory, Pair
from tests.k8s.oracle.memory import AffinityMemory
from tests.k8s.oracle.questions import Question
from tests.k8s.oracle.volley import Volleys

_FOLLOWING = 3
_SURE = 1 - 1e-9


def questions_with_affinity(laboratory: Laboratory, pair: Pair) -> list[Question]:
    asked = laboratory.questions(pair, laboratory.namespaces)
    return [one for one in asked if pair.guest.has_affinity(one.flow)]


def ask_clients(pair: Pair, asked: Sequence[Question]) -> list[str]:
    """What is wrong with where clients came to, on either side.

    Of kube-proxy, what it is known to answer otherwise (`differences.py`) is not asked.
    """
    problems = []
    agreed = [one for one in asked if one in pair.agreed]
    for volleys, of_side in ((pair.theirs, agreed), (pair.ours, asked)):
        problems += [f"{volleys.side.name}: {problem}" for problem in _ask(volleys, pair, of_side)]
    return problems


def _ask(volleys: Volleys, pair: Pair, asked: Sequence[Question]) -> list[str]:
    memory, problems = AffinityMemory(volleys.side.ruled), list[str]()
    seen: dict[Question, set[Outcome]] = {one: set() for one in asked}
    wanted = {one: set(pair.guest.expected(one.flow)) for one in asked}
    for _ in range(max((times(ends, _SURE) for ends in wanted.values()), default=0)):
        # The ends that are there are seen in the first rounds, nearly always.
        left = [one for one in asked if seen[one] != wanted[one]]
        if not left:
            break
        memory.forget()
        for one, of in zip(left, volleys.ask([(one.flow, _FOLLOWING) for one in left]), strict=True):
            seen[one] |= of.ends
            if len(of.ends) != 1:
                problems.append(f"{one}: one client came to {format_outcomes(of.ends)}")
    problems += [
        f"{one}: clients came to {format_outcomes(seen[one])}, not {format_outcomes(wanted[one])}"
        for one in asked
        if seen[one] != wanted[one]
    ]
    return problems
