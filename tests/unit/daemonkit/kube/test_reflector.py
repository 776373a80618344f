# SPDX-License-Identifier: Apache-2.0
"""The reflector against a model of an API server, in virtual time and without a socket.

The model is the storage of the stand-in, which its own tests hold to what etcd does, behind a
transport that does to a client whatever a list of random acts says.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.reflector import Reflector, Timing
from daemonkit.kube.resources import CONFIG_MAPS, Identity, ObjectMeta, Status, is_older
from daemonkit.kube.store import Added, Change, Deleted, Modified
from daemonkit.testing import kube_wire as wire
from daemonkit.testing.kube_storage import Selection, StatusError, Storage
from daemonkit.testing.kube_transport import StorageTransport

EVERY = Selection(CONFIG_MAPS)


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


def refused(code: int) -> ApiError:
    return ApiError(Status(code=code, reason="Refused", message="a fault on demand"))


class World:
    """A storage, a reflector that follows it, and a second picture, made of what handlers are told."""

    def __init__(self, timing: Timing | None = None, keep: Callable[[Identity], bool] | None = None) -> None:
        self.storage = Storage()
        self.transport = StorageTransport(self.storage)
        self.told: list[Change[ConfigMap]] = []
        self.batches = 0
        self.by_list: list[bool] = []
        self.mirror: dict[tuple[str, str], ConfigMap] = {}
        self.versions: list[str] = []
        self.errors: list[BaseException] = []
        self.reflector = Reflector(
            self.transport,
            CONFIG_MAPS,
            ConfigMap,
            keep=keep,
            on_change=self._checked,
            timing=timing,
            clock=asyncio.get_running_loop().time,
            rng=lambda: 0.5,
        )

    def _checked(self, changes: Sequence[Change[ConfigMap]]) -> None:
        # The reflector goes on after a handler that fails: keep what a test would not see.
        try:
            self._on_change(changes)
        except BaseException as error:
            self.errors.append(error)
            raise

    def _on_change(self, changes: Sequence[Change[ConfigMap]]) -> None:
        self.batches += 1
        self.by_list.append(self.reflector.is_relisting)
        self.told.extend(changes)
        for change in changes:
            match change:
                case Added(key, value):
                    assert key not in self.mirror
                    self.mirror[key] = value
                case Modified(key, old, value):
                    assert self.mirror[key] == old
                    assert old.metadata.uid == value.metadata.uid
                    self.mirror[key] = value
                case Deleted(key, old):
                    assert self.mirror.pop(key) == old
        assert self.mirror == dict(self.reflector.objects)
        version = self.reflector.resource_version
        assert not self.versions or not is_older(version, self.versions[-1])
        self.versions.append(version)

    def put(self, name: str, **data: str) -> None:
        self.storage.put(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "ns"}, "data": data})

    def delete(self, name: str) -> None:
        with contextlib.suppress(StatusError):
            self.storage.delete(CONFIG_MAPS, "ns", name)

    def is_converged(self) -> bool:
        truth = [msgspec.convert(value, ConfigMap) for value in self.storage.select(EVERY)]
        return dict(self.reflector.objects) == {(v.metadata.namespace, v.metadata.name): v for v in truth}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.reflector.run())
            yield
            task.cancel()
        assert not self.errors


def lists(world: World) -> list[Mapping[str, str]]:
    return [query for query in world.transport.queries if "watch" not in query]


@pytest.mark.asyncio
async def test_an_empty_cluster_is_synced_too() -> None:
    world = World()
    async with world.running():
        assert world.reflector.age_s() is None
        await world.reflector.synced.wait()
        assert (world.batches, world.told) == (1, [])
        assert world.reflector.age_s() is not None


@pytest.mark.asyncio
async def test_what_is_asked_of_the_server() -> None:
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


@pytest.mark.asyncio
async def test_the_age_grows_without_proof_and_falls_with_a_bookmark() -> None:
    world = World()
    async with world.running():
        await asyncio.sleep(50)
        age_s = world.reflector.age_s()
        assert age_s is not None
        assert 49 < age_s < 51
        await asyncio.sleep(20)
        age_s = world.reflector.age_s()
        assert age_s is not None
        assert age_s < 11
        world.transport.is_stalled = True
        await asyncio.sleep(600)
        age_s = world.reflector.age_s()
        assert age_s is not None
        assert age_s > 500


@pytest.mark.asyncio
async def test_a_kind_in_which_nothing_happens_does_not_grow_old() -> None:
    """A server has no bookmarks of a kind that had no event since the server started."""
    world = World()
    world.transport.bookmark_interval_s = 1e9
    async with world.running():
        ages = []
        for _ in range(360):
            await asyncio.sleep(10)
            ages.append(world.reflector.age_s() or 0.0)
        assert 250 < max(ages) < 310


@pytest.mark.asyncio
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


@pytest.mark.asyncio
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
        world.transport.inject(wire.event("ERROR", StatusError(410, "Expired", "too old").status))
        await asyncio.sleep(100)
        assert world.is_converged()
        age_s = world.reflector.age_s()
        assert age_s is not None
        assert age_s > 99
        assert "resourceVersion" not in lists(world)[-1]
        world.transport.heal()
        await asyncio.sleep(31)
        assert world.is_converged()
        assert len(world.told) == 3


@pytest.mark.asyncio
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


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_what_is_not_kept_is_never_held() -> None:
    world = World(keep=lambda metadata: metadata.name != "b")
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


@pytest.mark.asyncio
async def test_what_is_told_and_held_has_the_shape_that_was_asked_for() -> None:
    storage = Storage()
    told: list[Change[ConfigMap]] = []

    def shape(item: ConfigMap) -> ConfigMap:
        return msgspec.structs.replace(item, data={"size": str(len(item.data))})

    reflector = Reflector(
        StorageTransport(storage),
        CONFIG_MAPS,
        ConfigMap,
        shape=shape,
        on_change=told.extend,
        clock=asyncio.get_running_loop().time,
    )
    storage.put(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "ns"}, "data": {"x": "1", "y": "2"}})
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflector.run())
        await asyncio.sleep(1)
        storage.put(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "ns"}, "data": {"x": "1"}})
        await asyncio.sleep(1)
        task.cancel()
    assert [change.value.data for change in told if isinstance(change, Added | Modified)] == [
        {"size": "2"},
        {"size": "1"},
    ]
    assert reflector.objects["ns", "a"].data == {"size": "1"}


@pytest.mark.asyncio
async def test_a_handler_that_fails_does_not_end_the_following(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()

    def fail(changes: Sequence[Change[ConfigMap]]) -> None:
        raise ZeroDivisionError

    reflector = Reflector(
        world.transport, CONFIG_MAPS, ConfigMap, on_change=fail, clock=asyncio.get_running_loop().time
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflector.run())
        await reflector.synced.wait()
        world.put("a")
        await asyncio.sleep(1)
        assert list(reflector.objects) == [("ns", "a")]
        task.cancel()
    assert "handler of changes failed" in capsys.readouterr().err


@pytest.mark.asyncio
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


_NAMES = st.sampled_from(["a", "b", "c"])
_ACTS = st.one_of(
    st.tuples(st.just("put"), _NAMES),
    st.tuples(st.just("delete"), _NAMES),
    st.tuples(st.just("remake"), _NAMES),
    st.tuples(st.just("fail"), st.sampled_from([400, 401, 403, 404, 410, 429, 500, 503])),
    st.tuples(st.just("unreachable"), st.none()),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("bump"), st.integers(1, 100)),
    st.tuples(st.just("cut"), st.none()),
    st.tuples(st.just("expire"), st.none()),
    st.tuples(st.just("stall"), st.booleans()),
    st.tuples(st.just("relist from the past"), st.integers(0, 5)),
    st.tuples(st.just("inject"), st.binary(min_size=1, max_size=30)),
    st.tuples(st.just("replay"), st.integers(0, 5)),
    st.tuples(st.just("pass"), st.sampled_from([0.005, 0.1, 1, 30, 100, 1000])),
)


async def _act(world: World, act: str, value: Any, past: list[dict[str, Any]]) -> None:
    transport = world.transport
    match act:
        case "put":
            world.put(value, n=str(world.storage.revision))
        case "delete":
            world.delete(value)
        case "remake":
            world.delete(value)
            world.put(value)
        case "fail":
            transport.failures.append(refused(value))
        case "unreachable":
            transport.failures.append(UnreachableError("connect"))
        case "compact":
            world.storage.compact()
        case "bump":
            world.storage.bump(value)
        case "cut":
            transport.cut()
        case "expire":
            transport.inject(wire.event("ERROR", StatusError(410, "Expired", "too old").status))
        case "stall":
            transport.is_stalled = value
        case "relist from the past":
            transport.stale_list = past[-value - 1] if value < len(past) else None
            transport.inject(wire.event("ERROR", StatusError(410, "Expired", "too old").status))
            await asyncio.sleep(1)
        case "inject":
            transport.inject(value + b"\n")
        case "replay":
            for page in past[-value:]:
                for item in page["items"]:
                    transport.inject(wire.event("MODIFIED", item))
        case "pass":
            await asyncio.sleep(value)
    past.append(wire.list_page(world.storage, EVERY, {}))


async def _survives(acts: list[tuple[str, Any]]) -> None:
    world = World(Timing(page_size=2))
    past: list[dict[str, Any]] = []
    highest = ""
    async with world.running():
        for act, value in acts:
            await _act(world, act, value, past)
            version = world.reflector.resource_version
            assert not is_older(version, highest)
            highest = version or highest
        world.transport.heal()
        # The longest back-off, a stalled watch left, and the last list.
        await asyncio.sleep(200)
        assert world.reflector.synced.is_set()
        assert world.is_converged()
        assert world.mirror == dict(world.reflector.objects)
        age_s = world.reflector.age_s()
        assert age_s is not None
        # A watch may have ended just before its bookmark, and the next one brings it a minute later.
        assert age_s <= 121


@pytest.mark.asyncio
@settings(max_examples=200, deadline=None)
@given(st.lists(_ACTS, max_size=30))
async def test_the_store_converges_whatever_happens(acts: list[tuple[str, Any]]) -> None:
    await _survives(acts)
