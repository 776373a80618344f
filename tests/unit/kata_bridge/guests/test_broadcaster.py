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


async def test_synced_follows_the_last_guest_that_was_known() -> None:
    known = GuestBroadcaster()
    known.present(Guest(id="a"))
    watch = known.watch()
    assert await anext(watch) == present("a")
    known.present(Guest(id="b"))
    known.synced()
    known.synced()
    assert [await anext(watch), await anext(watch)] == [present("b"), SYNCED]
    late = known.watch()
    assert [await anext(late) for _ in range(3)] == [present("a"), present("b"), SYNCED]


async def test_what_was_said_is_not_said_again_and_what_was_not_read_is_replaced() -> None:
    known = GuestBroadcaster()
    known.synced()
    watch = known.watch()
    assert await anext(watch) == SYNCED
    for generation in (1, 2, 2, 3):
        known.present(Guest(id="a", generation=generation))
    known.present(Guest(id="b"))
    known.gone("b")
    known.gone("never")
    assert [await anext(watch), await anext(watch)] == [present("a", 3), gone("b")]


async def test_one_that_does_not_read_is_ended_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "MAX_PENDING", 3)
    known = GuestBroadcaster()
    known.synced()
    sleeper, reader = known.watch(), known.watch()
    assert (await anext(sleeper), await anext(reader)) == (SYNCED, SYNCED)
    for number in range(5):
        known.present(Guest(id=f"g{number}"))
        assert await anext(reader) == present(f"g{number}")
    with pytest.raises(WatcherLagged):
        await anext(sleeper)
    assert len(known) == 1


async def test_there_is_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "MAX_WATCHERS", 1)
    known = GuestBroadcaster()
    known.synced()
    first = known.watch()
    assert await anext(first) == SYNCED
    with pytest.raises(TooManyWatchers):
        await anext(known.watch())
    await first.aclose()
    assert await anext(known.watch()) == SYNCED
