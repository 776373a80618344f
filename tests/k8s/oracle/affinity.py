# SPDX-License-Identifier: Apache-2.0
"""Services with affinity: a client stays at its endpoint, and a new one may reach any endpoint.

Each round begins without remembered clients. A client's first packet chooses its endpoint, the next follow.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ruletrace.packet import Outcome, format_outcomes
from tests.cases.services.namespace import ThreadedNamespace
from tests.k8s.oracle.laboratory import Laboratory, NodeComparison
from tests.k8s.oracle.prober import Prober
from tests.k8s.oracle.probes import FlowProbe
from tests.k8s.oracle.probing import times

_RECENT = Path("/proc/thread-self/net/xt_recent")
_TABLE = re.compile(r"^table (\S+) (\S+) \{")
_OBJECT = re.compile(r"^\t(set|map|chain) (\S+) \{")
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


class AffinityMemory:
    """The remembered clients of a namespace's current rules."""

    def __init__(self, namespace: ThreadedNamespace) -> None:
        self._namespace = namespace
        sets = _dynamic_sets(namespace.run("nft", "-t", "list", "ruleset"))
        self._flush = "".join(f"flush set {one}\n" for one in sets)

    def forget(self) -> None:
        """Forget all clients."""
        self._namespace.call(_empty_recent)
        if self._flush:
            self._namespace.run("nft", "-f", "-", text=self._flush)


def _empty_recent() -> None:
    if not _RECENT.is_dir():
        return
    for one in _RECENT.iterdir():
        one.write_text("/\n")


def _dynamic_sets(listed: str) -> list[str]:
    """`family table set` of all sets that rules write into."""
    found: list[str] = []
    table = name = ""
    for line in listed.splitlines():
        if match := _TABLE.match(line):
            table = f"{match[1]} {match[2]}"
        elif match := _OBJECT.match(line):
            name = match[2] if match[1] == "set" else ""
        elif name and line.startswith("\t\tflags ") and "dynamic" in line:
            found.append(f"{table} {name}")
    return found
