# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from syncer.core.deletion_guard import Hold, HoldReason
from syncer.core.plan import Side
from syncer.run.live_metrics import held_deletions, held_tenants, memory_refused, source_ages


def reflectors(*ages: float | None) -> Mapping[str, Any]:
    return {str(number): SimpleNamespace(age_s=lambda age=age: age) for number, age in enumerate(ages)}


def attachments(*sessions: Any) -> Any:
    return SimpleNamespace(sessions={str(number): each for number, each in enumerate(sessions)})


def session(*ages: float | None, is_attached: bool = True, **holds: int) -> Any:
    held = {
        Side(side): Hold(HoldReason.TENANT_EMPTY, missing, missing, (), "token")
        for side, missing in holds.items()
    }
    deletions = SimpleNamespace(holds=lambda: held)
    caches = SimpleNamespace(reflectors=reflectors(*ages))
    return SimpleNamespace(is_attached=is_attached, caches=caches, deletions=deletions)


@pytest.mark.parametrize(
    ("super_ages", "sessions", "expected"),
    [
        ((), (), {}),
        ((None,), (session(None),), {}),
        ((1.0, 7.0), (), {("super",): 7.0}),
        ((1.0, None), (session(2.0, 30.0), session(4.0)), {("super",): 1.0, ("tenants",): 30.0}),
        # One that is not synced yet has a state of its own.
        ((1.0,), (session(2.0), session(99.0, is_attached=False)), {("super",): 1.0, ("tenants",): 2.0}),
    ],
)
def test_age_is_that_of_the_oldest_source(
    super_ages: tuple[float | None, ...], sessions: tuple[Any, ...], expected: dict[Any, float]
) -> None:
    super_cluster: Any = SimpleNamespace(reflectors=reflectors(*super_ages))
    assert source_ages(super_cluster, attachments(*sessions)) == expected


def test_holds_are_counted_by_side() -> None:
    found = attachments(session(), session(super=40), session(super=2, tenant=5))
    assert held_tenants(found) == {("tenant",): 1.0, ("super",): 2.0}
    assert held_deletions(found) == {("tenant",): 5.0, ("super",): 42.0}


def test_tenants_without_memory_are_counted() -> None:
    sessions = [SimpleNamespace(memory=SimpleNamespace(problem=each)) for each in (None, "used up", None)]
    assert memory_refused(attachments(*sessions)) == 1
