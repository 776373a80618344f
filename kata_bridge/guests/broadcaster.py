# SPDX-License-Identifier: Apache-2.0
"""Those who watch guests: each reads at its own pace, and none can make kata-bridge remember more
than a bounded number of events for it."""

import asyncio
from collections.abc import AsyncGenerator, Iterable

from bridge_api.messages import Guest, GuestEvent, GuestEventKind

# What is told of a guest replaces what was not read of it yet; so only a watcher that sleeps through
# the lives of so many sandboxes gets there.
MAX_PENDING = 4_096
MAX_WATCHERS = 64


class WatcherLagged(Exception):  # noqa: N818 - said to the watcher, which begins anew
    """The watcher did not read what was meant for it."""


class TooManyWatchers(Exception):  # noqa: N818 - said to the newcomer
    """There is no room for another one."""


class _Watcher:
    def __init__(self, first: Iterable[GuestEvent]) -> None:
        self.pending: dict[str, GuestEvent] = {}
        self.news = asyncio.Event()
        self.is_lagging = False
        for event in first:
            self.offer(event)

    def offer(self, event: GuestEvent) -> None:
        if self.is_lagging:
            return
        key = event.guest.id if event.guest is not None else ""
        self.pending.pop(key, None)
        self.pending[key] = event
        if len(self.pending) > MAX_PENDING:
            self.is_lagging = True
            self.pending.clear()
        self.news.set()


class GuestBroadcaster:
    """Everyone who watches, and what each has to be told."""

    def __init__(self) -> None:
        self._watchers: set[_Watcher] = set()
        self._known: dict[str, Guest] = {}
        self._is_synced = False

    def __len__(self) -> int:
        return len(self._watchers)

    def present(self, guest: Guest) -> None:
        """A guest is there as it is now; says nothing if that was said."""
        if self._known.get(guest.id) != guest:
            self._known[guest.id] = guest
            self._tell(GuestEvent(GuestEventKind.PRESENT, guest))

    def gone(self, sandbox: str) -> None:
        if self._known.pop(sandbox, None) is not None:
            self._tell(GuestEvent(GuestEventKind.GONE, Guest(id=sandbox)))

    def synced(self) -> None:
        """All guests that are there have been told of."""
        if not self._is_synced:
            self._is_synced = True
            self._tell(GuestEvent(GuestEventKind.SYNCED))

    async def watch(self) -> AsyncGenerator[GuestEvent, None]:
        """Every guest, SYNCED when that is all, then every change.

        Raises `WatcherLags` and `TooManyWatchers`.
        """
        if len(self._watchers) >= MAX_WATCHERS:
            raise TooManyWatchers(f"more than {MAX_WATCHERS} watchers")
        first = [GuestEvent(GuestEventKind.PRESENT, guest) for guest in self._known.values()]
        if self._is_synced:
            first.append(GuestEvent(GuestEventKind.SYNCED))
        watcher = _Watcher(first)
        self._watchers.add(watcher)
        try:
            while True:
                await watcher.news.wait()
                watcher.news.clear()
                while watcher.pending and not watcher.is_lagging:
                    yield watcher.pending.pop(next(iter(watcher.pending)))
                if watcher.is_lagging:
                    raise WatcherLagged(f"more than {MAX_PENDING} guests changed unread: watch again")
        finally:
            self._watchers.discard(watcher)

    def _tell(self, event: GuestEvent) -> None:
        for watcher in self._watchers:
            watcher.offer(event)
