# SPDX-License-Identifier: Apache-2.0
"""Which replica writes for which tenant. Pure: times and Leases come in.

Tenants are hashed to shards, and shards to the live replicas by rendezvous hashing: a replica that joins
takes shards from all others and moves none between them; when one leaves, only its own move.

Hashing alone is no proof, as replicas differ in whom they think alive. The proof is in the Leases. Each
replica has one, which lists the shards it *claims*. It *holds* a shard, and may write for its tenants, when:

1. its own Lease claims the shard, by a write that the API server has accepted;
2. a list that began after that write shows no other Lease with this claim.

Of two replicas the second to claim lists after both claims are written. So it sees the first one's, and
waits, whatever the hash says. A claim ends in two ways only:

- Its replica withdraws it, after its last write for the shard has ended.
- Another replica *fences* its Lease once that has expired: it replaces the Lease by one without a holder and
  claims and with one more transition, at the resourceVersion that it saw expire. A renewal that came first
  makes the fencing fail; a fencing that came first makes each later renewal fail.

A replica stops writing `RENEW_DEADLINE_S` after the *begin* of its last accepted renewal. Others wait
`LEASE_DURATION_S` after they *saw* it. So clocks need not agree; they must only run about equally fast.
A clock may even stop, as the monotonic one does while a machine is suspended: a replica's own deadline has
passed as soon as one of its two clocks says so (`Instant.elapsed_s`).

A write is asked for twice: when it begins, and again when its bytes go out (`may_send`), as a process may
stop between the two. A write belongs to the *term* of the own Lease in which it began: a Lease that was lost
and taken again does not let it go on. What is under way at the deadline is cut within `CUT_WITHIN_S`.

So with clocks whose rates differ by `DRIFT` at most, all of the following ends before another replica writes:
a replica's renewed time of at most `RENEW_DEADLINE_S / (1 - DRIFT)`, and `CUT_WITHIN_S` for what it had sent.
The other waits `LEASE_DURATION_S / (1 + DRIFT)` at least.

What remains cannot be closed without the API server's help (docs/spec/replicas.md): a stop of the process
between the second question and the system call that sends, and a request that the network or the API server
itself delays after its connection was cut. Preconditions on UIDs are for these. And a Lease that a person
deletes counts as claimed only for replicas that have seen it.
"""

import functools
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from daemonkit.lease_times import LEASE_DURATION_S, RENEW_DEADLINE_S, Instant

SHARDS = 256
"""Enough that replicas' shares are equal within a few percent. Claims are a number of as many bits."""

CUT_WITHIN_S = 2.0
"""After the deadline, what is under way has been cut by then; in true time."""

REMOVE_AFTER_S = 600.0
"""Fenced and released Leases are removed after it: a Deployment's replicas never come back by name."""


@dataclass(frozen=True, slots=True)
class ReplicaLease:
    """What a replica's Lease says. An empty holder: released, or fenced."""

    replica: str
    holder: str
    transitions: int
    claims: frozenset[int]
    version: str
    uid: str = ""
    duration_s: float = LEASE_DURATION_S


@dataclass(frozen=True, slots=True)
class WriteLease:
    """Write this Lease at its `version`; without one, create it.

    `is_own`: the answer goes to `Ownership.accepted`.
    """

    lease: ReplicaLease
    is_own: bool


@dataclass(frozen=True, slots=True)
class RemoveLease:
    """Delete the Lease of this UID and version."""

    lease: ReplicaLease


@dataclass(frozen=True, slots=True)
class WriteTicket:
    """A write for a tenant that has begun, and the term of the own Lease in which it did."""

    shard: int
    term: int


def shard_of(tenant: str) -> int:
    """The shard of a cluster key."""
    return int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:4]) % SHARDS


def replica_of(shard: int, replicas: Collection[str]) -> str:
    """The replica to which rendezvous hashing gives a shard; `replicas` is not empty."""
    return max(replicas, key=lambda each: (hashlib.sha256(f"{shard}/{each}".encode()).digest(), each))


