# SPDX-License-Identifier: Apache-2.0
"""Two processes never both may write: every state of a small model is visited.

It has whole seconds. Whatever can happen may happen at any later second or never: so a process that does
nothing for a while is one that was stopped, or whose network was. An answer may be lost, and a write refused.
"""

from collections.abc import Iterator

import msgspec
import pytest

from daemonkit.lease_times import Instant
from tenant_operator.election.election import Election, ElectionState, SeenRecord, WriteRecord
from tenant_operator.election.lease import LeaseRecord


class WriteOnItsWay(msgspec.Struct, frozen=True):
    """A write on its way to the API server."""

    record: LeaseRecord
    sent_at: int


class AnswerOnItsWay(msgspec.Struct, frozen=True):
    """On its way back: what was read (without `sent_at`), or written; None was refused, or is not there."""

    record: LeaseRecord | None
    sent_at: int | None = None


class CandidateState(msgspec.Struct, frozen=True):
    """`request` is what it waits for; "read" has not reached the API server."""

    state: ElectionState = ElectionState()
    request: str | WriteOnItsWay | AnswerOnItsWay = ""
    accepted: LeaseRecord | None = None


class ElectionModel(msgspec.Struct, frozen=True):
    lease: LeaseRecord | None
    version: int
    processes: tuple[CandidateState, CandidateState]


class ElectionRules:
    """The successors of each state, for elections with these times."""

    def __init__(self, duration_s: int, renew_deadline_s: int) -> None:
        self.duration_s, self.renew_deadline_s = duration_s, renew_deadline_s

    def election(self, number: int, process: CandidateState) -> Election:
        election = Election(
            f"p{number}", duration_s=float(self.duration_s), renew_deadline_s=float(self.renew_deadline_s)
        )
        election.state = process.state
        return election

    def writers(self, model: ElectionModel) -> int:
        """How many may write now; all times of a state are before or at zero."""
        return sum(
            self.election(number, process).may_write(at(0)) for number, process in enumerate(model.processes)
        )

    def next(self, model: ElectionModel) -> Iterator[ElectionModel]:
        yield self.aged(model)
        for number, process in enumerate(model.processes):
            for after, lease in self.steps(number, process, model):
                is_written = lease is not model.lease
                processes = list(model.processes)
                processes[number] = after
                yield ElectionModel(lease, model.version + is_written, (processes[0], processes[1]))

    def steps(
        self, number: int, process: CandidateState, model: ElectionModel
    ) -> Iterator[tuple[CandidateState, LeaseRecord | None]]:
        change = msgspec.structs.replace
        lease, request = model.lease, process.request
        if request == "":
            if process.accepted is None:
                yield change(process, request="read"), lease
            else:
                yield self.decided(number, process, process.accepted), lease
        elif request == "read":
            yield change(process, request=AnswerOnItsWay(lease)), lease
        elif isinstance(request, WriteOnItsWay):
            yield change(process, request="", accepted=None), lease
            if is_accepted(request.record, lease):
                now = written(request.record, model.version + 1)
                yield change(process, request=AnswerOnItsWay(now, request.sent_at)), now
            else:
                yield change(process, request=AnswerOnItsWay(None, request.sent_at)), lease
        elif isinstance(request, AnswerOnItsWay):
            yield change(process, request="", accepted=None), lease
            if request.sent_at is None:
                yield self.decided(number, process, request.record), lease
            elif request.record is not None:
                election = self.election(number, process)
                election.accepted(request.record, at(request.sent_at))
                yield change(process, state=election.state, request="", accepted=request.record), lease

    def decided(self, number: int, process: CandidateState, observed: LeaseRecord | None) -> CandidateState:
        election = self.election(number, process)
        action = election.next(observed, at(0))
        request = WriteOnItsWay(action.record, 0) if isinstance(action, WriteRecord) else ""
        return msgspec.structs.replace(process, state=election.state, request=request, accepted=None)

    def aged(self, model: ElectionModel) -> ElectionModel:
        """A second later. What is long over is all the same."""
        return msgspec.structs.replace(
            model, processes=tuple(self.aged_process(each) for each in model.processes)
        )

    def aged_process(self, process: CandidateState) -> CandidateState:
        seen, renewed_at, request = process.state.seen, process.state.renewed_at, process.request
        if seen is not None:
            seen = SeenRecord(seen.record, max(seen.since_s - 1, -float(self.duration_s)))
        if renewed_at is not None:
            renewed_at = at(max(renewed_at.monotonic_s - 1, -float(self.renew_deadline_s)))
        if not isinstance(request, str) and request.sent_at is not None:
            oldest = -max(self.duration_s, self.renew_deadline_s)
            request = msgspec.structs.replace(request, sent_at=max(request.sent_at - 1, oldest))
        state = ElectionState(seen, renewed_at, process.state.is_leaving)
        return msgspec.structs.replace(process, state=state, request=request)


