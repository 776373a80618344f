# SPDX-License-Identifier: Apache-2.0
"""When a probe is asked again."""

from __future__ import annotations

import copy

import msgspec
import pytest

from tenant_operator.core.availability import FIRST_TRIES, due_in_s, is_due
from tenant_operator.core.observed import Observed, ProbeResult
from tenant_operator.core.status import status_after, status_patch
from tenant_operator.model.virtual_cluster import VirtualCluster
from tests.unit.tenant_operator.core.worlds import NOW, FakeWorld, virtual_cluster


def observed(result: ProbeResult | None, now_s: float = NOW) -> Observed:
    probes = {} if result is None else {"nodes": result}
    return Observed(msgspec.convert(virtual_cluster(), VirtualCluster), {}, {}, now_s, probes)


def test_what_was_never_asked_is_due() -> None:
    assert is_due(observed(None), "nodes", 3600.0, 1.0)


def test_waits_of_a_part_that_does_not_answer() -> None:
    waits = [
        due_in_s(observed(ProbeResult(is_ok=False, at=NOW, failures=count)), "nodes", 3600.0, 1.0)
        for count in range(1, FIRST_TRIES + 12)
    ]
    assert waits == [*[1.0] * FIRST_TRIES, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, *[300.0] * 3]


@pytest.mark.parametrize("failures", range(20))
@pytest.mark.parametrize("is_ok", [True, False])
@pytest.mark.parametrize("shift_s", [0.5, 1.0, 3600.0, 300 * 86400.0])
def test_clock_that_went_back_stops_no_probe(failures: int, shift_s: float, *, is_ok: bool) -> None:
    """Asked while the clock was ahead, and looked at after it was set right."""
    result = ProbeResult(is_ok=is_ok, at=NOW + shift_s, failures=failures)
    assert is_due(observed(result), "nodes", 3600.0, 1.0)


@pytest.mark.parametrize("elapsed_s", [0.0, 0.5, 1799.0, 3599.0, 3600.0, 7200.0])
def test_answer_is_good_for_its_time(elapsed_s: float) -> None:
    left_s = due_in_s(observed(ProbeResult(is_ok=True, at=NOW), NOW + elapsed_s), "nodes", 3600.0, 1.0)
    assert left_s == max(3600.0 - elapsed_s, 0.0)


def test_restart_takes_nobody_from_ready() -> None:
    """What the process before had asked is lost with it."""
    world = FakeWorld(virtual_cluster())
    world.run()
    before = copy.deepcopy(world.cluster["status"])
    world.probes.clear()
    made = world.plan()
    observed = world.observed()
    assert status_patch(observed.virtual_cluster, status_after(observed, made, ())) is None
    assert sorted(each.name for each in made.probes) == ["nodes", "served", "syncer"]
    world.run()
    assert world.cluster["status"] == before
