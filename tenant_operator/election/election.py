# SPDX-License-Identifier: Apache-2.0
"""Whether this process leads, by one Lease. Pure: times and the observed Lease come in.

client-go's rules (`k8s.io/client-go/tools/leaderelection`), and what it leaves to its caller:

- A process takes a Lease that no process holds, or that it has *seen* unchanged for the Lease's duration. The
  times that stand in a Lease are compared with themselves alone, never with a clock.
- It takes or renews it at the version that it saw. Of two such writes the API server accepts one.
- It may write until `renew_deadline_s` after it *began* its last accepted renewal, by either of its clocks.
- A Lease that a person deletes counts as held for those who have seen it, until it would have expired.

The bound: let clocks' rates be wrong by a share d at most. The leader's `may_write` ends
`renew_deadline_s / (1 - d)` after that begin, in true time. Another saw the renewal no earlier, and waits
`duration_s / (1 + d)`. With 10 and 15 seconds the two never both may write while d < 1/5. With d = 1/10, what
the leader has sent has 2.5 s more to arrive: 15 / 1.1 - 10 / 0.9. The operator cuts its writes at the
deadline. A write that the network delivers still later looks to the API server like one in time. So each
write names the UID of its object, or creates one.
"""

import msgspec

from daemonkit.lease_times import LEASE_DURATION_S, RENEW_DEADLINE_S, Instant
from tenant_operator.election.lease import RELEASED_DURATION_S, LeaseRecord


class WriteRecord(msgspec.Struct, frozen=True):
    """Write the Lease at the version of `record`; without one, create it."""

    record: LeaseRecord
    is_acquired: bool = False


class WaitForHolder(msgspec.Struct, frozen=True):
    """Nothing is to be written now: another process holds the Lease, or this one has released it."""

    holder: str = ""


ElectionAction = WriteRecord | WaitForHolder


class SeenRecord(msgspec.Struct, frozen=True):
    """A Lease, and when its record was seen first, by the monotonic clock."""

    record: LeaseRecord
    since_s: float


class ElectionState(msgspec.Struct, frozen=True):
    """What a process knows: `renewed_at` is when it began its last accepted renewal."""

    seen: SeenRecord | None = None
    renewed_at: Instant | None = None
    is_leaving: bool = False


class Election:
    """One process's view of the Lease. `identity` is of this process alone, not of its host or pod."""

    def __init__(
        self,
        identity: str,
        *,
        duration_s: float = LEASE_DURATION_S,
        renew_deadline_s: float = RENEW_DEADLINE_S,
    ) -> None:
        self._identity = identity
        self._duration_s = duration_s
        self._renew_deadline_s = renew_deadline_s
        self.state = ElectionState()

    def may_write(self, now: Instant) -> bool:
        """Whether a write may be sent now. Ask with nothing awaited between the answer and the sending."""
        return self.remaining_s(now) > 0

    def remaining_s(self, now: Instant) -> float:
        """How long this process may still write, unless the Lease is renewed."""
        renewed_at = self.state.renewed_at
        if renewed_at is None or self.state.is_leaving:
            return 0.0
        return max(0.0, self._renew_deadline_s - renewed_at.elapsed_s(now))

    def next(self, observed: LeaseRecord | None, now: Instant) -> ElectionAction:
        """What to do about the Lease, as it was just read or was last accepted; None: there is none."""
        self._note(observed, now)
        if observed is None or observed.holder != self._identity:
            self._change(renewed_at=None)  # another process has it, or a person deleted it
        if self.state.is_leaving:
            return self._release(observed)
        if observed is None:
            return self._create(now)
        if observed.holder == self._identity:
            return WriteRecord(self._held_by_us(observed))
        if observed.holder and not self._is_expired(now):
            return WaitForHolder(observed.holder)
        taken = msgspec.structs.replace(self._held_by_us(observed), transitions=observed.transitions + 1)
        return WriteRecord(taken, is_acquired=True)

    def accepted(self, record: LeaseRecord, sent_at: Instant) -> None:
        """The API server has accepted a write of ours. `sent_at` is before it was sent."""
        is_ours = record.holder == self._identity
        self._change(seen=SeenRecord(record, sent_at.monotonic_s), renewed_at=sent_at if is_ours else None)

    def leave(self) -> None:
        """Write nothing more. The next action releases the Lease; call it when all writes have ended."""
        self._change(is_leaving=True)

    def _note(self, observed: LeaseRecord | None, now: Instant) -> None:
        seen = self.state.seen
        if observed is None:
            if seen is not None and self._is_expired(now):
                self._change(seen=None)
        elif seen is None or _is_changed(seen.record, observed):
            self._change(seen=SeenRecord(observed, now.monotonic_s))

    def _is_expired(self, now: Instant) -> bool:
        # By the monotonic clock alone: a wall clock that is set forward must expire no other holder.
        seen = self.state.seen
        return seen is None or now.monotonic_s - seen.since_s >= seen.record.duration_s

    def _change(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)

    def _create(self, now: Instant) -> ElectionAction:
        seen = self.state.seen
        if seen is not None and seen.record.holder not in ("", self._identity):
            return WaitForHolder(seen.record.holder)
        return WriteRecord(LeaseRecord(self._identity, 0, self._duration_s), is_acquired=True)

    def _release(self, observed: LeaseRecord | None) -> ElectionAction:
        if observed is None or observed.holder != self._identity:
            return WaitForHolder()
        return WriteRecord(msgspec.structs.replace(observed, holder="", duration_s=RELEASED_DURATION_S))

    def _held_by_us(self, observed: LeaseRecord) -> LeaseRecord:
        return msgspec.structs.replace(observed, holder=self._identity, duration_s=self._duration_s)


def _is_changed(before: LeaseRecord, after: LeaseRecord) -> bool:
    """Whether the holder has written; a change of labels alone is no sign that it lives."""
    return (before.holder, before.renewed, before.transitions) != (
        after.holder,
        after.renewed,
        after.transitions,
    )
