# SPDX-License-Identifier: Apache-2.0
"""Services with affinity: a client stays at its endpoint, and a new one may reach any endpoint.

Each round begins without remembered clients. A client's first packet chooses its endpoint, the next follow.
"""

from collections.abc import Sequence

from ruletrace.packet import Outcome, format_outcomes
from tests.k8s.oracle.laboratory import Laboratory, NodeComparison
from tests.k8s.oracle.memory import AffinityMemory
from tests.k8s.oracle.prober import Prober
from tests.k8s.oracle.probes import FlowProbe
from tests.k8s.oracle.probing import times

_FOLLOWING = 3
_SURE = 1 - 1e-9


def probes_with_affinity(laboratory: Laboratory, comparison: NodeComparison) -> list[FlowProbe]:
    probes = laboratory.probes(comparison, laboratory.namespaces)
    return [one for one in probes if comparison.guest.has_affinity(one.flow)]


def probe_clients(comparison: NodeComparison, probes: Sequence[FlowProbe]) -> list[str]:
    """The failures of clients on either side, without kube-proxy's known differences (`differences.py`)."""
    problems = []
    agreed = [one for one in probes if one in comparison.agreed]
    for prober, of_side in ((comparison.theirs, agreed), (comparison.ours, probes)):
        problems += [f"{prober.side.name}: {problem}" for problem in _probe(prober, comparison, of_side)]
    return problems


def _probe(prober: Prober, comparison: NodeComparison, probes: Sequence[FlowProbe]) -> list[str]:
    memory, problems = AffinityMemory(prober.side.ruled), list[str]()
    seen: dict[FlowProbe, set[Outcome]] = {one: set() for one in probes}
    expected = {one: set(comparison.guest.expected(one.flow)) for one in probes}
    for _ in range(max((times(ends, _SURE) for ends in expected.values()), default=0)):
        # The first rounds see nearly all ends.
        left = [one for one in probes if seen[one] != expected[one]]
        if not left:
            break
        memory.forget()
        for one, of in zip(left, prober.probe([(one.flow, _FOLLOWING) for one in left]), strict=True):
            seen[one] |= of.ends
            if len(of.ends) != 1:
                problems.append(f"{one}: one client reached {format_outcomes(of.ends)}")
    problems += [
        f"{one}: clients reached {format_outcomes(seen[one])}, not {format_outcomes(expected[one])}"
        for one in probes
        if seen[one] != expected[one]
    ]
    return problems
