# SPDX-License-Identifier: Apache-2.0
"""One tenant apiserver's connection: heads in, one exchange at a time, replies out.

This is the one place where decisions become acts: `_act` is the whole list.
"""

import socket
import ssl
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tenancy.ownership import Owned, OwnerIndex
from vnagent.core import replies
from vnagent.core.access import (
    AnswerHealth,
    Caller,
    Decision,
    Deny,
    Forward,
    NotYetKnown,
    Serve,
)
from vnagent.core.audit import OWN_ANSWER
from vnagent.core.head import END_OF_HEAD, HeadError, RequestHead, find_head, parse_request_head
from vnagent.core.limits import Turn, has_memory
from vnagent.core.query import QueryError, parse_log_options
from vnagent.core.requests import ContainerLogs, Endpoint, Request, Stream, parse
from vnagent.transport.cipher import Cipher
from vnagent.transport.tls_connection import TlsChannel

if TYPE_CHECKING:
    from vnagent.state import Agent

# An honest apiserver needs milliseconds for each; together they stay below the 10 s after which a
# caller that sends nothing has been told so. The sweep adds half a second.
HANDSHAKE_S = 9.0
HEAD_S = 9.0
# Go's client drops idle connections after 90 s: the server must not be first, or a request is lost.
IDLE_S = 180.0
# A head that is larger is not kept for the next request to be compared with: idle connections would hold
# 330 KB each. An apiserver's has less than 1 KB.
_KEPT_HEAD_BYTES = 4096
# What a connection has in its buffer beyond this counts for its tenant (`limits.bufferedBytesPerTenant`).
_FREE_BUFFER_BYTES = 4096
# What a client may send ahead of an answer: early stream data (RFC 9931) or a pipelined request.
MAX_AHEAD_BYTES = 64 * 1024


# Pods whose logs one connection is remembered to have read.
MAX_PLANS = 64
_Plan = tuple[tuple[str, str, str], Owned]


class _Recalled(NamedTuple):
    request: ContainerLogs
    pod: Owned


class ClientExchange(Protocol):
    """What is under way on a connection, as the connection sees it."""

    # Whether a client that sends too much ahead is paused, not cut off: it will get an answer soon.
    is_bounded: bool

    def on_client_writable(self) -> None: ...

    def cancel(self) -> None:
        """The client has left, or lost its right: give up everything upstream."""


