# SPDX-License-Identifier: Apache-2.0
"""One connection of a tenant's apiserver: heads in, one exchange at a time, replies out."""

import socket
import ssl
import time

from daemonkit.fairness.lease import Lease
from tenancy.tenant import Role
from vnagent.core import replies
from vnagent.core.access import Caller, Deny, Forward
from vnagent.core.head import END_OF_HEAD, HeadError, RequestHead, find_head, parse_request_head
from vnagent.core.limits import LimitReason, RateVerdict, has_memory
from vnagent.core.log_routes import LogRouteCache
from vnagent.core.requests import ContainerLogs, Endpoint, Request, Stream, parse
from vnagent.dispatch import Dispatcher
from vnagent.downstream.admission import Admission
from vnagent.downstream.token_port import MAX_HEAD_BYTES, TokenPort
from vnagent.exchange.port import Exchange
from vnagent.state import AgentState
from vnagent.transport.cipher import Cipher
from vnagent.transport.handler import EndReason
from vnagent.transport.tls_connection import TlsConnection

# An honest apiserver needs milliseconds for each. Together with the sweep's half second they stay below the
# 10 s that Go's client waits.
HANDSHAKE_S = 9.0
HEAD_S = 9.0
# Go's client drops idle connections after 90 s. A server that drops one earlier may lose a request.
IDLE_S = 180.0
# A larger head is not kept for comparison with the next one: idle connections would hold
# 330 KB each. An apiserver's has less than 1 KB.
_KEPT_HEAD_BYTES = 4096
# Buffered bytes beyond this count for the tenant (`limits.bufferedBytesPerTenant`).
_FREE_BUFFER_BYTES = 4096
# Bytes that a client may send ahead of an answer: early stream data (RFC 9931) or a pipelined request.
MAX_EARLY_BYTES = 64 * 1024


