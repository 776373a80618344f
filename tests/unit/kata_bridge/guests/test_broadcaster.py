# SPDX-License-Identifier: Apache-2.0
import pytest

from bridge_api.messages import Guest, GuestEvent, GuestEventKind
from kata_bridge.guests import broadcaster
from kata_bridge.guests.broadcaster import GuestBroadcaster, TooManyWatchers, WatcherLagged

SYNCED = GuestEvent(GuestEventKind.SYNCED)

pytestmark = pytest.mark.asyncio


def present(name: str, generation: int = 0) -> GuestEvent:
    return GuestEvent(GuestEventKind.PRESENT, Guest(id=name, generation=generation))


def gone(name: str) -> GuestEvent:
    return GuestEvent(GuestEventKind.GONE, Guest(id=name))


async def test_synced_follows_the_last_known_guest() -> None:
    guests = GuestBroadcaster()
    guests.update(Guest(id="a"))
    watch = guests.watch()
    assert await anext(watch) == present("a")
    guests.update(Guest(id="b"))
    guests.mark_synced()
    guests.mark_synced()
    assert [await anext(watch), await anext(watch)] == [present("b"), SYNCED]
    late = guests.watch()
    assert [await anext(late) for _ in range(3)] == [present("a"), present("b"), SYNCED]


async def test_unread_event_is_replaced_by_a_newer_one() -> None:
    guests = GuestBroadcaster()
    guests.mark_synced()
    watch = guests.watch()
    assert await anext(watch) == SYNCED
    for generation in (1, 2, 2, 3):
        guests.update(Guest(id="a", generation=generation))
    guests.update(Guest(id="b"))
    guests.delete("b")
    guests.delete("never")
    assert [await anext(watch), await anext(watch)] == [present("a", 3), gone("b")]


async def test_lagging_watcher_is_ended_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "MAX_PENDING", 3)
    guests = GuestBroadcaster()
    guests.mark_synced()
    sleeper, reader = guests.watch(), guests.watch()
    assert (await anext(sleeper), await anext(reader)) == (SYNCED, SYNCED)
    for number in range(5):
        guests.update(Guest(id=f"g{number}"))
        assert await anext(reader) == present(f"g{number}")
    with pytest.raises(WatcherLagged):
        await anext(sleeper)
    assert len(guests) == 1


async def test_watchers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "MAX_WATCHERS", 1)
    guests = GuestBroadcaster()
    guests.mark_synced()
    first = guests.watch()
    assert await anext(first) == SYNCED
    with pytest.raises(TooManyWatchers):
        await anext(guests.watch())
    await first.aclose()
    assert await anext(guests.watch()) == SYNCED
