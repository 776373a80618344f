# SPDX-License-Identifier: Apache-2.0
"""Requests to an API server, on connections of our own (`connection`, `http1`).

Everything that goes wrong is translated here: above this module there are `ApiError` (the server
answered, and refused) and `UnreachableError` (it did not answer, or not in time).
"""

import asyncio
import contextlib
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from daemonkit import os_errors
from daemonkit.kube.byte_budget import OverBudgetError
from daemonkit.kube.connection import BrokenPeerError, Connection, WaitingBytes, dial
from daemonkit.kube.credentials import Credentials, Current
from daemonkit.kube.http1 import CutReplyError, Head, HttpError, Reply, field_lines, request
from daemonkit.kube.kubeconfig import load
from daemonkit.kube.resources import Status
from daemonkit.kube.resumption import Resumption
from daemonkit.remedies import Cause, Fault, Hop, cause_of_status
from daemonkit.tls.client_session import ClientSession

CONNECT_TIMEOUT_S = 10.0
# The API server ends ordinary requests after 60 s itself (--request-timeout).
REQUEST_TIMEOUT_S = 65.0
# A page of 500 objects of the size that the server accepts at most would be more; real pages are
# below 10 MB, and what is larger must not take the node's memory.
MAX_RESPONSE_BYTES = 128 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
# Connections that wait for the next request: a list is followed by a watch, and several lists run
# at once. An API server ends them itself after a minute and a half. What is asked every half a minute finds
# one, and needs no handshake.
MAX_IDLE = 4
IDLE_S = 75.0


HostResolver = Callable[[str, int], Awaitable[Sequence[str]]]

# An API server of more replicas is behind one address, or has its name for few.
MAX_PEERS = 16


class ApiError(Exception):
    """The server answered with an error. `status.code` is the HTTP status code, `server` the server's URL."""

    def __init__(self, status: Status, retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status.code} {status.reason}: {status.message}"[:500])
        self.status = status
        self.retry_after_s = retry_after_s
        self.server = ""

    @property
    def is_too_large(self) -> bool:
        """Whether the object is larger than the API server reads or etcd stores."""
        code, message = self.status.code, self.status.message
        # What etcd, and the client's limit before it, refuse is passed on as an error of the server.
        is_of_etcd = "request is too large" in message or "message larger than max" in message
        return code == 413 or (code == 500 and is_of_etcd)


class UnreachableError(Exception):
    """The server did not answer: connection, TLS, or a deadline. `server` is its URL, where it is known."""

    def __init__(self, text: str = "", cause: Cause = Cause.OTHER) -> None:
        super().__init__(text)
        self.cause = cause
        self.server = ""


def fault_of(hop: Hop, error: ApiError | UnreachableError) -> Fault:
    """The error as an operator reads it; `hop` is the server as the configuration names it."""
    cause = error.cause if isinstance(error, UnreachableError) else cause_of_status(error.status.code)
    return hop.fault(cause, str(error), error.server)


class AnswerTooLargeError(UnreachableError):
    """The answer is larger than the caller takes."""


class DeadlineError(UnreachableError):
    """Nothing came in time."""


class _Idle(NamedTuple):
    """A connection that may serve another request, for the same server with the same context."""

    server: str
    tls: ssl.SSLContext | None
    connection: Connection
    expires_at: float


@dataclass(frozen=True, slots=True)
class _Common:
    """What requests with these credentials have in common: the path of the server, and header fields."""

    current: Current
    path: str
    fields: str = field(repr=False)


