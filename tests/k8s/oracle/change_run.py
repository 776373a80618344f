# SPDX-License-Identifier: Apache-2.0
"""Changes namespaces while all sides sync, and probes what was changed."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from tests.k8s.oracle.changes import ObjectChange, draw_change
from tests.k8s.oracle.comparing import compare
from tests.k8s.oracle.draw import ZONES, DrawnNamespace, Json
from tests.k8s.oracle.laboratory import Laboratory, NodeComparison
from tests.k8s.oracle.long_lived_flows import LongLivedFlows
from tests.k8s.oracle.prober import ProbedFlow
from tests.k8s.oracle.probes import FlowProbe, probes_of_service
from tests.k8s.oracle.scenarios import SCENARIOS

_BATCH = 20
# Changes interact where many of them are in one namespace.
_CHANGING_NAMESPACES = 40
_OTHERS = 60


class ChangeRun:
    """A run of changes in some namespaces; the caller iterates `steps` or `scenario_steps`."""

    def __init__(self, laboratory: Laboratory, numbers: Sequence[int], what: str) -> None:
        """Some of the namespaces `numbers` change; `what` names the random choices."""
        self._laboratory = laboratory
        self._choose = laboratory.rng_for(what)
        self._changing = self._choose.sample(numbers, min(_CHANGING_NAMESPACES, len(numbers)))
        self._probes = [self._all_probes(comparison) for comparison in laboratory.comparisons]
        self.long_lived_flows: list[LongLivedFlows] = []
        self.made = 0

    def steps(self, count: int) -> Iterator[list[str]]:
        """Make `count` changes in batches; yield the failures after each batch.

        In the middle, the nodes move to other zones.
        """
        yield from self._begin()
        middle = count // 2
        for number in range(0, count, _BATCH):
            if number <= middle < number + _BATCH:
                yield self._move_nodes()
            yield self._change(self._some_change() for _ in range(min(_BATCH, count - number)))

    def scenario_steps(self) -> Iterator[list[str]]:
        """Run the steps of all scenarios side by side; yield the failures after each."""
        yield from self._begin()
        numbers = self._laboratory.scenario_numbers
        for step in range(max(len(one.steps) for one in SCENARIOS)):
            now = [
                (number, one.steps[step])
                for number, one in zip(numbers, SCENARIOS, strict=True)
                if step < len(one.steps)
            ]
            yield self._change(self._scenario_step(number, make) for number, make in now if make is not None)

    def _begin(self) -> Iterator[list[str]]:
        """Probe everything, and open the long-lived flows and clients."""
        for comparison, probes in zip(self._laboratory.comparisons, self._probes, strict=True):
            yield compare(self._laboratory, comparison, probes)
        self.long_lived_flows = [
            LongLivedFlows(self._laboratory, comparison, probes)
            for comparison, probes in zip(self._laboratory.comparisons, self._probes, strict=True)
        ]

    def _change(self, expected: Iterable[ObjectChange | None]) -> list[str]:
        before = dict(self._laboratory.store.services)
        changes = [change for change in expected if change is not None]
        self.made += len(changes)
        self._laboratory.follow()
        touched = {(change.after.name, change.service) for change in changes}
        problems = []
        for comparison, flows in zip(self._laboratory.comparisons, self.long_lived_flows, strict=True):
            probes = self._probes_of(comparison, touched, before)
            problems += compare(self._laboratory, comparison, probes, may_forget=False)
            problems += flows.follow(changes)
        if problems:
            text = "\n".join(problems)
            of_these = [one for one in changes if f"{one.after.name}/{one.service}" in text]
            problems.append("after " + "\n".join(one.whole() for one in of_these or changes))
        return problems

    def _some_change(self) -> ObjectChange | None:
        """Make one; None if the API server refuses it."""
        number = self._choose.choice(self._changing)
        change = draw_change(self._choose, self._laboratory.namespaces[number])
        return change if self._apply(number, change) else None

    def _scenario_step(self, number: int, make: Callable[[DrawnNamespace], ObjectChange]) -> ObjectChange:
        change = make(self._laboratory.namespaces[number])
        assert self._apply(number, change), self._laboratory.store.refused[-1]
        return change

    def _apply(self, number: int, change: ObjectChange) -> bool:
        """Apply it; False if the API server refuses it."""
        if not self._laboratory.store.apply(change):
            return False
        self._laboratory.namespaces[number] = change.after
        return True

    def _all_probes(self, comparison: NodeComparison) -> list[FlowProbe]:
        return self._laboratory.probes(comparison, [self._laboratory.namespaces[i] for i in self._changing])

    def _probes_of(
        self, comparison: NodeComparison, touched: set[tuple[str, str]], before: dict[tuple[str, str], Json]
    ) -> list[FlowProbe]:
        """The probes of changed Services, before and after, and of some unchanged ones."""
        found: dict[ProbedFlow, FlowProbe] = {}
        for services in (self._laboratory.store.services, before):
            for key in sorted(touched & services.keys()):
                for one in probes_of_service(services[key], comparison.node):
                    found.setdefault(one.flow, one)
        # With a generator of their own: the number of probes depends on the API server's choice of cluster
        # IPs, and the changes of a seed must be the same each time.
        rng = self._laboratory.rng_for(f"others of {comparison.node.name} after {self.made} changes")
        namespaces = rng.sample(
            self._laboratory.namespaces, min(_CHANGING_NAMESPACES, len(self._laboratory.namespaces))
        )
        others = self._laboratory.probes(comparison, namespaces)
        for one in rng.sample(others, min(_OTHERS, len(others))):
            found.setdefault(one.flow, one)
        return list(found.values())

    def _move_nodes(self) -> list[str]:
        """Move each node to the next zone, and probe the changing namespaces again."""
        for comparison in self._laboratory.comparisons:
            zone = ZONES[(ZONES.index(comparison.node.zone) + 1) % len(ZONES)]
            self._laboratory.store.move_node(comparison.node.name, zone)
            self._laboratory.barrier.wait_zone(comparison.theirs, zone)
        self._laboratory.follow()
        problems = []
        for comparison, flows in zip(self._laboratory.comparisons, self.long_lived_flows, strict=True):
            problems += compare(self._laboratory, comparison, self._all_probes(comparison), may_forget=False)
            problems += flows.follow(())
        return problems


def count_flows(runs: Sequence[LongLivedFlows]) -> int:
    """The number of long-lived flows and clients."""
    return sum(len(one) for one in runs)
