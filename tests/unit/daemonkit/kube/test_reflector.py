# SPDX-License-Identifier: Apache-2.0
"""A reflector's requests, cache, changes and age."""

import asyncio
from collections.abc import Generator, Sequence

import msgspec
import pytest

from daemonkit.fairness.emptying import Holder, emptied
from daemonkit.kube import reflector
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import CONFIG_MAPS
from daemonkit.kube.store import Added, Change, Modified
from daemonkit.kube.watch import LARGE_BYTES, BoundedParser
from tests.unit.daemonkit.kube.reflector_environment import ConfigMap, ReflectorEnvironment, refused, running

pytestmark = pytest.mark.asyncio


async def test_an_empty_list_is_synced() -> None:
    env = ReflectorEnvironment()
    async with env.running():
        assert env.reflector.age_s() is None
        await env.reflector.synced.wait()
        assert (env.batches, env.changes_seen) == (1, [])
        assert env.reflector.age_s() is not None


@pytest.mark.parametrize("asks_early", [False, True])
async def test_list_and_watch_requests_have_their_parameters(asks_early: bool) -> None:
    env = ReflectorEnvironment(Timing(page_size=2, watch_timeout_s=100.0), asks_early=asks_early)
    for name in "abc":
        env.put(name)
    async with env.running():
        await asyncio.sleep(1)
        env.storage.bump()
        env.storage.compact()
        await asyncio.sleep(5)
        env.transport.failures = [refused(500), refused(410)]
        env.transport.cut()
        await asyncio.sleep(5)
        env.put("d")
        env.transport.cut()
        await asyncio.sleep(5)
    first, second, watch, third, fourth, _, _, _, last, *_, again = env.transport.queries
    assert first == {"limit": "2"}
    assert second.keys() == {"limit", "continue"}
    assert watch == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "4",
        "timeoutSeconds": "93",
    }
    assert again == {**watch, "resourceVersion": env.reflector.resource_version}
    assert third == {"limit": "2", "resourceVersion": "4", "resourceVersionMatch": "NotOlderThan"}
    assert fourth.keys() == {"limit", "continue"}
    assert last == {"limit": "2", "resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"}


async def test_a_bookmark_resets_the_age() -> None:
    env = ReflectorEnvironment()
    async with env.running():
        await asyncio.sleep(50)
        assert 49 < env.age_s() < 51
        await asyncio.sleep(20)
        assert env.age_s() < 11
        env.transport.is_stalled = True
        await asyncio.sleep(600)
        assert env.age_s() > 500


async def test_a_quiet_resource_is_relisted_before_it_is_stale() -> None:
    """A server has no bookmarks of a kind that had no event since the server started."""
    env = ReflectorEnvironment()
    env.transport.bookmark_interval_s = 1e9
    async with env.running():
        ages = []
        for _ in range(360):
            await asyncio.sleep(10)
            ages.append(env.reflector.age_s() or 0.0)
        assert 200 < max(ages) < 240
    # Each watch's end shows that nothing was lost on its stream.
    verbs = ["watch" if "watch" in query else "list" for query in env.transport.queries]
    assert verbs[:9] == [*["list", "watch", "watch", "watch"] * 2, "list"]


async def test_a_handler_can_distinguish_a_list_from_events() -> None:
    env = ReflectorEnvironment()
    env.put("a")
    async with env.running():
        await asyncio.sleep(1)
        env.put("b")
        await asyncio.sleep(1)
        env.transport.is_stalled = True
        env.storage.delete(CONFIG_MAPS, "ns", "b")
        env.storage.compact()
        env.transport.heal()
        await asyncio.sleep(120)
        assert env.is_converged()
        assert env.by_list == [True, False, True]
        assert not env.reflector.is_relisting


async def test_excluded_objects_are_never_stored() -> None:
    env = ReflectorEnvironment(include=lambda metadata: metadata.name != "b")
    for name in "abc":
        env.put(name)
    async with env.running():
        await asyncio.sleep(1)
        env.put("b", x="1")
        env.storage.create(CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "ns2"}})
        env.put("d")
        env.storage.create(CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "ns3"}, "data": 1})
        await asyncio.sleep(1)
        assert [name for _, name in env.reflector.objects] == ["a", "c", "d"]
        assert env.reflector.undecodable == {}
        assert env.reflector.resource_version == str(env.storage.revision)


async def test_names_of_filtered_objects_are_kept_if_asked_for() -> None:
    env = ReflectorEnvironment(
        include=lambda metadata: metadata.name != "b",
        notes_filtered=lambda metadata: metadata.namespace != "ns3",
    )
    env.storage.create(CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "ns2"}})
    env.storage.create(CONFIG_MAPS, {"metadata": {"name": "b", "namespace": "ns3"}})
    async with env.running():
        await asyncio.sleep(1)
        assert env.reflector.filtered == {"ns2": {"b"}}
        batches = env.batches
        env.put("b")
        await asyncio.sleep(1)
        assert (env.reflector.filtered, env.batches) == ({"ns": {"b"}, "ns2": {"b"}}, batches + 1)
        # Another version of the same changes nothing; nor does an object that is included.
        env.put("b", x="1")
        await asyncio.sleep(1)
        assert env.batches == batches + 1
        env.storage.delete(CONFIG_MAPS, "ns2", "b")
        await asyncio.sleep(1)
        assert (env.reflector.filtered, env.batches) == ({"ns": {"b"}}, batches + 2)
        # A relist takes them over as well.
        env.transport.is_stalled = True
        await asyncio.sleep(1)
        env.storage.delete(CONFIG_MAPS, "ns", "b")
        env.storage.compact()
        env.transport.heal()
        await asyncio.sleep(120)
        assert (env.reflector.filtered, env.batches) == ({}, batches + 3)