class _Deadlines:
    """How long to wait for the next bytes: `idle_timeout_s`, and not beyond `timeout_s` in all."""

    def __init__(self, idle_timeout_s: float, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle_timeout_s = idle_timeout_s
        self._end = self._loop.time() + timeout_s

    def next(self, at_most_s: float = math.inf) -> float:
        """When to wait no longer, by the event loop's clock."""
        now = self._loop.time()
        if now >= self._end:
            raise TimeoutError  # also of who always has bytes there, and is never waited for
        return min(now + min(at_most_s, self._idle_timeout_s), self._end)

    def without_idle_timeout(self) -> "_Deadlines":
        return _Deadlines(math.inf, self._end - self._loop.time())


class _OpenReply:
    """A reply whose head is there, on the connection that brings the rest. `server` is whose it is."""

    def __init__(
        self, server: str, head: Head, reply: Reply, connection: Connection, first: list[bytes]
    ) -> None:
        self.server = server
        self.head = head
        self.reply = reply
        self.connection = connection
        self._first = first

    async def more(self, deadlines: _Deadlines, *, goes_on: bool = False) -> list[bytes]:
        """The next parts of the body; none at its end. Raises UnreachableError.

        `goes_on`: the caller has only kept those before.
        """
        try:
            parts, self._first = self._first, []
            while not (parts or self.reply.is_complete):
                goes_on = goes_on and self.reply.has_few_chunks
                data = await self.connection.read(deadlines.next(), goes_on=goes_on)
                if not data:
                    self.reply.end()
                parts = self.reply.feed(data)
            return parts
        except (OSError, HttpError) as error:
            raise _unreachable(error, self.server) from None

    async def chunks(self, deadlines: _Deadlines) -> AsyncIterator[bytes]:
        """The body as it comes; its first bytes have all the time."""
        parts = await self.more(deadlines.without_idle_timeout())
        while parts:
            for part in parts:
                yield part
            parts = await self.more(deadlines)

    async def body(
        self, deadlines: _Deadlines, limit_bytes: int, received: "ReceivedBytes | None" = None
    ) -> bytes:
        """The body, or a little more than the limit of it. Raises AnswerTooLargeError if `received` does not
        have it."""
        parts: list[bytes] = []
        size = 0
        try:
            while size <= limit_bytes and (found := await self.more(deadlines, goes_on=True)):
                parts += found
                more_bytes = sum(map(len, found))
                size += more_bytes
                if received is not None:
                    # In parts, and then as a whole beside them.
                    received.note_received(2 * more_bytes)
                if self.reply.is_complete:
                    break
            return b"".join(parts)
        except OverBudgetError as error:
            raise AnswerTooLargeError(str(error)) from None
        finally:
            # An exception keeps this frame alive until a collection of garbage.
            parts.clear()
            if received is not None:
                received.note_received(-2 * size)


class ReceivedBytes(WaitingBytes, Protocol):
    """Who counts what connections of a server hold, as a `ByteBudget` does."""

    def note_received(self, size_bytes: int) -> None:
        """An answer under way holds so much more, or less than nothing. Raises OverBudgetError."""


class Requester(Protocol):
    """What makes single requests to an API server: a `Client`, one that is opened late, or a fake."""

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = MAX_RESPONSE_BYTES,
    ) -> bytes: ...


class CheckedRequester(Protocol):
    """A `Requester` that asks right before it sends, each time that it does."""

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        limit_bytes: int = MAX_RESPONSE_BYTES,
        before_send: Callable[[], None] | None = None,
    ) -> bytes: ...


class ApiClient(CheckedRequester, Protocol):
    """What makes single requests and watches: a `Client`, or one in the process. Its owner closes it."""

    @property
    def server(self) -> str: ...

    def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...

    async def close(self) -> None: ...


