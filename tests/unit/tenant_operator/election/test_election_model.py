# SPDX-License-Identifier: Apache-2.0
"""Two processes never both may write, whatever clocks, network and pauses do; and the bound is tight."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.lease_times import DRIFT, LEASE_DURATION_S, RENEW_DEADLINE_S, Instant
from tenant_operator.election.election import Election, WriteRecord
from tenant_operator.election.lease import LeaseRecord


@dataclass
class SentRequest:
    """On its way: a read if `record` is None. `answer` is set once it has reached the server."""

    sent_at: Instant
    record: LeaseRecord | None = None
    answer: list[LeaseRecord | None] = field(default_factory=list)


@dataclass
class Candidate:
    election: Election
    rate: float
    wall_s: float = 0.0
    monotonic_lag_s: float = 0.0
    """How long its monotonic clock stood, as while the machine was suspended."""
    request: SentRequest | None = None
    late: list[SentRequest] = field(default_factory=list)
    """Requests that it has given up, and that may still reach the server."""
    accepted: LeaseRecord | None = None

    def clocks(self, true_s: float) -> Instant:
        return Instant(true_s * self.rate - self.monotonic_lag_s, self.wall_s + true_s * self.rate)


class LeaseWorld:
    """An API server with one Lease, and processes whose clocks run at rates of their own."""

    def __init__(self, rates: tuple[float, float], **times: float) -> None:
        self.now_s = 0.0
        self.lease: LeaseRecord | None = None
        self.version = 0
        self.processes = [Candidate(Election(f"p{n}", **times), rate) for n, rate in enumerate(rates)]

    @property
    def writers(self) -> int:
        return sum(each.election.may_write(each.clocks(self.now_s)) for each in self.processes)

    def send(self, process: Candidate) -> None:
        """Begin what is next, if nothing is under way."""
        if process.request is not None:
            return
        if process.accepted is None:
            process.request = SentRequest(process.clocks(self.now_s))
        else:
            self._decide(process, process.accepted)

    def arrive(self, process: Candidate) -> None:
        """The oldest request that has not reached the server does."""
        waiting = [*process.late, *([process.request] if process.request else [])]
        request = next((each for each in waiting if not each.answer), None)
        if request is not None:
            request.answer.append(self._served(request.record))

    def _served(self, record: LeaseRecord | None) -> LeaseRecord | None:
        if record is None:
            return self.lease
        if record.version != ("" if self.lease is None else self.lease.version):
            return None
        self.version += 1
        version = str(self.version)
        self.lease = msgspec.structs.replace(record, version=version, renewed=version)
        return self.lease

    def answer(self, process: Candidate) -> None:
        """What the server answered reaches the process."""
        request = process.request
        if request is None or not request.answer:
            return
        process.request, answer = None, request.answer[0]
        if request.record is None:
            self._decide(process, answer)
        else:
            process.accepted = answer
            if answer is not None:
                process.election.accepted(answer, request.sent_at)

    def give_up(self, process: Candidate) -> None:
        if process.request is not None:
            process.late.append(process.request)
            process.request, process.accepted = None, None

    def _decide(self, process: Candidate, observed: LeaseRecord | None) -> None:
        now = process.clocks(self.now_s)
        action = process.election.next(observed, now)
        process.accepted = None
        if isinstance(action, WriteRecord):
            process.request = SentRequest(now, action.record)


Steps = list[tuple[str, int, float]]
WHAT = ["send", "arrive", "answer", "cycle", "cycle", "cycle", "give up", "leave"]
PAUSES_S = [0.0, 0.1, 0.5, 1.0, 2.0, 2.0, 5.0, 9.0, 12.0, 15.0, 20.0]


def steps_with(fault: str) -> st.SearchStrategy[Steps]:
    """Steps, and one fault of clocks among them: no deadline survives both, as no clock is left."""
    step = st.tuples(st.sampled_from([*WHAT, fault]), st.integers(0, 1), st.sampled_from(PAUSES_S))
    return st.lists(step, max_size=60)


STEPS = st.one_of(steps_with("suspend"), steps_with("set"))
RATES = st.floats(1 - DRIFT, 1 + DRIFT)


def play(world: LeaseWorld, steps: Steps) -> int:
    """The most processes that may write at one time. Time passes in small parts between the steps."""
    most = 0
    for what, number, pause_s in steps:
        process = world.processes[number]
        if what == "send":
            world.send(process)
        elif what == "arrive":
            world.arrive(process)
        elif what == "answer":
            world.answer(process)
        elif what == "cycle":
            for _ in range(2):
                world.send(process)
                world.arrive(process)
                world.answer(process)
        elif what == "give up":
            world.give_up(process)
        elif what == "leave":
            process.election.leave()
        elif what == "suspend":
            process.monotonic_lag_s += pause_s * process.rate
        elif what == "set":
            process.wall_s += 1000.0 * (pause_s - 5.0)
        most = max(most, world.writers)
        # A suspended machine does nothing while it is; its monotonic clock stood for that time.
        world.now_s += pause_s
        most = max(most, world.writers)
    return most


@settings(max_examples=400, deadline=None)
@given(RATES, RATES, STEPS)
def test_two_never_both_may_write(one: float, two: float, steps: Steps) -> None:
    assert play(LeaseWorld((one, two)), steps) <= 1


# One leads and is paused; the other sees that, and waits.
TAKEOVER = [("cycle", 0, 0.0), ("cycle", 1, 0.0)]


def takeover_gap_s(rates: tuple[float, float]) -> float:
    """How long before the second may write the first one could for the last time, in true time."""
    world = LeaseWorld(rates)
    play(world, TAKEOVER)
    stops_s = RENEW_DEADLINE_S / rates[0]
    takes_s = LEASE_DURATION_S / rates[1]
    first, second = world.processes
    world.now_s = stops_s - 0.001
    assert first.election.may_write(first.clocks(world.now_s))
    world.now_s = stops_s + 0.001
    assert not first.election.may_write(first.clocks(world.now_s))
    world.now_s = takes_s - 0.001
    play(world, [("cycle", 1, 0.0)])
    assert not second.election.may_write(second.clocks(world.now_s))
    world.now_s = takes_s + 0.001
    play(world, [("cycle", 1, 0.0)])
    assert second.election.may_write(second.clocks(world.now_s))
    return takes_s - stops_s


def test_the_bound_is_what_the_docstring_has() -> None:
    """Rates wrong by a tenth leave 2.5 s, by a fifth none."""
    assert round(takeover_gap_s((1 - DRIFT, 1 + DRIFT)), 2) == 2.53
    assert round(takeover_gap_s((1.0, 1.0)), 2) == 5.0
    assert round(takeover_gap_s((1 - 0.2, 1 + 0.2)), 6) == 0.0


def test_the_model_finds_two_writers_beyond_the_bound() -> None:
    """A deadline that is longer than the duration, and clocks that are wrong by a third."""
    steps = [*TAKEOVER, ("send", 0, 16.0), ("cycle", 1, 0.0)]
    assert play(LeaseWorld((1.0, 1.0), renew_deadline_s=20.0), steps) == 2
    late = [*TAKEOVER, ("send", 0, 11.5), ("cycle", 1, 0.0)]
    assert play(LeaseWorld((0.66, 1.34)), late) == 2
    assert play(LeaseWorld((1 - DRIFT, 1 + DRIFT)), late) == 1
