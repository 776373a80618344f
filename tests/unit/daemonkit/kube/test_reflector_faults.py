# SPDX-License-Identifier: Apache-2.0
"""A reflector of a server that stalls, lags or sends what nobody can read."""

import asyncio

import pytest

from daemonkit.kube.resources import CONFIG_MAPS
from daemonkit.testing import kube_wire as wire
from tests.unit.daemonkit.kube.worlds import EVERY, World, expired, lists

pytestmark = pytest.mark.asyncio


async def test_a_half_open_watch_is_left_and_taken_up_again() -> None:
    world = World()
    async with world.running():
        await asyncio.sleep(1)
        world.transport.is_stalled = True
        world.put("a")
        await asyncio.sleep(85)
        assert not world.is_converged()
        world.transport.is_stalled = False
        await asyncio.sleep(10)
        assert world.is_converged()
        assert len(lists(world)) == 1


async def test_a_stale_list_after_a_newer_watch_changes_nothing() -> None:
    world = World()
    world.put("a")
    stale = wire.list_page(world.storage, EVERY, {})
    async with world.running():
        await world.reflector.synced.wait()
        world.put("b")
        world.delete("a")
        await asyncio.sleep(1)
        world.transport.stale_list = stale
        world.transport.inject(expired())
        await asyncio.sleep(100)
        assert world.is_converged()
        assert world.age_s() > 99
        assert "resourceVersion" not in lists(world)[-1]
        world.transport.heal()
        await asyncio.sleep(31)
        assert world.is_converged()
        assert len(world.told) == 3


async def test_one_that_does_not_decode_does_not_hide_the_others() -> None:
    world = World()
    world.put("a")
    world.storage.put(CONFIG_MAPS, {"metadata": {"name": "odd", "namespace": "ns"}, "data": {"x": 1}})
    async with world.running():
        await world.reflector.synced.wait()
        assert list(world.reflector.objects) == [("ns", "a")]
        assert world.reflector.unreadable == {("ns", "odd"): "Expected `str`, got `int` - at `$.data[...]`"}
        world.put("odd", x="1")
        await asyncio.sleep(1)
        assert world.is_converged()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff garbage \n",
        b"<html>502</html>\n",
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
        b'{"type": "SHRUNK", "object": {}}\n',
        b"x" * (17 * 1024 * 1024),
    ],
)
async def test_garbage_leads_to_a_new_list(garbage: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    async with world.running():
        await world.reflector.synced.wait()
        world.put("a")
        await asyncio.sleep(1)
        world.transport.inject(garbage)
        world.put("b")
        await asyncio.sleep(2)
        assert world.is_converged()
        assert len(lists(world)) == 2
    assert "list or watch failed" in capsys.readouterr().err
