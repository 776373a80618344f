# SPDX-License-Identifier: Apache-2.0
"""Connections to the server upstream, the kubelet or the super API server: dialled, verified, pooled, and
read one response at a time.

The address comes from the configuration, whatever a request contains. A connection goes back
to the pool only after a response with an exact end and no bytes behind it: surplus
bytes would be the next tenant's answer.
"""

import contextlib
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Protocol

from daemonkit.keepalive import keep_alive
from daemonkit.tls.client_session import ClientSession, clear_errors
from vnagent.core.dial_order import DialOrder
from vnagent.core.framing import Body, FramingError, body_of
from vnagent.core.head import END_OF_HEAD, HeadError, ResponseHead, find_head, parse_response_head
from vnagent.core.kubelet_facts import StreamProtocols
from vnagent.core.kubelet_request import KubeletRequests
from vnagent.core.upstream_request import UpstreamRequests
from vnagent.transport.cipher import Cipher
from vnagent.transport.handler import EndReason
from vnagent.transport.poll_groups import PollGroup
from vnagent.transport.poller import SocketPoller
from vnagent.transport.tls_connection import TlsConnection
from vnagent.upstream.session import UpstreamSession

# The kubelet drops an idle connection after 90 s (Go's IdleTimeout); vn-agent must be first.
IDLE_S = 60.0
# An idle connection stays so long with the group of its last request's tenant: the next one may come soon.
LEAVE_S = 1.0
MAX_IDLE = 64
# A kubelet on the same node accepts at once or is away.
DIAL_S = 5.0
# For the body of a refusal, a sentence.
REFUSAL_S = 5.0


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """The server's address and the name in its certificate. `authority` is the Host field for a kubelet.

    A super API server may have `others`, addresses that are dialled when `host` cannot be reached.
    """

    host: str
    port: int
    server_name: str
    others: tuple[str, ...] = ()
    authority: str = field(init=False)

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        object.__setattr__(self, "authority", f"{host}:{self.port}")


class ResponseHandler(Protocol):
    """The callbacks of one request. After `on_response_end` or `on_failure` the connection may serve
    another one."""

    def on_response(self, head: ResponseHead) -> None:
        """The head has arrived. The handler may take the connection over (`take_transport`)."""

    def on_body(self, data: memoryview) -> None: ...

    def on_response_end(self) -> None: ...

    def on_batch_end(self) -> None: ...

    def on_failure(self, reason: str) -> None:
        """`HOP-unreachable`, `-untrusted`, `-timeout`, `-broke-off` or `-malformed`: HOP is that of
        `UpstreamRequests`."""


