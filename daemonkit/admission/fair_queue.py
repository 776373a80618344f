# SPDX-License-Identifier: Apache-2.0
"""Serves the account that has cost least, where several wait for one resource. Pure.

Start-time fair queueing (Goyal, Vin, Cheng 1996): each account has a tag, which rises by what its work has
cost; the lowest tag is served first. An account that was idle begins at the tag that is being served. So it
is served before all that have been served since, and idle time earns no credit.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

# Accounts whose tags are remembered while others wait; beyond these the oldest begin anew.
MAX_IDLE_ACCOUNTS = 4_096


class FairQueue(Generic[T]):
    """`add` entries, `pop` the next one to serve, `charge` its cost."""

    def __init__(self) -> None:
        self._account: dict[T, str] = {}
        self._waiting: dict[str, dict[T, None]] = {}  # in order
        # Tags with the order of their coming, so that equal ones are served in that order.
        self._heap: list[tuple[float, int, str]] = []
        self._tags: dict[str, float] = {}
        self._served_tag = 0.0
        self._count = 0

    def __len__(self) -> int:
        """How many entries wait."""
        return len(self._account)

    @property
    def accounts(self) -> int:
        """How many accounts are remembered."""
        return len(self._tags)

    def add(self, one: T, account: str) -> None:
        """`one` waits, behind others of the same account."""
        self._account[one] = account
        waiting = self._waiting.get(account)
        if waiting is None:
            self._waiting[account] = {one: None}
            self._tags[account] = max(self._tags.get(account, 0.0), self._served_tag)
            self._push(account)
        else:
            waiting[one] = None

    def discard(self, one: T) -> None:
        """`one` does not wait any longer; nothing happens if it did not."""
        account = self._account.pop(one, None)
        if account is None:
            return
        del self._waiting[account][one]
        if len(self._waiting) > len(self._account) + MAX_IDLE_ACCOUNTS:
            self._sweep()

    def pop(self) -> T | None:
        """Serve the next one; None if nothing waits."""
        while self._heap:
            tag, _, account = heapq.heappop(self._heap)
            waiting = self._waiting[account]
            if not waiting:
                del self._waiting[account]  # all of it was discarded
            elif tag < self._tags[account]:
                self._push(account)  # it was charged while it waited
            else:
                self._served_tag = tag
                one = next(iter(waiting))
                del waiting[one], self._account[one]
                if waiting:
                    self._push(account)
                else:
                    del self._waiting[account]
                return one
        self._forget()
        return None

    def charge(self, account: str, cost: float) -> None:
        """Add the cost of what was served to the account."""
        self._tags[account] = max(self._tags.get(account, 0.0), self._served_tag) + cost
        if len(self._tags) > len(self._waiting) + MAX_IDLE_ACCOUNTS:
            self._forget_oldest_idle()

    def _push(self, account: str) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self._tags[account], self._count, account))

    def _sweep(self) -> None:
        """Drop accounts whose entries were all discarded, and the oldest tags of idle accounts."""
        self._waiting = {account: waiting for account, waiting in self._waiting.items() if waiting}
        self._heap = [entry for entry in self._heap if entry[2] in self._waiting]
        heapq.heapify(self._heap)
        idle = [account for account in self._tags if account not in self._waiting]
        for account in idle[: max(0, len(idle) - MAX_IDLE_ACCOUNTS)]:
            del self._tags[account]

    def _forget(self) -> None:
        """Nothing waits: all are equal again."""
        self._tags.clear()
        self._served_tag = 0.0

    def _forget_oldest_idle(self) -> None:
        for account in self._tags:
            if account not in self._waiting:
                del self._tags[account]
                return
