# SPDX-License-Identifier: Apache-2.0
"""Records Events about pods, for `kubectl describe pod`; builds them for objects of any kind.

The recorder needs the right to `create` Events and no other. An Event's name is a digest of its
content, so that an existing one (after a restart, or a retry) is a conflict, and done.

Events are best effort: a bounded queue, a bounded rate, and what does not fit is counted and
dropped. Tenants take turns: one with many Events waits for its own, and loses its own.
"""

import asyncio
import datetime as dt
import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import EventReason, Resource
from daemonkit.metrics import Counter, Family
from daemonkit.token_bucket import TokenBucket

EVENTS = Resource("", "v1", "events")
MAX_WAITING = 256
# client-go's default for one source: a burst of 25. Its refill is slower, one in five minutes.
BURST = 25
INTERVAL_S = 1.0
TRIES = 3
RETRY_S = 5.0
# client-go truncates at 1024 as well (tools/record).
MAX_MESSAGE_CHARACTERS = 1024
# An RFC 1123 subdomain, less a dot and the digest.
_DIGEST_CHARACTERS = 16
_MAX_NAME_CHARACTERS = 253 - 1 - _DIGEST_CHARACTERS

_log = logs.get(__name__)


class EventClient(Protocol):
    """The part of an API server's client that is used."""

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None = None
    ) -> bytes: ...


class PodIdentity(Protocol):
    """The pod that an Event is about, such as an ObjectMeta."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class InvolvedObject(msgspec.Struct, frozen=True):
    """An object of any kind that an Event is about."""

    namespace: str
    name: str
    uid: str
    kind: str
    api_version: str


class EventSource(msgspec.Struct, frozen=True):
    """core/v1 EventSource; with a `reporting_component` its Events also name their reporting instance."""

    component: str
    host: str
    reporting_component: str = ""


class EventBody(msgspec.Struct, frozen=True):
    namespace: str
    body: bytes


def build_event(
    pod: PodIdentity | InvolvedObject,
    reason: EventReason,
    message: str,
    source: EventSource,
    at: dt.datetime,
    *,
    suffix: str = "",
) -> EventBody:
    """An Event of type Warning, as the kubelet builds it. `at` is UTC.

    That of a cluster-scoped object is in namespace `default`, as the API server demands.

    `suffix` ends the Event's name. By default it is a digest of the content, so that the same Event
    exists once.
    """
    if not suffix:
        content = f"{pod.uid}\0{reason}\0{message}"
        suffix = hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    timestamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    api_version, kind = (pod.api_version, pod.kind) if isinstance(pod, InvolvedObject) else ("v1", "Pod")
    namespace = pod.namespace or "default"
    value = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name[:_MAX_NAME_CHARACTERS]}.{suffix}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": api_version,
            "kind": kind,
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "reason": reason,
        "message": message[:MAX_MESSAGE_CHARACTERS],
        "type": "Warning",
        "source": {"component": source.component, "host": source.host},
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }
    if source.reporting_component:
        value |= {"reportingComponent": source.reporting_component, "reportingInstance": source.host}
    return EventBody(namespace, msgspec.json.encode(value))


class TenantQueue:
    """Events that wait, by tenant; tenants take turns. `most` bounds all together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[str, deque[EventBody]] = {}  # the first tenant is next
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, tenant: str, item: EventBody) -> bool:
        """Add one; False if that dropped one: the newest of the tenant that has most."""
        self._waiting.setdefault(tenant, deque()).append(item)
        self._size += 1
        if self._size <= self._most:
            return True
        longest = max(self._waiting, key=lambda name: len(self._waiting[name]))
        self._waiting[longest].pop()
        self._count_removed(longest)
        return False

    def pop(self) -> EventBody:
        """Remove the oldest of the tenant whose turn it is. The queue must not be empty."""
        tenant = next(iter(self._waiting))
        items = self._waiting.pop(tenant)
        item = items.popleft()
        self._waiting[tenant] = items
        self._count_removed(tenant)
        return item

    def _count_removed(self, tenant: str) -> None:
        self._size -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]


class EventRecorder:
    """A queue, and the task `run` that posts from it. `wall` is the time of day in seconds;
    `counted` has the label `result`: posted, refused, unreachable or dropped."""

    def __init__(
        self,
        client: EventClient,
        source: EventSource,
        wall: Callable[[], float],
        counted: Family[Counter],
        *,
        burst: int = BURST,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._client = client
        self._source = source
        self._wall = wall
        self._counted = counted
        self._burst = burst
        self._interval_s = interval_s
        self._queue = TenantQueue(MAX_WAITING)
        self._filled = asyncio.Event()

    def record(self, pod: PodIdentity, reason: EventReason, message: str, tenant: str) -> None:
        """Queue an Event behind others of its tenant; never waits."""
        at = dt.datetime.fromtimestamp(self._wall(), dt.UTC)
        if not self._queue.put(tenant, build_event(pod, reason, message, self._source, at)):
            self._counted.labels("dropped").inc()
        self._filled.set()

    async def run(self) -> None:
        """Post at a bounded rate; runs until cancelled."""
        loop = asyncio.get_running_loop()
        bucket = TokenBucket(self._burst, 1 / self._interval_s, self._burst, loop.time())
        while True:
            self._filled.clear()
            if not self._queue:
                await self._filled.wait()
            await asyncio.sleep(bucket.reserve(loop.time()))
            self._counted.labels(await self._post(self._queue.pop())).inc()

    async def _post(self, item: EventBody) -> str:
        """Post one; returns the metric's label."""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(RETRY_S)
            try:
                await self._client.request("POST", EVENTS.path(item.namespace), {}, item.body)
            except ApiError as error:
                if error.status.code == 409:
                    return "posted"
                if error.status.code < 500 and error.status.code != 429:
                    _log.warning("the API server refused an Event", namespace=item.namespace, reason=error)
                    return "refused"
            except UnreachableError:
                continue
            else:
                return "posted"
        return "unreachable"
