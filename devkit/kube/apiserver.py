# SPDX-License-Identifier: Apache-2.0
"""A fake kube-apiserver: list, watch and plain writes over HTTP, and faults on demand.

It is the super cluster of the demo and the peer of the reflector's tests. Those of the reflector's tests that
need no faults also run against a real kube-apiserver, as a contract test. It has no schema and no admission,
and authorizes by its argument `authorize` alone.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import msgspec
from aiohttp import web

from daemonkit.kube.resources import Resource
from devkit.kube import managed_fields
from devkit.kube import requests as requests
from devkit.kube import wire as wire
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.storage import Object, Selection, StatusError, Storage, gone
from devkit.pki import Authority, Leaf


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, as authorization sees it: a selector that asks for exactly one name is a name."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    query: Mapping[str, str]
    subresource: str = ""
    user_agent: str = ""


@dataclass(slots=True)
class Faults:
    """The present faults of the server; set and unset at will.

    `delay_s` goes before each answer. `refusals` are answered, one each, to the next requests: status
    code and Retry-After seconds (0 for none). `has_bookmarks` off is an old server.
    `is_gone_in_stream` off answers an expired watch with HTTP 410 instead of an event.
    """

    delay_s: float = 0.0
    refusals: deque[tuple[int, int]] = field(default_factory=deque)
    has_bookmarks: bool = True
    is_gone_in_stream: bool = True


class _WatchStream:
    """One live watch."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.wake = asyncio.Event()
        self.injected: list[bytes] = []
        self.is_ending = False


