# SPDX-License-Identifier: Apache-2.0
"""A reflector against a model of an API server, in virtual time and without a socket.

The model is the fake's storage, which its own tests compare with etcd. The transport injects the faults of a
test.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from daemonkit.kube.byte_budget import ByteBudget
from daemonkit.kube.client import ApiError
from daemonkit.kube.page_requests import PageOutcome
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import CONFIG_MAPS, Identity, ObjectMeta, Status, is_older
from daemonkit.kube.store import Added, Change, Deleted, Modified
from devkit.kube import wire as wire
from devkit.kube.storage import Selection, StatusError, Storage
from devkit.kube.transport import StorageTransport

EVERY = Selection(CONFIG_MAPS)


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


def refused(code: int) -> ApiError:
    return ApiError(Status(code=code, reason="Refused", message="a fault on demand"))


class ReflectorEnvironment:
    """A storage, a reflector that follows it, and a mirror built from the handler's changes."""

    def __init__(
        self,
        timing: Timing | None = None,
        include: Callable[[Identity], bool] | None = None,
        transform: Callable[[ConfigMap], ConfigMap] | None = None,
        *,
        notes_filtered: Callable[[Identity], bool] | None = None,
        may_be_absent: bool = False,
        delivers_parts: bool = False,
        budget: ByteBudget[ConfigMap] | None = None,
        asks_early: bool = False,
    ) -> None:
        self.asks_early = asks_early
        self.storage = Storage()
        self.transport = StorageTransport(self.storage)
        self.changes_seen: list[Change[ConfigMap]] = []
        self.batches = 0
        self.by_list: list[bool] = []
        self.mirror: dict[tuple[str, str], ConfigMap] = {}
        self.versions: list[str] = []
        self.errors: list[BaseException] = []
        self.reflector = Reflector(
            self.transport,
            CONFIG_MAPS,
            ConfigMap,
            include=include,
            notes_filtered=notes_filtered,
            transform=transform,
            may_be_absent=may_be_absent,
            delivers_parts=delivers_parts,
            budget=budget,
            on_change=self._checked,
            timing=timing,
            clock=asyncio.get_running_loop().time,
            rng=lambda: 0.5,
        )

    def _checked(self, changes: Sequence[Change[ConfigMap]]) -> None:
        # The reflector continues after a handler's exception, so keep it for the test.
        try:
            self._on_change(changes)
        except BaseException as error:
            self.errors.append(error)
            raise

    def _on_change(self, changes: Sequence[Change[ConfigMap]]) -> None:
        self.batches += 1
        self.by_list.append(self.reflector.is_relisting)
        self.changes_seen.extend(changes)
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

    def age_s(self) -> float:
        """The age of the synced state, after the first sync."""
        age_s = self.reflector.age_s()
        assert age_s is not None
        return age_s

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with running(self.reflector, asks_early=self.asks_early):
            yield
        assert not self.errors


@contextlib.asynccontextmanager
async def running(reflector: Reflector[ConfigMap], *, asks_early: bool = False) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:

        def spawn(coro: Coroutine[Any, Any, PageOutcome], name: str) -> asyncio.Task[PageOutcome]:
            return group.create_task(coro, name=name)

        task = group.create_task(reflector.run(spawn if asks_early else None))
        yield
        task.cancel()


def expired() -> bytes:
    """The event by which a server ends a watch with a compacted resourceVersion."""
    return wire.event("ERROR", StatusError(410, "Expired", "too old").status)


def lists(env: ReflectorEnvironment) -> list[Mapping[str, str]]:
    return [query for query in env.transport.queries if "watch" not in query]
