# SPDX-License-Identifier: Apache-2.0
"""A fake kubelet: a TLS server that records every byte it gets and answers as configured.

It demands a client certificate like a real one, keeps connections alive, streams logs and holds
tunnels. Without a script it answers as a healthy kubelet with its pods. It runs in a thread of its own,
so that synchronous tests, asyncio tests and the demo can drive it.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from daemonkit.listeners import stop_accepting
from devkit.kubelet.connection import HEAD_LIMIT_BYTES, FakeKubeletConnection
from devkit.kubelet.default_replies import default_reply
from devkit.kubelet.pods import FakePod
from devkit.kubelet.replies import Exchange, FakeReply

__all__ = ["FakeKubelet", "FakePod", "kubelet_context"]

ReplyScript = Callable[[Exchange], FakeReply | None]
T = TypeVar("T")

_START_DEADLINE_S = 10.0


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection by a FIN without close_notify. Python 3.11.2 (Debian 12) fails on one that was
    closed twice."""
    with contextlib.suppress(AttributeError):
        writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by a RST, as when its process has died."""
    with contextlib.suppress(AttributeError):  # as in _abort
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _abort(writer)


def kubelet_context(cert_file: str, key_file: str, client_ca_pem: str) -> ssl.SSLContext:
    """TLS as a kubelet has it: client certificates demanded, HTTP/1.1 only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert_file, key_file)
    context.load_verify_locations(cadata=client_ca_pem)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    return context


class FakeKubelet:
    """A scripted kubelet on loopback.

    `script` gets each request, in the kubelet's thread; None means the default reply.
    `exchanges` grows by one per request in the order of arrival, also for malformed ones.
    """

    def __init__(
        self,
        pods: Iterable[FakePod] = (),
        *,
        tls: ssl.SSLContext,
        node_name: str = "node-1",
        address: str = "127.0.0.1",
        port: int = 0,
        script: ReplyScript | None = None,
        speaks_websocket_v5: bool = True,
    ) -> None:
        self.pods = tuple(pods)
        self.node_name = node_name
        self.address = address
        self.port = port
        self.script = script
        self.exchanges: list[Exchange] = []
        self.connections_accepted = 0
        self._tls = tls
        self._speaks_websocket_v5 = speaks_websocket_v5
        self._logs: dict[tuple[str, str, str], list[str]] = {}
        self._previous: dict[tuple[str, str, str], list[str]] = {}
        # Of reads beside followed logs: they end at each line that is appended.
        self._until_next_line: set[asyncio.Timeout] = set()
        # By number, with an event that is set at the connection's end.
        self._open: dict[int, tuple[asyncio.StreamWriter, asyncio.Event]] = {}
        self._server: asyncio.Server | None = None
        self._listener_number = 0
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    @property
    def connections_open(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Listen; `port` then holds the port that was given or chosen."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-kubelet", daemon=True)
        self._thread.start()
        self._call(self._listen())

    def stop(self) -> None:
        """Close everything and end the thread. May be called twice."""
        if self._thread is None:
            return
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_DEADLINE_S)
        self._thread = None
        self._loop.close()

    def restart(self, *, tls: ssl.SSLContext | None = None) -> None:
        """Cut every connection and listen again on the same port, perhaps with other TLS."""
        self.pause()
        self.resume(tls=tls)

    def pause(self) -> None:
        """Stop listening and cut every connection, as a kubelet that is down."""
        self._call(self._shut())

    def resume(self, *, tls: ssl.SSLContext | None = None) -> None:
        """Listen again after `pause`."""
        self._tls = tls or self._tls
        self._call(self._listen())

    def drop_connections(self) -> None:
        """Cut every open connection; go on listening."""
        self._call(self._drop())

    def append_log(self, namespace: str, pod: str, container: str, line: str) -> None:
        """Add a line to a container's log; follows that are open get it."""
        self._logs.setdefault((namespace, pod, container), []).append(line)
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._end_waits)

    def _end_waits(self) -> None:
        for each in self._until_next_line:
            each.reschedule(self._loop.time())
        self._until_next_line.clear()

    def set_previous_log(self, namespace: str, pod: str, container: str, *lines: str) -> None:
        """Set the log of a container's previous run."""
        self._previous[namespace, pod, container] = list(lines)

    def requests(self, path_start: str = "/") -> list[Exchange]:
        """The exchanges so far with this prefix of the path."""
        return [e for e in list(self.exchanges) if e.path.startswith(path_start)]

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_DEADLINE_S)

    async def _listen(self) -> None:
        listener = socket.create_server((self.address, self.port), backlog=1024)
        # Accepted sockets inherit it. A real kubelet has it too. asyncio sets it only for sockets with
        # IPPROTO_TCP; without it each reply in two writes takes 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = listener.getsockname()[1]
        self._listener_number += 1
        self._server = await asyncio.start_server(
            partial(self._serve, self._listener_number), sock=listener, ssl=self._tls, limit=HEAD_LIMIT_BYTES
        )

    async def _shut(self) -> None:
        if self._server is not None:
            await stop_accepting(self._server)
            self._server = None
            self._listener_number += 1
        await self._drop()

    async def _drop(self) -> None:
        # A connection that a client opens meanwhile stays open.
        dropped = list(self._open.values())
        for writer, _ in dropped:
            _reset(writer)
        async with asyncio.timeout(_START_DEADLINE_S):
            for _, has_ended in dropped:
                await has_ended.wait()

    async def _serve(
        self, listening: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if listening != self._listener_number:  # its handshake, by former rules, ended after its listener
            _abort(writer)
            return
        self.connections_accepted += 1
        number = self.connections_accepted
        has_ended = asyncio.Event()
        self._open[number] = writer, has_ended
        connection = FakeKubeletConnection(self, number, reader, writer)
        try:
            while await connection.exchange():
                pass
        except (ConnectionError, TimeoutError, ssl.SSLError):
            pass  # the peer left; the exchange has the end time
        finally:
            connection.ended()
            _abort(writer)
            del self._open[number]
            has_ended.set()

    def answer(self, exchange: Exchange) -> FakeReply:
        """The reply of the script, or the default one."""
        scripted = self.script(exchange) if self.script is not None else None
        if scripted is not None:
            return scripted
        return default_reply(
            exchange,
            self.pods,
            self._logs,
            self.node_name,
            previous=self._previous,
            speaks_websocket_v5=self._speaks_websocket_v5,
        )

    def log_lines(self, key: tuple[str, str, str]) -> list[str]:
        return self._logs.get(key, [])

    @contextlib.contextmanager
    def until_next_line(self, until: asyncio.Timeout) -> Iterator[None]:
        """Within it this time is up as soon as a line is appended to any log."""
        self._until_next_line.add(until)
        try:
            yield
        finally:
            self._until_next_line.discard(until)
