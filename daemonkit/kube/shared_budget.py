# SPDX-License-Identifier: Apache-2.0
"""How the memory of a process is divided among the API servers that it reads. Pure.

Each server has a share, and may take more while others leave theirs unused. Once nearly all memory is taken,
a server above its share gets no more, and a server below its share gets memory that the largest one gives
back. Giving back takes a moment, so the last part of the limit is kept for that.
"""

from collections.abc import Callable
from typing import Protocol

MIN_SHARE_BYTES = 1 << 20
# Of the limit, one part in so many is for members below their shares alone.
_KEPT = 8


class Member(Protocol):
    """One server's part."""

    @property
    def held_bytes(self) -> int:
        """What is held for it and can be given back, at most. The budget hears of each change of it."""

    @property
    def counted_bytes(self) -> int:
        """That, and what is held for it elsewhere."""

    def end(self) -> None:
        """Give back what can be given back: another account has a claim to it."""


class SharedBudget:
    """`limit_bytes` for all members together.

    `elsewhere_bytes` is what is held beside the members' own counts, for them and for others. `member_bytes`
    is what each member takes that holds nothing.
    """

    def __init__(
        self, limit_bytes: int, elsewhere_bytes: Callable[[], int] = lambda: 0, *, member_bytes: int = 0
    ) -> None:
        self.limit_bytes = limit_bytes
        self._open_bytes = limit_bytes - limit_bytes // _KEPT
        self._elsewhere_bytes = elsewhere_bytes
        self._member_bytes = member_bytes
        self._members: dict[Member, None] = {}
        self._held_bytes = 0
        self.refusals = 0
        """How often members noted that they were given no more, by this limit or by their own."""

    def join(self, member: Member) -> None:
        """Count a member. It holds nothing yet."""
        self._members[member] = None

    def leave(self, member: Member) -> None:
        """What was held for a member is gone. One that is no member changes nothing."""
        if member in self._members:
            del self._members[member]
            self._held_bytes -= member.held_bytes

    def held_changed(self, more_bytes: int) -> None:
        """A member holds so much more; less than nothing is less."""
        self._held_bytes += more_bytes

    @property
    def share_bytes(self) -> int:
        """What each member may always have."""
        count = len(self._members)
        own = sum(each.counted_bytes for each in self._members) - self._held_bytes
        free = self.limit_bytes - (self._elsewhere_bytes() - own) - count * self._member_bytes
        return max(free // max(1, count), MIN_SHARE_BYTES)

    @property
    def room(self) -> int:
        """How many members the limit has room for, each with the smallest share."""
        return self.limit_bytes // (MIN_SHARE_BYTES + self._member_bytes)

    @property
    def is_overcommitted(self) -> bool:
        """Whether there are more members than the limit has room for."""
        return len(self._members) > self.room

    def total_bytes(self) -> int:
        """What is held for all members, and for others."""
        return self._held_bytes + self._elsewhere_bytes() + len(self._members) * self._member_bytes

    @property
    def is_short(self) -> bool:
        """Whether only members below their shares get more."""
        return self.total_bytes() > self._open_bytes

    def refusal(self, member: Member, more_bytes: int = 0) -> str:
        """Why a member may not have so much more, for its own eyes; empty if it may.

        Cheap while there is enough.
        """
        if self._is_within(self._open_bytes, more_bytes):
            return ""
        share = self.share_bytes
        if member.counted_bytes + more_bytes > share:
            return (
                f"the memory of the process is used up: {member.counted_bytes >> 20} MiB of it are held for "
                f"this API server's objects, and its share is {share >> 20} MiB"
            )
        large = [each for each in self._members if each is not member and each.counted_bytes > share]
        largest = max(large, key=lambda each: each.held_bytes, default=None)
        if largest is not None and largest.held_bytes > MIN_SHARE_BYTES:
            largest.end()
        if self._is_within(self.limit_bytes, more_bytes):
            return ""
        return (
            "the memory of the process is used up: others are to give back what they have beyond their shares"
        )

    def _is_within(self, limit_bytes: int, more_bytes: int = 0) -> bool:
        return self.total_bytes() + more_bytes <= limit_bytes
