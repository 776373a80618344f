# SPDX-License-Identifier: Apache-2.0
"""The contract of the client and the reflector with the fake and with a real kube-apiserver.

`pytest tests/functional/kube/test_contract.py` asks the fake, `--kubeconfig FILE` a real one
(it needs to write ConfigMaps in the namespace `default`).
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
import pytest
import pytest_asyncio

from daemonkit.kube.client import ApiError, Client
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import CONFIG_MAPS, ObjectMeta, Page
from daemonkit.kube.store import Change

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

Until = Callable[[Callable[[], object]], Awaitable[None]]
Fields = dict[str, dict[str, str]]


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


class Scene:
    """ConfigMaps of one test, selected by a label."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.mark = uuid.uuid4().hex
        self.names: set[str] = set()

    @property
    def selector(self) -> str:
        return f"vcnode.io/test={self.mark}"

    def name(self, suffix: str) -> str:
        return f"{self.mark[:8]}-{suffix}"

    def _body(self, suffix: str, data: dict[str, str], labels: dict[str, str] | None) -> bytes:
        mark_labels = {"vcnode.io/test": self.mark} if labels is None else labels
        metadata = {"name": self.name(suffix), "namespace": "default", "labels": mark_labels}
        return msgspec.json.encode(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )

    async def create(self, suffix: str, *, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
        self.names.add(self.name(suffix))
        body = self._body(suffix, data, labels)
        return _decoded(await self.client.request("POST", CONFIG_MAPS.path("default"), body=body))

    async def replace(self, suffix: str, *, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
        path = CONFIG_MAPS.path("default", self.name(suffix))
        return _decoded(await self.client.request("PUT", path, body=self._body(suffix, data, labels)))

    async def delete(self, suffix: str) -> None:
        self.names.discard(self.name(suffix))
        await self.client.request("DELETE", CONFIG_MAPS.path("default", self.name(suffix)))

    @contextlib.asynccontextmanager
    async def following(
        self, timing: Timing | None = None, *, label_selector: str | None = None, field_selector: str = ""
    ) -> AsyncIterator[tuple[Reflector[ConfigMap], list[tuple[str, str]]]]:
        """A running reflector that has synced, and its changes: (kind, name suffix)."""
        observed: list[tuple[str, str]] = []

        def on_change(changes: Sequence[Change[ConfigMap]]) -> None:
            observed.extend((type(change).__name__, change.key[1].split("-", 1)[1]) for change in changes)

        reflector = Reflector(
            self.client,
            CONFIG_MAPS,
            ConfigMap,
            namespace="default",
            label_selector=self.selector if label_selector is None else label_selector,
            field_selector=field_selector,
            on_change=on_change,
            timing=timing,
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run(), name="reflector")
            async with asyncio.timeout(20):
                await reflector.synced.wait()
            yield reflector, observed
            task.cancel()


def _decoded(body: bytes) -> ConfigMap:
    return msgspec.json.decode(body, type=ConfigMap)


@pytest_asyncio.fixture
async def scene(any_client: Client) -> AsyncIterator[Scene]:
    scene = Scene(any_client)
    yield scene
    for name in scene.names:
        await any_client.request("DELETE", CONFIG_MAPS.path("default", name))


async def test_a_list_has_pages_of_one_revision(scene: Scene) -> None:
    for number in range(7):
        await scene.create(str(number))
    params = {"labelSelector": scene.selector, "limit": "3"}
    sizes, versions = [], set()
    while True:
        body = await scene.client.request("GET", CONFIG_MAPS.path("default"), params)
        page = msgspec.json.decode(body, type=Page)
        sizes.append(len(page.items or ()))
        versions.add(page.metadata.resource_version)
        if not page.metadata.continue_:
            break
        params["continue"] = page.metadata.continue_
        await scene.create(f"late-{len(sizes)}")
    assert sizes == [3, 3, 1]
    assert len(versions) == 1


async def test_a_reflector_reads_all_pages(scene: Scene) -> None:
    for number in range(7):
        await scene.create(str(number), n=str(number))
    async with scene.following(Timing(page_size=3)) as (reflector, observed):
        assert sorted(observed) == [("Added", str(number)) for number in range(7)]
        assert {c.data["n"] for c in reflector.objects.values()} == set("0123456")


async def test_changes_arrive_in_order(scene: Scene, until: Until) -> None:
    async with scene.following() as (reflector, observed):
        await scene.create("a", x="1")
        await scene.replace("a", x="2")
        last = await scene.create("b")
        await scene.delete("a")
        await until(lambda: len(observed) >= 4)
        assert observed == [("Added", "a"), ("Modified", "a"), ("Added", "b"), ("Deleted", "a")]
        assert list(reflector.objects) == [("default", scene.name("b"))]
        assert int(reflector.resource_version) > int(last.metadata.resource_version)
        assert reflector.lists == 1


async def test_an_object_that_leaves_the_selector_is_deleted(scene: Scene, until: Until) -> None:
    async with scene.following() as (_, observed):
        await scene.create("a")
        await scene.replace("a", labels={})
        await scene.replace("a")
        await until(lambda: len(observed) >= 3)
        assert observed == [("Added", "a"), ("Deleted", "a"), ("Added", "a")]


async def test_a_field_selector_selects_one_name(scene: Scene, until: Until) -> None:
    await scene.create("other")
    one = f"metadata.name={scene.name('one')}"
    async with scene.following(label_selector="", field_selector=one) as (_, observed):
        await scene.create("another")
        await scene.create("one")
        await until(lambda: observed)
        assert observed == [("Added", "one")]


async def test_a_watch_ended_by_the_server_is_resumed(scene: Scene, until: Until) -> None:
    async with scene.following(Timing(watch_timeout_s=1.0)) as (reflector, observed):
        for number in range(12):
            await scene.create(str(number))
            await asyncio.sleep(0.25)
        await until(lambda: len(observed) >= 12)
        assert observed == [("Added", str(number)) for number in range(12)]
        assert reflector.lists == 1


async def test_bookmarks_advance_the_version(scene: Scene, until: Until) -> None:
    async with scene.following(Timing(watch_timeout_s=4.0)) as (reflector, observed):
        other = await scene.create("unwatched", labels={})
        await until(lambda: int(reflector.resource_version) >= int(other.metadata.resource_version))
        assert not observed


async def test_a_recreated_object_is_deleted_and_added(scene: Scene, until: Until) -> None:
    first = await scene.create("a")
    async with scene.following() as (reflector, observed):
        await scene.delete("a")
        second = await scene.create("a")
        await until(lambda: len(observed) >= 3)
        assert observed == [("Added", "a"), ("Deleted", "a"), ("Added", "a")]
        (cached,) = reflector.objects.values()
        assert cached.metadata.uid == second.metadata.uid != first.metadata.uid


async def test_a_version_from_the_future_is_recognised(scene: Scene) -> None:
    params = {"resourceVersion": "9000000000000", "resourceVersionMatch": "NotOlderThan"}
    with pytest.raises(ApiError) as caught:
        await scene.client.request("GET", CONFIG_MAPS.path("default"), params)
    assert caught.value.status.is_version_too_large
    assert caught.value.status.code == 504


async def test_refusals_carry_their_codes(scene: Scene) -> None:
    made = await scene.create("a", x="1")
    with pytest.raises(ApiError, match="409 AlreadyExists"):
        await scene.create("a")
    with pytest.raises(ApiError, match="404 NotFound"):
        await scene.client.request("GET", CONFIG_MAPS.path("default", "no-such-config-map"))
    with pytest.raises(ApiError, match="400 BadRequest"):
        await scene.client.request("GET", CONFIG_MAPS.path("default"), {"fieldSelector": "data.x=1"})
    await scene.replace("a", x="2")
    stale = {
        "name": scene.name("a"),
        "namespace": "default",
        "resourceVersion": made.metadata.resource_version,
    }
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": stale})
    with pytest.raises(ApiError, match="409 Conflict"):
        await scene.client.request("PUT", CONFIG_MAPS.path("default", scene.name("a")), body=body)
