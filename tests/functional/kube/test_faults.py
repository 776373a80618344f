# SPDX-License-Identifier: Apache-2.0
"""The reflector against the fake API server when that misbehaves, over real TLS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from daemonkit.kube.client import Client
from daemonkit.kube.connection import Connection, dial
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import CONFIG_MAPS, ObjectMeta
from daemonkit.kube.store import Change
from devkit.kube.apiserver import FakeApiserver
from devkit.kube.storage import Object

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

Until = Callable[[Callable[[], object]], Awaitable[None]]


class DataConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


@contextlib.asynccontextmanager
async def following(
    client: Client, timing: Timing | None = None
) -> AsyncIterator[tuple[Reflector[DataConfigMap], list[str]]]:
    observed: list[str] = []

    def on_change(changes: Sequence[Change[DataConfigMap]]) -> None:
        observed.extend(f"{type(change).__name__} {change.key[1]}" for change in changes)

    reflector = Reflector(client, CONFIG_MAPS, DataConfigMap, on_change=on_change, timing=timing)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflector.run(), name="reflector")
        try:
            yield reflector, observed
        finally:
            task.cancel()


def names(reflector: Reflector[DataConfigMap]) -> set[str]:
    return {name for _, name in reflector.objects}


@pytest.mark.parametrize("is_gone_in_stream", [True, False])
async def test_410_for_a_compacted_version_relists(
    apiserver: FakeApiserver, client: Client, until: Until, is_gone_in_stream: bool
) -> None:
    apiserver.faults.is_gone_in_stream = is_gone_in_stream
    async with following(client) as (reflector, observed):
        await until(lambda: apiserver.watches)
        await apiserver.stop()
        apiserver.storage.create(CONFIG_MAPS, config_map("a"))
        apiserver.storage.compact()
        await apiserver.start()
        await until(lambda: reflector.lists == 2 and apiserver.watches)
        assert observed == ["Added a"]
        assert apiserver.seen[-2].query["resourceVersionMatch"] == "NotOlderThan"


async def test_an_expired_page_token_lists_without_pages(
    apiserver: FakeApiserver, client: Client, until: Until
) -> None:
    for number in range(5):
        apiserver.storage.create(CONFIG_MAPS, config_map(str(number)))

    # Each page is compacted before the request for the next one.
    def compact(_: object) -> bool:
        apiserver.storage.bump()
        apiserver.storage.compact()
        return True

    apiserver.authorize = compact
    async with following(client, Timing(page_size=2)) as (reflector, _):
        await until(reflector.synced.is_set)
        assert len(reflector.objects) == 5
        limits = [seen.query.get("limit") for seen in apiserver.seen if seen.verb == "list"]
        assert limits[:3] == ["2", "2", None]


async def test_a_truncated_line_is_sent_again(apiserver: FakeApiserver, client: Client, until: Until) -> None:
    async with following(client) as (reflector, observed):
        await until(lambda: apiserver.watches)
        apiserver.inject(b'{"type":"ADDED","object":{"metadata":{"na', is_last=True)
        await until(lambda: apiserver.watches == 0)
        apiserver.storage.create(CONFIG_MAPS, config_map("a"))
        await until(lambda: observed == ["Added a"])
        assert reflector.lists == 1


async def test_a_large_object_is_one_event(apiserver: FakeApiserver, client: Client, until: Until) -> None:
    async with following(client) as (reflector, observed):
        await until(lambda: apiserver.watches)
        apiserver.storage.create(CONFIG_MAPS, config_map("big", x="\u2028" * 1_000_000))
        await until(lambda: observed)
        assert len(reflector.objects["default", "big"].data["x"]) == 1_000_000


async def test_retry_after_is_honoured(apiserver: FakeApiserver, client: Client, until: Until) -> None:
    apiserver.faults.refusals.append((429, 2))
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with following(client) as (reflector, _):
        await until(reflector.synced.is_set)
    assert loop.time() - started >= 2


async def test_a_slow_server_is_waited_for(apiserver: FakeApiserver, client: Client, until: Until) -> None:
    apiserver.faults.delay_s = 0.3
    apiserver.storage.create(CONFIG_MAPS, config_map("a"))
    async with following(client) as (reflector, observed):
        await until(lambda: observed == ["Added a"] and apiserver.watches)
        assert reflector.synced.is_set()


async def test_a_restarted_server_is_synced_again(
    apiserver: FakeApiserver, client: Client, until: Until
) -> None:
    apiserver.storage.create(CONFIG_MAPS, config_map("a"))
    async with following(client) as (reflector, observed):
        await until(lambda: apiserver.watches)
        await apiserver.stop()
        apiserver.storage.create(CONFIG_MAPS, config_map("b"))
        apiserver.storage.delete(CONFIG_MAPS, "default", "a")
        assert names(reflector) == {"a"}
        await apiserver.start()
        await until(lambda: names(reflector) == {"b"})
        assert observed == ["Added a", "Added b", "Deleted a"]
        assert reflector.lists == 1


async def test_an_older_state_is_refused(apiserver: FakeApiserver, client: Client, until: Until) -> None:
    """After a restored backup of etcd, deleted objects must not reappear."""
    apiserver.storage.create(CONFIG_MAPS, config_map("a"))
    old = apiserver.storage.revision
    async with following(client) as (reflector, observed):
        await until(lambda: apiserver.watches)
        apiserver.storage.delete(CONFIG_MAPS, "default", "a")
        apiserver.storage.create(CONFIG_MAPS, config_map("b"))
        await until(lambda: names(reflector) == {"b"})
        version = reflector.resource_version
        apiserver.storage.roll_back(old)
        apiserver.expire_watches()
        # One list not older than ours is refused by the server, the next, fresh ones by us.
        await until(lambda: reflector.lists >= 4)
        assert names(reflector) == {"b"}
        assert reflector.resource_version == version
        # The server's writes pass our resourceVersion, and we follow again.
        apiserver.storage.bump(10)
        apiserver.storage.create(CONFIG_MAPS, config_map("c"))
        await until(lambda: names(reflector) == {"a", "c"})
        assert observed == ["Added a", "Deleted a", "Added b", "Deleted b", "Added a", "Added c"]


async def test_a_server_without_bookmarks_is_relisted(
    apiserver: FakeApiserver, client: Client, until: Until
) -> None:
    """It proves nothing by itself: now and then a list has to."""
    apiserver.faults.has_bookmarks = False
    async with following(client, Timing(watch_timeout_s=1.0)) as (_, observed):
        await until(lambda: len(apiserver.seen) >= 5)
        verbs = [seen.verb for seen in apiserver.seen]
        assert verbs[:5] == ["list", "watch", "watch", "watch", "list"]
        apiserver.storage.create(CONFIG_MAPS, config_map("a"))
        await until(lambda: observed == ["Added a"])


async def test_a_quiet_watch_is_taken_up_without_a_handshake(
    apiserver: FakeApiserver, client: Client, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends it before it is taken for half open, and its connection serves the next one."""
    dialled = 0

    async def counted(*arguments: Any) -> Connection:
        nonlocal dialled
        dialled += 1
        return await dial(*arguments)

    monkeypatch.setattr("daemonkit.kube.client.dial", counted)
    apiserver.faults.has_bookmarks = False
    async with following(client, Timing(watch_timeout_s=1.0)) as (_, observed):
        await until(lambda: len(apiserver.seen) >= 4)
        assert [seen.verb for seen in apiserver.seen][:4] == ["list", "watch", "watch", "watch"]
        apiserver.storage.create(CONFIG_MAPS, config_map("a"))
        await until(lambda: observed == ["Added a"])
    assert dialled == 1