async def test_objects_are_transformed_before_they_are_stored() -> None:
    def shape(item: ConfigMap) -> ConfigMap:
        return msgspec.structs.replace(item, data={"size": str(len(item.data))})

    env = ReflectorEnvironment(transform=shape)
    env.put("a", x="1", y="2")
    async with env.running():
        await asyncio.sleep(1)
        env.put("a", x="1")
        await asyncio.sleep(1)
    assert [change.value.data for change in env.changes_seen if isinstance(change, Added | Modified)] == [
        {"size": "2"},
        {"size": "1"},
    ]
    assert env.reflector.objects["ns", "a"].data == {"size": "1"}


async def test_a_failing_handler_does_not_end_the_watch(capsys: pytest.CaptureFixture[str]) -> None:
    env = ReflectorEnvironment()

    def fail(changes: Sequence[Change[ConfigMap]]) -> None:
        raise ZeroDivisionError

    reflector = Reflector(
        env.transport, CONFIG_MAPS, ConfigMap, on_change=fail, clock=asyncio.get_running_loop().time
    )
    async with running(reflector):
        await reflector.synced.wait()
        env.put("a")
        await asyncio.sleep(1)
        assert list(reflector.objects) == [("ns", "a")]
    assert "handler of changes failed" in capsys.readouterr().err


async def test_a_large_page_does_not_stall_other_tasks() -> None:
    """A server may answer with more than the limit that it was asked for: any number of objects."""
    env = ReflectorEnvironment()
    for number in range(2_000):
        env.put(f"c-{number}")
    loop = asyncio.get_running_loop()
    turns = [0]  # how many objects were decoded in each turn of the loop

    def count(value: ConfigMap) -> ConfigMap:
        if not turns[-1]:
            loop.call_soon(turns.append, 0)
        turns[-1] += 1
        return value

    reflector = Reflector(
        env.transport, CONFIG_MAPS, ConfigMap, transform=count, timing=Timing(page_size=2_000)
    )
    async with running(reflector):
        await reflector.synced.wait()
    assert turns == [100] * 20 + [0]


async def test_a_large_object_is_counted_and_parsed_in_two_steps() -> None:
    """Each takes up to 20 ms, in a list as in a watch, and what came before it is delivered first."""
    env = ReflectorEnvironment()
    log: list[str] = []

    def note(what: str) -> None:
        log.append(what)
        asyncio.get_running_loop().call_soon(log.append, "others")

    class _Noting(BoundedParser[ConfigMap], frozen=True):
        def excess(self, raw: msgspec.Raw | bytes) -> str | None:
            note("counted")
            return super().excess(raw)

    def parse(raw: msgspec.Raw | bytes) -> ConfigMap:
        note("parsed")
        return msgspec.json.decode(raw, type=ConfigMap)

    def deliver(changes: Sequence[Change[ConfigMap]]) -> None:
        note(f"delivered {len(changes)}")

    reflector = Reflector(env.transport, CONFIG_MAPS, _Noting(parse), on_change=deliver)
    env.put("a", text="x" * LARGE_BYTES)
    async with running(reflector):
        await reflector.synced.wait()
        assert log[:5] == ["counted", "others", "parsed", "others", "delivered 1"]
        await asyncio.sleep(1)
        log.clear()
        env.put("b")
        env.put("c", text="x" * LARGE_BYTES)
        await asyncio.sleep(1)
    # One small object, and a large one: what came first is delivered before the other is looked at.
    assert log[:2] == ["counted", "parsed"]
    assert [each for each in log[2:] if each != "others"] == [
        "delivered 1",
        "counted",
        "parsed",
        "delivered 1",
    ]
    assert "others" in log[log.index("counted", 1) : log.index("parsed", 2)]


async def test_the_changes_of_a_list_are_delivered_in_parts() -> None:
    """A handler of 100 000 changes takes a second. Each part is stored as it is delivered."""
    env = ReflectorEnvironment(delivers_parts=True)
    names = [f"c-{number}" for number in range(1_200)]
    for name in names:
        env.put(name)
    async with env.running():
        await env.reflector.synced.wait()
        assert (env.batches, len(env.mirror)) == (3, 1_200)
        # The watch has ended, so that only a list shows what has gone.
        for name in names[:1_100]:
            env.delete(name)
        env.put("new")
        env.storage.compact()
        env.transport.failures = [refused(410)]
        env.transport.cut()
        await asyncio.sleep(10)
        assert env.is_converged()
    assert env.by_list[:3] == [True] * 3
    assert not env.reflector.is_relisting


async def test_what_a_list_leaves_behind_ends_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects of a list that are known already, or that went, ended in one step: of 30 000 in 30 ms."""
    given = list[list[int]]()

    def note(*holders: Holder) -> Generator[None, None, None]:
        given.append([len(each) for each in holders])
        return emptied(*holders)

    monkeypatch.setattr(reflector, "emptied", note)
    env = ReflectorEnvironment(delivers_parts=True)
    for number in range(700):
        env.put(f"c-{number}")
    async with env.running():
        await env.reflector.synced.wait()
        await asyncio.sleep(1)
        assert given == [[700, 0, 700], [700]]
        assert len(env.reflector.objects) == 700
