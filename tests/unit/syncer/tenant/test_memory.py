# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.kube.byte_budget import OverBudgetError
from daemonkit.kube.shared_budget import SharedBudget
from syncer.tenant.memory import REMEMBERED_S, TenantMemory

MIB = 1 << 20


def _reason(one: TenantMemory) -> str:
    return "" if one.problem is None else one.problem.message


def test_a_tenant_without_memory_is_failed_for_a_while() -> None:
    """What was refused is given back and tried again: the failure alone would come and go."""
    now = 0.0
    shared = SharedBudget(16 * MIB)
    one = TenantMemory(shared, 64 * MIB, lambda: 2 * MIB, lambda: None, lambda: now)
    TenantMemory(shared, 64 * MIB, lambda: 0, lambda: None, lambda: now)
    assert (_reason(one), one.refusal(6 * MIB)) == ("", "")
    with pytest.raises(OverBudgetError):
        one.budget.note_received(15 * MIB)
    assert _reason(one).startswith("the memory of the process is used up: 17 MiB of it are held")
    assert shared.refusals == 1  # who looks at tenants that fail looks again
    assert one.refusal(MIB) == _reason(one)
    one.budget.note_received(-15 * MIB)
    now = REMEMBERED_S + 1.0
    assert (_reason(one), one.refusal(MIB)) == ("", "")


def test_what_waits_in_the_queue_is_memory() -> None:
    shared = SharedBudget(16 * MIB)
    one = TenantMemory(shared, 64 * MIB, lambda: 0, lambda: None, lambda: 0.0)
    TenantMemory(shared, 64 * MIB, lambda: 0, lambda: None, lambda: 0.0)
    one.note_queued(1000)
    one.note_queued(300)
    assert (one.budget.held_bytes, shared.total_bytes()) == (300 << 10, 300 << 10)
    one.note_queued(15 << 10)
    with pytest.raises(OverBudgetError):
        one.budget.note_received(1)
    one.budget.note_received(-1)
    one.note_queued(0)
    assert shared.total_bytes() == 0


def test_what_a_session_held_is_given_back_with_it() -> None:
    shared = SharedBudget(16 * MIB)
    one = TenantMemory(shared, 64 * MIB, lambda: 0, lambda: None, lambda: 0.0)
    one.budget.note_waiting(MIB)
    assert shared.total_bytes() == MIB
    one.close()
    assert shared.total_bytes() == 0
