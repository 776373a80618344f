# SPDX-License-Identifier: Apache-2.0
"""Who of those that share an event loop takes the next step, by the processor time of the last ones. Pure.

A *step* is what is done for one member between two returns to the loop. Steps are begun as they come while
they are few. Those of a *slice* end with the step that exceeds it: what is left waits, the loop looks after
all else (status pages, signals, timers), and the next slice begins with the member that has used least of its
share. A member that comes back from idleness has no claim on the time that it did not use.

What a step takes is known when it has ended, and several are begun in a slice. So a turn counts as the last
ones of its member until then, and the difference counts at its next turn.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from daemonkit.fairness.weighted_round_robin import WeightedRoundRobin

T = TypeVar("T", bound=Hashable)

# Steps of one iteration of the loop. An iteration itself takes 0.03 ms, which is a thirtieth; a neighbour
# waits for one slice and one step at each of the some ten steps between its object and the super cluster's.
SLICE_NS = 1_000_000
# The ceiling of a step, and so what a member may owe beyond its turn. With a larger debt a tenant would wait
# for processor time that it used while no other tenant had work.
MAX_STEP_NS = 20_000_000
# Of a member that has not taken a step yet: a response that is read and decoded.
_FIRST_ESTIMATE_NS = 100_000
_MIN_ESTIMATE_NS = 10_000


class _Use:
    """What a member owes, and what its steps take."""

    __slots__ = ("estimate_ns", "owed_ns", "period")

    def __init__(self) -> None:
        self.owed_ns = 0
        self.estimate_ns = _FIRST_ESTIMATE_NS
        self.period = 0


class Turns(Generic[T]):
    """`may_go_on` before each step, else `wait`; `charge` after it. Between two slices: `begin_slice`, then
    `first` and `take` until there is none."""

    def __init__(self, slice_ns: int = SLICE_NS) -> None:
        self._slice_ns = slice_ns
        self._order: WeightedRoundRobin[T] = WeightedRoundRobin()
        self._uses: dict[T, _Use] = {}
        self._spent_ns = 0  # with what is reserved for steps that have not ended
        self._used_ns = 0  # without
        self._period = 0  # counts the slices that began without a waiting member: debts end with each

    def set_weight(self, member: T, weight: int) -> None:
        """A member's share beside others, from 1 to 100; 1 unless set."""
        self._order.set_weight(member, weight)

    def remove(self, member: T) -> None:
        """Forget a member; nothing happens if it is none."""
        self._order.remove(member)
        self._uses.pop(member, None)

    @property
    def is_over(self) -> bool:
        """Whether the slice is used up."""
        return self._spent_ns >= self._slice_ns

    @property
    def are_any_waiting(self) -> bool:
        return len(self._order) > 0

    def may_go_on(self) -> bool:
        """Whether a step may begin at once: the slice has time left, and no member waits."""
        return self._spent_ns < self._slice_ns and not len(self._order)

    def wait(self, member: T) -> None:
        """A step of a member waits for its turn."""
        self._order.add(member)

    def charge(self, member: T, took_ns: int, reserved_ns: int = 0) -> None:
        """A step has ended. `reserved_ns` is what `take` returned for it, 0 for one that did not wait."""
        use = self._use_of(member)
        self._used_ns += took_ns
        self._spent_ns = max(0, self._spent_ns + took_ns - reserved_ns)
        use.owed_ns = min(use.owed_ns + took_ns - reserved_ns, MAX_STEP_NS)
        # Slowly down and at once up: a member must not get many turns for the price of short ones.
        use.estimate_ns = max(took_ns, use.estimate_ns - (use.estimate_ns >> 3), _MIN_ESTIMATE_NS)

    def add_debt(self, member: T, took_ns: int) -> None:
        """Something that was no step was done for a member. It counts at its next turn."""
        use = self._use_of(member)
        use.owed_ns = min(use.owed_ns + took_ns, MAX_STEP_NS)

    def must_give_back(self, member: T, reserved_ns: int) -> bool:
        """Whether a step that took its turn must wait for another one after all, as those before it in the
        slice took longer than was reserved. Its turn costs nothing then."""
        if self._used_ns < self._slice_ns:
            return False
        use = self._use_of(member)
        use.owed_ns -= reserved_ns
        return True

    def begin_slice(self) -> None:
        """The event loop had control: waiting members may take turns again."""
        self._spent_ns = self._used_ns = 0
        if not len(self._order):
            self._period += 1

    def first(self) -> T | None:
        """The member whose turn it is; None if the slice is used up, or none waits."""
        return None if self.is_over else self._order.first()

    def take(self, *, stays: bool) -> int:
        """The first member takes its turn, and waits for another if it stays. Returns what is reserved, in
        nanoseconds, and to be given to `charge`."""
        member = self._order.first()
        if member is None:
            return 0
        use = self._use_of(member)
        cost_ns = use.owed_ns + use.estimate_ns
        use.owed_ns = min(cost_ns, 0)
        self._order.take_turn(stays, max(cost_ns, 0))
        self._spent_ns += use.estimate_ns
        return use.estimate_ns

    def leave(self) -> None:
        """The first member does not want its turn any more."""
        self._order.take_turn(stays=False, cost=0)

    def _use_of(self, member: T) -> _Use:
        use = self._uses.get(member)
        if use is None:
            use = self._uses[member] = _Use()
        if use.period != self._period:
            use.period, use.owed_ns = self._period, 0
        return use
