# SPDX-License-Identifier: Apache-2.0
"""What a reflector asks through when it is tested without a socket: a storage, on the loop's clock."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace

import msgspec

from daemonkit.kube.client import MAX_RESPONSE_BYTES, AnswerTooLargeError, ApiError, DeadlineError
from daemonkit.kube.resources import Resource, Status
from devkit.kube import wire as wire
from devkit.kube.storage import Object, Selection, StatusError, Storage


class _WatchStream:
    """One live watch."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.injected: list[bytes] = []
        self.is_cut = False
        self.error: Exception | None = None


class StorageTransport:
    """Serves lists and watches of a storage to a reflector, with faults on demand.

    `failures` are raised, one each, by the next requests. `stale_list` is answered to every list, as
    by a cache that lags. While `is_stalled` nothing is answered and watches bring nothing. A watch ends
    behind `whole_watch`, which is all that it brings.
    """

    def __init__(self, storage: Storage, *, cluster_scoped: Collection[str] = ()) -> None:
        """`cluster_scoped` are the plurals of custom resources that have no namespace in this cluster."""
        self.storage = storage
        self._cluster_scoped = cluster_scoped
        storage.on_write.append(self._wake)
        self.failures: list[Exception] = []
        self.queries: list[Mapping[str, str]] = []
        self.is_stalled = False
        self.bookmark_interval_s = 60.0
        # A boundary in the middle of a line is the usual case.
        self.has_cut_lines = True
        self.stale_list: Object | None = None
        self.whole_watch: bytes | None = None
        self._streams: set[_WatchStream] = set()

    async def request(
        self, method: str, path: str, params: Mapping[str, str], *, limit_bytes: int = MAX_RESPONSE_BYTES
    ) -> bytes:
        self.queries.append(dict(params))
        await asyncio.sleep(0.01)
        if self.is_stalled:
            await asyncio.sleep(65)
            raise DeadlineError("nothing came in time")
        self._fail()
        if self.stale_list is not None:
            return msgspec.json.encode(self.stale_list)
        try:
            body = msgspec.json.encode(wire.list_page(self.storage, self._selection(path, params), params))
        except StatusError as error:
            raise _api_error(error) from None
        if len(body) > limit_bytes:
            raise AnswerTooLargeError(f"an answer of more than {limit_bytes} bytes")
        return body

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.queries.append(dict(params))
        await asyncio.sleep(0.01)
        self._fail()
        stream = _WatchStream()
        self._streams.add(stream)
        try:
            yield self._chunks(stream, self._selection(path, params), params, idle_timeout_s, timeout_s)
        finally:
            self._streams.discard(stream)

    async def _chunks(
        self,
        stream: _WatchStream,
        selection: Selection,
        params: Mapping[str, str],
        idle_timeout_s: float,
        timeout_s: float,
    ) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        since, ends_at = int(params["resourceVersion"]), now() + int(params["timeoutSeconds"])
        last_line_at = now()
        most_at = gives_up_at = last_line_at + timeout_s
        if self.whole_watch is not None:
            yield self.whole_watch
            return
        while True:
            stream.changed.clear()
            if not self.is_stalled:
                try:
                    self.storage.check_seen(since)
                    events = self.storage.events(selection, since)
                except StatusError as error:
                    yield wire.event("ERROR", error.status)
                    return
                since = self.storage.revision
                chunks = [wire.event(*event) for event in events] + stream.injected
                stream.injected = []
                if now() >= last_line_at + self.bookmark_interval_s:
                    chunks.append(wire.bookmark(selection.resource, since))
                for chunk in chunks:
                    last_line_at = now()
                    gives_up_at = min(most_at, last_line_at + idle_timeout_s)
                    for piece in (chunk[:7], chunk[7:]) if self.has_cut_lines else (chunk,):
                        yield piece
                if stream.error is not None:
                    raise stream.error
                if stream.is_cut or now() >= ends_at:
                    return
            if now() >= gives_up_at:
                raise DeadlineError("nothing came in time")
            due = (last_line_at + self.bookmark_interval_s, gives_up_at, ends_at)
            wait_s = min([at - now() for at in due if at > now()])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await stream.changed.wait()

    def inject(self, data: bytes) -> None:
        """Send bytes as they are into all watches."""
        for stream in self._streams:
            stream.injected.append(data)
        self._wake()

    def cut(self, error: Exception | None = None) -> None:
        """End all watches, as the API server or with an error of their connections."""
        for stream in self._streams:
            stream.is_cut, stream.error = True, error
        self._wake()

    def heal(self) -> None:
        """Take all faults back."""
        self.failures.clear()
        self.stale_list = None
        self.whole_watch = None
        self.is_stalled = False
        self._wake()

    def _selection(self, path: str, params: Mapping[str, str]) -> Selection:
        resource, namespace, _ = wire.target(path)
        if resource.plural in self._cluster_scoped:
            resource = replace(resource, is_namespaced=False)
        return Selection.parse(
            resource, namespace, params.get("labelSelector", ""), params.get("fieldSelector", "")
        )

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def _wake(self, _: Resource | None = None) -> None:
        for stream in self._streams:
            stream.changed.set()


def _api_error(error: StatusError) -> ApiError:
    return ApiError(msgspec.convert(error.status, Status))
