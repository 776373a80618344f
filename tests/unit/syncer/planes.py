# SPDX-License-Identifier: Apache-2.0
"""API servers in one process, with their faults, and what the syncer has of each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import (
    Key,
    Resource,
    Status,
)
from devkit.kube import wire as wire
from devkit.kube.cluster import Cluster
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Object, Selection, StatusError, Storage
from syncer.surroundings import COMPONENT


def annotations_of(value: Object) -> dict[str, str]:
    return dict(value["metadata"].get("annotations") or {})


class PacedWatches:
    """Watches of one resource of a plane. While they are held, events wait until they are let through."""

    def __init__(self) -> None:
        self._until: int | None = None
        self._is_cut = False
        self._wakes: list[asyncio.Event] = []

    def hold(self, until: int) -> None:
        """Let through what was written up to this revision, what came together in one piece, and no more."""
        self._until = until
        self._wake()

    def flow(self) -> None:
        """Let through whatever comes."""
        self._until, self._is_cut = None, False
        self._wake()

    def cut(self) -> None:
        """End them as a server does whose history is too short: a list follows, and what comes after it."""
        self._is_cut = True
        self._wake()

    def _wake(self) -> None:
        for each in self._wakes:
            each.set()

    async def chunks(
        self, storage: Storage, selection: Selection, since: int, wake: asyncio.Event
    ) -> AsyncIterator[bytes]:
        self._wakes.append(wake)
        try:
            while not self._is_cut:
                wake.clear()
                events = [
                    each
                    for each in storage.events(selection, since)
                    if self._until is None or _revision(each[1]) <= self._until
                ]
                if events:
                    since = _revision(events[-1][1])
                    yield b"".join(wire.event(*each) for each in events)
                else:
                    await wake.wait()
            self.flow()
            yield wire.event("ERROR", StatusError(410, "Expired", "too old resource version").status)
        finally:
            self._wakes.remove(wake)


def _revision(value: Object) -> int:
    return int(value["metadata"]["resourceVersion"])


@dataclass(slots=True)
class Plane:
    """An API server; `lost` of its next writes are carried out and their answers lost.

    While `answers` is not set, it answers no write. A test lets `paced` watches through piece by piece.
    """

    name: str
    url: str
    cluster: Cluster
    flows: asyncio.Event
    answers: asyncio.Event
    failures: list[Exception]
    lost: int = 0
    stalled_s: float | None = None
    paced: dict[Resource, PacedWatches] = field(default_factory=dict)

    @property
    def storage(self) -> Storage:
        return self.cluster.storage

    @property
    def marker(self) -> str:
        return f"marker-of-{self.name}."

    def objects(self, resource: Resource) -> dict[Key, Object]:
        found = self.storage.select(Selection(resource))
        return {(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found}


class WriteObserver(Protocol):
    """Who sees what the syncer asks."""

    reads: list[str]
    before_answer: Callable[[str], Awaitable[None]]

    def note_write(self, plane: Plane, method: str, path: str, body: bytes | None) -> None: ...


class SyncerClient(InProcessClient):
    """What the syncer has of a plane: its faults are this plane's, and the world sees its writes."""

    def __init__(self, world: WriteObserver, plane: Plane) -> None:
        super().__init__(plane.cluster, manager=COMPONENT)
        self._world = world
        self._plane = plane
        self.failures = plane.failures

    @property
    def server(self) -> str:
        return self._plane.url

    @property
    def peer_addresses(self) -> frozenset[str]:
        return frozenset()

    async def close(self) -> None:
        pass

    async def request(
        self,
        method: str,
        path: str,
        params: Any = None,
        *args: Any,
        before_send: Callable[[], None] | None = None,
        **more: Any,
    ) -> bytes:
        if method == "GET":
            self._world.reads.append(path)
            return await super().request(method, path, params, *args, **more)
        await asyncio.sleep(0.001)
        await self._plane.answers.wait()
        if before_send is not None:
            before_send()
        self._world.note_write(self._plane, method, path, args[0] if args else None)
        answer = await super().request(method, path, params, *args, **more)
        if self._plane.lost:
            self._plane.lost -= 1
            raise UnreachableError("the answer is lost")
        await self._world.before_answer(path)
        return answer

    async def _chunks(
        self, selection: Selection, wake: asyncio.Event, params: Mapping[str, str], idle_timeout_s: float
    ) -> AsyncIterator[bytes]:
        paced = self._plane.paced.get(selection.resource)
        if paced is None:
            async for chunk in super()._chunks(selection, wake, params, idle_timeout_s):
                await self._plane.flows.wait()
                yield chunk
            return
        since = wire.number(params.get("resourceVersion", "")) or self._plane.storage.revision
        async for chunk in paced.chunks(self._plane.storage, selection, since, wake):
            yield chunk


def refused(code: int) -> ApiError:
    return ApiError(Status(code=code, reason="Refused", message="a fault on demand"))


# More than a cached object may have.
TOO_MANY_LABELS = {f"label-{number}-{'x' * 30}": "x" for number in range(1_001)}
TOO_LARGE = "too large: metadata.labels has more than 1000 entries"


def grow(storage: Storage, resource: Resource, namespace: str, name: str) -> None:
    """Give an object so many labels that it cannot be read."""
    value = storage.get(resource, namespace, name)
    value["metadata"]["labels"] = {**(value["metadata"].get("labels") or {}), **TOO_MANY_LABELS}
    storage.replace(resource, value)
