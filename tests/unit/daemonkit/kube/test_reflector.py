# SPDX-License-Identifier: Apache-2.0
"""What a reflector asks of a server, holds, and tells its handler; how old it says that all this is."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from daemonkit.kube.reflector import Reflector, Timing
from daemonkit.kube.resources import CONFIG_MAPS
from daemonkit.kube.store import Added, Change, Modified
from tests.unit.daemonkit.kube.worlds import ConfigMap, World, refused, running

pytestmark = pytest.mark.asyncio


async def test_an_empty_list_is_synced() -> None:
    world = World()
    async with world.running():
        assert world.reflector.age_s() is None
        await world.reflector.synced.wait()
        assert (world.batches, world.told) == (1, [])
        assert world.reflector.age_s() is not None


async def test_list_and_watch_requests_have_their_parameters() -> None:
    world = World(Timing(page_size=2, watch_timeout_s=100.0))
    for name in "abc":
        world.put(name)
    async with world.running():
        await asyncio.sleep(1)
        world.storage.bump()
        world.storage.compact()
        await asyncio.sleep(5)
        world.transport.failures = [refused(500), refused(410)]
        world.transport.cut()
        await asyncio.sleep(5)
    first, second, watch, third, fourth, _, _, _, last, *_ = world.transport.queries
    assert first == {"limit": "2"}
    assert second.keys() == {"limit", "continue"}
    assert watch == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "4",
        "timeoutSeconds": "150",
    }
    assert third == {"limit": "2", "resourceVersion": "4", "resourceVersionMatch": "NotOlderThan"}
    assert fourth.keys() == {"limit", "continue"}
    assert last == {"limit": "2", "resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"}


async def test_a_bookmark_resets_the_age() -> None:
    world = World()
    async with world.running():
        await asyncio.sleep(50)
        assert 49 < world.age_s() < 51
        await asyncio.sleep(20)
        assert world.age_s() < 11
        world.transport.is_stalled = True
        await asyncio.sleep(600)
        assert world.age_s() > 500


async def test_a_quiet_resource_is_relisted_before_it_is_stale() -> None:
    """A server has no bookmarks of a kind that had no event since the server started."""
    world = World()
    world.transport.bookmark_interval_s = 1e9
    async with world.running():
        ages = []
        for _ in range(360):
            await asyncio.sleep(10)
            ages.append(world.reflector.age_s() or 0.0)
        assert 250 < max(ages) < 310


async def test_a_handler_can_tell_a_list_from_events() -> None:
    world = World()
    world.put("a")
    async with world.running():
        await asyncio.sleep(1)
        world.put("b")
        await asyncio.sleep(1)
        world.transport.is_stalled = True
        world.storage.delete(CONFIG_MAPS, "ns", "b")
        world.storage.compact()
        world.transport.heal()
        await asyncio.sleep(120)
        assert world.is_converged()
        assert world.by_list == [True, False, True]
        assert not world.reflector.is_relisting


async def test_excluded_objects_are_never_stored() -> None:
    world = World(include=lambda metadata: metadata.name != "b")
    for name in "abc":
        world.put(name)
    async with world.running():
        await asyncio.sleep(1)
        world.put("b", x="1")
        world.storage.create(CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "ns2"}})
        world.put("d")
        world.storage.create(CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "ns3"}, "data": 1})
        await asyncio.sleep(1)
        assert [name for _, name in world.reflector.objects] == ["a", "c", "d"]
        assert world.reflector.unreadable == {}
        assert world.reflector.resource_version == str(world.storage.revision)


async def test_objects_are_transformed_before_they_are_stored() -> None:
    def shape(item: ConfigMap) -> ConfigMap:
        return msgspec.structs.replace(item, data={"size": str(len(item.data))})

    world = World(transform=shape)
    world.put("a", x="1", y="2")
    async with world.running():
        await asyncio.sleep(1)
        world.put("a", x="1")
        await asyncio.sleep(1)
    assert [change.value.data for change in world.told if isinstance(change, Added | Modified)] == [
        {"size": "2"},
        {"size": "1"},
    ]
    assert world.reflector.objects["ns", "a"].data == {"size": "1"}


async def test_a_failing_handler_does_not_end_the_watch(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()

    def fail(changes: Sequence[Change[ConfigMap]]) -> None:
        raise ZeroDivisionError

    reflector = Reflector(
        world.transport, CONFIG_MAPS, ConfigMap, on_change=fail, clock=asyncio.get_running_loop().time
    )
    async with running(reflector):
        await reflector.synced.wait()
        world.put("a")
        await asyncio.sleep(1)
        assert list(reflector.objects) == [("ns", "a")]
    assert "handler of changes failed" in capsys.readouterr().err