@functools.lru_cache(maxsize=64)
def shards_of(replica: str, replicas: frozenset[str]) -> frozenset[int]:
    """The shards of one of `replicas`."""
    return frozenset(shard for shard in range(SHARDS) if replica_of(shard, replicas) == replica)


def format_claims(claims: Iterable[int]) -> str:
    """Claims as one hexadecimal number."""
    return f"{sum(1 << shard for shard in set(claims)):x}"


def parse_claims(text: str) -> frozenset[int]:
    """The inverse. Text that is no such number claims everything: it is not known what it claims."""
    if not text:
        return frozenset()
    try:
        number = int(text[: SHARDS // 4 + 1], 16)
    except ValueError:
        number = -1
    if number < 0 or number >> SHARDS or len(text) > SHARDS // 4:
        return frozenset(range(SHARDS))
    return frozenset(shard for shard in range(SHARDS) if number >> shard & 1)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A Lease, and when this version of it was seen first."""

    lease: ReplicaLease
    since: Instant


class Ownership:
    """One replica's view: its own Lease, the others', and the shards that it holds.

    Its caller has one request under way at a time: list, `observed`, then each of `writes`. Before an
    own Lease is sent, call `sending`; after an answer, `accepted` or nothing.
    """

    def __init__(self, replica: str, identity: str) -> None:
        """`identity` is of this process: two of one replica's name differ in it."""
        self.replica = replica
        self._identity = identity
        self._own: ReplicaLease | None = None
        self._renewed: Instant | None = None
        self._seen: dict[str, _Seen] = {}
        self._claims: frozenset[int] = frozenset()
        self._desired: frozenset[int] = frozenset()
        self._live: frozenset[str] = frozenset()
        self._in_flight: Counter[int] = Counter()
        self._term = 0
        self._is_leaving = False
        self.held: frozenset[int] = frozenset()

    # ---- writes for tenants

    def may_write(self, tenant: str, now: Instant) -> bool:
        """Whether a write for this tenant may begin now."""
        return self.holds(tenant) and self.is_renewed(now)

    def holds(self, tenant: str) -> bool:
        """Whether this replica has the tenant. Nothing is written for it while the Lease is not renewed."""
        return shard_of(tenant) in self.held

    def begin_write(self, tenant: str, now: Instant) -> WriteTicket | None:
        """Begin a write if `may_write`: the shard is not withdrawn before `end_write`."""
        if not self.may_write(tenant, now):
            return None
        ticket = WriteTicket(shard_of(tenant), self._term)
        self._in_flight[ticket.shard] += 1
        return ticket

    def may_send(self, ticket: WriteTicket, now: Instant) -> bool:
        """Whether a write that has begun may be sent, or wait for its answer, now."""
        return ticket.term == self._term and self.is_renewed(now)

    def end_write(self, ticket: WriteTicket) -> None:
        if ticket.term == self._term:
            self._in_flight[ticket.shard] -= 1

    def is_renewed(self, now: Instant) -> bool:
        """Whether the own Lease was renewed within the deadline."""
        return self._renewed is not None and self._renewed.elapsed_s(now) < RENEW_DEADLINE_S

    @property
    def live(self) -> frozenset[str]:
        """The replicas that share the tenants, this one among them while its Lease is valid."""
        return self._live

    @property
    def transitions(self) -> int | None:
        """The fencing number of the own Lease; None without one."""
        return None if self._own is None else self._own.transitions

    # ---- Leases

    def observed(self, leases: Iterable[ReplicaLease], now: Instant) -> None:
        """A list of all Leases, which began after the last answer; `now` is the time of its answer."""
        found = {each.replica: each for each in leases}
        for name, lease in found.items():
            seen = self._seen.get(name)
            if seen is None or seen.lease.version != lease.version:
                self._seen[name] = _Seen(lease, now)
        for name in self._seen.keys() - found.keys():
            # Removed, perhaps by a person while its replica writes.
            if not self._seen[name].lease.claims or self._is_expired(self._seen[name], now):
                del self._seen[name]
        self._check_own(found.get(self.replica))
        others = [each for name, each in self._seen.items() if name != self.replica]
        self._live = frozenset(
            each.lease.replica for each in others if each.lease.holder and not self._is_expired(each, now)
        )
        if self._own is not None and not self._is_leaving:
            self._live |= {self.replica}
        is_live = self.replica in self._live
        self._desired = shards_of(self.replica, self._live) if is_live else frozenset()
        claimed = frozenset[int]().union(*(each.lease.claims for each in others))
        self.held = (self.held | (self._claims - claimed)) & self._claims & self._desired

    def _check_own(self, found: ReplicaLease | None) -> None:
        own = self._own
        if own is None:
            return
        if found is None or (found.holder, found.transitions) != (own.holder, own.transitions):
            self._lose()  # fenced, deleted, or another process of this name has taken it
        else:
            # The answer to a write may have been lost.
            self._own = replace(own, version=found.version, uid=found.uid)

    def _lose(self) -> None:
        self._term += 1
        self._in_flight.clear()
        self._own = self._renewed = None
        self._claims = self.held = frozenset()

    def writes(self, now: Instant) -> list[WriteLease | RemoveLease]:
        """What to write now, in order."""
        found: list[WriteLease | RemoveLease] = []
        for name, seen in sorted(self._seen.items()):
            lease = seen.lease
            if name == self.replica:
                continue
            if lease.holder or lease.claims:
                if self._is_expired(seen, now):
                    fenced = replace(lease, holder="", claims=frozenset(), transitions=lease.transitions + 1)
                    found.append(WriteLease(fenced, is_own=False))
            elif now.monotonic_s - seen.since.monotonic_s >= REMOVE_AFTER_S:
                found.append(RemoveLease(lease))
        own = self._own_write(now)
        return found if own is None else [*found, WriteLease(own, is_own=True)]

    def _own_write(self, now: Instant) -> ReplicaLease | None:
        draining = frozenset(shard for shard in self._claims if self._in_flight[shard] > 0)
        if self._own is not None:
            is_over = self._is_leaving and not draining
            claims = draining if self._is_leaving else self._desired | draining
            return replace(self._own, holder="" if is_over else self._identity, claims=claims)
        if self._is_leaving:
            return None
        seen = self._seen.get(self.replica)
        if seen is None:
            return ReplicaLease(self.replica, self._identity, 0, frozenset(), "")
        if seen.lease.holder not in ("", self._identity) and not self._is_expired(seen, now):
            return None  # another process of this name, perhaps one that was killed
        lease = seen.lease
        return replace(
            lease,
            holder=self._identity,
            transitions=lease.transitions + 1,
            claims=frozenset(),
            duration_s=LEASE_DURATION_S,
        )

    def sending(self, lease: ReplicaLease) -> None:
        """The own Lease is about to be sent: what it no longer claims is given up, whatever comes of it."""
        self._claims &= lease.claims
        self.held &= lease.claims

    def accepted(self, lease: ReplicaLease, asked_at: Instant) -> None:
        """The API server has accepted the own Lease; `lease` has its new version, `asked_at` is before it
        was sent."""
        if not lease.holder:
            self._lose()
            return
        self._own, self._renewed, self._claims = lease, asked_at, lease.claims
        self._seen[self.replica] = _Seen(lease, asked_at)

    def leave(self) -> None:
        """Give up all shards. The Lease is released once no write is under way."""
        self._is_leaving = True
        self.held = frozenset()

    @property
    def has_left(self) -> bool:
        return self._is_leaving and self._own is None

    def _is_expired(self, seen: _Seen, now: Instant) -> bool:
        # By the monotonic clock alone: a wall clock that is set forward must expire no other.
        return now.monotonic_s - seen.since.monotonic_s >= seen.lease.duration_s
