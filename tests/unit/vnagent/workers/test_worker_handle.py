# SPDX-License-Identifier: Apache-2.0
"""What the main process sends a worker, and when it has to end it."""

import socket
from dataclasses import dataclass, field
from typing import cast

import pytest

from tenancy.ownership import OwnerIndex
from tenancy.registry import Registry
from tenancy.tenant import Tenant
from vnagent.state import AgentState
from vnagent.workers.message_channel import MessageChannel
from vnagent.workers.messages import (
    SILENT_S,
    PodsChanged,
    TenantsApplied,
    TenantsChanged,
    ToWorker,
    WorkerConditions,
    WorkerReport,
)
from vnagent.workers.rows import Rows
from vnagent.workers.worker_handle import APPLY_S, HEARTBEAT_S, START_S, WorkerHandle

FRESH = WorkerConditions(are_pods_stale=False, log_level="info")
STALE = WorkerConditions(are_pods_stale=True, log_level="info")


@dataclass
class FakeStream:
    """Keeps what is sent."""

    sent: list[ToWorker] = field(default_factory=list)
    unsent_bytes: int = 0

    def send(self, message: ToWorker) -> None:
        self.sent.append(message)

    def take(self) -> list[ToWorker]:
        taken, self.sent = self.sent, []
        return taken


@dataclass
class FakeState:
    registry: Registry
    index: OwnerIndex = field(default_factory=lambda: OwnerIndex(()))


class HandledWorker:
    """A handle without a process, and what it has sent."""

    def __init__(self) -> None:
        self.stream = FakeStream()
        self.state = FakeState(registry("a"))
        nothing = cast(socket.socket, None)
        self.handle = WorkerHandle(0, nothing, cast(MessageChannel, self.stream), nothing, nothing, 0.0)  # type: ignore[arg-type]  # no process is signalled here

    def update(self, now_s: float, conditions: WorkerConditions = FRESH) -> list[ToWorker]:
        rows = Rows(10)
        rows.assign(self.state.registry.tenants, now_s)
        self.handle.update(cast(AgentState, self.state), rows, conditions, now_s)
        return self.stream.take()

    def is_serving(self) -> bool:
        return self.handle.is_serving

    def apply(self, generation: int, problem: str = "", *, has_trust: bool = True) -> None:
        self.handle.take_applied(TenantsApplied(generation, problem, has_trust))


def registry(*tenants: str) -> Registry:
    return Registry({f"{key}.yaml": Tenant(key, (b"\x30",), {}) for key in tenants})


@pytest.fixture
def worker() -> HandledWorker:
    return HandledWorker()


def changes(sent: list[ToWorker]) -> list[TenantsChanged]:
    return [each for each in sent if isinstance(each, TenantsChanged)]


def test_tenants_come_behind_pods_and_conditions(worker: HandledWorker) -> None:
    """A worker serves from then on."""
    sent = worker.update(0.0)
    assert [type(each) for each in sent] == [PodsChanged, WorkerConditions, TenantsChanged]
    assert not worker.is_serving()
    worker.apply(1)
    assert worker.is_serving()


def test_a_worker_without_trust_serves_nothing(worker: HandledWorker) -> None:
    worker.update(0.0)
    worker.apply(1, "serving.key: does not match", has_trust=False)
    assert not worker.is_serving()
    assert worker.handle.problem == "serving.key: does not match"
    worker.apply(1)
    assert worker.is_serving()
    assert not worker.handle.problem


def test_what_has_not_changed_is_not_sent(worker: HandledWorker) -> None:
    worker.update(0.0)
    worker.apply(1)
    assert worker.update(0.1) == []
    assert worker.update(0.2, STALE) == [STALE]
    before = worker.state.registry
    worker.state.registry = Registry({**before.sources, "b.yaml": Tenant("b", (b"\x31",), {})})
    (change,) = changes(worker.update(0.3, STALE))
    assert (change.generation, set(change.changed), change.removed) == (2, {"b.yaml"}, ())
    assert set(change.rows) == {"b"}
    worker.apply(2)
    worker.state.registry = registry("a")
    (change,) = changes(worker.update(0.4, STALE))
    assert change.removed == ("b.yaml",)


def test_changes_wait_for_the_last_one_to_be_applied(worker: HandledWorker) -> None:
    """A worker that keeps up is not ended, however often tenants change."""
    worker.update(0.0)
    worker.apply(1)
    now_s, generation = 0.0, 1
    for number in range(300):
        now_s += 0.1
        worker.handle.message_received(now_s)
        worker.state.registry = registry("a", f"b-{number}")
        sent = changes(worker.update(now_s))
        assert len(sent) <= 1
        if number % 2:  # the last one is applied late
            assert not sent
            worker.apply(generation)
        else:
            generation = sent[0].generation
        assert worker.handle.fault(now_s) == ""


def test_a_worker_that_does_not_apply_tenants_is_ended(worker: HandledWorker) -> None:
    worker.update(0.0)
    worker.apply(1)
    worker.state.registry = registry()
    worker.update(1.0)
    worker.handle.message_received(1.0 + APPLY_S)
    assert worker.handle.fault(1.0 + APPLY_S) == ""
    assert worker.handle.fault(1.1 + APPLY_S) == "it has not applied a change of tenants"
    worker.handle.restart_deadlines(1.1 + APPLY_S)
    assert worker.handle.fault(1.1 + APPLY_S) == ""


def test_a_silent_worker_is_ended(worker: HandledWorker) -> None:
    """A start may take longer, as many may start at once."""
    assert worker.handle.fault(START_S) == ""
    assert worker.handle.fault(START_S + 0.1) == "it does not answer"
    worker.handle.take_report(WorkerReport(0, (), 0, 0, 0, (), "audit: ok"))
    worker.handle.message_received(100.0)
    assert worker.handle.fault(100.0 + SILENT_S) == ""
    assert worker.handle.fault(100.1 + SILENT_S) == "it does not answer"


def test_a_worker_that_does_not_read_is_ended(worker: HandledWorker) -> None:
    worker.stream.unsent_bytes = 1 << 40
    assert worker.handle.fault(1.0) == "it does not read"


def test_conditions_are_a_heartbeat(worker: HandledWorker) -> None:
    worker.update(0.0)
    worker.apply(1)
    counts = [len(worker.update(tenth / 10)) for tenth in range(1, 101)]
    assert 9 <= sum(counts) <= 10 / HEARTBEAT_S
