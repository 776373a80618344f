# SPDX-License-Identifier: Apache-2.0
"""An upgraded stream: two channels joined, bytes relayed both ways, frames never looked into.

SPDY and WebSocket frames are not parsed on purpose: their parsers have had memory bugs, and there
is nothing in them that a decision depends on.
"""

from collections.abc import Callable

from vnagent.core.access import Caller
from vnagent.transport.tls_connection import TlsConnection

# How long a client that takes nothing may keep the tail of a stream that has ended.
TAIL_S = 600.0


class Tunnel:
    """Joins a client's channel with a kubelet's until one of them ends.

    When the kubelet ends, the client still gets all that the kubelet sent (lost tails of output are
    kubernetes/kubernetes 124571); when the client ends, what it sent still reaches the kubelet.
    `caller` is whose it is, `identity` what its certificate proved. `on_close` is called once.

    A node has hundreds of these for hours: what each needs of its own is kept small.
    """

    __slots__ = ("_client", "_kubelet", "_on_close", "caller", "identity")

    def __init__(
        self,
        client: TlsConnection,
        kubelet: TlsConnection,
        caller: Caller,
        identity: object,
        on_close: Callable[["Tunnel"], None],
    ) -> None:
        self._client = client
        self._kubelet = kubelet
        self._on_close: Callable[[Tunnel], None] | None = on_close
        self.caller = caller
        self.identity = identity
        client.deadline = kubelet.deadline = None  # the kubelet cuts at 4 h; we never do
        client.set_handler(_Side(client, kubelet, self, is_client=True))
        kubelet.set_handler(_Side(kubelet, client, self, is_client=False))

    def kubelet_ended(self) -> None:
        """The kubelet has said all there is. What the client has not taken yet is still its own, at its
        own pace (`kubectl exec ... | less`); the tunnel counts as the tenant's until then."""
        if self._on_close is None or not self._client.has_unsent:
            self.close()
            return
        self._kubelet.close()
        self._client.set_handler(_Tail(self, self._client))
        self._client.await_drain(TAIL_S)

    def close(self) -> None:
        """End both sides, each after what is due to it."""
        if self._on_close is None:
            return
        on_close, self._on_close = self._on_close, None
        self._kubelet.close()
        self._client.close()
        on_close(self)

    def abort(self) -> None:
        """End both sides at once: the tenant may not have this stream any more."""
        if self._on_close is None:
            return
        on_close, self._on_close = self._on_close, None
        self._kubelet.abort()
        self._client.abort()
        on_close(self)


class _Side:
    """The owner of one channel of a tunnel: what is read here is written there."""

    __slots__ = ("_from", "_is_client", "_to", "_tunnel", "on_data")

    def __init__(
        self, source: TlsConnection, target: TlsConnection, tunnel: Tunnel, *, is_client: bool
    ) -> None:
        self._tunnel = tunnel
        self._is_client = is_client
        self._from = source
        self._to = target
        self.on_data = target.write  # the hot path has no frame of ours in it

    def on_handshake(self) -> None:
        raise AssertionError("a tunnel begins after the handshake")

    def on_batch_end(self) -> None:
        self._to.flush()
        if self._to.await_if_congested():
            self._from.pause()

    def on_writable(self) -> None:
        self._to.resume()

    def on_end(self, reason: str) -> None:
        if self._is_client:
            self._tunnel.close()
        else:
            self._tunnel.kubelet_ended()

    def on_deadline(self) -> None:
        """Only what a client said before it left has one."""
        self.on_end("deadline")


class _Tail:
    """The owner of a client's channel whose kubelet has ended: nothing is left but to be read."""

    __slots__ = ("_client", "_tunnel")

    def __init__(self, tunnel: Tunnel, client: TlsConnection) -> None:
        self._tunnel = tunnel
        self._client = client

    def on_handshake(self) -> None:
        raise AssertionError("a tunnel begins after the handshake")

    def on_data(self, data: memoryview) -> None:
        """Nobody is there to hear it."""

    def on_batch_end(self) -> None:
        """Nothing was relayed."""

    def on_writable(self) -> None:
        if self._client.has_unsent:
            self._client.await_drain(TAIL_S)
        else:
            self._tunnel.close()

    def on_end(self, reason: str) -> None:
        self._tunnel.close()

    def on_deadline(self) -> None:
        self._tunnel.close()
