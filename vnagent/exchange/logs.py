# SPDX-License-Identifier: Apache-2.0
"""containerLogs: the kubelet's body to the client as it comes.

A failure before the first byte of the answer becomes a refusal. After it the connection is cut, so that the
client sees a broken body and not a short one.
"""

from daemonkit.fairness.lease import Lease
from tenancy.ownership import Owned
from vnagent.core import replies
from vnagent.core.audit import OWNED
from vnagent.core.head import ResponseHead
from vnagent.core.kubelet_refusal import KubeletRefusal
from vnagent.core.kubelet_sentences import MAX_END_BYTES, end_of_log
from vnagent.core.requests import ContainerLogs
from vnagent.exchange.port import ClientPort
from vnagent.state import AgentState
from vnagent.transport.tls_connection import TlsConnection
from vnagent.upstream.pool import REFUSAL_S, UpstreamConnection, UpstreamPool

# A kubelet that reads a large log backwards for tailLines may take its time. A quiet followed log
# sends not even a head, so it has no deadline.
LOG_HEAD_S = 60.0
# Parts of a reply below this size are sent as one TLS record.
_COALESCE_BYTES = 8192
# Without its empty trailer, as `on_body` has it.
_LAST_CHUNK = b"0\r\n"


class LogExchange:
    """Relays one log, in the kubelet's own chunks."""

    __slots__ = (
        "_client",
        "_follow",
        "_is_chunked",
        "_is_sent",
        "_is_started",
        "_is_wrapped",
        "_pod",
        "_pool",
        "_refusal",
        "_request",
        "_request_id",
        "_state",
        "_transport",
        "_unwritten",
        "_upstream",
    )
    is_bounded = False

    def __init__(
        self,
        client: ClientPort,
        state: AgentState,
        pool: UpstreamPool,
        request: ContainerLogs,
        pod: Owned,
        follow: Lease | None = None,
    ) -> None:
        """`follow` counts a log that is followed; it is released when the log ends in any way."""
        self._client = client
        self._transport: TlsConnection = client.transport
        self._state = state
        self._pool = pool
        self._request = request
        self._pod = pod
        self._request_id = state.request_log.next_request_id()
        self._upstream: UpstreamConnection | None = None
        self._unwritten = b""
        self._follow = follow
        self._is_started = False
        self._is_sent = False
        self._is_chunked = False
        self._is_wrapped = False
        self._refusal: KubeletRefusal | None = None

    def start(self) -> None:
        self._client.exchange = self
        pool = self._pool
        self._upstream = pool.acquire(
            self,
            pool.requests.logs(self._request, self._pod),
            timeout_s=None if self._request.is_follow else LOG_HEAD_S,
            is_upgrade=False,
            group=self._transport.group,
        )

    # ---- the kubelet's side

    def on_response(self, head: ResponseHead) -> None:
        upstream, state = self._upstream, self._state
        if upstream is None:
            return
        if head.status >= 400:
            self._refusal = KubeletRefusal(head)
            upstream.set_deadline(REFUSAL_S)
            return
        if head.status != 200 or head.fields.get(b"content-encoding") not in {None, b"identity"}:
            upstream.abort()
            self.on_failure(f"{self._pool.requests.hop}-malformed")
            return
        if not self._request.is_follow:
            upstream.set_deadline(None)  # the client reads at its own pace
        self._is_started = True
        self._is_chunked = head.is_chunked
        self._is_wrapped = not head.is_chunked and head.content_length is None
        self._unwritten = replies.log_head(
            head, self._request_id, is_close=state.is_draining, date=state.request_log.date
        )

    def on_body(self, data: memoryview) -> None:
        if self._refusal is not None:
            if self._refusal.feed(data) and self._upstream is not None:
                self._upstream.abort()
                self._answer_refusal(self._refusal)
            return
        if self._is_chunked and data[-3:] == _LAST_CHUNK:
            end = end_of_log(bytes(data[-MAX_END_BYTES:]))
            if end is not None:
                data = memoryview(bytes(data[:-MAX_END_BYTES]) + end)
        if self._is_wrapped:
            self._unwritten += b"%x\r\n" % len(data) + bytes(data) + b"\r\n"
        elif len(self._unwritten) + len(data) < _COALESCE_BYTES:
            self._unwritten += bytes(data)
        else:
            self._write()
            if self._is_chunked and data[-3:] == _LAST_CHUNK:
                data = data[:-3]
                self._unwritten = _LAST_CHUNK
            self._transport.write(data)

    def on_batch_end(self) -> None:
        if self._is_started:
            self._write()
            transport = self._transport
            transport.flush()
            if transport.await_if_congested() and self._upstream is not None:
                self._upstream.pause()

    def on_response_end(self) -> None:
        self._upstream = None
        if self._refusal is not None:
            self._answer_refusal(self._refusal)
            return
        # The last chunk is a record of its own. Go's reader else reports the end with the last bytes, and
        # kube-apiserver, for a client that reads the log by WebSocket, drops them.
        if self._is_wrapped:
            self._write()
            self._unwritten = _LAST_CHUNK + b"\r\n"
        elif self._is_chunked:
            if self._unwritten.endswith(_LAST_CHUNK):
                self._unwritten = self._unwritten.removesuffix(_LAST_CHUNK)
                self._write()
                self._unwritten = _LAST_CHUNK
            self._unwritten += b"\r\n"
        self._write()
        self._transport.flush()
        self._release()
        self._client.finish(is_close=False)

    def on_failure(self, reason: str) -> None:
        self._upstream = None
        if self._is_sent:
            self._transport.flush()
            self._client.abort()  # which cancels this
            return
        self._refuse(replies.failure_status(reason), reason, None)

    def _write(self) -> None:
        if not self._is_sent:
            self._is_sent = True
            client, log = self._client, self._state.request_log
            log.record(client.caller, self._request, OWNED, 200, self._request_id, client.begun_s)
        if self._unwritten:
            self._transport.write(self._unwritten)
            self._unwritten = b""

    def _answer_refusal(self, refusal: KubeletRefusal) -> None:
        hop = self._pool.requests.hop
        self._refuse(*replies.translate_refusal(self._request, refusal.head.status, refusal.text(), hop))

    def _release(self) -> None:
        """Stop counting a followed log: it has ended in some way."""
        if self._follow is not None:
            self._follow.release()

    def _refuse(self, status: int, reason: str, text: str | None) -> None:
        self._release()
        # After a failure of the kubelet's side the connection ends.
        self._client.refuse(
            self._request, self._request_id, status, reason, is_close=status >= 500, text=text
        )

    # ---- the client's side

    def on_client_writable(self) -> None:
        if self._upstream is not None:
            self._upstream.resume()

    def cancel(self) -> None:
        self._release()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        if not self._is_sent:
            client, log = self._client, self._state.request_log
            log.record(client.caller, self._request, "client-left", 499, self._request_id, client.begun_s)
