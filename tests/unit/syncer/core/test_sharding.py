# SPDX-License-Identifier: Apache-2.0
"""Two replicas never write for one tenant, whatever their clocks and the network do."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daemonkit.lease_times import DRIFT, LEASE_DURATION_S, RENEW_DEADLINE_S, Instant
from syncer.core.sharding import (
    CUT_WITHIN_S,
    SHARDS,
    Ownership,
    RemoveLease,
    ReplicaLease,
    WriteLease,
    WriteTicket,
    format_claims,
    parse_claims,
    replica_of,
    shard_of,
    shards_of,
)

EVERY = frozenset(range(SHARDS))
TENANTS = [f"vcs-7aad2b-tenant-{number:02}" for number in range(8)]


def at(now_s: float) -> Instant:
    return Instant(now_s, 1_000_000.0 + now_s)


def lease(
    replica: str, claims: frozenset[int] = frozenset(), holder: str = "*", **more: object
) -> ReplicaLease:
    holder = f"{replica}_1" if holder == "*" else holder
    return replace(ReplicaLease(replica, holder, 0, claims, "7", "uid"), **more)  # type: ignore[arg-type]


# ---- hashing

REPLICAS = st.frozensets(st.sampled_from("abcdefgh"), min_size=1)


@given(REPLICAS)
def test_every_shard_is_of_one_replica(replicas: frozenset[str]) -> None:
    found = [shards_of(each, replicas) for each in sorted(replicas)]
    assert sum(len(each) for each in found) == SHARDS
    assert frozenset().union(*found) == EVERY


@given(REPLICAS, st.sampled_from("abcdefgh"))
def test_one_change_moves_the_changed_replicas_shards_only(replicas: frozenset[str], other: str) -> None:
    with_other = replicas | {other}
    without = with_other - {other}
    for shard in range(SHARDS) if without else ():
        before, after = replica_of(shard, without), replica_of(shard, with_other)
        assert after in (before, other)


def test_shares_are_nearly_equal() -> None:
    replicas = frozenset(f"vc-syncer-{number}" for number in range(4))
    assert [len(shards_of(each, replicas)) for each in sorted(replicas)] == [70, 64, 61, 61]


def test_the_shard_of_a_tenant_never_changes() -> None:
    assert [shard_of(each) for each in TENANTS[:4]] == [68, 90, 127, 147]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", frozenset()),
        ("0", frozenset()),
        ("5", frozenset({0, 2})),
        ("f" * 64, EVERY),
        ("1" + "0" * 63, frozenset({252})),
        # What cannot be read claims everything.
        ("f" * 65, EVERY),
        ("-1", EVERY),
        ("none", EVERY),
    ],
)
def test_claims_are_read(text: str, expected: frozenset[int]) -> None:
    assert parse_claims(text) == expected


@given(st.frozensets(st.integers(0, SHARDS - 1)))
def test_claims_are_written_as_they_are_read(claims: frozenset[int]) -> None:
    assert parse_claims(format_claims(claims)) == claims


# ---- one replica


def owned(now_s: float = 0.0, others: tuple[ReplicaLease, ...] = ()) -> tuple[Ownership, ReplicaLease]:
    """A replica `a` whose claims were accepted at `now_s`; it has not listed since."""
    own = Ownership("a", "a_1")
    own.observed(others, at(now_s))
    current = lease("a", version="1")
    own.accepted(current, at(now_s))
    own.observed([current, *others], at(now_s))
    [*_, write] = own.writes(at(now_s))
    assert isinstance(write, WriteLease)
    own.sending(write.lease)
    current = replace(write.lease, version="2")
    own.accepted(current, at(now_s))
    return own, current


def test_a_claim_is_held_only_after_a_list_that_follows_it() -> None:
    own, current = owned()
    assert current.claims == EVERY
    assert (own.held, own.may_write(TENANTS[0], at(0.0))) == (frozenset(), False)
    own.observed([current], at(0.1))
    assert (own.held, own.may_write(TENANTS[0], at(0.1))) == (EVERY, True)


def test_what_another_lease_claims_is_not_held() -> None:
    own, current = owned()
    other = lease("b", frozenset({1, 2}), holder="")  # of no live replica: the hash gives all to this one
    own.observed([current, other], at(0.1))
    assert own.held == EVERY - {1, 2}
    own.observed([current, replace(other, claims=frozenset({2}), version="8")], at(0.2))
    assert own.held == EVERY - {2}


def test_what_is_held_stays_while_others_wait_for_it() -> None:
    own, current = owned()
    own.observed([current], at(0.1))
    own.observed([current, lease("b", EVERY)], at(0.2))
    assert own.held == shards_of("a", frozenset("ab"))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (at(RENEW_DEADLINE_S - 0.1), True),
        (at(RENEW_DEADLINE_S), False),
        (
            Instant(1.0, 1_000_000.0 + RENEW_DEADLINE_S),
            False,
        ),  # the monotonic clock stopped: a suspended machine
        (Instant(1.0, 900_000.0), True),  # the wall clock was set back
        (Instant(RENEW_DEADLINE_S, 900_000.0), False),
    ],
)
def test_writes_stop_at_the_deadline_of_either_clock(now: Instant, expected: bool) -> None:
    own, current = owned()
    own.observed([current], at(0.1))
    assert own.may_write(TENANTS[0], now) is expected


def test_a_late_renewal_goes_on_if_nobody_fenced() -> None:
    own, current = owned()
    own.observed([current], at(0.1))
    own.accepted(replace(current, version="3"), at(60.0))
    assert own.may_write(TENANTS[0], at(61.0))


@pytest.mark.parametrize(
    "found",
    [
        [],
        [lease("a", holder="", transitions=1, version="9")],
        [lease("a", holder="a_2", transitions=1, version="9")],
        [lease("a", EVERY, transitions=2, version="9")],
    ],
    ids=["deleted", "fenced", "another process", "another transition"],
)
def test_a_lost_lease_ends_all_writes(found: list[ReplicaLease]) -> None:
    own, current = owned()
    own.observed([current], at(0.1))
    own.observed(found, at(0.2))
    assert (own.held, own.transitions, own.may_write(TENANTS[0], at(0.2))) == (frozenset(), None, False)


def test_an_expired_lease_is_fenced_and_removed_later() -> None:
    own, current = owned()
    other = lease("b", EVERY)
    own.observed([current, other], at(1.0))
    assert own.live == frozenset("ab")
    assert [each.lease.replica for each in own.writes(at(1.0))] == ["a"]
    own.observed([current, other], at(1.0 + LEASE_DURATION_S))
    assert own.live == frozenset("a")
    fenced = lease("b", holder="", transitions=1)
    assert own.writes(at(1.0 + LEASE_DURATION_S))[0] == WriteLease(fenced, is_own=False)
    assert own.held == frozenset()  # not before the fencing was accepted, and listed
    fenced = replace(fenced, version="8")
    own.observed([current, fenced], at(20.0))
    assert own.held == EVERY
    assert own.writes(at(620.0))[0] == RemoveLease(fenced)


def test_a_renewed_lease_does_not_expire() -> None:
    own, current = owned()
    own.observed([current, lease("b", EVERY)], at(1.0))
    own.observed([current, lease("b", EVERY, version="8")], at(14.0))
    assert [each.lease.replica for each in own.writes(at(28.0))] == ["a"]


def test_a_wall_clock_set_forward_expires_nobody() -> None:
    own, current = owned()
    own.observed([current, lease("b", EVERY)], at(1.0))
    assert [each.lease.replica for each in own.writes(Instant(2.0, 9_000_000.0))] == ["a"]


def test_a_deleted_lease_counts_until_it_would_have_expired() -> None:
    own, current = owned()
    own.observed([current, lease("b", frozenset({3}))], at(1.0))
    own.observed([current], at(2.0))
    assert 3 not in own.held
    own.observed([current], at(1.0 + LEASE_DURATION_S))
    assert own.live == frozenset("a")
    assert own.held == EVERY


def test_a_shard_is_withdrawn_after_its_last_write() -> None:
    own, current = owned()
    own.observed([current], at(0.1))
    tenant = next(
        f"t-{number}" for number in range(99) if shard_of(f"t-{number}") in shards_of("b", frozenset("ab"))
    )
    ticket = own.begin_write(tenant, at(0.2))
    assert ticket is not None
    own.observed([current, lease("b")], at(0.3))
    assert not own.begin_write(tenant, at(0.3))
    [write] = own.writes(at(0.4))
    assert write.lease.claims == shards_of("a", frozenset("ab")) | {shard_of(tenant)}
    own.end_write(ticket)
    [write] = own.writes(at(0.5))
    assert write.lease.claims == shards_of("a", frozenset("ab"))


def test_what_a_lost_answer_may_have_withdrawn_is_not_held() -> None:
    own, current = owned()
    own.observed([current], at(0.1))
    own.sending(replace(current, claims=frozenset({1})))
    own.observed([current], at(0.2))
    assert own.held == frozenset({1})


def test_a_replica_that_leaves_releases_its_lease() -> None:
    own, current = owned()
    own.observed([current], at(0.1))
    ticket = own.begin_write(TENANTS[0], at(0.2))
    assert ticket is not None
    own.leave()
    assert not own.may_write(TENANTS[0], at(0.2))
    [write] = own.writes(at(0.3))
    assert (write.lease.holder, write.lease.claims) == ("a_1", frozenset({shard_of(TENANTS[0])}))
    own.end_write(ticket)
    [write] = own.writes(at(0.4))
    assert (write.lease.holder, write.lease.claims) == ("", frozenset())
    own.accepted(write.lease, at(0.4))
    assert (own.has_left, own.writes(at(0.5))) == (True, [])


@pytest.mark.parametrize(
    ("found", "now_s", "expected"),
    [
        (None, 0.0, lease("a", version="", uid="")),
        (lease("a", holder=""), 0.0, lease("a", transitions=1)),
        (lease("a", EVERY, holder="a_0"), 0.0, None),  # perhaps it writes still
        (lease("a", EVERY, holder="a_0"), 15.0, lease("a", transitions=1)),
        (lease("a", EVERY), 0.0, lease("a", transitions=1)),  # the answer to its creation was lost
    ],
)
def test_a_lease_of_ones_name_is_taken_when_it_is_free(
    found: ReplicaLease | None, now_s: float, expected: ReplicaLease | None
) -> None:
    own = Ownership("a", "a_1")
    own.observed([] if found is None else [found], at(0.0))
    writes = own.writes(at(now_s))
    assert writes == ([] if expected is None else [WriteLease(expected, is_own=True)])


def test_a_write_of_a_lost_lease_is_never_sent() -> None:
    own, current = owned()
    own.observed([current], at(0.1))
    ticket = own.begin_write(TENANTS[0], at(0.2))
    assert ticket is not None
    assert own.may_send(ticket, at(0.3))
    assert not own.may_send(ticket, at(RENEW_DEADLINE_S))
    own.observed([lease("a", holder="", transitions=1, version="9")], at(20.0))
    own.accepted(lease("a", EVERY, transitions=2, version="10"), at(20.1))
    own.observed([lease("a", EVERY, transitions=2, version="10")], at(20.2))
    assert own.may_write(TENANTS[0], at(20.3))
    assert not own.may_send(ticket, at(20.3))
    own.end_write(ticket)  # of no account in the new term
    again = own.begin_write(TENANTS[0], at(20.4))
    assert again is not None
    own.leave()
    assert own.writes(at(20.5))[0].lease.claims == frozenset({shard_of(TENANTS[0])})


def test_a_write_is_cut_before_another_replica_may_begin() -> None:
    assert RENEW_DEADLINE_S / (1 - DRIFT) + CUT_WITHIN_S < LEASE_DURATION_S / (1 + DRIFT)


# ---- many replicas


@dataclass
class Server:
    """Leases of an API server: a write at an old version is refused."""

    leases: dict[str, ReplicaLease] = field(default_factory=dict)
    version: int = 0

    def write(self, wanted: ReplicaLease) -> ReplicaLease | None:
        found = self.leases.get(wanted.replica)
        if (found.version if found else "") != wanted.version:
            return None
        self.version += 1
        uid = found.uid if found else f"uid-{self.version}"
        self.leases[wanted.replica] = replace(wanted, version=str(self.version), uid=uid)
        return self.leases[wanted.replica]

    def remove(self, wanted: ReplicaLease) -> None:
        if self.leases.get(wanted.replica) == wanted:
            del self.leases[wanted.replica]


@dataclass
class Begun:
    """A write that has begun, and when it could last be sent."""

    tenant: str
    ticket: WriteTicket
    sendable_s: float


class ReplicaProcess:
    """One replica: it does one thing at each `step`, and may stop between any two."""

    def __init__(self, name: str, number: int, server: Server, rate: float) -> None:
        self.own = Ownership(name, f"{name}_{number}")
        self.rate = rate
        self.now = Instant(0.0, 0.0)
        self.is_monotonic_stopped = False
        self.loses_answer = False
        self.true_s = 0.0
        self.in_flight: list[Begun] = []
        self._server = server
        self._steps = self._run()

    def step(self) -> None:
        next(self._steps)

    def advance(self, by_s: float) -> None:
        self.true_s += by_s
        by_s *= self.rate
        self.now = Instant(
            self.now.monotonic_s + (0 if self.is_monotonic_stopped else by_s), self.now.wall_s + by_s
        )

    def writes_for(self, tenant: str) -> bool:
        """Whether it may write for it, or has a write under way that is not cut yet."""
        is_under_way = False
        for begun in self.in_flight:
            if self.own.may_send(begun.ticket, self.now):
                begun.sendable_s = self.true_s
            if begun.tenant == tenant:
                is_under_way |= self.true_s - begun.sendable_s < CUT_WITHIN_S
        return self.own.may_write(tenant, self.now) or is_under_way

    def _run(self) -> Iterator[None]:
        while True:
            yield
            found = list(self._server.leases.values())
            yield
            self.own.observed(found, self.now)
            for write in self.own.writes(self.now):
                yield
                if isinstance(write, RemoveLease):
                    self._server.remove(write.lease)
                    continue
                asked_at = self.now
                if write.is_own:
                    self.own.sending(write.lease)
                yield
                accepted = self._server.write(write.lease)
                yield
                if accepted is not None and write.is_own and not self.loses_answer:
                    self.own.accepted(accepted, asked_at)
                self.loses_answer = False


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["run all but one"] * 4
            + ["step"] * 4
            + ["begin"] * 3
            + ["pass", "stop the clock", "lose an answer", "start", "leave", "end"]
        ),
        st.integers(0, 5),
        st.integers(1, 20),
    ),
    max_size=40,
)


def check(processes: list[ReplicaProcess]) -> None:
    for tenant in TENANTS:
        writers = [each.own.replica for each in processes if each.writes_for(tenant)]
        assert len(writers) <= 1, f"{tenant} is written by {writers}"


def run(processes: list[ReplicaProcess], seconds: int, but: ReplicaProcess | None = None) -> None:
    for second in range(seconds):
        for number, each in enumerate(processes):
            for _ in range(0 if each is but else 7 + (second + number) % 5):
                each.step()
                check(processes)
        for each in processes:
            each.advance(1.0)
        check(processes)


def act(what: str, process: ReplicaProcess, amount: int) -> None:
    match what:
        case "step":
            for _ in range(amount):
                process.step()
        case "stop the clock":
            process.is_monotonic_stopped = not process.is_monotonic_stopped
        case "lose an answer":
            process.loses_answer = True
        case "leave":
            process.own.leave()
        case "begin":
            for tenant in TENANTS:
                ticket = process.own.begin_write(tenant, process.now)
                if ticket is not None:
                    process.in_flight.append(Begun(tenant, ticket, process.true_s))
        case "end":
            while process.in_flight:
                process.own.end_write(process.in_flight.pop().ticket)


RATES = st.lists(st.sampled_from([0.9, 1.0, 1.1]), min_size=6, max_size=6)


# A write begins, its process stops, is fenced and takes its Lease again: the write is of the term before.
RETAKEN: list[tuple[str, int, int]] = [
    ("begin", 0, 1),
    ("run all but one", 0, 17),
    ("run all but one", 1, 1),
]
RETAKEN_BY_ANOTHER_CLOCK: list[tuple[str, int, int]] = [
    ("run all but one", 1, 3),
    ("begin", 0, 1),
    ("run all but one", 0, 15),
    ("run all but one", 1, 1),
]


@settings(max_examples=40)
@example(RETAKEN, [0.9] * 6)
@example(RETAKEN_BY_ANOTHER_CLOCK, [0.9, 0.9, 1.0, 0.9, 0.9, 0.9])
@given(STEPS, RATES)
def test_no_tenant_is_written_by_two(steps: list[tuple[str, int, int]], rates: list[float]) -> None:
    """Clocks drift by a tenth; monotonic ones stop; processes stop and go on, join under new and old names,
    or leave."""
    server = Server()
    processes = [ReplicaProcess(name, number, server, rates[number]) for number, name in enumerate("abc")]
    run(processes, 4)
    for what, number, amount in steps:
        process = processes[number % len(processes)]
        if what == "run all but one":
            run(processes, amount, but=process)
        elif what == "pass":
            for each in processes:
                each.advance(amount / 2)
        elif what == "start" and len(processes) < len(rates):
            name = process.own.replica if amount % 2 else "d"
            processes.append(ReplicaProcess(name, len(processes), server, rates[len(processes)]))
        else:
            act(what, process, amount)
        check(processes)


@settings(max_examples=40)
@example(RETAKEN, [0.9] * 6)
@example(RETAKEN_BY_ANOTHER_CLOCK, [0.9, 0.9, 1.0, 0.9, 0.9, 0.9])
@given(STEPS, RATES)
def test_every_shard_finds_its_replica(steps: list[tuple[str, int, int]], rates: list[float]) -> None:
    """Whatever came before: once all run, each shard is held by the replica of its hash."""
    server = Server()
    processes = [ReplicaProcess(name, number, server, rates[number]) for number, name in enumerate("abc")]
    for what, number, amount in steps:
        process = processes[number % 3]
        if what == "run all but one":
            run(processes, amount, but=process)
        elif what == "start":
            again = ReplicaProcess(process.own.replica, 10 + number, server, process.rate)
            processes[number % 3] = again
        elif what != "leave":
            act(what, process, amount)
    for each in processes:
        each.is_monotonic_stopped = False
        act("end", each, 1)
    run(processes, 40)
    assert [each.own.held for each in processes] == [shards_of(name, frozenset("abc")) for name in "abc"]
