# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections.abc import Callable, Mapping

import pytest

from daemonkit.kube.byte_budget import OBJECT_BYTES, ByteBudget, OverBudgetError
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import NameOnly
from daemonkit.kube.shared_budget import SharedBudget
from daemonkit.kube.store import DecodeFailed, Store
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


@pytest.mark.parametrize("has_cut_lines", [True, False], ids=["cut-lines", "whole-lines"])
async def test_events_beyond_the_budget_end_the_watch(has_cut_lines: bool) -> None:
    """Also what comes in whole lines: of these nothing is left that waits for its end."""
    env = ReflectorEnvironment(budget=budget())
    env.transport.has_cut_lines = has_cut_lines
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


def shared(process: SharedBudget, ended: Callable[[], None] = lambda: None) -> ByteBudget[ConfigMap]:
    def size_of(each: ConfigMap) -> int:
        return sum(map(len, each.data.values()))

    return ByteBudget(64 << 20, size_of, shared=process, ended=ended)


async def test_who_has_more_than_its_share_of_the_process_is_refused() -> None:
    process = SharedBudget(4 << 20)
    hog, other = ReflectorEnvironment(budget=shared(process)), shared(process)
    for number in range(8):
        hog.put(f"{number}", text=text(1024))
    async with hog.running():
        await asyncio.sleep(5)
        assert reason(hog).startswith("the memory of the process is used up: ")
        assert not hog.reflector.synced.is_set()
        other.close()
        assert process.share_bytes == 4 << 20


async def test_who_has_less_than_its_share_has_another_one_ended() -> None:
    ends: list[str] = []
    process = SharedBudget(16 << 20)
    hog = ReflectorEnvironment(Timing(page_size=1), budget=shared(process, lambda: ends.append("hog")))
    honest = ReflectorEnvironment(budget=shared(process, lambda: ends.append("honest")))
    for number in range(13):
        hog.put(f"{number}", text=text(1024))
    async with hog.running():
        await hog.reflector.synced.wait()
        for number in range(2):
            honest.put(f"{number}", text=text(512))
        async with honest.running():
            await honest.reflector.synced.wait()
    assert set(ends) == {"hog"}


async def test_a_list_beside_much_that_it_replaces_has_that_given_back() -> None:
    """Both do not fit. Refused again and again, the tenant would never see what has changed."""
    ends: list[str] = []
    process = SharedBudget(16 << 20)
    one = ReflectorEnvironment(Timing(page_size=1), budget=shared(process, lambda: ends.append("one")))
    for number in range(10):
        one.put(f"{number}", text=text(1024))
    async with one.running():
        await one.reflector.synced.wait()
        one.storage.compact()
        one.transport.cut()
        one.transport.failures = [refused(410)]
        await asyncio.sleep(5)
    assert set(ends) == {"one"}


async def test_a_page_is_held_until_it_was_read() -> None:
    """With what it is cut into: a page of many small items takes several times its bytes."""
    most = 0

    class WatchedBudget(SharedBudget):
        def held_changed(self, more_bytes: int) -> None:
            nonlocal most
            super().held_changed(more_bytes)
            most = max(most, self.total_bytes())

    process = WatchedBudget(64 << 20)
    one = ReflectorEnvironment(budget=shared(process))
    for number in range(4):
        one.put(f"{number}", text=text(1024))
    async with one.running():
        await one.reflector.synced.wait()
        assert most > 7 << 20
        assert process.total_bytes() == 4 << 20


async def test_what_a_page_is_cut_into_is_held_with_it() -> None:
    """A page of many small items takes several times its bytes, until they were read."""
    process = SharedBudget(64 << 20)
    one = shared(process)
    part = one.part(Store())
    part.note_page(3 << 20)
    part.note_listed(1 << 20)
    assert one.held_bytes == 4 << 20
    part.end_page(1 << 20)
    assert one.held_bytes == 1 << 20
    part.end_list()
    assert one.held_bytes == 0


async def test_nothing_is_left_in_the_budget_of_the_process() -> None:
    process = SharedBudget(64 << 20)
    one = shared(process)
    part = one.part(Store())
    one.note_waiting(100)
    part.note_pending(1000)
    part.note_events(10_000)
    one.note_received(100_000)
    assert (process.total_bytes(), one.held_bytes) == (111_100, 111_100)
    one.note_waiting(-100)
    part.end_watch()
    assert (process.total_bytes(), one.held_bytes) == (100_000, 100_000)
    one.close()
    one.note_received(-100_000)
    assert process.total_bytes() == 0


async def test_an_answer_under_way_is_charged_until_it_was_read() -> None:
    process = SharedBudget(4 << 20)
    one, _ = shared(process), shared(process)
    one.note_received(3 << 20)
    with pytest.raises(OverBudgetError, match="memory of the process is used up"):
        one.note_received(2 << 20)
    one.note_received(-(5 << 20))
    one.note_received(1 << 20)
    assert one.counted_bytes == 1 << 20


async def test_events_that_are_still_to_be_applied_are_counted() -> None:
    one = shared(SharedBudget(64 << 20))
    part = one.part(Store())
    part.note_events(10_000)
    assert one.held_bytes == 10_000
    part.note_events(5_000)
    assert one.held_bytes == 5_000
    part.end_events()
    assert one.held_bytes == 0
    part.note_events(5_000)
    part.end_watch()
    assert one.held_bytes == 0


@pytest.mark.parametrize("count", [100, 1_000, 5_000])
async def test_no_step_looks_at_all_that_is_held(count: int) -> None:
    """Whatever a tenant holds, and whether it is too much: of no change more than its own objects."""
    measured = 0

    def size_of(each: ConfigMap) -> int:
        nonlocal measured
        measured += 1
        return 0

    limit_bytes = (count + 10) * OBJECT_BYTES
    held: ByteBudget[ConfigMap] = ByteBudget(limit_bytes, size_of, shared=SharedBudget(64 << 20))
    one, other = ReflectorEnvironment(budget=held), ReflectorEnvironment(budget=held)
    for number in range(count):
        one.put(f"{number}")
    async with one.running(), other.running():
        await one.reflector.synced.wait()
        await asyncio.sleep(1)
        measured = 0
        for number in range(20):
            other.put(f"{number}", text="x" * 1_000)
            one.delete(f"{number}")
            await asyncio.sleep(0.01)
        assert 0 < measured < 100
        for number in range(40):
            other.put(f"more-{number}", text="x" * 1_000)
        await asyncio.sleep(1)
        assert "take more than" in reason(other) or count > 1_000
        assert measured < 1_000 if count > 1_000 else measured < 500
