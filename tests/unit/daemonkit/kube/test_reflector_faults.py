# SPDX-License-Identifier: Apache-2.0
"""A reflector of a server that stalls, lags or sends what nobody can read."""

import asyncio

import pytest

from daemonkit.kube import oversized_objects
from daemonkit.kube.freshness import Failure
from daemonkit.kube.object_limits import MAX_OBJECT_BYTES
from daemonkit.kube.reflector import PAGE_BYTES, Timing
from daemonkit.kube.resources import CONFIG_MAPS
from daemonkit.metrics import Registry
from devkit.kube import wire as wire
from tests.unit.daemonkit.kube.worlds import EVERY, World, expired, lists, refused

pytestmark = pytest.mark.asyncio


async def test_a_half_open_watch_is_resumed() -> None:
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


async def test_an_undecodable_object_does_not_hide_others() -> None:
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


async def test_an_oversized_object_does_not_hide_others() -> None:
    world = World()
    world.put("a")
    world.put("large", text="x" * MAX_OBJECT_BYTES)
    async with world.running():
        await world.reflector.synced.wait()
        assert list(world.reflector.objects) == [("ns", "a")]
        (failure,) = world.reflector.decode_failures.values()
        assert failure.is_too_large
        assert (failure.key, failure.reason) == (
            ("ns", "large"),
            f"too large: it has more than {5 << 20} bytes",
        )
        assert failure.uid
        metric = Registry()
        oversized_objects.add_metric(metric)
        assert b'vcnode_process_oversized_objects{kind="configmaps"} 1' in metric.render()
        world.put("large", text="y" * MAX_OBJECT_BYTES)
        await asyncio.sleep(1)
        batches = world.batches
        world.put("large", text="z" * MAX_OBJECT_BYTES)
        await asyncio.sleep(1)
        assert world.batches == batches  # the same news is none
        world.put("a", text="w" * MAX_OBJECT_BYTES)
        await asyncio.sleep(1)
        assert not world.reflector.objects
        world.put("a")
        world.delete("large")
        await asyncio.sleep(1)
        assert world.is_converged()
        assert not world.reflector.decode_failures


