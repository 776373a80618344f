# SPDX-License-Identifier: Apache-2.0
"""The signer's loop: one thread that polls its sockets, and reads the keys each second.

Not asyncio, which takes 5 MB of a process that has 7. A call takes 0.3 ms, and one API server calls.
"""

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from daemonkit import logs
from daemonkit.http2 import Http2Error
from vc_signer import endpoint, probe
from vc_signer.http2.connection import GrpcServerConnection
from vc_signer.key_ring import KeyRing
from vc_signer.probe import Health
from vc_signer.service import CallError, SignerService

_log = logs.get(__name__)

MAX_PEERS = 8
"""An API server has one connection, and a second one while it restarts."""
MAX_PROBES = 16
INCOMPLETE_S = 10.0
"""How long a peer may take to send or to read what it has begun."""
RELOAD_S = 1.0
_READ_BYTES = 1 << 16
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class _PolledConnection:
    """A connection: bytes in, bytes out, and until when it must make progress."""

    __slots__ = ("connection", "due_s", "fetched_keys", "page", "received", "socket")

    def __init__(
        self, connected: socket.socket, connection: GrpcServerConnection | None, due_s: float
    ) -> None:
        self.socket = connected
        self.connection = connection
        """None for a probe's."""
        self.due_s = due_s
        self.received = b""
        self.page = bytearray()
        self.fetched_keys: frozenset[str] = frozenset()
        """Keys of a response that is not written yet."""


class SignerServer:
    """Serves one endpoint until it is stopped."""

    def __init__(
        self,
        ring: KeyRing,
        service: SignerService,
        listener: socket.socket,
        probes: socket.socket | None,
        *,
        path: str,
        allowed_uid: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives seconds that only rise."""
        self._ring = ring
        self._service = service
        self._listener = listener
        self._probes = probes
        self._allowed_uid = allowed_uid
        self._clock = clock
        self._health = Health(lambda: endpoint.endpoint_fault(path), ring.fault, lambda: ring.problem)
        self._peers: dict[int, _PolledConnection] = {}
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        if probes is not None:
            self._poll.register(probes, select.POLLIN)

    def run(self, is_stopping: Callable[[], bool], waker: int) -> None:
        """Serve until `is_stopping`; what is written to the descriptor `waker` ends a wait."""
        self._poll.register(waker, select.POLLIN)
        reload_s = self._clock() + RELOAD_S
        while not is_stopping():
            wait_s = max(0.0, reload_s - self._clock())
            for descriptor, _ in self._poll.poll(wait_s * 1e3):
                self._handle(descriptor)
            now_s = self._clock()
            if now_s >= reload_s:
                reload_s = now_s + RELOAD_S
                self._ring.reload()
                self._drop_slow(now_s)
        self._end()

    def _handle(self, descriptor: int) -> None:
        peer = self._peers.get(descriptor)
        if peer is not None:
            self._exchange(peer)
        elif descriptor == self._listener.fileno():
            self._accept(self._listener, is_probe=False)
        elif self._probes is not None and descriptor == self._probes.fileno():
            self._accept(self._probes, is_probe=True)

    def _accept(self, listener: socket.socket, *, is_probe: bool) -> None:
        try:
            connected, _ = listener.accept()
        except OSError as error:
            _log.debug("a connection was lost before it was accepted", error=error)
            return
        same = sum((each.connection is None) is is_probe for each in self._peers.values())
        if same >= (MAX_PROBES if is_probe else MAX_PEERS):
            connected.close()
            return
        if not is_probe and (uid := endpoint.peer_uid(connected)) != self._allowed_uid:
            _log.warning(
                "a connection of another user was refused: run the API server as the user of --peer-uid",
                uid=uid,
                allowed_uid=self._allowed_uid,
            )
            connected.close()
            return
        connected.setblocking(False)
        connection = None if is_probe else GrpcServerConnection()
        peer = _PolledConnection(connected, connection, self._clock() + INCOMPLETE_S)
        self._peers[connected.fileno()] = peer
        self._poll.register(connected, _READABLE)
        self._write(peer)

    def _exchange(self, peer: _PolledConnection) -> None:
        """Read what has come, answer it, and write what there is room for."""
        try:
            data = peer.socket.recv(_READ_BYTES)
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data == b"":
            self._close(peer)
            return
        if data and peer.connection is None:
            self._answer_probe(peer, data)
        elif data and peer.connection is not None:
            try:
                self._answer_calls(peer, peer.connection, data)
            except Http2Error as error:
                _log.warning("a connection was ended: its peer violates HTTP/2", reason=str(error))
                self._close(peer)
                return
        self._write(peer)

    def _answer_calls(self, peer: _PolledConnection, connection: GrpcServerConnection, data: bytes) -> None:
        if not connection.is_incomplete:
            peer.due_s = self._clock() + INCOMPLETE_S
        for call in connection.receive_data(data):
            try:
                response, published = self._service.answer(call.path, call.message)
            except CallError as error:
                connection.fail(call.stream, error.code, str(error))
            else:
                connection.respond(call.stream, response)
                peer.fetched_keys = published or peer.fetched_keys

    def _answer_probe(self, peer: _PolledConnection, data: bytes) -> None:
        peer.received += data
        if not peer.page and (page := probe.response(peer.received, self._health)) is not None:
            peer.page += page

    def _write(self, peer: _PolledConnection) -> None:
        out = peer.connection.data_to_send() if peer.connection is not None else peer.page
        had_some = bool(out)
        try:
            while out:
                del out[: peer.socket.send(out)]
        except BlockingIOError:
            pass
        except OSError:
            self._close(peer)
            return
        if peer.connection is None:
            if had_some and not out:
                self._close(peer)
                return
        elif peer.fetched_keys and peer.connection.is_flushed:
            self._ring.mark_published(peer.fetched_keys)
            peer.fetched_keys = frozenset()
        self._poll.modify(peer.socket, _READABLE | (select.POLLOUT if out else 0))

    def _drop_slow(self, now_s: float) -> None:
        for peer in list(self._peers.values()):
            if peer.connection is not None and not peer.connection.is_incomplete:
                peer.due_s = now_s + INCOMPLETE_S
            elif now_s >= peer.due_s:
                _log.warning(
                    "a connection was ended: its peer sends or reads too slowly", timeout_s=INCOMPLETE_S
                )
                self._close(peer)

    def _close(self, peer: _PolledConnection) -> None:
        self._poll.unregister(peer.socket)
        del self._peers[peer.socket.fileno()]
        peer.socket.close()

    def _end(self) -> None:
        """Let clients finish: what they have sent was answered."""
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                peer.connection.end()
                with suppress(OSError):
                    peer.socket.send(peer.connection.data_to_send())
            self._close(peer)