def at(now_s: float) -> Instant:
    return Instant(float(now_s), float(now_s))


def is_accepted(record: LeaseRecord, lease: LeaseRecord | None) -> bool:
    return record.version == ("" if lease is None else lease.version)


def written(record: LeaseRecord, version: int) -> LeaseRecord:
    return msgspec.structs.replace(record, version=str(version), renewed=str(version), transitions=0)


def canonical(model: ElectionModel) -> ElectionModel:
    """Versions by rank alone, so that there are finitely many states."""
    versions = sorted(set(map(int, _versions(model))))
    ranks = {str(version): str(rank) for rank, version in enumerate(versions, 1)}

    def ranked(record: LeaseRecord | None) -> LeaseRecord | None:
        if record is None or not record.version:
            return record
        rank = ranks[record.version]
        renewed = ranks.get(record.renewed, record.renewed)
        return msgspec.structs.replace(record, version=rank, renewed=renewed, transitions=0)

    def each(process: CandidateState) -> CandidateState:
        seen, request = process.state.seen, process.request
        if seen is not None:
            seen = SeenRecord(ranked(seen.record) or seen.record, seen.since_s)
        if not isinstance(request, str):
            request = msgspec.structs.replace(request, record=ranked(request.record))
        state = ElectionState(seen, process.state.renewed_at, process.state.is_leaving)
        return CandidateState(state, request, ranked(process.accepted))

    return ElectionModel(
        ranked(model.lease), len(versions), (each(model.processes[0]), each(model.processes[1]))
    )


def _versions(model: ElectionModel) -> Iterator[str]:
    records = [model.lease]
    for process in model.processes:
        records += [process.accepted]
        records += [None if process.state.seen is None else process.state.seen.record]
        records += [None if isinstance(process.request, str) else process.request.record]
    for record in records:
        if record is not None and record.version:
            yield record.version
            if record.renewed.isdigit():
                yield record.renewed


def explored(rules: ElectionRules) -> tuple[int, bool]:
    """How many states there are, and whether two may write in one of them."""
    start = ElectionModel(None, 0, (CandidateState(), CandidateState()))
    seen, pending = {start}, [start]
    while pending:
        for found in rules.next(pending.pop()):
            state = canonical(found)
            if state in seen:
                continue
            if rules.writers(state) > 1:
                return len(seen), True
            seen.add(state)
            pending.append(state)
    return len(seen), False


@pytest.mark.parametrize(("duration_s", "renew_deadline_s", "states"), [(1, 1, 7797), (2, 1, 22150)])
def test_no_state_has_two_writers(duration_s: int, renew_deadline_s: int, states: int) -> None:
    """All of them are visited: fewer or more would be another model than the one that was thought of."""
    assert explored(ElectionRules(duration_s, renew_deadline_s)) == (states, False)


def test_a_deadline_beyond_the_duration_has_two_writers() -> None:
    assert explored(ElectionRules(1, 2))[1]