class FakeApiserver:
    """The server. `start` and `stop` any number of times; it keeps its port and its objects.

    With an `authority` it speaks TLS with a certificate from it for 127.0.0.1 and localhost, with `serving`
    by that certificate. It listens at `address`, on the port that is set before `start`, or on any. With
    `client_ca_pem` or `tokens` a client needs a certificate or a token. `authorize` may refuse a
    request that was let in; without it everything is allowed.

    With `cluster` it keeps the rules of a cluster (`cluster.Cluster`); else it stores what it is sent.
    Requests for `absent_resources` are answered with 404. A watch can resume within `max_history` writes.
    """

    def __init__(
        self,
        *,
        authority: Authority | None = None,
        client_ca_pem: bytes | None = None,
        tokens: frozenset[str] = frozenset(),
        authorize: Callable[[Seen], bool] | None = None,
        bookmark_interval_s: float = 60.0,
        cluster: ClusterSettings | None = None,
        absent_resources: Collection[Resource] = (),
        max_history: int = 10_000,
        serving: Leaf | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self.storage = Storage(max_history=max_history)
        self.storage.absent.update(absent_resources)
        self.storage.on_write.append(self._wake)
        self._streams: set[_WatchStream] = set()
        if cluster is not None and authority is not None:
            cluster = replace(cluster, root_ca_pem=authority.cert_pem.decode())
        self.cluster = Cluster(self.storage, cluster)
        self.faults = Faults()
        self.seen: deque[Seen] = deque(maxlen=1000)
        self.tokens = tokens
        self.authorize = authorize
        self.bookmark_interval_s = bookmark_interval_s
        self.port = 0
        self._address = address
        self._authority = authority
        self._client_ca_pem = client_ca_pem
        self._runner: web.AppRunner | None = None
        self.serving = serving
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def url(self) -> str:
        scheme = "http" if self._authority is None and self.serving is None else "https"
        return f"{scheme}://{self._address}:{self.port}"

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return len(self._streams)

    async def __aenter__(self) -> "FakeApiserver":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # Live watches never finish by themselves: do not wait for them, and end one whose client left.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address, self.port, ssl_context=self._tls())
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Go away: close the port and all connections. The objects stay."""
        runner, self._runner = self._runner, None
        if runner is not None:
            self.end_watches()
            await runner.cleanup()

    def kubeconfig(self, leaf: Leaf | None = None, *, token: str | None = None) -> str:
        """A kubeconfig for this server, with everything embedded."""
        ca_pem = None if self._authority is None else self._authority.cert_pem
        return wire.kubeconfig(self.url, ca_pem, leaf, token=token)

    def end_watches(self) -> None:
        """End all watches in good order."""
        for stream in self._streams:
            stream.is_ending = True
        self._wake()

    def inject(self, data: bytes, *, is_last: bool = False) -> None:
        """Send bytes as they are into all live watches; then end them if `is_last`."""
        for stream in self._streams:
            stream.injected.append(data)
            stream.is_ending = stream.is_ending or is_last
        self._wake()

    def expire_watches(self) -> None:
        """Send 410 into all live watches, as if the history had been compacted under them."""
        self.inject(wire.event("ERROR", gone().status), is_last=True)

    def half_open(self) -> None:
        """From now on connections stay and bring nothing, until `heal`."""
        self._flows.clear()

    def heal(self) -> None:
        """Take all faults back."""
        self.faults = Faults()
        self._flows.set()
        self._wake()

    def _wake(self, resource: Resource | None = None) -> None:
        for stream in self._streams:
            if resource is None or stream.resource == resource:
                stream.wake.set()

    def _tls(self) -> ssl.SSLContext | None:
        if self.serving is None:
            if self._authority is None:
                return None
            self.serving = self._authority.issue(
                "kube-apiserver", sans_dns=["localhost"], sans_ip=["127.0.0.1"], usages=["server"]
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.serving.load_into(context)
        if self._client_ca_pem is not None:
            context.load_verify_locations(cadata=self._client_ca_pem.decode())
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except StatusError as error:
            headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else {}
            return _json(error.status, error.code, headers)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.faults.delay_s:
            await asyncio.sleep(self.faults.delay_s)
        await self._flows.wait()
        if self.faults.refusals:
            code, retry_after_s = self.faults.refusals.popleft()
            raise StatusError(code, "Refused", "a fault on demand", retry_after_s=retry_after_s)
        if request.path in wire.HEALTH_PATHS:
            return web.Response(text="ok")
        self._authenticate(request)
        target = requests.target_of(self.cluster, request.path)
        query = dict(request.query)
        selection = Selection.parse(
            target.resource,
            target.namespace,
            query.get("labelSelector", ""),
            query.get("fieldSelector", ""),
        )
        verb = wire.verb(request.method, target.name, query, target.subresource)
        name = target.name or selection.only_name
        agent = request.headers.get("User-Agent", "")
        seen = Seen(verb, target.resource, target.namespace, name, query, target.subresource, agent)
        self.seen.append(seen)
        if self.authorize is not None and not self.authorize(seen):
            raise StatusError(403, "Forbidden", f"{verb} {target.resource} is not allowed")
        if verb == "watch":
            requests.check_installed(self.cluster, target)
            return await self._watch(request, selection, query)
        body = await request.read()
        manager = managed_fields.manager_of(agent)
        code, value = requests.carry_out(
            self.cluster, verb, target, selection, query, request.content_type, body, manager
        )
        return _json(value, code)

    def _authenticate(self, request: web.Request) -> None:
        if self._client_ca_pem is None and not self.tokens:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer" and token in self.tokens:
            return
        tls = request.get_extra_info("ssl_object")
        if tls is None or not tls.getpeercert():
            raise StatusError(401, "Unauthorized", "Unauthorized")

    async def _watch(
        self, request: web.Request, selection: Selection, query: Mapping[str, str]
    ) -> web.StreamResponse:
        asked = query.get("resourceVersion", "")
        first: list[tuple[str, Object]] = []
        if asked in ("", "0"):
            since = self.storage.revision
            first = [("ADDED", value) for value in self.storage.select(selection)]
        else:
            since = wire.number(asked)
            self.storage.check_seen(since)
            if not self.faults.is_gone_in_stream:
                self.storage.events(selection, since)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        stream = _WatchStream(selection.resource)
        self._streams.add(stream)
        try:
            await response.write(b"".join(wire.event(*event) for event in first))
            await self._follow(response, stream, selection, since, query)
        except StatusError as error:
            await response.write(wire.event("ERROR", error.status))
        except ConnectionError:
            pass  # The client has left.
        finally:
            self._streams.discard(stream)
        return response

    async def _follow(
        self,
        response: web.StreamResponse,
        stream: _WatchStream,
        selection: Selection,
        since: int,
        query: Mapping[str, str],
    ) -> None:
        has_bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        now = time.monotonic()
        end = now + (wire.number(query.get("timeoutSeconds", "")) or 1800)
        bookmark_at = now + self.bookmark_interval_s
        while True:
            stream.wake.clear()
            now = time.monotonic()
            if self._flows.is_set():
                chunks: list[bytes] = []
                if since < self.storage.written(selection.resource):
                    chunks += [wire.event(*event) for event in self.storage.events(selection, since)]
                since = self.storage.revision
                is_over = stream.is_ending or now >= end
                if (
                    has_bookmarks
                    and self.faults.has_bookmarks
                    and (now >= bookmark_at or (is_over and not stream.injected))
                ):
                    bookmark_at = now + self.bookmark_interval_s
                    chunks.append(wire.bookmark(selection.resource, since))
                chunks += stream.injected
                stream.injected = []
                if chunks:
                    await response.write(b"".join(chunks))
                if is_over:
                    return
            elif stream.is_ending:
                return
            try:
                async with asyncio.timeout(max(0.01, min(bookmark_at, end) - now)):
                    await stream.wake.wait()
            except TimeoutError:
                continue


def _json(value: Object, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=code, headers=headers, content_type="application/json")
