# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections.abc import Mapping

import pytest

from daemonkit.kube.byte_budget import OBJECT_BYTES, ByteBudget
from daemonkit.kube.reflector import Timing
from daemonkit.kube.resources import NameOnly
from daemonkit.kube.store import DecodeFailed
from daemonkit.kube.watch import Undecodable
from tests.unit.daemonkit.kube.reflector_environment import ConfigMap, ReflectorEnvironment, lists, refused

pytestmark = pytest.mark.asyncio

KIB = 1 << 10
OVER = "the objects of this API server take more than 1 MiB"


def budget(limit_bytes: int = 1024 * KIB) -> ByteBudget[ConfigMap]:
    return ByteBudget(limit_bytes, lambda each: sum(map(len, each.data.values())))


def text(kib: int) -> str:
    """So much that an object with it takes `kib` KiB."""
    return "x" * (kib * KIB - OBJECT_BYTES)


def reason(env: ReflectorEnvironment) -> str:
    failure = env.reflector.failure
    return "" if failure is None else failure.message


async def test_a_list_within_the_budget_is_taken() -> None:
    env = ReflectorEnvironment(budget=budget())
    for number in range(4):
        env.put(f"{number}", text=text(256))
    async with env.running():
        await env.reflector.synced.wait()
        assert len(env.reflector.objects) == 4


async def test_a_list_beyond_the_budget_is_refused_until_it_is_smaller() -> None:
    env = ReflectorEnvironment(Timing(page_size=2), budget=budget())
    for number in range(100):
        env.put(f"{number:02}", text=text(256))
    async with env.running():
        await asyncio.sleep(5)
        assert (reason(env), env.reflector.synced.is_set()) == (OVER, False)
        # Two pages fit, and nothing more was read of any list.
        assert {query.get("continue") is None for query in lists(env)} == {True, False}
        assert max(_pages(lists(env))) == 3
        for number in range(4, 100):
            env.delete(f"{number:02}")
        await asyncio.sleep(60)
        assert env.is_converged()
        assert reason(env) == ""


def _pages(queries: list[Mapping[str, str]]) -> list[int]:
    counts: list[int] = []
    for query in queries:
        if "continue" not in query:
            counts.append(0)
        counts[-1] += 1
    return counts


