# SPDX-License-Identifier: Apache-2.0
"""What ends at a time of the wall clock, by the second of its end."""

import math
from typing import Generic, TypeVar

T = TypeVar("T")


class ExpiryIndex(Generic[T]):
    """Finds what has expired without a look at what has not.

    It keeps what is due until it is discarded: if the wall clock goes back, it is due again later.
    """

    def __init__(self) -> None:
        self._by_second: dict[int, set[T]] = {}
        # The last second that is over.
        self._over_s = 0
        # What was added after its second was over.
        self._late: set[T] = set()

    def __len__(self) -> int:
        """How many are kept."""
        return sum(map(len, self._by_second.values()))

    def add(self, one: T, not_after_s: float) -> None:
        """`one` expires behind this time, never if it is infinity; if it is over, `one` is due next."""
        if not_after_s < math.inf:
            second = math.ceil(not_after_s)
            self._by_second.setdefault(second, set()).add(one)
            if second <= self._over_s:
                self._late.add(one)

    def discard(self, one: T, not_after_s: float) -> None:
        """`one` has ended; `not_after_s` is what it was added with."""
        self._late.discard(one)
        if not_after_s < math.inf:
            second = math.ceil(not_after_s)
            kept = self._by_second.get(second)
            if kept is not None:
                kept.discard(one)
                if not kept:
                    del self._by_second[second]

    def due(self, now_s: float) -> list[T]:
        """What has expired since the last call."""
        late, self._late = self._late, set()
        before_s, self._over_s = self._over_s, math.ceil(now_s) - 1
        by_second = self._by_second
        passed = range(before_s + 1, self._over_s + 1)
        # Hours, if the clock was set.
        seconds = passed if len(passed) <= len(by_second) else [each for each in by_second if each in passed]
        return [*late, *(one for second in seconds for one in by_second.get(second, ()))]
