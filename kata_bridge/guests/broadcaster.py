# SPDX-License-Identifier: Apache-2.0
"""Guest events for all watchers: each reads at its own pace, and its queue is bounded."""

import asyncio
from collections.abc import AsyncGenerator, Iterable

from bridge_api.messages import Guest, GuestEvent, GuestEventKind

# A newer event of a guest replaces its unread one. So a watcher gets here only if it reads nothing while
# so many sandboxes come and go.
MAX_PENDING = 4_096
MAX_WATCHERS = 64


class WatcherLagged(Exception):  # noqa: N818 - the watcher gets it and watches again
    """The watcher left too many events unread."""


class TooManyWatchers(Exception):  # noqa: N818 - the new watcher gets it
    """The limit of watchers is reached."""


class _Watcher:
    def __init__(self, first: Iterable[GuestEvent]) -> None:
        self.pending: dict[str, GuestEvent] = {}
        self.has_events = asyncio.Event()
        self.is_lagging = False
        for event in first:
            self.add(event)

    def add(self, event: GuestEvent) -> None:
        if self.is_lagging:
            return
        key = event.guest.id if event.guest is not None else ""
        self.pending.pop(key, None)
        self.pending[key] = event
        if len(self.pending) > MAX_PENDING:
            self.is_lagging = True
            self.pending.clear()
        self.has_events.set()


class GuestBroadcaster:
    """Sends the guests of the node, and their changes, to every watcher."""

    def __init__(self) -> None:
        self._watchers: set[_Watcher] = set()
        self._guests: dict[str, Guest] = {}
        self._is_synced = False

    def __len__(self) -> int:
        """The number of watchers."""
        return len(self._watchers)

    def update(self, guest: Guest) -> None:
        """Add a guest or replace it; an equal one causes no event."""
        if self._guests.get(guest.id) != guest:
            self._guests[guest.id] = guest
            self._broadcast(GuestEvent(GuestEventKind.PRESENT, guest))

    def delete(self, sandbox: str) -> None:
        if self._guests.pop(sandbox, None) is not None:
            self._broadcast(GuestEvent(GuestEventKind.GONE, Guest(id=sandbox)))

    def mark_synced(self) -> None:
        """All guests that exist have been added."""
        if not self._is_synced:
            self._is_synced = True
            self._broadcast(GuestEvent(GuestEventKind.SYNCED))

    async def watch(self) -> AsyncGenerator[GuestEvent, None]:
        """Yield every guest, then SYNCED, then every change.

        Raises `WatcherLagged` and `TooManyWatchers`.
        """
        if len(self._watchers) >= MAX_WATCHERS:
            raise TooManyWatchers(f"{MAX_WATCHERS} watchers are connected, which is the limit")
        first = [GuestEvent(GuestEventKind.PRESENT, guest) for guest in self._guests.values()]
        if self._is_synced:
            first.append(GuestEvent(GuestEventKind.SYNCED))
        watcher = _Watcher(first)
        self._watchers.add(watcher)
        try:
            while True:
                await watcher.has_events.wait()
                watcher.has_events.clear()
                while watcher.pending and not watcher.is_lagging:
                    yield watcher.pending.pop(next(iter(watcher.pending)))
                if watcher.is_lagging:
                    raise WatcherLagged(f"more than {MAX_PENDING} guests changed unread: watch again")
        finally:
            self._watchers.discard(watcher)

    def _broadcast(self, event: GuestEvent) -> None:
        for watcher in self._watchers:
            watcher.add(event)
