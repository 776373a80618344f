# SPDX-License-Identifier: Apache-2.0
"""Lists and watches one kind of object of an API server.

It executes the steps that `reflector_policy` decides: one step, its outcome, the next step. `store` decides
what the objects are.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

import msgspec

from daemonkit import logs
from daemonkit.fairness.emptying import emptied
from daemonkit.fairness.steps import in_steps
from daemonkit.kube import list_page, oversized_objects
from daemonkit.kube.byte_budget import OBJECT_BYTES, ByteBudget
from daemonkit.kube.client import (
    MAX_RESPONSE_BYTES,
    AnswerTooLargeError,
    ApiError,
    DeadlineError,
    UnreachableError,
)
from daemonkit.kube.freshness import Failure
from daemonkit.kube.object_limits import limits_of
from daemonkit.kube.page_requests import PAGE_BYTES, PageRequests, Spawn, body_limit_of
from daemonkit.kube.paged_store import PagedStore
from daemonkit.kube.reflector_log import FailureLog, OversizedObjectLog, failure_of
from daemonkit.kube.reflector_policy import (
    SHORT_WATCH_S,
    Absent,
    Action,
    Ended,
    Garbage,
    Listed,
    Outcome,
    Progress,
    Refused,
    Regressed,
    Stalled,
    Step,
    Timing,
    Unreachable,
    after,
    is_watch_useful,
    retried,
)
from daemonkit.kube.resources import Identity, Key, KubeObject, Resource
from daemonkit.kube.retry_pause import RetryPause
from daemonkit.kube.store import Change, DecodeFailed, RegressedError, Store
from daemonkit.kube.watch import (
    LARGE_BYTES,
    Bookmark,
    EventDecoder,
    Failed,
    GarbageError,
    LineSplitter,
    Parser,
    Put,
    Removed,
    Undecodable,
    metadata_of,
)
from daemonkit.remedies import Cause

_log = logs.get(__name__)

T = TypeVar("T", bound=KubeObject)

# Of a page, what is decoded in one turn of the loop: within some milliseconds.
_SLICE_OBJECTS = 100
_SLICE_BYTES = 256 << 10
# Of a piece of a watch: a hundred small events fit into 16 KiB.
_SLICE_EVENTS = 32
# Of a list, what is delivered in one step. A handler of vc-syncer takes 5 to 10 us for a change.
_PART_CHANGES = 500


class Transport(Protocol):
    """What a reflector needs of a `Client`."""

    async def request(
        self, method: str, path: str, params: Mapping[str, str], *, limit_bytes: int = MAX_RESPONSE_BYTES
    ) -> bytes: ...

    def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


class Reflector(Generic[T]):
    """Keeps the objects of one resource synced.

    - `kind`: a msgspec Struct with `metadata: ObjectMeta` and the needed fields; or a function that
      parses one object's JSON, as `EventDecoder` takes it.
    - `include`: a filter for what no selector of the server can express. It must answer the same for a name
      each time.
    - `notes_filtered`: which names of those that `include` leaves out to keep in `filtered`.
    - `transform` drops what no handler needs, before an object is stored.
    - `kept`: a Struct of the fields to keep of objects that do not decode, or are too large.
    - `budget`: what the objects of the server may take in all. A list or watch that brings more is
      refused, and tried again later; what is held stays.
    - `store`: holds the objects in the place of a `Store`, and takes a list by its pages.
    - `may_be_absent`: the resource need not be installed. A server that has never had it answers 404, which
      counts as synced and empty, and is asked again. (Since Kubernetes 1.23 a starting server answers 503 for
      resources that it may serve later: k8s.io/apiserver, util/notfoundhandler.) A later 404 removes nothing.
    - `delivers_parts`: the changes of a list come in several batches, each a step of its own. Deletions come
      first, `is_relisting` lasts from the first batch to the last, and `resource_version` follows with that.
    - `on_change` is called after each batch of changes is stored, without an await in between; it must not
      raise. It is also called for an empty first list: synced without objects differs from not synced. And
      when a namespace begins or ceases to have filtered names.
    """

    def __init__(
        self,
        client: Transport,
        resource: Resource,
        kind: type[T] | Parser[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        include: Callable[[Identity], bool] | None = None,
        notes_filtered: Callable[[Identity], bool] | None = None,
        transform: Callable[[T], T] | None = None,
        kept: type[msgspec.Struct] | None = None,
        budget: ByteBudget[T] | None = None,
        store: PagedStore[T] | None = None,
        may_be_absent: bool = False,
        delivers_parts: bool = False,
        on_change: Callable[[Sequence[Change[T]]], None] | None = None,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._resource = resource
        self._path = resource.path(namespace)
        self._selectors: dict[str, str] = {}
        if label_selector:
            self._selectors["labelSelector"] = label_selector
        if field_selector:
            self._selectors["fieldSelector"] = field_selector
        self._include = include
        self._notes_filtered = notes_filtered
        self._filtered: dict[str, set[str]] = {}
        self._may_be_absent = may_be_absent
        self._delivers_parts = delivers_parts
        self.is_absent = False
        self._on_change = on_change
        self._timing = timing or Timing()
        self._clock = clock
        self._rng = rng
        self._decoder = EventDecoder(kind, transform, limits_of(resource), kept)
        self._pages = store
        self._store: Store[T] = store or Store(None if budget is None else budget.size_of)
        self.objects: Mapping[Key, T] = self._store.objects
        """The live objects, read only. Take a copy before the next await."""
        self.decode_failures: Mapping[Key, DecodeFailed] = self._store.decode_failures
        """The objects that exist and do not decode or are too large, with UID and reason. Read only."""
        self._budget_part = None if budget is None else budget.part(self._store)
        self._confirmed_at: float | None = None
        self._lists = 0
        self._confirmations = 0
        self._events = 0  # of objects
        self._is_relisting = False
        self._regressions = 0
        self._pause = RetryPause()
        self._oversized_log = OversizedObjectLog(resource, clock)
        self._failure_log = FailureLog(self.name)
        self.synced = asyncio.Event()
        oversized_objects.track(self)

    @property
    def resource(self) -> Resource:
        return self._resource

    @property
    def name(self) -> str:
        """Resource and selectors, for the names of tasks and metrics."""
        return ",".join([str(self._resource), *self._selectors.values()])

    @property
    def undecodable(self) -> Mapping[Key, str]:
        """The objects that exist and do not decode or are too large, with the reason."""
        return self._store.undecodable

    @property
    def filtered(self) -> Mapping[str, Collection[str]]:
        """The names that `include` leaves out and `notes_filtered` keeps, by namespace."""
        return self._filtered

    @property
    def resource_version(self) -> str:
        return self._store.version

    @property
    def is_relisting(self) -> bool:
        """Whether changes come from a list: it lacks an object, while an event confirms its deletion."""
        return self._is_relisting

    @property
    def regressions(self) -> int:
        """How many lists in a row that no cache can have answered were older than what is held.

        One may come from a member of an etcd that lags. Several mean that the storage itself went back.
        """
        return self._regressions

    @property
    def failure(self) -> Failure | None:
        """The failure since the server last proved that the objects are current; None without one."""
        return self._failure_log.current

    @property
    def lists(self) -> int:
        """How many lists were requested."""
        return self._lists

    def age_s(self, now: float | None = None) -> float | None:
        """The seconds since the server last proved that the objects are current, None before that.

        A complete list, an event and a bookmark are confirmations; an open connection is not. `now` is of
        the reflector's clock.
        """
        if self._confirmed_at is None:
            return None
        return (self._clock() if now is None else now) - self._confirmed_at

    def forget(self) -> Generator[None, None, None]:
        """Give back in steps what is held, after the end of `run`: references in circles would keep it for
        long."""
        yield from self._store.forget()

    def note_compressed(self, value: T, less_bytes: int) -> None:
        """An object takes so much less memory than it did; nothing happens if it is not held any more."""
        if self._store.note_compressed(value, less_bytes) and self._budget_part is not None:
            self._budget_part.note_compressed()

    def retry_now(self) -> None:
        """The server is known to answer again: end a wait after failures, and forget them."""
        self._pause.end()

    async def run(self, spawn: Spawn | None = None) -> None:
        """List and watch until cancelled. With `spawn` pages are asked for early; see `PageRequests`."""
        state = Progress()
        while True:
            if state.step.delay_s > 0 and await self._pause.was_ended(state.step.delay_s):
                state = retried(state)
            try:
                outcome = await self._take(state.step, spawn)
            # A bug, triggered by the server's data. The loop logs it and tries again with backoff.
            except Exception as error:  # noqa: BLE001 - else the resource is never read again
                _log.error(
                    "reflector failed unexpectedly",
                    resource=self.name,
                    error=error,
                    traceback=logs.trace(error),
                )
                outcome = Garbage(f"{type(error).__name__} in the reflector")
            if isinstance(outcome, Regressed):
                self._regressions += state.step.action is Action.LIST and state.step.is_fresh
            elif isinstance(outcome, Listed):
                self._regressions = 0
            following = after(state, outcome, self._rng())
            self._report(state.step, outcome, following)
            state = following

    async def _take(self, step: Step, spawn: Spawn | None) -> Outcome:
        """Do one step; every expected failure is an outcome."""
        begun_s, confirmations, events = self._clock(), self._confirmations, self._events

        def was_useful() -> bool:
            return is_watch_useful(
                self._clock() - begun_s,
                has_events=self._events > events,
                has_bookmarks=self._confirmations > confirmations,
            )

        try:
            if step.action is Action.LIST:
                items: list[Put[T] | Undecodable] = []
                try:
                    await self._list(step, items, spawn)
                finally:
                    # What ends a list may keep its frame alive until a collection of garbage.
                    try:
                        await in_steps(emptied(items))
                    finally:
                        if self._budget_part is not None:
                            self._budget_part.end_list()
                return Listed()
            try:
                await self._watch()
            finally:
                if self._budget_part is not None:
                    self._budget_part.end_watch()
            return self._ended(self._clock() - begun_s, is_useful=was_useful())
        except ApiError as error:
            if error.status.code == 404 and step.action is Action.LIST and self._accept_absence():
                return Absent()
            return Refused(error.status, error.retry_after_s, was_useful(), error.server)
        except DeadlineError as error:
            if step.action is Action.WATCH:
                return Stalled(is_useful=was_useful())
            return Unreachable(str(error), error.cause, error.server)
        except UnreachableError as error:
            lasted_s = self._clock() - begun_s
            # A proxy on the way ends what is silent for some time.
            was_cut = error.cause is Cause.CLOSED and lasted_s >= SHORT_WATCH_S
            if was_useful() or (step.action is Action.WATCH and was_cut):
                return Ended(lasted_s, is_useful=was_useful())
            return Unreachable(str(error), error.cause, error.server)
        except RegressedError as error:
            return Regressed(error.known, error.offered)
        except GarbageError as error:
            return Garbage(str(error))

    def _ended(self, lasted_s: float, *, is_useful: bool) -> Ended:
        """The server ended the watch. All that it sent before its end has come, on the same stream."""
        if lasted_s >= SHORT_WATCH_S:
            self._confirmed(self._clock(), Action.WATCH)
        return Ended(lasted_s, is_useful)

    async def _list(self, step: Step, items: list[Put[T] | Undecodable], spawn: Spawn | None) -> None:
        """List into `items`, which the caller has empty and clears."""
        self._lists += 1
        params = dict(self._selectors)
        if self._store.version and not step.is_fresh:
            # "Return data at least as new as the provided resourceVersion": a server may answer
            # from its cache, and the store refuses older states anyway.
            params["resourceVersion"] = self._store.version
            params["resourceVersionMatch"] = "NotOlderThan"
        asked_at = self._clock()
        filtered: dict[str, set[str]] = {}
        if not step.is_paged and self._budget_part is not None:
            self._budget_part.begin_whole_list()
        pages = PageRequests(self._page, spawn, self.name)
        try:
            version = await self._read(pages, params, items, filtered, is_paged=step.is_paged)
        finally:
            pages.end()
        found = await in_steps(self._store.comparing(items, version))
        changes = found.changes
        if self._delivers_parts:
            *parts, changes = found.parts(_PART_CHANGES)
            parts.reverse()
            await self._take_parts(parts)
        # No await from here: the store, the handlers and `synced` change as one.
        self._store.take(found.version, changes)
        is_due = self.is_absent or not self.synced.is_set() or filtered.keys() != self._filtered.keys()
        self._filtered = filtered
        self._is_relisting = True
        self._deliver(changes, is_due=is_due)
        self._is_relisting = self.is_absent = False
        self._confirmed(asked_at, Action.LIST)
        self.synced.set()
        # Handlers may keep the changes that they got.
        delivered = [] if changes is found.changes else found.changes
        await in_steps(emptied(found.objects, found.failures, delivered))

    async def _page(self, params: Mapping[str, str]) -> bytes:
        return await self._client.request("GET", self._path, params, limit_bytes=body_limit_of(params))

    async def _read(
        self,
        pages: PageRequests,
        params: dict[str, str],
        items: list[Put[T] | Undecodable],
        filtered: dict[str, set[str]],
        *,
        is_paged: bool,
    ) -> str:
        """Add what all pages have to `items` and to `filtered`; returns the version of the list."""
        version, size = "", self._timing.page_size
        if is_paged:
            params["limit"] = str(size)
        while True:
            try:
                body = await pages.page(params)
            except AnswerTooLargeError:
                # A few objects that fill a page must not keep the rest of the list away.
                if not is_paged or size == 1:
                    raise
                size //= 2
                params["limit"] = str(size)
                continue
            part, listed = self._budget_part, list_page.ListBody(body)
            if part is not None:
                part.note_page(listed.most_bytes)
            page = await in_steps(listed.cut())
            metadata = page.metadata
            if self._pages is not None and not version:
                self._pages.begin_list(metadata.resource_version)
            version = version or metadata.resource_version
            if metadata.continue_:
                if is_paged and 2 * len(body) < PAGE_BYTES:
                    size = min(self._timing.page_size, 2 * size)
                    params["limit"] = str(size)
                # "specifying resource version is not allowed when using continue"
                params.pop("resourceVersion", None)
                params.pop("resourceVersionMatch", None)
                params["continue"] = metadata.continue_
                pages.ask(params)
            if part is not None:
                part.note_page(len(body) + list_page.ITEM_BYTES * len(page.items))
            size_bytes = await self._items(page, items, filtered)
            if self._pages is not None:
                self._deliver(self._pages.take_page(items), is_due=False)
                items.clear()
            # Each item is a view of the body.
            del page, listed, body
            if part is not None:
                part.end_page(size_bytes)
            if not metadata.continue_:
                return version

    async def _take_parts(self, parts: list[list[Change[T]]]) -> None:
        """Take over the first parts of a list, from the end. It is known as a whole with the last one."""
        self._is_relisting = True
        try:
            while parts:
                part = parts.pop()
                self._store.take_part(part)
                self._deliver(part, is_due=False)
                await asyncio.sleep(0)
        finally:
            self._is_relisting = False

    async def _items(
        self, page: list_page.ListedPage, items: list[Put[T] | Undecodable], filtered: dict[str, set[str]]
    ) -> int:
        """Add what a page has to `items` and to `filtered`; returns the bytes that the items take.

        A page may be as large as the server likes: other tasks run in between.
        """
        total_bytes = taken_bytes = slice_bytes = 0
        decoder, part, include = self._decoder, self._budget_part, self._include
        for count, raw in enumerate(page.items, 1):
            size = len(raw)
            item = await in_steps(decoder.steps_of_item(raw)) if size > LARGE_BYTES else decoder.item(raw)
            if include is not None and not include(metadata := metadata_of(item)):
                if self._is_filtered(metadata):
                    filtered.setdefault(metadata.namespace, set()).add(metadata.name)
            else:
                items.append(item)
                if part is not None:
                    slice_bytes += part.size_of(item)
            taken_bytes += size
            if count % _SLICE_OBJECTS == 0 or taken_bytes > _SLICE_BYTES:
                if self._budget_part is not None:
                    self._budget_part.note_listed(slice_bytes)
                total_bytes += slice_bytes
                taken_bytes = slice_bytes = 0
                await asyncio.sleep(0)
        if self._budget_part is not None:
            self._budget_part.note_listed(slice_bytes)
        return total_bytes + slice_bytes

    def _accept_absence(self) -> bool:
        """Take a 404 as an empty first list, where the resource need not be installed."""
        if not self._may_be_absent or self._store.version:
            return False
        if not self.is_absent:
            _log.info("resource is not installed, watching for it", resource=self.name)
        self.is_absent = True
        self._confirmed(self._clock(), Action.LIST)
        self._deliver([], is_due=not self.synced.is_set())
        self.synced.set()
        return True

    def _is_filtered(self, metadata: Identity) -> bool:
        """Whether the name of an object that is not included belongs into `filtered`."""
        return self._notes_filtered is not None and self._notes_filtered(metadata)

    def _note_filtered(self, metadata: Identity, *, exists: bool) -> bool:
        """Whether the namespace began or ceased to have filtered names with this one."""
        exists = exists and self._is_filtered(metadata)
        names = self._filtered.setdefault(metadata.namespace, set())
        had_any = bool(names)
        (names.add if exists else names.discard)(metadata.name)
        if not names:
            del self._filtered[metadata.namespace]
        return had_any != bool(names)

    async def _watch(self) -> None:
        """Watch until the server ends it."""
        timing = self._timing
        timeout_s = max(1.0, timing.timeout_s(self._rng()))
        params = self._selectors | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._store.version,
            "timeoutSeconds": str(int(timeout_s)),
        }
        splitter = LineSplitter()
        try:
            async with self._client.stream(
                self._path,
                params,
                idle_timeout_s=timing.idle_timeout_s,
                timeout_s=timeout_s + timing.margin_s,
            ) as chunks:
                async for chunk in chunks:
                    lines = splitter.feed(chunk)
                    if self._budget_part is not None:
                        self._budget_part.note_events(sum(map(len, lines)) + OBJECT_BYTES * len(lines))
                        self._budget_part.note_pending(splitter.pending_bytes)
                    for at in range(0, len(lines), _SLICE_EVENTS):
                        if at:
                            await asyncio.sleep(0)
                        await self._apply(lines[at : at + _SLICE_EVENTS])
                    if self._budget_part is not None:
                        self._budget_part.end_events()
                    # Until the next piece comes they would be held, and not be counted.
                    del lines
        finally:
            splitter.forget()
        # The end of the connection may have cut a line, which was left in the splitter. The server
        # sends it again: the version has not advanced past it.

    async def _apply(self, lines: Sequence[bytes]) -> None:
        """Apply the events of these lines to the store and deliver them, in order."""
        changes: list[Change[T]] = []
        is_due = is_confirmed = False
        try:
            for line in lines:
                if len(line) > LARGE_BYTES:
                    # What is in the store has been delivered before another task looks at it.
                    due, changes, is_due = (changes, is_due), [], False
                    self._deliver(due[0], is_due=due[1])
                    event = await in_steps(self._decoder.steps_of_line(line))
                else:
                    event = self._decoder.line(line)
                if isinstance(event, Failed):
                    raise ApiError(event.status, event.status.retry_after_s)
                if (
                    self._include is None
                    or isinstance(event, Bookmark)
                    or self._include(metadata := metadata_of(event))
                ):
                    changes += self._store.apply(event)
                else:
                    changes += self._store.apply(Removed(metadata))
                    is_due |= self._note_filtered(metadata, exists=not isinstance(event, Removed))
                is_confirmed = True
                self._events += not isinstance(event, Bookmark)
        finally:
            if is_confirmed:
                self._confirmed(self._clock(), Action.WATCH)
            # Also when a later line is bad: these are in the store already.
            self._deliver(changes, is_due=is_due)

    def _confirmed(self, at: float, action: Action) -> None:
        self._confirmations += 1
        self._confirmed_at = at
        self._failure_log.succeeded(action)

    def _deliver(self, changes: Sequence[Change[T]], *, is_due: bool) -> None:
        self._oversized_log.log(changes)
        if self._on_change is None or not (changes or is_due):
            return
        try:
            self._on_change(changes)
        # The handler belongs to the daemon, and the store has these changes already. The handler gets the
        # changes that follow.
        except Exception as error:  # noqa: BLE001 - else the next watch would begin behind these changes
            _log.error(
                "handler of changes failed",
                resource=self.name,
                error=error,
                traceback=logs.trace(error),
            )

    def _report(self, step: Step, outcome: Outcome, following: Progress) -> None:
        fields: dict[str, object] = {
            "resource": self.name,
            "action": step.action,
            "version": self._store.version,
        }
        match outcome:
            case Listed():
                _log.info("listed", **fields, objects=len(self._store.objects))
            case Ended():
                _log.debug("watch ended", **fields)
            case Stalled():
                # Usual for a quiet resource; if the server is gone, the next request fails.
                _log.debug("watch brought nothing in time", **fields, next=following.step.action)
            case _:
                failure = failure_of(outcome, self._clock())
                if failure is not None:
                    self._failure_log.failed(step, failure, version=self._store.version, following=following)