class Client:
    """A client of one API server with one set of credentials. Use it as a context manager.

    Each request takes the credentials as they are then; connections are kept per TLS context, so
    that a new certificate is used from the next request on. `max_idle` connections wait for a request.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        user_agent: str = "vcnode",
        max_idle: int = MAX_IDLE,
        repeats_writes: bool = False,
        received: ReceivedBytes | None = None,
        resolve: HostResolver | None = None,
    ) -> None:
        """`received` counts what connections and answers hold until it was read or given up.

        It has peers wait, and may end an answer: an AnswerTooLargeError with its reason. `resolve` has the
        addresses that are dialled in the place of a host and its port; it raises OSError if there is none.
        """
        self._resolve = resolve
        self._received = received
        self._credentials = credentials
        self._user_agent = user_agent
        self._max_idle = max_idle
        self._repeats_writes = repeats_writes
        self._idle: list[_Idle] = []
        """The longest idle first."""
        self._expiry: asyncio.TimerHandle | None = None
        self._peers: dict[str, None] = {}
        self._peers_of = ""
        self._common: _Common | None = None
        self._resumption = Resumption()

    @classmethod
    def from_kubeconfig(cls, path: Path, *, user_agent: str = "vcnode", max_idle: int = MAX_IDLE) -> "Client":
        """A client by a kubeconfig, which is read again when it or a file in it changes.

        Raises CredentialsError if it cannot be used now.
        """
        credentials = Credentials(lambda: load(path), watched=(path,))
        return cls(credentials, user_agent=user_agent, max_idle=max_idle)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        while self._idle:
            self._idle.pop().connection.close()

    @property
    def server(self) -> str:
        return self._credentials.current().access.server

    @property
    def peer_addresses(self) -> frozenset[str]:
        """Where the server has proved by TLS to be who it is: its last MAX_PEERS addresses."""
        return frozenset(self._peers)

    def _note_peer(self, now: Current, connection: Connection) -> None:
        if now.tls is None:
            return
        if self._peers_of != now.access.server:
            self._peers_of = now.access.server
            self._peers.clear()
        self._peers.pop(connection.peer_address, None)
        self._peers[connection.peer_address] = None
        if len(self._peers) > MAX_PEERS:
            self._peers.pop(next(iter(self._peers)))

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
        """Send one request and return the body of a 2xx answer.

        The `content_type` of a patch is its kind. Raises ApiError and
        UnreachableError, AnswerTooLargeError for more than `limit_bytes`.

        A request that `can_repeat` goes out on a kept connection. Should that turn out to be dead, it is
        sent again, and the server may have carried it out twice: the second create of a name is answered
        with AlreadyExists, the second delete with NotFound. By default requests without a body may be, and
        all of a client that `repeats_writes`.

        `before_send` is called each time right before the bytes go out, with nothing awaited between. What it
        raises ends the request. With it, a cancelled request leaves nothing in the kernel to be sent.
        """
        deadlines = _Deadlines(REQUEST_TIMEOUT_S, REQUEST_TIMEOUT_S)
        repeats = body is None or self._repeats_writes if can_repeat is None else can_repeat
        now = self._credentials.current()
        common = self._common_of(now)
        fields = common.fields if body is None else f"{common.fields}Content-Type: {content_type}\r\n"
        data = request(method, common.path + path, params or {}, fields, body)
        answer = await self._answer(now, data, deadlines, before_send, can_repeat=repeats)
        try:
            content = await answer.body(deadlines, limit_bytes, self._received)
            if len(content) > limit_bytes:
                raise AnswerTooLargeError(f"a response of more than {limit_bytes} bytes")
            return content
        except UnreachableError as error:
            error.server = error.server or now.access.server
            raise
        finally:
            self._done(now, answer)

    def _common_of(self, now: Current) -> "_Common":
        if self._common is None or self._common.current is not now:
            self._common = _common_head(now, self._user_agent)
        return self._common

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, idle_timeout_s: float, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream (a watch) and give an iterator of its chunks, of any division.

        The iterator ends when the server ends the stream. Raises DeadlineError when the answer does not
        begin within `idle_timeout_s`, when a chunk is followed by nothing for as long, or when the whole
        lasts longer than `timeout_s`. Raises ApiError when the server refuses, UnreachableError when the
        connection breaks, as that to a server that has vanished does within KEEPALIVE_S.
        """
        deadlines = _Deadlines(idle_timeout_s, timeout_s)
        now = self._credentials.current()
        common = self._common_of(now)
        data = request("GET", common.path + path, params, common.fields, None)
        answer = await self._answer(now, data, deadlines, None, can_repeat=True)
        try:
            yield answer.chunks(deadlines)
        except (ApiError, UnreachableError) as error:
            error.server = error.server or now.access.server
            raise
        finally:
            self._done(now, answer)

    async def _answer(
        self,
        now: Current,
        data: bytes,
        deadlines: _Deadlines,
        before_send: Callable[[], None] | None,
        *,
        can_repeat: bool,
    ) -> _OpenReply:
        """Send a request; returns its 2xx answer, whose body is to be read. `_done` takes the answer back."""
        server = now.access.server
        try:
            answer = await self._ask(now, data, deadlines, before_send, can_repeat=can_repeat)
        except (OSError, HttpError) as error:
            self._credentials.look_again()
            raise _unreachable(error, server) from None
        except UnreachableError as error:
            error.server = error.server or server
            raise
        if 200 <= answer.head.status < 300:
            return answer
        try:
            if answer.head.status == 401:
                # The files may have changed without a trace in their metadata.
                self._credentials.reload()
                self._credentials.look_again()
            # Not by a variable: an exception refers to the frames that it passes, and the answer and its
            # connection would be garbage of a circle.
            raise await _error(answer, deadlines)
        finally:
            self._done(now, answer)

    def _done(self, now: Current, answer: _OpenReply) -> None:
        """The answer was read, or is not to be: keep its connection for another request if that may be."""
        # It may have lost who the client is with the session, and a full handshake tells it again.
        is_unknown = answer.connection.is_resumed and self._resumption.has_lost_client(answer.head.status)
        is_fit = answer.reply.is_complete and answer.reply.is_reusable and answer.connection.is_quiet
        if is_fit and not is_unknown:
            self._keep(now, answer.connection)
        else:
            answer.connection.close()

    async def _ask(
        self,
        now: Current,
        data: bytes,
        deadlines: _Deadlines,
        before_send: Callable[[], None] | None,
        *,
        can_repeat: bool,
    ) -> _OpenReply:
        """Send a request and wait for the head of its reply."""
        kept = self._kept(now) if can_repeat else None
        if kept is not None:
            try:
                return await _asked(now.access.server, kept, data, deadlines, before_send)
            except TimeoutError:
                raise
            except (OSError, HttpError):
                # The server may have closed it while it was idle; a new connection may work.
                pass
        session = None if now.tls is None else await self._resumption.session(now.tls)
        try:
            async with asyncio.timeout_at(deadlines.next(CONNECT_TIMEOUT_S)):
                connection = await _connected(now, self._received, session, self._resolve)
            verified_at_s = asyncio.get_running_loop().time()
            self._note_peer(now, connection)
            answer = await _asked(now.access.server, connection, data, deadlines, before_send)
        except BaseException as error:
            # Who was cancelled has found out nothing; others must not wait for its session.
            self._resumption.failed(session if isinstance(error, OSError | HttpError) else None)
            raise
        try:
            if connection.is_resumed and self._resumption.has_lost_client(answer.head.status):
                self._resumption.failed(session)
            elif connection.tls is not None:
                # With its first answer a server has given what can be resumed.
                self._resumption.answered(connection.tls, session, verified_at_s, answer.head.status)
        except BaseException:
            self._resumption.failed(None)
            connection.close()
            raise
        return answer

    def _kept(self, now: Current) -> Connection | None:
        for at in range(len(self._idle) - 1, -1, -1):
            idle = self._idle[at]
            if idle.server == now.access.server and idle.tls is now.tls:
                del self._idle[at]
                if idle.connection.is_quiet:
                    return idle.connection
                idle.connection.close()
        return None

    def _keep(self, now: Current, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle.append(_Idle(now.access.server, now.tls, connection, loop.time() + IDLE_S))
        if len(self._idle) > self._max_idle:
            self._idle.pop(0).connection.close()
        if self._expiry is None:
            self._expire_at(loop.time() + IDLE_S)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0].expires_at <= loop.time():
            self._idle.pop(0).connection.close()
        self._expiry = None
        if self._idle:
            self._expire_at(self._idle[0].expires_at)

    def _expire_at(self, at: float) -> None:
        # At a whole second, with those of all clients.
        self._expiry = asyncio.get_running_loop().call_at(math.ceil(at), self._expire)


