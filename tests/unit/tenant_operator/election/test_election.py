# SPDX-License-Identifier: Apache-2.0
"""Who takes the Lease, when, and until when it may write."""

import msgspec
import pytest

from daemonkit.lease_times import Instant
from tenant_operator.election.election import Election, ElectionAction, WaitForHolder, WriteRecord
from tenant_operator.election.lease import LeaseRecord

OURS = LeaseRecord("us", 4, 15.0, "r1", "7", "uid")
OTHERS = LeaseRecord("them", 4, 15.0, "r1", "7", "uid")


def at(now_s: float) -> Instant:
    return Instant(now_s, 1_000_000.0 + now_s)


def changed(record: LeaseRecord, **changes: object) -> LeaseRecord:
    return msgspec.structs.replace(record, **changes)


def leading(record: LeaseRecord = OURS) -> Election:
    election = Election("us")
    election.next(record, at(0))
    election.accepted(record, at(0))
    return election


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (None, WriteRecord(LeaseRecord("us"), is_acquired=True)),
        (OTHERS, WaitForHolder("them")),
        (OURS, WriteRecord(OURS)),
        (
            changed(OTHERS, holder="", duration_s=1.0),
            WriteRecord(changed(OURS, transitions=5), is_acquired=True),
        ),
    ],
)
def test_what_is_seen_first_decides_the_first_action(
    observed: LeaseRecord | None, expected: ElectionAction
) -> None:
    assert Election("us").next(observed, at(0)) == expected


def test_a_lease_expires_by_our_clock_alone() -> None:
    """A new version without a renewal, such as of a label, does not keep a dead holder's Lease."""
    election = Election("us")
    assert election.next(OTHERS, at(0)) == WaitForHolder("them")
    assert election.next(changed(OTHERS, version="8"), at(14.9)) == WaitForHolder("them")
    taken = changed(OURS, transitions=5, version="8")
    assert election.next(changed(OTHERS, version="8"), at(15)) == WriteRecord(taken, is_acquired=True)


def test_each_renewal_begins_the_wait_again() -> None:
    election = Election("us")
    for number in range(10):
        renewed = changed(OTHERS, renewed=f"r{number}", version=str(number))
        assert election.next(renewed, at(14.0 * number)) == WaitForHolder("them")


def test_a_wall_clock_set_forward_expires_nobody_else() -> None:
    election = Election("us")
    assert election.next(OTHERS, at(0)) == WaitForHolder("them")
    assert election.next(OTHERS, Instant(1.0, 9_000_000.0)) == WaitForHolder("them")


def test_a_longer_duration_of_the_holder_is_respected() -> None:
    election = Election("us")
    longer = changed(OTHERS, duration_s=60.0)
    assert election.next(longer, at(0)) == WaitForHolder("them")
    assert election.next(longer, at(59)) == WaitForHolder("them")
    assert isinstance(election.next(longer, at(60)), WriteRecord)


@pytest.mark.parametrize(
    ("now", "may_write"),
    [
        (at(0), True),
        (at(9.99), True),
        (at(10), False),
        # The machine was suspended: its monotonic clock stood.
        (Instant(1.0, 1_000_010.0), False),
        # The wall clock was set back.
        (Instant(9.0, 0.0), True),
        (Instant(10.0, 0.0), False),
    ],
)
def test_writing_ends_at_the_deadline_by_either_clock(now: Instant, may_write: bool) -> None:
    assert leading().may_write(now) is may_write


def test_a_lease_that_another_took_ends_our_writes_at_once() -> None:
    election = leading()
    assert election.next(changed(OTHERS, transitions=5, renewed="r2"), at(1)) == WaitForHolder("them")
    assert not election.may_write(at(1))


def test_an_acquisition_whose_answer_was_lost_is_found() -> None:
    election = Election("us")
    assert election.next(None, at(0)) == WriteRecord(LeaseRecord("us"), is_acquired=True)
    assert not election.may_write(at(1))
    assert election.next(OURS, at(2)) == WriteRecord(OURS)
    election.accepted(changed(OURS, renewed="r2", version="8"), at(2))
    assert election.may_write(at(3))


def test_a_deleted_lease_is_waited_for_by_those_who_saw_it() -> None:
    """A person's `kubectl delete lease` must not make two of us write."""
    election = Election("us")
    assert election.next(OTHERS, at(0)) == WaitForHolder("them")
    assert election.next(None, at(5)) == WaitForHolder("them")
    assert election.next(None, at(15)) == WriteRecord(LeaseRecord("us"), is_acquired=True)


def test_the_holder_of_a_deleted_lease_stops_and_makes_a_new_one() -> None:
    election = leading()
    assert election.next(None, at(1)) == WriteRecord(LeaseRecord("us"), is_acquired=True)
    assert not election.may_write(at(1))


def test_leaving_stops_writes_first_and_releases_then() -> None:
    election = leading()
    election.leave()
    assert not election.may_write(at(0))
    released = changed(OURS, holder="", duration_s=1.0)
    assert election.next(OURS, at(1)) == WriteRecord(released)
    election.accepted(changed(released, version="8"), at(1))
    assert election.next(changed(released, version="8"), at(2)) == WaitForHolder()


def test_a_released_lease_is_taken_at_once() -> None:
    other = Election("them")
    assert other.next(OURS, at(0)) == WaitForHolder("us")
    released = changed(OURS, holder="", duration_s=1.0, renewed="r2", version="8")
    taken = changed(released, holder="them", duration_s=15.0, transitions=5)
    assert other.next(released, at(1)) == WriteRecord(taken, is_acquired=True)


def test_one_that_leaves_takes_no_lease() -> None:
    election = Election("us")
    election.leave()
    assert election.next(None, at(0)) == WaitForHolder()
    assert election.next(OTHERS, at(100)) == WaitForHolder()