async def test_pages_of_large_objects_are_halved() -> None:
    world = World(Timing(page_size=20))
    for number in range(20):
        world.put(f"large{number:02}", text="x" * (PAGE_BYTES // 4))
    for number in range(80):
        world.put(f"small{number:02}")
    async with world.running():
        await world.reflector.synced.wait()
        assert len(world.reflector.objects) == 100
    limits = [int(query["limit"]) for query in lists(world)]
    assert limits == [20, 10, 5, *[2] * 10, 2, 4, 8, 16, 20, 20, 20]


async def test_an_object_larger_than_a_page_is_listed_alone() -> None:
    world = World(Timing(page_size=20))
    world.put("a")
    world.put("large", text="x" * (PAGE_BYTES + 1))
    async with world.running():
        await world.reflector.synced.wait()
        assert list(world.reflector.objects) == [("ns", "a")]
        assert world.reflector.decode_failures[("ns", "large")].is_too_large


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


async def test_a_resource_not_installed_is_synced_and_empty() -> None:
    world = World(may_be_absent=True)
    world.storage.absent.add(CONFIG_MAPS)
    async with world.running():
        await world.reflector.synced.wait()
        assert world.reflector.is_absent
        assert (dict(world.reflector.objects), world.batches) == ({}, 1)
        await asyncio.sleep(300)
        assert world.batches == 1
        assert 10 <= len(lists(world)) <= 22  # twice a minute, with some jitter
        assert world.age_s() <= 30
        world.storage.absent.clear()
        world.put("a")
        await asyncio.sleep(31)
        assert world.is_converged()
        assert not world.reflector.is_absent


async def test_an_empty_list_after_a_404_calls_the_handler() -> None:
    world = World(may_be_absent=True)
    world.storage.absent.add(CONFIG_MAPS)
    async with world.running():
        await world.reflector.synced.wait()
        world.storage.absent.clear()
        await asyncio.sleep(31)
        assert (world.batches, world.reflector.is_absent) == (2, False)


async def test_a_404_removes_no_listed_objects() -> None:
    world = World(may_be_absent=True)
    world.put("a")
    async with world.running():
        await asyncio.sleep(1)
        world.storage.absent.add(CONFIG_MAPS)
        world.transport.inject(expired())
        await asyncio.sleep(100)
        assert list(world.reflector.objects) == [("ns", "a")]
        assert not world.reflector.is_absent
        assert world.age_s() > 90


def _logged_codes(log: str) -> list[str]:
    """The HTTP codes of the failures that were logged."""
    lines = [line for line in log.splitlines() if "list or watch failed" in line]
    return [line.partition('reason="')[2][:3] for line in lines]


async def test_a_vanished_resource_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Its definition was deleted. It is asked for every 30 s, for days; the log has its begin and its end."""
    world = World(may_be_absent=True)
    world.put("a")
    async with world.running():
        await asyncio.sleep(1)
        world.storage.absent.add(CONFIG_MAPS)
        world.transport.inject(expired())
        capsys.readouterr()
        await asyncio.sleep(3600)
        assert len(lists(world)) > 60
        assert _logged_codes(capsys.readouterr().err) == ["410", "404"]
        failure = _failure(world)
        assert failure is not None
        assert (failure.code, failure.since < 10) == (404, True)

        world.storage.absent.clear()
        await asyncio.sleep(60)
        back, listed = capsys.readouterr().err.splitlines()
        assert "list and watch work again" in back
        assert "listed" in listed
        assert _failure(world) is None


async def test_a_new_reason_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.transport.failures = [*[refused(503)] * 5, *[refused(403)] * 5, *[refused(503)] * 5]
    async with world.running():
        await world.reflector.synced.wait()
    codes = [
        line.split('reason="')[1][:3] for line in capsys.readouterr().err.splitlines() if "failed" in line
    ]
    assert codes == ["503", "403", "503"]


async def test_a_watch_that_always_fails_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The lists in between succeed, and end nothing."""
    world = World()
    async with world.running():
        for _ in range(20):
            await asyncio.sleep(40)
            world.transport.inject(b"<html>502</html>\n")
        await asyncio.sleep(40)
        assert len(lists(world)) > 20
        lines = capsys.readouterr().err.splitlines()
        assert sum("list or watch failed" in line for line in lines) == 1
        assert not any("work again" in line for line in lines)
        world.put("a")
        await asyncio.sleep(1)
    assert "work again" in capsys.readouterr().err


async def test_a_404_does_not_sync_a_required_resource() -> None:
    world = World()
    world.storage.absent.add(CONFIG_MAPS)
    async with world.running():
        await asyncio.sleep(100)
        assert not world.reflector.synced.is_set()
        assert world.batches == 0


@pytest.mark.parametrize("code", [401, 403, 503])
async def test_a_403_is_not_an_absent_resource(code: int) -> None:
    world = World(may_be_absent=True)
    world.transport.failures = [refused(code)] * 50
    async with world.running():
        await asyncio.sleep(100)
        assert not world.reflector.synced.is_set()


def _failure(world: World) -> Failure | None:
    """By a call, so that a type checker takes no earlier answer for this one."""
    return world.reflector.failure


async def test_a_failure_lasts_until_the_next_proof() -> None:
    world = World()
    began = asyncio.get_running_loop().time()
    world.transport.failures = [refused(403)] * 3
    async with world.running():
        await asyncio.sleep(1)
        first = _failure(world)
        assert first is not None
        assert (first.code, first.since - began < 0.5) == (403, True)
        assert "403" in first.message
        await world.reflector.synced.wait()
        assert asyncio.get_running_loop().time() - began > 1
        assert _failure(world) is None
        world.transport.failures = [refused(500)] * 1000
        world.transport.cut()
        await asyncio.sleep(100)
        second = _failure(world)
        assert second is not None
        assert (second.code, second.since > first.since) == (500, True)
        await asyncio.sleep(100)
        assert _failure(world) == second
        world.transport.heal()
        await asyncio.sleep(100)
        assert _failure(world) is None
