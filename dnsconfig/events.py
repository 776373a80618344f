# SPDX-License-Identifier: Apache-2.0
"""Posts Events on pods: what an author is told where `kubectl describe pod` shows it.

All that is asked of the API server is `create` of events: an Event's name is a digest of what it
says, so that one that is there already (after a restart, by another try) is a conflict, and done.
RBAC cannot say on which pods; who has this credential can tell any pod's author anything, and no
more than that.

Events are a courtesy: a bounded queue, a few a second, and what does not fit is counted and lost. Tenants
take turns: who has many waits for them itself, and where there is no room loses its own.
"""

import asyncio
import datetime as dt
import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import Resource
from daemonkit.metrics import Counter, Family
from daemonkit.token_bucket import TokenBucket
from dnsconfig.cluster.objects import PodObject
from dnsconfig.resolve.resolver import PodEvent

EVENTS = Resource("", "v1", "events")
COMPONENT = "dnsconfig"
MAX_WAITING = 256
# As client-go's default for a source of events is: a burst, then one every few seconds.
BURST = 25
INTERVAL_S = 1.0
TRIES = 3
RETRY_S = 5.0
# client-go cuts at 1024 as well (tools/record).
MAX_MESSAGE_CHARACTERS = 1024
# RFC 1123 subdomain, with the digest behind it.
_MAX_NAME_CHARACTERS = 253 - 17

_log = logs.get(__name__)


class Poster(Protocol):
    """What is needed of an API server's client."""

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None = None
    ) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Letter:
    """One Event to post."""

    namespace: str
    body: bytes


def letter(pod: PodObject, event: PodEvent, node: str, at: dt.datetime) -> Letter:
    """The Event object, as the kubelet would make it. `at` is UTC."""
    meta = pod.metadata
    message = event.message[:MAX_MESSAGE_CHARACTERS]
    says = f"{meta.uid}\0{event.reason}\0{event.message}"
    digest = hashlib.sha256(says.encode()).hexdigest()[:16]
    stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    value = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta.name[:_MAX_NAME_CHARACTERS]}.{digest}", "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        },
        "reason": event.reason,
        "message": message,
        "type": "Warning",
        "source": {"component": COMPONENT, "host": node},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    return Letter(meta.namespace, msgspec.json.encode(value))


class FairQueue:
    """What waits, by tenant; tenants take turns. `most` are all together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[str, deque[Letter]] = {}  # the first one's turn is next
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, tenant: str, item: Letter) -> bool:
        """Add one; False if one was lost for that: the newest of the tenant that has most."""
        self._waiting.setdefault(tenant, deque()).append(item)
        self._size += 1
        if self._size <= self._most:
            return True
        longest = max(self._waiting, key=lambda name: len(self._waiting[name]))
        self._waiting[longest].pop()
        self._dropped(longest)
        return False

    def pop(self) -> Letter:
        """Take the oldest of the tenant whose turn it is. There has to be one."""
        tenant = next(iter(self._waiting))
        items = self._waiting.pop(tenant)
        item = items.popleft()
        self._waiting[tenant] = items
        self._dropped(tenant)
        return item

    def _dropped(self, tenant: str) -> None:
        self._size -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]


class Events:
    """The queue, and the task that empties it. `wall` is the time of day in seconds."""

    def __init__(
        self, client: Poster, node: str, wall: Callable[[], float], counted: Family[Counter]
    ) -> None:
        self._client = client
        self._node = node
        self._wall = wall
        self._counted = counted
        self._queue = FairQueue(MAX_WAITING)
        self._filled = asyncio.Event()

    def tell(self, pod: PodObject, event: PodEvent, tenant: str) -> None:
        """Post an Event when its tenant's turn comes; never waits."""
        at = dt.datetime.fromtimestamp(self._wall(), dt.UTC)
        if not self._queue.put(tenant, letter(pod, event, self._node, at)):
            self._counted.labels("dropped").inc()
        self._filled.set()

    async def run(self) -> None:
        """Post for ever, at a bounded rate."""
        loop = asyncio.get_running_loop()
        bucket = TokenBucket(BURST, 1 / INTERVAL_S, BURST, loop.time())
        while True:
            self._filled.clear()
            if not self._queue:
                await self._filled.wait()
            await asyncio.sleep(bucket.reserve(loop.time()))
            self._counted.labels(await self._post(self._queue.pop())).inc()

    async def _post(self, item: Letter) -> str:
        """`posted`, or why not: the label of the metric."""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(RETRY_S)
            try:
                await self._client.request("POST", EVENTS.path(item.namespace), {}, item.body)
            except ApiError as error:
                if error.status.code == 409:
                    return "posted"
                if error.status.code < 500 and error.status.code != 429:
                    _log.warning("an Event was refused", namespace=item.namespace, reason=error)
                    return "refused"
            except UnreachableError:
                continue
            else:
                return "posted"
        return "unreachable"