class ClientConnection:
    """The owner of one channel from a tenant."""

    __slots__ = (
        "_buffer",
        "_charged_bytes",
        "_is_counted",
        "_is_head",
        "_is_head_begun",
        "_is_scheduled",
        "_is_waiting",
        "_plans",
        "_plans_of",
        "_previous",
        "_scanned",
        "_wants_close",
        "agent",
        "caller",
        "channel",
        "exchange",
        "identity",
        "inline_account",
        "is_inline",
        "source",
    )

    def __init__(
        self,
        agent: "Agent",
        sock: socket.socket,
        source: str,
        context: ssl.SSLContext,
        cipher: Cipher | None = None,
    ) -> None:
        """`cipher`: of a handshake that is done already. Nothing happens before `start`."""
        self.agent = agent
        self.source = source
        self.is_inline = cipher is None
        # That counts its handshake, while this is under way on the loop.
        self.inline_account: str | None = None
        self.caller = UNIDENTIFIED
        self.identity: object = None
        self.exchange: ClientExchange | None = None
        self._buffer = bytearray()
        self._scanned = 0  # so much of the buffer is known to hold no end of a head
        self._charged_bytes = 0  # of the buffer, to the tenant
        self._previous: RequestHead | None = None
        self._wants_close = False
        self._plans: dict[bytes, _Plan] = {}
        self._plans_of: OwnerIndex | None = None
        self._is_counted = False
        self._is_head = False
        self._is_head_begun = False
        self._is_scheduled = False  # `_go_on` is to come: nothing else begins a request
        self._is_waiting = False  # the agent calls `stop_waiting`
        self.channel = TlsChannel(agent.channels, sock, cipher or Cipher(context, is_server=True), self)
        self.channel.deadline = agent.channels.now + HANDSHAKE_S

    def start(self) -> None:
        self.channel.start()

    # ---- what the channel calls

    def on_handshake(self) -> None:
        self.channel.deadline = self.agent.channels.now + HEAD_S
        self._is_head_begun = True
        self._is_counted = self.agent.admit(self)

    def on_data(self, data: memoryview) -> None:
        self._buffer += data
        exchange = self.exchange
        if exchange is None:
            self._begin_next()
            exchange = self.exchange
        if self._charged_bytes or len(self._buffer) > _FREE_BUFFER_BYTES:
            self._charge_buffer()
            if self._charged_bytes and exchange is None and not has_memory(self.channel.account):
                # Part of a head is of no use to anyone.
                self._refuse(None, Deny(429, "too-much-unread", must_close=True))
                return
        if len(self._buffer) > MAX_AHEAD_BYTES and not self._is_head_begun:
            if exchange is None or exchange.is_bounded:
                self.channel.pause()
            else:
                # Paused for ever we would not see it leave; nobody honest sends this.
                self.abort()

    def _charge_buffer(self) -> None:
        """Count what waits here as the tenant's."""
        size = len(self._buffer) if self.channel.is_open else 0
        size = size if size > _FREE_BUFFER_BYTES else 0
        self.channel.account.unsent_bytes += size - self._charged_bytes
        self._charged_bytes = size

    def on_batch_end(self) -> None:
        """Replies are flushed where they are made."""

    def on_writable(self) -> None:
        if self.exchange is not None:
            self.exchange.on_client_writable()
        else:
            self.channel.resume()
            self._begin_next()

    def on_end(self, reason: str) -> None:
        if self.caller is UNIDENTIFIED and reason not in {"closed", "reset"}:
            self.agent.metrics.handshake_failures.inc()
        self.abort()

    def on_deadline(self) -> None:
        if self.channel.has_unsent and self.caller is not UNIDENTIFIED:
            # It still reads the last answer, as slowly as it likes.
            self.channel.deadline = self.agent.channels.now + IDLE_S
            return
        if self.caller is UNIDENTIFIED or not self._is_head_begun:
            self.abort()
            return
        self._refuse(None, Deny(408, "head-timeout", must_close=True))

    # ---- one request

    def _schedule_next(self) -> None:
        """Go on with the loop's next turn. Once at a time: a connection that pipelines gets one request
        a turn, however often its data arrives."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.channel.soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        self._begin_next()

    def _begin_next(self) -> None:
        if not self._is_scheduled and not self._is_waiting:
            self._next()

    def _wait(self) -> None:
        """Leave the request in the buffer until the agent calls."""
        self._is_waiting = True
        self._is_head_begun = False
        self.channel.deadline = None
        self.channel.pause()
        self.agent.await_turn(self)

    def stop_waiting(self) -> None:
        self._is_waiting = False
        if self.channel.is_open:
            self.channel.resume()
            self._next(has_waited=True)

    def _next(self, *, has_waited: bool = False) -> None:
        """Serve the next request in the buffer, if it is whole."""
        if self.exchange is not None or not self._buffer or not self.channel.is_open:
            return
        if self.channel.is_congested():
            # It asks and does not read: until it does, it is not even listened to.
            self.channel.pause()
            return
        self._is_head = False  # what the last request asked is nothing to a refusal of this one
        try:
            end = find_head(self._buffer, self._scanned)
            if end < 0:
                self._scanned = len(self._buffer)
                self.channel.resume()  # what came before this head may have been too much at once
                if not self._is_head_begun:
                    self._is_head_begun = True
                    self.channel.deadline = self.agent.channels.now + HEAD_S
                return
            turn = self.agent.take_turn(self.caller, has_waited=has_waited, head_bytes=end)
            if turn is Turn.WAIT:
                self._wait()
                return
            self._scanned = 0
            head = bytes(self._buffer[:end])
            del self._buffer[: end + len(END_OF_HEAD)]
            self._is_head_begun = False
            self.channel.deadline = None
        except HeadError as error:
            self._refuse(None, Deny(error.status, error.reason, must_close=True))
            return
        self._serve(head, is_refused=turn is Turn.REFUSE)

    def _serve(self, head: bytes, *, is_refused: bool) -> None:
        """Read one head and act on it. `is_refused`: the tenant asks for too much in this second."""
        if self.caller.tenant is not None and not self._is_counted:
            self._refuse(None, Deny(429, "too-many-connections", must_close=True))
            return
        recalled = None if is_refused else self._recall(head)
        if recalled is not None:
            self.agent.relay_logs(self, *recalled)
            return
        try:
            parsed = parse_request_head(head, self._previous)
        except HeadError as error:
            self._refuse(None, Deny(error.status, error.reason, must_close=True))
            return
        self._previous = parsed if len(head) <= _KEPT_HEAD_BYTES else None
        self._wants_close = parsed.wants_close
        self._is_head = parsed.method == "HEAD"
        request = parse(parsed)
        if is_refused:
            self._refuse(request, Deny(429, "too-many-requests", must_close=isinstance(request, Stream)))
            return
        decision = self.agent.decide(request, self.caller)
        if isinstance(decision, Forward) and isinstance(request, ContainerLogs):
            self._remember(parsed, request, decision.pod)
        self.act(request, decision)

    def _recall(self, head: bytes) -> "_Recalled | None":
        """The decision on a pod whose log was asked for on this connection before, by the same index.

        Who reads logs reads the same ones again, with the same fields. What is recalled is what stands
        between the path and the pod, and that these very fields were read and found in order; the
        parameters are read each time, and what is wrong with them is said the long way.
        """
        index = self.agent.index
        if self._plans_of is not index:
            self._plans_of = index
            self._plans.clear()
            return None
        previous = self._previous
        if not self._plans or previous is None or not previous.is_bare:
            return None
        line_end = head.find(b"\r\n")
        if head[line_end:] != previous.block or not head.endswith(b" HTTP/1.1", 0, line_end):
            return None
        line, _, query = head[: line_end - len(b" HTTP/1.1")].partition(b"?")
        plan = self._plans.get(line)
        if plan is None:
            return None
        try:
            options, is_follow = parse_log_options(query.decode("ascii"))
        except (QueryError, UnicodeDecodeError):
            return None
        names, pod = plan
        return _Recalled(ContainerLogs(*names, options, is_follow), pod)

    def _remember(self, head: RequestHead, request: ContainerLogs, pod: Owned) -> None:
        if len(self._plans) < MAX_PLANS and len(head.target) <= _KEPT_HEAD_BYTES:
            line = b"GET " + head.target.partition("?")[0].encode("ascii")
            self._plans[line] = (request.namespace, request.pod, request.container), pod

    def act(self, request: Request, decision: Decision, *, is_final: bool = False) -> None:
        """Do what was decided. `is_final`: the index has been asked for news already."""
        agent = self.agent
        match decision:
            case Forward(request=ContainerLogs() as logs, pod=pod):
                agent.relay_logs(self, logs, pod)
            case Forward(request=Stream() as stream, pod=pod):
                self._open_stream(stream, pod)
            case Serve(page=page):
                if agent.takes_page(self.caller):
                    agent.serve_page(self, page)
                else:
                    self._refuse(request, Deny(429, "too-much-unread"))
            case AnswerHealth(request=health):
                request_id = agent.next_request_id()
                agent.audit(self.caller, request, OWN_ANSWER, 200, request_id)
                self.answer(
                    replies.page(
                        200,
                        "text/plain; charset=utf-8",
                        b"ok",
                        request_id,
                        is_close=agent.is_draining,
                        is_head=health.is_head,
                        date=agent.date,
                    ),
                    is_close=False,
                )
            case NotYetKnown() | Deny(status=404) if not is_final and agent.may_learn(request):
                if agent.can_wait_for_pods(self.caller):
                    agent.learn_and_decide(self, request)
                else:
                    is_stream = isinstance(request, Stream)
                    self._refuse(request, Deny(429, "too-many-lookups", must_close=is_stream))
            case NotYetKnown(reason=reason):
                is_stream = isinstance(request, Stream)
                self._refuse(request, Deny(503, reason, must_close=is_stream), retry_after_s=1)
            case Deny():
                self._refuse(request, decision)

    def _open_stream(self, stream: Stream, pod: Owned) -> None:
        agent = self.agent
        if not agent.takes_tunnel(self.caller):
            self._refuse(stream, Deny(429, "too-many-tunnels", must_close=True))
            return
        is_reserved = agent.reserve_line(self.caller)
        if is_reserved or not agent.is_audit_required:
            agent.open_stream(self, stream, pod, is_reserved=is_reserved)
        else:
            agent.drop_tunnel(self.caller)
            self._refuse(stream, Deny(503, "audit-unavailable", must_close=True), retry_after_s=1)

    def _refuse(self, request: Request | None, deny: Deny, retry_after_s: int | None = None) -> None:
        self.refuse(
            request,
            self.agent.next_request_id(),
            deny.status,
            deny.reason,
            is_close=deny.must_close,
            text=deny.text,
            allow=deny.allow,
            retry_after_s=retry_after_s,
        )

    # ---- what exchanges call

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
        is_reserved: bool = False,
    ) -> None:
        """Record and send an answer that is not what was asked for, and end the exchange."""
        agent = self.agent
        is_close = is_close or agent.is_draining
        agent.audit(self.caller, request, reason, status, request_id, is_reserved=is_reserved)
        self.answer(
            replies.render(
                Endpoint.MALFORMED if request is None else request.endpoint,
                status,
                reason,
                request_id,
                is_close=is_close,
                is_head=self._is_head,
                allow=allow,
                text=text,
                protocols=protocols,
                retry_after_s=1 if status == 429 else retry_after_s,
                date=agent.date,
            ),
            is_close=is_close,
        )

    def take_ahead(self) -> bytes:
        """The bytes that the client sent ahead of an answer."""
        ahead = bytes(self._buffer)
        self._buffer.clear()
        return ahead

    def answer(self, reply: bytes, *, is_close: bool) -> None:
        """Send a whole reply and end the exchange."""
        self.channel.write(reply)
        self.channel.flush()
        self.finish(is_close=is_close)

    def finish(self, *, is_close: bool) -> None:
        """The reply has been written: wait for the next request, or close."""
        self.exchange = None
        if is_close or self._wants_close or self.agent.is_draining:
            self.close()
            return
        if self._charged_bytes:
            self._charge_buffer()
        self.channel.deadline = self.agent.channels.now + IDLE_S
        if len(self._buffer) <= MAX_AHEAD_BYTES:
            self.channel.resume()
        if self._buffer:
            self._schedule_next()

    # ---- the end

    def release(self) -> None:
        """Stop counting this connection: it ended, or it is a tunnel now and counted as one."""
        self.channel.account.unsent_bytes -= self._charged_bytes
        self._charged_bytes = 0
        self.agent.dismiss(self, is_counted=self._is_counted)
        self._is_counted = False

    def close(self) -> None:
        self.channel.close()
        self.release()

    def abort(self) -> None:
        """The client left, or may not stay."""
        exchange, self.exchange = self.exchange, None
        if self.caller is UNIDENTIFIED:
            self.agent.charge_handshake(self, "")
        self.channel.abort()
        self.release()
        if exchange is not None:
            exchange.cancel()


UNIDENTIFIED = Caller(None, None, "")