async def test_a_list_without_end_is_ended() -> None:
    env = ReflectorEnvironment(budget=budget())
    item = {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"}}
    metadata = {"resourceVersion": "7", "continue": "more"}
    env.transport.stale_list = {"metadata": metadata, "items": [item] * 500}
    async with env.running():
        await asyncio.sleep(0.1)
        assert reason(env) == OVER
        assert _pages(lists(env)) == [3]


async def test_events_beyond_the_budget_end_the_watch() -> None:
    env = ReflectorEnvironment(budget=budget())
    env.put("first", text=text(256))
    async with env.running():
        await env.reflector.synced.wait()
        for number in range(100):
            env.put(f"{number}", text=text(256))
            await asyncio.sleep(0.01)
        await asyncio.sleep(5)
        assert reason(env) == OVER
        assert len(env.reflector.objects) <= 5
        for number in range(100):
            env.delete(f"{number}")
        await asyncio.sleep(60)
        assert env.is_converged()


async def test_changes_of_what_is_held_are_within_the_budget() -> None:
    env = ReflectorEnvironment(budget=budget())
    async with env.running():
        await env.reflector.synced.wait()
        for number in range(100):
            env.put("same", text=text(256), number=str(number))
            env.put(f"short-lived-{number}", text=text(256))
            await asyncio.sleep(0.01)
            env.delete(f"short-lived-{number}")
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert env.is_converged()
        assert (reason(env), env.reflector.lists) == ("", 1)


async def test_reflectors_of_one_server_share_the_budget() -> None:
    shared = budget()
    one, other = ReflectorEnvironment(budget=shared), ReflectorEnvironment(budget=shared)
    for number in range(3):
        one.put(f"{number}", text=text(256))
        other.put(f"{number}", text=text(256))
    async with one.running():
        await one.reflector.synced.wait()
        async with other.running():
            await asyncio.sleep(5)
            assert (reason(one), reason(other)) == ("", OVER)
            one.delete("0")
            one.delete("1")
            await asyncio.sleep(60)
            assert (reason(other), len(other.reflector.objects)) == ("", 3)


async def test_lists_under_way_share_the_budget() -> None:
    """A server may begin all its lists, and end none of them."""
    shared = budget()
    envs = [ReflectorEnvironment(Timing(page_size=1), budget=shared) for _ in range(8)]
    for env in envs:
        for number in range(8):
            env.put(f"{number}", text=text(256))
    async with contextlib.AsyncExitStack() as stack:
        for env in envs:
            await stack.enter_async_context(env.running())
        await asyncio.sleep(0.3)
        assert [reason(env) for env in envs] == [OVER] * 8
        # Each page has an object of 256 KiB, of which four fit. Of the lists 4, 2, 1, 1 and none go on.
        assert sum(len(lists(env)) for env in envs) == 8 + 4 + 2 + 1 + 1


async def test_events_of_reflectors_share_the_budget() -> None:
    """A little of each, of no one of them enough to be counted."""
    shared = budget()
    envs = [ReflectorEnvironment(budget=shared) for _ in range(32)]
    async with contextlib.AsyncExitStack() as stack:
        for env in envs:
            await stack.enter_async_context(env.running())
            await env.reflector.synced.wait()
        for env in envs:
            env.put("a", text=text(56))
            await asyncio.sleep(0.01)
        held = sum(len(env.reflector.objects) for env in envs)
        assert held * 56 * KIB <= 1024 * KIB * 17 // 16
        assert OVER in {reason(env) for env in envs}


async def test_a_smaller_list_is_taken_beside_what_is_held() -> None:
    """Else what has been deleted meanwhile would stand in its own way, and in that of others."""
    shared = budget()
    one, other = (ReflectorEnvironment(budget=shared) for _ in range(2))
    for number in range(3):
        one.put(f"{number}", text=text(256))
    other.put("0", text=text(256))
    async with one.running(), other.running():
        await one.reflector.synced.wait()
        await other.reflector.synced.wait()
        # So little is taken although it is too much with the rest.
        other.put("little", text=text(32))
        await asyncio.sleep(1)
        assert (len(other.reflector.objects), reason(other)) == (2, "")
        # No watch sees the deletions: only the next list brings them.
        one.transport.is_stalled = True
        for number in range(3):
            one.delete(f"{number}")
        one.storage.compact()
        one.transport.heal()
        await asyncio.sleep(60)
        assert (reason(one), one.is_converged()) == ("", True)
        other.put("1", text=text(256))
        await asyncio.sleep(60)
        assert (reason(other), other.is_converged()) == ("", True)


async def test_what_is_unreadable_is_counted_with_its_uid() -> None:
    """The UID is the server's to choose, as is all else that is kept of such an object."""
    found = budget()
    metadata = NameOnly(name="n", namespace="ns", uid="u" * KIB)
    assert found.size_of(Undecodable(metadata, "reason")) == OBJECT_BYTES + KIB + 9
    assert found.size_of(DecodeFailed(("ns", "n"), "reason", "u" * KIB)) == OBJECT_BYTES + KIB + 9


async def test_a_list_of_empty_pages_without_end_is_ended() -> None:
    env = ReflectorEnvironment(budget=budget())
    env.transport.stale_list = {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": []}
    async with env.running():
        await asyncio.sleep(0.25)
        assert reason(env) == OVER
        assert _pages(lists(env)) == [17]


async def test_one_list_of_a_server_comes_whole_at_a_time() -> None:
    """One that expires all pages would else have as much of it read as there are kinds."""
    both = budget()
    first, second = ReflectorEnvironment(budget=both), ReflectorEnvironment(budget=both)
    first.put("a", text="x")
    second.put("a", text="x")
    first.transport.failures = [refused(410)]
    second.transport.failures = [refused(410)]
    async with first.running(), second.running():
        await first.reflector.synced.wait()
        assert reason(second) == "another list of this API server is under way as a whole"
        assert [query.get("limit") for query in lists(second)] == ["500"]
        await second.reflector.synced.wait()
        assert [query.get("limit") for query in lists(second)] == ["500", None]


async def test_lines_without_an_end_share_the_budget() -> None:
    """Each watch holds up to 16 MiB of one, and a server has as many watches as there are kinds."""
    both = budget()
    first, second = ReflectorEnvironment(budget=both), ReflectorEnvironment(budget=both)
    async with first.running(), second.running():
        await asyncio.sleep(1)
        first.transport.inject(b"x" * 600 * KIB)
        await asyncio.sleep(1)
        second.transport.inject(b"x" * 600 * KIB)
        await asyncio.sleep(0.1)
        assert (reason(first), reason(second)) == ("", OVER)
        first.transport.cut()
        await asyncio.sleep(60)
        second.transport.inject(b"x" * 600 * KIB)
        await asyncio.sleep(0.1)
        assert (reason(first), reason(second)) == ("", "")