class ClientConnection:
    """The handler of one TLS connection from a tenant."""

    __slots__ = (
        "_admission",
        "_buffer",
        "_charged_bytes",
        "_dispatcher",
        "_is_head_method",
        "_is_request_begun",
        "_is_scheduled",
        "_is_waiting",
        "_lease",
        "_log_routes",
        "_previous",
        "_scanned",
        "_state",
        "_wants_close",
        "begun_s",
        "caller",
        "client_address",
        "exchange",
        "identity",
        "is_on_loop",
        "loop_lease",
        "token_port",
        "transport",
    )

    def __init__(
        self,
        state: AgentState,
        admission: Admission,
        dispatcher: Dispatcher,
        sock: socket.socket,
        client_address: str,
        context: ssl.SSLContext,
        cipher: Cipher | None = None,
        token_port: TokenPort | None = None,
    ) -> None:
        """`cipher`: of a handshake that is done already. `token_port`: where it was accepted, if not on the
        port for certificates. Nothing happens before `start`.

        Raises OSError where the kernel has no room to watch the socket.
        """
        self._state = state
        self._admission = admission
        self._dispatcher = dispatcher
        self.client_address = client_address
        self.token_port = token_port
        self.is_on_loop = cipher is None
        # Counts its handshake while that runs on the loop.
        self.loop_lease: Lease | None = None  # of a handshake there
        self.caller = HANDSHAKE_PENDING
        self.identity: object = None
        self.exchange: Exchange | None = None
        self.begun_s = 0.0
        self._buffer = bytearray()
        self._scanned = 0  # bytes of the buffer without an end of a head
        self._charged_bytes = 0  # of the buffer, to the tenant
        self._previous: RequestHead | None = None
        self._wants_close = False
        self._log_routes = LogRouteCache()
        self._lease: Lease | None = None  # its place among its tenant's connections
        self._is_head_method = False
        self._is_request_begun = False
        self._is_scheduled = False  # `_run_scheduled` is to come: nothing else begins a request
        self._is_waiting = False  # in the request queue, which calls `stop_waiting`
        self.transport = TlsConnection(state.poller, sock, cipher or Cipher(context, is_server=True), self)
        self.transport.deadline = state.poller.now + HANDSHAKE_S

    def start(self) -> None:
        self.transport.start()

    @property
    def is_awaited(self) -> bool:
        """Whether its first request is to come, or the rest of one."""
        return self.exchange is None and (self.caller is HANDSHAKE_PENDING or self._is_request_begun)

    # ---- what the transport calls

    def on_handshake(self) -> None:
        self.transport.deadline = self._state.poller.now + HEAD_S
        self._is_request_begun = True
        if self.token_port is None:
            self._lease = self._admission.admit(self)
            self._state.watch_expiry(self)
        else:
            self._admission.admit_without_certificate(self)

    def on_data(self, data: memoryview) -> None:
        self._buffer += data
        exchange = self.exchange
        if exchange is None:
            self._begin_next()
            exchange = self.exchange
        if self._charged_bytes or len(self._buffer) > _FREE_BUFFER_BYTES:
            self._charge_buffer()
            if self._charged_bytes and exchange is None and not has_memory(self.transport.usage):
                # Part of a head is of no use to anyone.
                self.deny(None, Deny(429, LimitReason.UNREAD, must_close=True))
                return
        if len(self._buffer) > MAX_EARLY_BYTES and not self._is_request_begun:
            if exchange is None or exchange.is_bounded:
                self.transport.pause()
            else:
                # Honest clients do not send this; a paused one could not be seen to leave.
                self.abort()

    def _charge_buffer(self) -> None:
        """Count the buffer as the tenant's. Before its tenant is known, other bounds hold: of heads, and of
        connections that count for no tenant."""
        if self.caller.tenant is None:
            return
        size = len(self._buffer) if self.transport.is_open else 0
        size = size if size > _FREE_BUFFER_BYTES else 0
        self.transport.usage.unsent_bytes += size - self._charged_bytes
        self._charged_bytes = size

    def on_batch_end(self) -> None:
        """Replies are flushed where they are made."""

    def on_writable(self) -> None:
        if self.exchange is not None:
            self.exchange.on_client_writable()
        else:
            self.transport.resume()
            self._begin_next()

    def on_end(self, reason: EndReason) -> None:
        if self.caller is HANDSHAKE_PENDING:
            self._state.metrics.count_handshake_failure(reason)
        self.abort()

    def on_deadline(self) -> None:
        if self.transport.has_unsent and self.caller is not HANDSHAKE_PENDING:
            # It still reads the last answer, at its own pace.
            self.transport.deadline = self._state.poller.now + IDLE_S
            return
        if self.caller is HANDSHAKE_PENDING or not self._is_request_begun:
            self.abort()
            return
        self.deny(None, Deny(408, "head-timeout", must_close=True))

    # ---- one request

    def _schedule_next(self) -> None:
        """Begin the next request in the loop's next iteration. A connection that pipelines gets one request
        an iteration, however often its data arrives."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.transport.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self._begin_next()

    def _begin_next(self) -> None:
        if not self._is_scheduled and not self._is_waiting:
            self._next()

    def _wait(self) -> None:
        """Leave the request in the buffer until the queue calls `stop_waiting`."""
        self._is_waiting = True
        self._is_request_begun = False
        self.transport.deadline = None
        self.transport.pause()
        self._state.queue_request(self)

    def stop_waiting(self) -> None:
        self._is_waiting = False
        if self.transport.is_open:
            self.transport.resume()
            self._next(has_waited=True)

    def _next(self, *, has_waited: bool = False) -> None:
        """Serve the next request in the buffer, if it is whole."""
        if self.exchange is not None or not self._buffer or not self.transport.is_open:
            return
        if self.transport.await_if_congested():
            # It does not read its answers: read no request of it until it does.
            self.transport.pause()
            return
        if not has_waited:
            self.begun_s = time.monotonic()
        self._is_head_method = False  # a refusal of this request has a body, whatever the last method was
        try:
            end = find_head(self._buffer, self._scanned)
            if self.token_port is not None and (end if end >= 0 else len(self._buffer)) > MAX_HEAD_BYTES:
                raise HeadError(431, "head-too-large")
            if end < 0:
                self._scanned = len(self._buffer)
                self.transport.resume()  # it may have been paused for too much data ahead of this head
                if not self._is_request_begun:
                    self._is_request_begun = True
                    self.transport.deadline = self._state.poller.now + HEAD_S
                return
            if (
                self.token_port is not None
                and self.caller.tenant is None
                and not self._authenticate_first(end)
            ):
                return
            if self._state.is_ending(self):
                self.abort()
                return
            verdict = self._state.admit_request(self.caller, has_waited=has_waited, head_bytes=end)
            if verdict is RateVerdict.WAIT:
                self._wait()
                return
            self._scanned = 0
            head = bytes(self._buffer[:end])
            del self._buffer[: end + len(END_OF_HEAD)]
            self._is_request_begun = False
            self.transport.deadline = None
        except HeadError as error:
            self.deny(None, Deny(error.status, error.reason, must_close=True))
            return
        self._serve(head, is_refused=verdict is RateVerdict.REFUSE)

    def _serve(self, head: bytes, *, is_refused: bool) -> None:
        """Parse one head and act on it. `is_refused`: the tenant is above its rate."""
        if self.caller.tenant is not None and self._lease is None:
            self.deny(None, Deny(429, LimitReason.CONNECTIONS, must_close=True))
            return
        if not is_refused:
            route = self._log_routes.find(head, self._previous, self._state.index)
            if route is not None:
                self._dispatcher.start_log(self, route.request, route.pod)
                return
        try:
            parsed = parse_request_head(head, self._previous)
        except HeadError as error:
            self.deny(None, Deny(error.status, error.reason, must_close=True))
            return
        self._previous = parsed if len(head) <= _KEPT_HEAD_BYTES else None
        self._wants_close = parsed.wants_close
        self._is_head_method = parsed.method == "HEAD"
        request = parse(parsed)
        refusal = self._check_token(parsed)
        if refusal is not None:
            self.deny(request, refusal)
            return
        if is_refused:
            self.deny(request, Deny(429, LimitReason.REQUESTS, must_close=isinstance(request, Stream)))
            return
        decision = self._dispatcher.decide(request, self.caller)
        if isinstance(decision, Forward) and isinstance(request, ContainerLogs):
            self._log_routes.add(parsed, request, decision.pod)
        self._dispatcher.act(self, request, decision)

    def _authenticate_first(self, head_bytes: int) -> bool:
        """Check the token of a first request before its tenant's rate; False if it was refused."""
        parsed = parse_request_head(bytes(self._buffer[:head_bytes]))
        refusal = self._check_token(parsed)
        if refusal is None:
            return True
        self._is_head_method = parsed.method == "HEAD"
        self.deny(parse(parsed), refusal)
        return False

    def _check_token(self, head: RequestHead) -> Deny | None:
        """Certificate or token, never both: why a request is refused that does not have what its port takes.

        A client for metrics with a certificate may send a token too, which is not read: metrics-server does
        (cmd/metrics-server/app/options/kubelet_client.go, v0.9.0). An apiserver never does.
        """
        port = self.token_port
        if port is None:
            has_both = self.caller.role is Role.APISERVER and b"authorization" in head.fields.last
            return Deny(400, "token-with-certificate", must_close=True) if has_both else None
        state = self._state
        now_s = state.poller.loop.time()
        found = port.authenticate(head.fields, state.registry, self.client_address, time.time(), now_s)
        if isinstance(found, Deny):
            # An earlier request's identity is not this one's. The connection still counts for its tenant.
            self.caller = Caller(self.caller.tenant, None, "")
            return found
        self.identity = found
        if self.caller.tenant is None:
            self._lease = self._admission.admit_token(self, found)
        self.caller = Caller(found.tenant, Role.METRICS, found.identity)
        return None if self._lease is not None else Deny(429, "too-many-connections", must_close=True)

    # ---- what the dispatcher and exchanges call

    def deny(self, request: Request | None, deny: Deny, retry_after_s: int | None = None) -> None:
        """Refuse a request under a new request identifier."""
        self.refuse(
            request,
            self._state.request_log.next_request_id(),
            deny.status,
            deny.reason,
            is_close=deny.must_close,
            text=deny.text,
            allow=deny.allow,
            retry_after_s=retry_after_s,
        )

    def refuse(
        self,
        request: Request | None,
        request_id: str,
        status: int,
        reason: str,
        *,
        is_close: bool,
        text: str | None = None,
        allow: str | None = None,
        protocols: str | None = None,
        retry_after_s: int | None = None,
        room: Lease | None = None,
    ) -> None:
        """Record and send a refusal, and end the exchange."""
        log = self._state.request_log
        is_close = is_close or self._state.is_draining
        if status == 429 and retry_after_s is None:
            retry_after_s = self._state.retry_after_s(self.caller, reason)
        if (
            self.token_port is None
            or self.caller.tenant is not None
            or self._state.try_acquire_unknown_line()
        ):
            log.record(self.caller, request, reason, status, request_id, self.begun_s, room=room)
        self.answer(
            replies.refusal(
                Endpoint.MALFORMED if request is None else request.endpoint,
                status,
                reason,
                request_id,
                is_close=is_close,
                is_head=self._is_head_method,
                allow=allow,
                text=text,
                protocols=protocols,
                retry_after_s=retry_after_s,
                date=log.date,
            ),
            is_close=is_close,
        )

    def take_early_data(self) -> bytes:
        """Take the bytes that the client sent ahead of an answer."""
        ahead = bytes(self._buffer)
        self._buffer.clear()
        return ahead

    def answer(self, reply: bytes, *, is_close: bool) -> None:
        """Send a whole reply and end the exchange."""
        self.transport.write(reply)
        self.transport.flush()
        self.finish(is_close=is_close)

    def finish(self, *, is_close: bool) -> None:
        """The reply was written: wait for the next request, or close."""
        self.exchange = None
        if is_close or self._wants_close or self._state.is_draining:
            self.close()
            return
        if self._charged_bytes:
            self._charge_buffer()
        self.transport.deadline = self._state.poller.now + IDLE_S
        if len(self._buffer) <= MAX_EARLY_BYTES:
            self.transport.resume()
        if self._buffer:
            self._schedule_next()

    # ---- the end

    def release(self) -> None:
        """Stop counting the connection: it has ended, or is a tunnel."""
        self.transport.usage.unsent_bytes -= self._charged_bytes
        self._charged_bytes = 0
        self._admission.remove(self)
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
        self._state.remove(self)

    def close(self) -> None:
        self.transport.close()
        self.release()

    def abort(self) -> None:
        """The client left, or its right was revoked."""
        exchange, self.exchange = self.exchange, None
        if self.caller is HANDSHAKE_PENDING:
            self._admission.charge(self, "")
        self.transport.abort()
        self.release()
        if exchange is not None:
            exchange.cancel()


HANDSHAKE_PENDING = Caller(None, None, "")


def open_client(
    state: AgentState,
    admission: Admission,
    dispatcher: Dispatcher,
    sock: socket.socket,
    client_address: str,
    cipher: Cipher | None,
    token_port: TokenPort | None = None,
) -> None:
    """Serve a client that has sent its first byte; `cipher` if its handshake is done. `token_port`: where it
    was accepted, if not on the port for certificates."""
    context = state.context_for(None if token_port is None else token_port.tenant)
    if context is None or state.is_draining:
        sock.close()
        return
    try:
        connection = ClientConnection(
            state, admission, dispatcher, sock, client_address, context, cipher, token_port
        )
    except OSError:  # the kernel has no room to watch it
        sock.close()
        return
    state.connections.add(connection)
    admission.begin(connection)
    poller = state.poller
    begun_s = poller.clock()
    poller.call_guarded(connection.transport, connection.start)
    # The hello; or who the client is, and its first request. It is no turn of the group that it has joined.
    connection.transport.group.account.charge(int((poller.clock() - begun_s) * 1e9))
