# SPDX-License-Identifier: Apache-2.0
"""A tenant that does not end costs the super cluster little, and its pods are ended after a stated time."""

from __future__ import annotations

import msgspec

from tenant_operator.core.conditions import timestamp
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import NamespacesProbe
from tenant_operator.core.steps import EndPods, OperatorStep, Remove
from tenant_operator.life.deletion import FORCE_S
from tests.unit.tenant_operator.core.worlds import FakeWorld, virtual_cluster


class StuckWorld(FakeWorld):
    """No namespace ends: a kubelet does not answer."""

    def carry_out(self, step: OperatorStep) -> None:
        if not (isinstance(step, Remove) and step.ref.kind == "Namespace"):
            super().carry_out(step)

    def stick(self) -> str:
        self.run()
        key: str = self.cluster["status"]["clusterNamespace"]
        self.super_namespaces = {f"{key}-shop": ""}
        self.cluster["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
        return key

    def run_for(self, seconds: float) -> int:
        """Returns how often all namespaces were listed."""
        lists, end_s = 0, self.now_s + seconds
        while self.now_s < end_s:
            made = self.plan()
            assert made.check_again_s is not None
            lists += sum(isinstance(each, NamespacesProbe) for each in made.probes)
            for step in made.steps:
                self.carry_out(step)
            before = self.probes.get("namespaces")
            self.finish(made)
            self.count_failures(before)
            self.now_s += made.check_again_s
        return lists

    def count_failures(self, before: object) -> None:
        """As the queue of probes does it."""
        found = self.probes.get("namespaces")
        if isinstance(before, ProbeResult) and found is not None and found is not before:
            is_same = (before.is_ok, before.facts) == (found.is_ok, found.facts)
            failures = 0 if found.is_ok else before.failures + 1 if is_same else 1
            self.probes["namespaces"] = msgspec.structs.replace(found, failures=failures)


def test_namespaces_are_listed_ever_more_rarely() -> None:
    world = StuckWorld(virtual_cluster())
    world.stick()
    assert world.run_for(60.0) <= 15
    world.run_for(60.0)
    assert world.run_for(600.0) <= 21


def test_pods_are_ended_after_the_stated_time() -> None:
    world = StuckWorld(virtual_cluster())
    key = world.stick()
    world.run_for(FORCE_S - 60.0)
    assert not any(isinstance(each, EndPods) for each in world.plan().steps)
    world.now_s += 60.0
    late = timestamp(world.now_s - 60.0)
    assert [each for each in world.plan().steps if isinstance(each, EndPods)] == [EndPods(key, late)]
    world.run_for(120.0)
    assert set(world.ended_pods) == {key}
    world.objects.clear()
    assert not any(isinstance(each, EndPods) for each in world.plan().steps)