async def _connected(
    now: Current, waiting: WaitingBytes | None, session: ClientSession | None, resolve: HostResolver | None
) -> Connection:
    place = urlsplit(now.access.server)
    host = place.hostname or ""
    port = place.port or (443 if place.scheme == "https" else 80)
    name = None if now.tls is None else now.access.server_name or host
    hosts = (host,) if resolve is None else tuple(await resolve(host, port))
    return await dial(hosts, port, now.tls, name, waiting, session)


async def _asked(
    server: str,
    connection: Connection,
    data: bytes,
    deadlines: _Deadlines,
    before_send: Callable[[], None] | None,
) -> _OpenReply:
    reply = Reply()
    try:
        if before_send is not None:
            before_send()  # no await from here to the write
        connection.write(data)
        while True:
            received = await connection.read(deadlines.next())
            if not received:
                reply.end()
            parts = reply.feed(received)
            if reply.head is not None:
                return _OpenReply(server, reply.head, reply, connection, parts)
    except BaseException:
        connection.close(discards_unsent=before_send is not None)
        raise


def _common_head(now: Current, user_agent: str) -> _Common:
    place = urlsplit(now.access.server)
    # No compression: it saves bytes on the wire for CPU on both ends, and watches have none.
    fields = {
        "Host": place.netloc,
        "User-Agent": user_agent,
        "Accept": "application/json, */*",
        "Accept-Encoding": "identity",
    }
    if now.token is not None:
        fields["Authorization"] = f"Bearer {now.token}"
    return _Common(now, place.path, field_lines(fields))


async def _error(answer: _OpenReply, deadlines: _Deadlines) -> ApiError:
    body = await answer.body(deadlines, _MAX_ERROR_BYTES)
    try:
        found = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # A proxy on the way answers in HTML.
        found = Status(message="the error response is not a Status")
    status = msgspec.structs.replace(found, code=answer.head.status)
    retry_after_s = max(found.retry_after_s, _retry_after_s(answer.head.fields.get("retry-after")))
    refused = ApiError(status, retry_after_s)
    refused.server = answer.server
    return refused


def _retry_after_s(header: str | None) -> float:
    """The seconds of a Retry-After; API servers never send its date form (RFC 9110, 10.2.3)."""
    is_number = header is not None and header.isascii() and header.isdigit() and len(header) < 9
    return float(header) if header is not None and is_number else 0.0


def _unreachable(error: OSError | HttpError, server: str) -> UnreachableError:
    """The error of a connection as a caller of the client sees it."""
    match error:
        case TimeoutError():
            found: UnreachableError = DeadlineError("no answer in time", Cause.TIMEOUT)
        case CutReplyError():
            found = UnreachableError(f"HTTP: {error}", Cause.CLOSED)
        case HttpError():
            found = UnreachableError(f"HTTP: {error}", Cause.MALFORMED)
        case BrokenPeerError():
            found = UnreachableError(str(error), Cause.MALFORMED)
        case _:
            text, cause = os_errors.describe(error)
            found = UnreachableError(text[:500], cause)
    found.server = server
    return found