class UpstreamConnection:
    """The handler of one TLS connection to the server upstream."""

    __slots__ = (
        "_body",
        "_buffer",
        "_exchange",
        "_has_answered",
        "_is_established",
        "_is_last",
        "_is_upgrade",
        "_pool",
        "_request",
        "_timeout_s",
        "dial_count",
        "dialled_host",
        "failed_hosts",
        "generation",
        "group",
        "is_reused",
        "offered_session",
        "transport",
        "verified_at_s",
    )

    def __init__(self, pool: "UpstreamPool") -> None:
        self._pool = pool
        self.transport: TlsConnection | None = None
        self._exchange: ResponseHandler | None = None
        self._request = b""
        self._timeout_s: float | None = None
        self.group = pool.poller.own  # which polls it
        self._is_upgrade = False
        self._is_last = False
        self._is_established = False
        self._has_answered = False
        self._buffer = b""
        self._body: Body | None = None
        self.is_reused = False
        self.dialled_host = ""
        # Dials until a handshake is done, and addresses that could not be reached by them.
        self.dial_count = 0
        self.failed_hosts: tuple[str, ...] = ()
        # Until the kubelet has answered, or the session was dropped.
        self.offered_session: ClientSession | None = None
        self.verified_at_s = 0.0  # when its handshake ended
        self.generation = pool.generation  # of the certificates that it was dialled with

    @property
    def can_send(self) -> bool:
        return self.transport is not None and self.transport.is_open

    # ---- what response handlers call

    def send(
        self,
        exchange: ResponseHandler,
        request: bytes,
        *,
        timeout_s: float | None,
        is_upgrade: bool,
        group: PollGroup,
    ) -> None:
        """Send a request, now or once the handshake is done. `timeout_s` bounds the wait for the response's
        head; None: unbounded, as a followed log may be quiet."""
        self._exchange = exchange
        self.group = group
        if self.transport is not None:
            self.transport.join(group)
        self._request = request
        self._timeout_s = timeout_s
        self._is_upgrade = is_upgrade
        self._is_last = is_upgrade
        self._has_answered = False
        if self._is_established:
            self._send_request()
        else:
            self.set_deadline(DIAL_S)  # dialled ahead, it may have little of its time left

    def _send_request(self) -> None:
        transport, timeout_s = self.transport, self._timeout_s
        if transport is not None:
            transport.deadline = None if timeout_s is None else self._pool.poller.now + timeout_s
            transport.write(self._request)
            transport.flush()

    def set_deadline(self, seconds: float | None) -> None:
        if self.transport is not None:
            now = self._pool.poller.now
            self.transport.deadline = None if seconds is None else now + seconds

    def pause(self) -> None:
        if self.transport is not None:
            self.transport.pause()

    def resume(self) -> None:
        if self.transport is not None:
            self.transport.resume()

    def take_transport(self) -> tuple[TlsConnection, bytes]:
        """After a 101: hand the transport over, with the bytes behind the head."""
        transport, early = self.transport, self._buffer
        if transport is None:
            raise AssertionError("a connection is taken over from within its response")
        self._exchange = None
        self.transport = None
        self._buffer = b""
        self._pool.forget(self)
        self._pool.keep_session(self, transport)
        return transport, early

    def abort(self) -> None:
        """Drop the connection, without another callback."""
        self._exchange = None
        self._pool.forget(self)
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    # ---- what the transport calls

    def on_handshake(self) -> None:
        self._is_established = True
        self.dial_count, self.failed_hosts = 0, ()
        if self.transport is None:
            return
        self.verified_at_s = self._pool.poller.now
        self._pool.count_handshake(self)
        if self._exchange is None:
            self._pool.release(self)
        else:
            self._send_request()

    def on_data(self, data: memoryview) -> None:
        exchange = self._exchange
        if exchange is None:
            self.abort()  # data without a request
            return
        if self._body is not None:
            self._feed(exchange, self._body, data)
            return
        self._has_answered = True
        if self.offered_session is not None:
            self._pool.confirm_session(self)
        self._buffer += bytes(data)
        try:
            found = self._pool.read_head(self._buffer)
        except HeadError:
            self._fail("malformed")
            return
        if found is None:
            return
        head, size = found
        rest = self._buffer[size:]
        if head.status == 101:
            self._buffer = rest
            exchange.on_response(head)
            if self.transport is not None:
                # The handler did not take the transport over: an unrequested or wrong 101.
                self.abort()
            return
        self._buffer = b""
        if head.status < 200:
            self._fail("malformed")
            return
        if head.is_last:
            self._is_last = True
        self._body = body = body_of(head)
        if head.status in {204, 304}:
            self._body = body = body_of(head._replace(content_length=0, is_chunked=False))
        exchange.on_response(head)
        if self._exchange is exchange and (rest or head.content_length == 0):
            self._feed(exchange, body, memoryview(rest))

    def _feed(self, exchange: ResponseHandler, body: Body, data: memoryview) -> None:
        try:
            fed = body.feed(data)
        except FramingError:
            self._fail("malformed")
            return
        if fed.take:
            exchange.on_body(data[: fed.take])
        if not fed.is_end or self._exchange is not exchange:
            return
        self._exchange = None
        self._body = None
        # After a refused upgrade the kubelet's state is unknown.
        if fed.surplus or self._is_last:
            self.abort()
        else:
            self._pool.release(self)
        exchange.on_response_end()

    def on_batch_end(self) -> None:
        if self._exchange is not None:
            self._exchange.on_batch_end()

    def on_writable(self) -> None:
        """Requests are small and are sent whole."""

    def on_end(self, reason: EndReason) -> None:
        body, exchange = self._body, self._exchange
        if body is not None and exchange is not None and reason is EndReason.CLOSED and body.end_of_stream():
            self.abort()
            exchange.on_response_end()
            return
        may_be_session = self._report_session()
        may_dial_again = False
        if not self._is_established:
            may_dial_again = self._move_back(
                may_be_session=may_be_session and reason is not EndReason.UNTRUSTED
            )
        # It was dialled before there was a request, or the server has another address, or it may have failed
        # for its offered session. The request was not sent then.
        may_dial_again = may_dial_again or self.is_reused
        is_unsent = not self._is_established and exchange is not None
        may_replay = self._may_replay() and (self.is_reused or may_be_session)
        if (is_unsent and may_dial_again) or (self._is_established and may_replay):
            # In the second case it closed a pooled connection just as it was used (RFC 9112, 9.3.1), or
            # rejects the session.
            self._dial_again()
        elif self._is_established:
            self._fail("broke-off")
        else:
            self._fail("untrusted" if reason is EndReason.UNTRUSTED else "unreachable")

    def _may_replay(self) -> bool:
        return self._exchange is not None and not self._has_answered and not self._is_upgrade

    def _report_session(self) -> bool:
        """The connection failed: report its offered session; return whether that may be the cause. The end of
        an idle connection is independent of its session."""
        if self.offered_session is None or (self._is_established and self._exchange is None):
            return False
        if self._is_established:
            self._pool.resumption_failed(self)
        else:
            self._pool.refuse_session(self)
        return True

    def _move_back(self, *, may_be_session: bool) -> bool:
        """The dial failed: have other addresses dialled first, and return whether to dial now. The failed one
        is dialled behind them once more if its offered session may be the cause."""
        if not may_be_session:
            self.failed_hosts += (self.dialled_host,)
        return self._pool.move_back(self)

    def _dial_again(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        self._is_established = self.is_reused = False
        self.generation = self._pool.generation
        self._pool.dial(self, may_resume=False)

    def on_deadline(self) -> None:
        transport, own = self.transport, self._pool.poller.own
        if (
            transport is not None
            and self._is_established
            and self._exchange is None
            and self.group is not own
        ):
            self.group = own
            transport.join(own)
            transport.deadline = self._pool.poller.now + IDLE_S
            return
        may_be_session = self._report_session()
        if self._is_established:
            self._fail("timeout")
        elif self._move_back(may_be_session=may_be_session) and self._exchange is not None:
            self._dial_again()
        else:
            self._fail("unreachable")

    def _fail(self, failure: str) -> None:
        exchange = self._exchange
        self.abort()
        if exchange is not None:
            exchange.on_failure(f"{self._pool.requests.hop}-{failure}")


class UpstreamPool:
    """Idle connections, newest first; a spare one for the next stream; dials new ones."""

    def __init__(
        self,
        poller: SocketPoller,
        address: UpstreamAddress,
        context: ssl.SSLContext,
        requests: UpstreamRequests | None = None,
    ) -> None:
        """`requests` are built for the server at `address`; default: a kubelet."""
        self.poller = poller
        self.address = address
        self._order = DialOrder((address.host, *address.others))
        self.requests: UpstreamRequests = requests or KubeletRequests(address.authority)
        self.stream_protocols = StreamProtocols()
        self._context = context
        self._session = UpstreamSession(time.time)
        # Completed handshakes: with the kubelet's certificates verified, and resumed.
        self.full_count = self.resumed_count = 0
        self.generation = 0
        self._idle: list[UpstreamConnection] = []
        self._all: set[UpstreamConnection] = set()
        self._last_head: tuple[bytes, ResponseHead | None] = (b"", None)
        # Dialled ahead for the next stream. Requests do not take it: each exec would wait for a handshake
        # while another tenant reads logs.
        self._spare: UpstreamConnection | None = None

    def read_head(self, received: bytes) -> tuple[ResponseHead, int] | None:
        """Parse the response head that `received` begins with: the head and its length with the blank
        line, or None if it is incomplete. Raises HeadError.

        The kubelet's answers of one second have equal heads, so the last parsed one is kept.
        """
        raw, last = self._last_head
        if last is not None and received.startswith(raw):
            return last, len(raw)
        end = find_head(received)
        if end < 0:
            return None
        size = end + len(END_OF_HEAD)
        parsed = parse_response_head(received[:end])
        self._last_head = (received[:size], parsed)
        return parsed, size

    @property
    def open_count(self) -> int:
        return len(self._all)

    def replace(self, address: UpstreamAddress, context: ssl.SSLContext, requests: UpstreamRequests) -> None:
        """Dial with new certificates, and perhaps to a new address, from now on. Idle connections are
        dropped, busy ones after their request."""
        self.move(address)
        self.requests = requests
        self._context = context
        self._session = UpstreamSession(time.time)
        self.generation += 1
        self.close_idle()

    def move(self, address: UpstreamAddress) -> None:
        """Dial there from now on. Of its addresses, one that could be reached stays the first."""
        self.address = address
        self._order.update((address.host, *address.others))

    def take_host(self, connection: UpstreamConnection) -> str:
        """The address that a connection dials now; empty for a DNS name that is not resolved yet."""
        connection.dial_count += 1
        connection.dialled_host = self._order.next_host(connection.failed_hosts)
        return connection.dialled_host

    def move_back(self, connection: UpstreamConnection) -> bool:
        """Its address could not be reached: others are dialled first. Returns whether its request should dial
        one of them."""
        self._order.move_back(connection.dialled_host)
        return self._order.has_other(connection.failed_hosts, connection.dial_count)

    def close_idle(self) -> None:
        for connection in (*self._idle, self._spare):
            if connection is not None:
                connection.abort()

    def acquire(
        self,
        exchange: ResponseHandler,
        request: bytes,
        *,
        timeout_s: float | None,
        is_upgrade: bool,
        group: PollGroup | None = None,
    ) -> UpstreamConnection:
        """Send a request on an idle connection, or dial.

        The connection serves it until the response ends, polled with `group`, or with vn-agent's own.
        If a pooled connection turns out to be closed, the request is sent once more. An upgrade is not: a
        command must not run twice.
        """
        found = (self._take_spare() if is_upgrade else None) or self._take_idle()
        connection = found or self._new(group or self.poller.own)
        connection.is_reused = found is not None
        connection.send(
            exchange,
            request,
            timeout_s=timeout_s,
            is_upgrade=is_upgrade,
            group=group or self.poller.own,
        )
        if is_upgrade:
            # It will not come back. Dial the next one ahead: half of a shell's start time is this handshake.
            self.poller.watcher.call_soon(self.dial_spare)
        return connection

    def _take_spare(self) -> UpstreamConnection | None:
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.can_send else None

    def _take_idle(self) -> UpstreamConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.can_send:
                return connection
        return None

    def _new(self, group: PollGroup) -> UpstreamConnection:
        """Dial with the group that it will be polled with: the dial is a call of that group's."""
        connection = UpstreamConnection(self)
        connection.group = group
        self._all.add(connection)
        self.dial(connection)
        return connection

    def dial_spare(self) -> None:
        """Have a connection ready for the next stream."""
        if self._spare is None:
            self._spare = self._new(self.poller.own)

    def release(self, connection: UpstreamConnection) -> None:
        """Take back a connection whose response ended cleanly, or a spare one whose handshake is done."""
        transport, is_spare = connection.transport, connection is self._spare
        is_full = not is_spare and len(self._idle) >= MAX_IDLE
        if transport is None or is_full or connection.generation != self.generation:
            connection.abort()
            return
        # A tenant counts as one with connections, beside others, as long as its group has a socket.
        is_own = transport.group is self.poller.own
        transport.deadline = self.poller.now + (IDLE_S if is_own else LEAVE_S)
        if not is_spare:
            self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """The connection ends, or became a tunnel."""
        self._all.discard(connection)
        if connection is self._spare:
            self._spare = None
        if connection in self._idle:
            self._idle.remove(connection)

    def count_handshake(self, connection: UpstreamConnection) -> None:
        tls = None if connection.transport is None else connection.transport.tls
        if tls is not None and tls.session_reused:
            self.resumed_count += 1
            return
        self.full_count += 1
        if connection.offered_session is not None:
            self.refuse_session(connection)

    def keep_session(self, connection: UpstreamConnection, transport: TlsConnection) -> None:
        """Keep the session of a connection on which the kubelet has answered: its ticket has arrived."""
        tls = transport.tls
        if tls is None or connection.generation != self.generation:
            return
        # A command runs at the kubelet already: without memory the next handshake is a full one.
        try:
            self._session.keep(tls, connection.verified_at_s, self.poller.now)
        except (MemoryError, ssl.SSLError):
            clear_errors()

    def confirm_session(self, connection: UpstreamConnection) -> None:
        offered, connection.offered_session = connection.offered_session, None
        if offered is not None:
            self._session.confirm(offered)

    def resumption_failed(self, connection: UpstreamConnection) -> None:
        offered, connection.offered_session = connection.offered_session, None
        if offered is not None:
            self._session.resumption_failed(offered, self.poller.now)

    def refuse_session(self, connection: UpstreamConnection) -> None:
        offered, connection.offered_session = connection.offered_session, None
        if offered is not None:
            self._session.refuse(offered, self.poller.now)

    def dial(self, connection: UpstreamConnection, *, may_resume: bool = True) -> None:
        """Give the connection a new transport."""
        address, host = self.address, self.take_host(connection)
        if not host:
            self.poller.loop.call_soon(connection.on_end, EndReason.RESET)
            return
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        except OSError:  # no descriptor left, or no IPv6 in the kernel
            self.poller.loop.call_soon(connection.on_end, EndReason.RESET)
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        with contextlib.suppress(OSError):  # in progress, or refused: the transport reports it
            sock.connect((host, address.port))
        session = self._session.current(self.poller.now) if may_resume else None
        name = address.server_name
        try:
            cipher = Cipher(self._context, is_server=False, server_hostname=name, session=session)
            transport = TlsConnection(self.poller, sock, cipher, connection, group=connection.group)
        except (OSError, MemoryError):  # OpenSSL has no memory, or the kernel no room to watch it
            sock.close()
            self.poller.loop.call_soon(connection.on_end, EndReason.RESET)
            return
        connection.transport, connection.offered_session = transport, session
        connection.set_deadline(DIAL_S)
        # From a clean stack: a dial that fails at once would call back into the caller. As a call of its
        # group's, a tenant's set-ups of 0.2 ms each are bounded as its other work.
        transport.call_soon(transport.start)
