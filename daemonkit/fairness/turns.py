# SPDX-License-Identifier: Apache-2.0
"""Who of those that share an event loop takes the next step, by the processor time of the last ones. Pure.

A *step* is what is done for one member between two returns to the loop. Steps are begun as they come while
they are few. Those of a *slice* end with the step that exceeds it: what is left waits, the loop looks after
all else (status pages, signals, timers), and the next slice begins with the member that has used least of its
share.

A member's *place* is what it has used, divided by its weight. The lowest place of those that work is the
*floor*. A member more than a slice above it begins no step, even if no other member waits at the moment:
the next step of a member on the floor is probably on its way. After HELD_SLICES iterations of the loop
without any step, members that do not wait count as idle. A member that comes back begins at the floor: it has
no claim on the time that it did not use.
"""

import heapq
from typing import Generic, TypeVar

from daemonkit.fairness.weighted_round_robin import MAX_WEIGHT

# Steps of one iteration of the loop. An iteration itself takes 0.03 ms, which is a thirtieth; a neighbour
# waits for one slice and one step at each of the some ten steps between its object and the super cluster's.
SLICE_NS = 1_000_000
# The ceiling of a step, and so what a member may owe beyond its turn. With a larger debt a tenant would wait
# for processor time that it used while no other tenant had work.
MAX_STEP_NS = 20_000_000
# Iterations between what a socket has received and the step that waits for it: asyncio calls back behind what
# is ready already, and resumes the task in the next iteration.
HELD_SLICES = 2


class FairShare:
    """One of those that share the loop. All is kept by its `Turns`."""

    __slots__ = ("is_at_work", "place_ns", "weight")

    def __init__(self) -> None:
        self.place_ns = 0
        self.weight = 1
        self.is_at_work = False


M = TypeVar("M", bound=FairShare)


class Turns(Generic[M]):
    """`may_go_on` before each step, else `wait`; `charge` after it. Between two slices: `begin_slice`, then
    `first`, and its step after `take`, until there is none. `stay` if it has another one that waits."""

    __slots__ = (
        "_at_work",
        "_count",
        "_entries",
        "_held",
        "_limit_ns",
        "_minimum_ns",
        "_slice_ns",
        "_spent_ns",
        "_waiting",
    )

    def __init__(self, slice_ns: int = SLICE_NS) -> None:
        self._slice_ns = slice_ns
        self._at_work: list[M] = []
        self._minimum_ns = 0
        self._limit_ns = slice_ns
        self._waiting: dict[M, int] = {}  # since which count; of equal places, the lowest is first
        self._count = 0
        # A heap of those that wait by place and count, as of the slice's beginning: places change in it.
        self._entries: list[tuple[int, int, M]] = []
        self._held = 0  # slices without a step, one after the other
        self._spent_ns = 0

    def set_weight(self, member: M, weight: int) -> None:
        """A member's share beside others, from 1 to 100; 1 unless set. Those beyond are the next ones."""
        member.weight = min(max(weight, 1), MAX_WEIGHT)

    def remove(self, member: M) -> None:
        """Forget a member; nothing happens if it is none."""
        if member.is_at_work:
            member.is_at_work = False
            self._at_work.remove(member)
        self._waiting.pop(member, None)

    @property
    def is_used_up(self) -> bool:
        """Whether the slice has no time left."""
        return self._spent_ns >= self._slice_ns

    @property
    def are_any_waiting(self) -> bool:
        return bool(self._waiting)

    def may_go_on(self, member: M) -> bool:
        """Whether a step may begin at once: the slice has time left, no member waits, and none at work is
        more than a slice behind this one."""
        return self._spent_ns < self._slice_ns and not self._waiting and member.place_ns <= self._limit_ns

    def wait(self, member: M) -> None:
        """A step of a member waits for its turn."""
        if not member.is_at_work:
            self._begin_work(member)
        if member not in self._waiting:
            self._count += 1
            self._waiting[member] = self._count

    def charge(self, member: M, took_ns: int) -> bool:
        """A step has ended. Returns whether the slice is used up."""
        if not member.is_at_work:
            self._begin_work(member)
        place_ns = member.place_ns + took_ns // member.weight
        most_ns = self._limit_ns + MAX_STEP_NS
        member.place_ns = place_ns if place_ns < most_ns else most_ns
        self._spent_ns += took_ns
        return self._spent_ns >= self._slice_ns

    def add_debt(self, member: M, took_ns: int) -> None:
        """Something that was no step was done for a member. It counts at its next turn."""
        place_ns = max(member.place_ns, self._minimum_ns) + took_ns // member.weight
        member.place_ns = min(place_ns, self._limit_ns + MAX_STEP_NS)

    def begin_slice(self) -> None:
        """The event loop had control: waiting members may take turns again."""
        if self._spent_ns or not self._waiting:
            self._held = 0
        else:
            self._held += 1
            if self._held >= HELD_SLICES:
                self._end_work_of_missing()
        self._spent_ns = 0
        if self._at_work:
            new_ns = min([member.place_ns for member in self._at_work])
            if new_ns > self._minimum_ns:
                self._minimum_ns = new_ns
                self._limit_ns = new_ns + self._slice_ns
        self._entries = [(member.place_ns, count, member) for member, count in self._waiting.items()]
        heapq.heapify(self._entries)

    def first(self) -> M | None:
        """The member whose turn it is; None if the slice is used up, none waits, or those that wait are
        held."""
        entries = self._entries
        while entries and entries[0][2] not in self._waiting:
            heapq.heappop(entries)  # it was removed
        if self._spent_ns >= self._slice_ns or not entries:
            return None
        place_ns, _, member = entries[0]
        return member if place_ns <= self._limit_ns else None

    def take(self) -> None:
        """The first member takes its turn."""
        del self._waiting[heapq.heappop(self._entries)[2]]

    def stay(self, member: M) -> None:
        """A member that took its turn, and was charged, waits for another one of this slice."""
        self.wait(member)
        heapq.heappush(self._entries, (member.place_ns, self._waiting[member], member))

    def _begin_work(self, member: M) -> None:
        member.is_at_work = True
        self._at_work.append(member)
        if member.place_ns < self._minimum_ns:
            member.place_ns = self._minimum_ns

    def _end_work_of_missing(self) -> None:
        staying = list[M]()
        for member in self._at_work:
            if member in self._waiting:
                staying.append(member)
            else:
                member.is_at_work = False
        self._at_work = staying
