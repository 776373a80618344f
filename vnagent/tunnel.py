# SPDX-License-Identifier: Apache-2.0
"""An upgraded stream: two channels joined, bytes relayed both ways, frames never looked into.

SPDY and WebSocket frames are not parsed on purpose: their parsers have had memory bugs, and there
is nothing in them that a decision depends on.
"""

from collections.abc import Callable

from vnagent.channel import TlsChannel


class Tunnel:
    """Joins a client's channel with a kubelet's until one of them ends.

    When the kubelet ends, the client still gets all that the kubelet sent (lost tails of output are
    kubernetes/kubernetes 124571); when the client ends, what it sent still reaches the kubelet.
    `on_close` is called once.
    """

    __slots__ = ("_client", "_kubelet", "_on_close", "caller")

    def __init__(
        self,
        client: TlsChannel,
        kubelet: TlsChannel,
        caller: object,
        on_close: Callable[["Tunnel"], None],
    ) -> None:
        self._client = client
        self._kubelet = kubelet
        self._on_close: Callable[[Tunnel], None] | None = on_close
        self.caller = caller
        client.deadline = kubelet.deadline = None  # the kubelet cuts at 4 h; we never do
        client.set_owner(_Side(self, client, kubelet))
        kubelet.set_owner(_Side(self, kubelet, client))

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

    __slots__ = ("_from", "_to", "_tunnel", "on_data")

    def __init__(self, tunnel: Tunnel, source: TlsChannel, target: TlsChannel) -> None:
        self._tunnel = tunnel
        self._from = source
        self._to = target
        self.on_data = target.write  # the hot path has no frame of ours in it

    def on_handshake(self) -> None:
        raise AssertionError("a tunnel begins after the handshake")

    def on_batch_end(self) -> None:
        self._to.flush()
        if self._to.is_congested():
            self._from.pause()

    def on_writable(self) -> None:
        self._to.resume()

    def on_end(self, reason: str) -> None:
        self._tunnel.close()

    def on_deadline(self) -> None:
        """Only what a client said before it left has one."""
        self._tunnel.close()
