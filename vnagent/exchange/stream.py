# SPDX-License-Identifier: Apache-2.0
"""exec, attach and portForward until the kubelet has answered 101; then a tunnel takes over.

Bytes that the client sends before the 101 wait in the client's bounded buffer (RFC 9931). They are
never sent if the upgrade fails: they would be the next request on a privileged connection
(CVE-2018-1002105).
"""

from daemonkit.fairness.lease import Lease
from tenancy.ownership import Owned
from vnagent.core import replies
from vnagent.core.audit import OWNED
from vnagent.core.head import ResponseHead
from vnagent.core.kubelet_refusal import KubeletRefusal
from vnagent.core.requests import Stream
from vnagent.exchange.port import ClientPort
from vnagent.state import AgentState
from vnagent.transport.tunnel import Tunnel
from vnagent.upstream.pool import REFUSAL_S, UpstreamConnection, UpstreamPool

# The container runtime's stream server gives up after 30 s (its StreamCreationTimeout).
UPGRADE_S = 30.0


class StreamExchange:
    """Opens one stream, which the tenant's usage counts as a tunnel from the start."""

    __slots__ = (
        "_client",
        "_lease",
        "_pod",
        "_pool",
        "_refusal",
        "_request",
        "_request_id",
        "_room",
        "_state",
        "_upstream",
    )
    is_bounded = True

    def __init__(
        self,
        client: ClientPort,
        state: AgentState,
        pool: UpstreamPool,
        request: Stream,
        pod: Owned,
        *,
        lease: Lease,
        room: Lease | None,
    ) -> None:
        """`lease` is released when the stream ends in any way, as a tunnel too. `room`:
        room for the audit line, which each outcome writes once."""
        self._client = client
        self._state = state
        self._pool = pool
        self._request = request
        self._pod = pod
        self._request_id = state.request_log.next_request_id()
        self._upstream: UpstreamConnection | None = None
        self._refusal: KubeletRefusal | None = None
        self._lease = lease
        self._room = room

    def start(self) -> None:
        self._client.exchange = self
        pool = self._pool
        self._upstream = pool.acquire(
            self,
            pool.requests.stream(self._request, self._pod),
            timeout_s=UPGRADE_S,
            is_upgrade=True,
            group=self._client.transport.group,
        )

    # ---- the kubelet's side

    def on_response(self, head: ResponseHead) -> None:
        upstream = self._upstream
        if upstream is None:
            return
        if head.status >= 400:
            self._refusal = KubeletRefusal(head)
            upstream.set_deadline(REFUSAL_S)
            return
        switching = replies.switching_head(self._request, head, self._request_id)
        if head.status != 101 or switching is None:
            upstream.abort()
            self.on_failure(f"{self._pool.requests.hop}-refused-upgrade")
            return
        self._upstream = None
        self._pool.stream_protocols.accepted(self._request, head)
        self._open_tunnel(upstream, switching)

    def _open_tunnel(self, connection: UpstreamConnection, switching: bytes) -> None:
        client, state = self._client, self._state
        downstream = client.transport
        upstream, early = connection.take_transport()
        client.exchange = None
        self._record(OWNED, 101)
        state.add_tunnel(Tunnel(downstream, upstream, self._lease, client.identity, state.on_tunnel_close))
        upstream.usage = state.usage_of_caller(client.caller)
        downstream.write(switching + early)
        ahead = client.take_early_data()
        if ahead:
            upstream.write(ahead)
            upstream.flush()
        downstream.flush()
        downstream.resume()
        client.release()

    def on_body(self, data: memoryview) -> None:
        if self._refusal is not None and self._refusal.feed(data) and self._upstream is not None:
            self._upstream.abort()
            self.on_response_end()

    def on_batch_end(self) -> None:
        """Nothing is relayed before the upgrade."""

    def on_response_end(self) -> None:
        self._upstream = None
        refusal = self._refusal
        if refusal is None:
            self.on_failure(f"{self._pool.requests.hop}-malformed")
            return
        hop = self._pool.requests.hop
        protocols = replies.accepted_protocols(refusal.head) if refusal.head.status == 403 else None
        if protocols is not None:
            self._pool.stream_protocols.refused(self._request)
            self._refuse(403, f"{hop}-refused-upgrade", None, protocols)
            return
        found = replies.translate_refusal(self._request, refusal.head.status, refusal.text(), hop)
        if found[:2] == (403, f"{hop}-refused-upgrade"):
            self._pool.stream_protocols.refused(self._request)
        self._refuse(*found)

    def on_failure(self, reason: str) -> None:
        self._upstream = None
        self._refuse(replies.failure_status(reason), reason, None)

    def _refuse(self, status: int, reason: str, text: str | None, protocols: str | None = None) -> None:
        self._lease.release()
        self._client.refuse(
            self._request,
            self._request_id,
            status,
            reason,
            is_close=True,
            text=text,
            protocols=protocols,
            room=self._room,
        )

    def _record(self, reason: str, status: int) -> None:
        self._state.request_log.record(
            self._client.caller,
            self._request,
            reason,
            status,
            self._request_id,
            self._client.begun_s,
            room=self._room,
        )

    # ---- the client's side

    def on_client_writable(self) -> None:
        """Nothing is relayed before the upgrade."""

    def cancel(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        self._lease.release()
        self._record("client-left", 499)
