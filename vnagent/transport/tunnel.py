# SPDX-License-Identifier: Apache-2.0
"""An upgraded stream: two connections joined, bytes relayed both ways.

SPDY and WebSocket frames are relayed unparsed: their parsers have had memory bugs, and no decision
depends on a frame.
"""

from collections.abc import Callable

from daemonkit.fairness.lease import Lease
from vnagent.transport.handler import EndReason
from vnagent.transport.tls_connection import TlsConnection

# How long a client that does not read may keep the tail of an ended stream.
TAIL_S = 600.0


class Tunnel:
    """Joins a client's connection with a kubelet's until one of them ends.

    When the kubelet ends, the client still gets all data of the kubelet (lost tails of output are
    kubernetes/kubernetes 124571). When the client ends, its data still reaches the kubelet.
    `identity` is the client's. `lease` is the tunnel's place among its tenant's. `on_close` is called once.

    A node has hundreds of tunnels for hours, so each is small.
    """

    __slots__ = ("_client", "_on_close", "_upstream", "identity", "lease")

    def __init__(
        self,
        client: TlsConnection,
        upstream: TlsConnection,
        lease: Lease,
        identity: object,
        on_close: Callable[["Tunnel"], None],
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._on_close: Callable[[Tunnel], None] | None = on_close
        self.lease = lease
        self.identity = identity
        client.deadline = upstream.deadline = None  # the kubelet cuts at 4 h; we never do
        client.set_handler(_TunnelSide(client, upstream, self, is_client=True))
        upstream.set_handler(_TunnelSide(upstream, client, self, is_client=False))

    def upstream_ended(self) -> None:
        """The kubelet has ended. The client reads the rest at its own pace (`kubectl exec ... | less`); until
        then the tunnel counts as the tenant's."""
        if self._on_close is None or not self._client.has_unsent:
            self.close()
            return
        self._upstream.close()
        self._client.set_handler(_Tail(self, self._client))
        self._client.await_drain(TAIL_S)

    def close(self) -> None:
        """End both sides, each after its unsent data."""
        if self._on_close is None:
            return
        on_close, self._on_close = self._on_close, None
        self._upstream.close()
        self._client.close()
        on_close(self)

    def abort(self) -> None:
        """End both sides at once: the tenant's right to the stream was revoked."""
        if self._on_close is None:
            return
        on_close, self._on_close = self._on_close, None
        self._upstream.abort()
        self._client.abort()
        on_close(self)


class _TunnelSide:
    """The handler of one side of a tunnel: data read here is written to the other."""

    __slots__ = ("_from", "_is_client", "_to", "_tunnel", "on_data")

    def __init__(
        self, sender: TlsConnection, target: TlsConnection, tunnel: Tunnel, *, is_client: bool
    ) -> None:
        self._tunnel = tunnel
        self._is_client = is_client
        self._from = sender
        self._to = target
        self.on_data = target.write  # the hot path has no Python frame of this class

    def on_handshake(self) -> None:
        raise AssertionError("a tunnel begins after the handshake")

    def on_batch_end(self) -> None:
        self._to.flush()
        if self._to.await_if_congested():
            self._from.pause()

    def on_writable(self) -> None:
        self._to.resume()

    def on_end(self, reason: EndReason) -> None:
        if self._is_client:
            self._tunnel.close()
        else:
            self._tunnel.upstream_ended()

    def on_deadline(self) -> None:
        """Data of a client that has left has a deadline."""
        self.on_end(EndReason.DEADLINE)


class _Tail:
    """The handler of a client's connection whose kubelet has ended: the client reads the rest."""

    __slots__ = ("_client", "_tunnel")

    def __init__(self, tunnel: Tunnel, client: TlsConnection) -> None:
        self._tunnel = tunnel
        self._client = client

    def on_handshake(self) -> None:
        raise AssertionError("a tunnel begins after the handshake")

    def on_data(self, data: memoryview) -> None:
        """The kubelet's side is closed: the data is dropped."""

    def on_batch_end(self) -> None:
        """Nothing is relayed."""

    def on_writable(self) -> None:
        if self._client.has_unsent:
            self._client.await_drain(TAIL_S)
        else:
            self._tunnel.close()

    def on_end(self, reason: EndReason) -> None:
        self._tunnel.close()

    def on_deadline(self) -> None:
        self._tunnel.close()
