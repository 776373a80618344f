# SPDX-License-Identifier: Apache-2.0
"""A client of a fake API server in the same process, without sockets: for tests and benches."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec

from daemonkit.kube.client import MAX_RESPONSE_BYTES, AnswerTooLargeError, ApiError, DeadlineError
from daemonkit.kube.resources import Resource, Status
from devkit.kube import requests as requests
from devkit.kube import wire as wire
from devkit.kube.cluster import Cluster
from devkit.kube.storage import Selection, StatusError


class InProcessClient:
    """Asks a cluster as a `Client` asks a server; `failures` are raised by the next requests, one each.

    With a `manager` the cluster records what it writes.
    """

    def __init__(self, cluster: Cluster, *, bookmark_interval_s: float = 60.0, manager: str = "") -> None:
        self.cluster = cluster
        self._manager = manager
        self.failures: list[Exception] = []
        self.requests = 0
        self._bookmark_interval_s = bookmark_interval_s
        self._watches: set[tuple[Resource, asyncio.Event]] = set()
        cluster.storage.on_write.append(self._wake)

    @property
    def server(self) -> str:
        """As `Client.server`."""
        return "https://in-process"

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = MAX_RESPONSE_BYTES,
        can_repeat: bool | None = None,
        before_send: Callable[[], None] | None = None,
    ) -> bytes:
        """As `Client.request`."""
        del can_repeat  # No connection is dead here.
        if before_send is not None:
            before_send()
        self.requests += 1
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if path in wire.HEALTH_PATHS:
            return b"ok"
        query = params or {}
        try:
            target = requests.target_of(self.cluster, path)
            verb = wire.verb(method, target.name, query, target.subresource)
            selection = _selection(target, query)
            answer = requests.carry_out(
                self.cluster, verb, target, selection, query, content_type, body or b"", self._manager
            )
        except StatusError as error:
            raise _api_error(error) from None
        content = msgspec.json.encode(answer[1])
        if len(content) > limit_bytes:
            raise AnswerTooLargeError(f"a response of more than {limit_bytes} bytes")
        return content

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """As `Client.stream`."""
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        target = requests.target_of(self.cluster, path)
        try:
            requests.check_installed(self.cluster, target)
        except StatusError as error:
            raise _api_error(error) from None
        selection, wake = _selection(target, params), asyncio.Event()
        watch = (selection.resource, wake)
        self._watches.add(watch)
        try:
            yield self._chunks(selection, wake, params, idle_timeout_s)
        finally:
            self._watches.discard(watch)

    async def close(self) -> None:
        """As `Client.close`: nothing is open."""

    async def _chunks(
        self, selection: Selection, wake: asyncio.Event, params: Mapping[str, str], idle_timeout_s: float
    ) -> AsyncIterator[bytes]:
        storage, now = self.cluster.storage, asyncio.get_running_loop().time
        since = wire.number(params.get("resourceVersion", "")) or storage.revision
        ends_at = now() + (wire.number(params.get("timeoutSeconds", "")) or 1800)
        while now() < ends_at:
            wake.clear()
            if since < storage.written(selection.resource):
                try:
                    events = storage.events(selection, since)
                except StatusError as error:
                    yield wire.event("ERROR", error.status)
                    return
                since = storage.revision
                if events:
                    yield b"".join(wire.event(*event) for event in events)
                    continue
            wait_s = min(self._bookmark_interval_s, idle_timeout_s, ends_at - now())
            try:
                async with asyncio.timeout(max(0.01, wait_s)):
                    await wake.wait()
            except TimeoutError:
                if wait_s == idle_timeout_s < self._bookmark_interval_s:
                    raise DeadlineError("nothing came in time") from None
                if since < storage.written(selection.resource):
                    continue  # written at this very moment: the bookmark must not be ahead of it
                since = storage.revision
                yield wire.bookmark(selection.resource, since)

    def _wake(self, resource: Resource | None) -> None:
        for watched, wake in self._watches:
            if resource is None or watched == resource:
                wake.set()


def _api_error(error: StatusError) -> ApiError:
    return ApiError(msgspec.convert(error.status, Status), error.retry_after_s)


def _selection(target: wire.Target, query: Mapping[str, str]) -> Selection:
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return Selection.parse(target.resource, target.namespace, labels, fields)
