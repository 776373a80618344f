# SPDX-License-Identifier: Apache-2.0
"""A stand-in kubelet: a TLS server that records every byte it gets and answers as it is told.

It demands a client certificate like a real one, keeps connections alive, streams logs and holds
tunnels. Without a script it answers plausibly for its pods. It runs in a thread of its own, so that
synchronous tests, asyncio tests and the demo can all drive it.
"""

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from daemonkit.testing.kubelet_plausible import plausible
from daemonkit.testing.kubelet_pods import StandInPod
from daemonkit.testing.kubelet_replies import (
    Ending,
    Exchange,
    Reply,
    Tunnel,
    chunk,
    parse_head,
    render_head,
    switching,
    text,
)

__all__ = ["StandInKubelet", "StandInPod", "kubelet_context"]

Script = Callable[[Exchange], Reply | None]
T = TypeVar("T")

# The kubelet's own limit: net/http's 1 MiB of header bytes.
_HEAD_LIMIT_BYTES = 1024 * 1024
_READ_BYTES = 65536
_WRITE_BYTES = 128 * 1024
# What a peer may send ahead of its turn before this end only counts it.
_AHEAD_LIMIT_BYTES = 4 * 1024 * 1024
_FOLLOW_POLL_S = 0.02
_START_DEADLINE_S = 10.0
_CLOSE_DEADLINE_S = 2.0


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection without a word: a FIN and no close_notify. Python 3.11.2 (Debian 12) fails on
    one that has been closed twice."""
    with contextlib.suppress(AttributeError):
        writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a process does that is gone."""
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


class StandInKubelet:
    """A scripted kubelet on loopback.

    `script` is asked for each request, in the kubelet's thread; None means the plausible answer.
    `exchanges` grows by one per request in the order of arrival, also for malformed ones.
    """

    def __init__(
        self,
        pods: Iterable[StandInPod] = (),
        *,
        tls: ssl.SSLContext,
        node_name: str = "node-1",
        address: str = "127.0.0.1",
        port: int = 0,
        script: Script | None = None,
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
        self._open: dict[int, asyncio.StreamWriter] = {}
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._server: asyncio.Server | None = None
        self._listenings = 0
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    @property
    def connections_open(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Listen; `port` then holds the port that was given or chosen."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="stand-in-kubelet", daemon=True)
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
        """As a kubelet that went down: nobody listens, every connection is cut."""
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

    def set_previous_log(self, namespace: str, pod: str, container: str, *lines: str) -> None:
        """What a container wrote in the run before this one."""
        self._previous[namespace, pod, container] = list(lines)

    def requests(self, path_start: str = "/") -> list[Exchange]:
        """The exchanges so far whose path starts so."""
        return [e for e in list(self.exchanges) if e.path.startswith(path_start)]

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_DEADLINE_S)

    async def _listen(self) -> None:
        listener = socket.create_server((self.address, self.port), backlog=1024)
        # What is accepted inherits it. A real kubelet has it too, and asyncio sets it only for sockets
        # that say IPPROTO_TCP: without it each reply in two writes takes 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = listener.getsockname()[1]
        self._listenings += 1
        self._server = await asyncio.start_server(
            partial(self._serve, self._listenings), sock=listener, ssl=self._tls, limit=_HEAD_LIMIT_BYTES
        )

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            self._listenings += 1
        await self._drop()

    async def _drop(self) -> None:
        for writer in list(self._open.values()):
            _reset(writer)
        async with asyncio.timeout(_START_DEADLINE_S):
            await self._all_closed.wait()

    async def _serve(
        self, listening: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if listening != self._listenings:  # its handshake, by former rules, ended after its listener
            _abort(writer)
            return
        self.connections_accepted += 1
        number = self.connections_accepted
        self._open[number] = writer
        self._all_closed.clear()
        connection = _Connection(self, number, reader, writer)
        try:
            while await connection.exchange():
                pass
        except (ConnectionError, TimeoutError, ssl.SSLError):
            pass  # the peer left, which the exchange's end time says
        finally:
            connection.ended()
            _abort(writer)
            del self._open[number]
            if not self._open:
                self._all_closed.set()

    def answer(self, exchange: Exchange) -> Reply:
        """The scripted or else the plausible answer."""
        scripted = self.script(exchange) if self.script is not None else None
        if scripted is not None:
            return scripted
        return plausible(
            exchange,
            self.pods,
            self._logs,
            self.node_name,
            previous=self._previous,
            speaks_websocket_v5=self._speaks_websocket_v5,
        )

    def log_lines(self, key: tuple[str, str, str]) -> list[str]:
        return self._logs.get(key, [])


class _Connection:
    """One accepted connection: reads requests, answers them, records what else arrives."""

    def __init__(
        self,
        kubelet: StandInKubelet,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._kubelet = kubelet
        self._number = number
        self._reader = reader
        self._writer = writer
        self._peer = _common_name(writer.get_extra_info("peercert") or {})
        self._ahead = bytearray()
        self._is_eof = False
        self._current: Exchange | None = None

    def ended(self) -> None:
        if self._current is not None and self._current.ended_s is None:
            self._current.ended_s = time.monotonic()

    async def exchange(self) -> bool:
        """One request and its answer. False: the connection is over."""
        head = await self._read_head()
        if head is None:
            return False
        exchange = Exchange(self._number, head, peer=self._peer, started_s=time.monotonic())
        parse_head(head, exchange)
        if not exchange.is_malformed:
            exchange.body = await self._read_body(exchange)
        self._current = exchange
        exchange.after.add(self._ahead)
        self._kubelet.exchanges.append(exchange)
        if exchange.is_malformed:
            await self._send(exchange, text(400, "400 Bad Request"))
            return False
        return await self._send(exchange, self._kubelet.answer(exchange))

    async def _read(self, timeout_s: float | None = None) -> bytes:
        """Some bytes; empty at EOF and when the time is up."""
        if self._is_eof:
            return b""
        try:
            async with asyncio.timeout(timeout_s):
                data = await self._reader.read(_READ_BYTES)
        except TimeoutError:
            return b""
        if not data:
            self._is_eof = True
            self.ended()
        elif self._current is not None:
            self._current.after.add(data)
        return data

    async def _read_head(self) -> bytes | None:
        while True:
            end = self._ahead.find(b"\r\n\r\n")
            if end >= 0:
                head = bytes(self._ahead[: end + 4])
                del self._ahead[: end + 4]
                return head
            if self._is_eof or len(self._ahead) > _HEAD_LIMIT_BYTES:
                return None
            self._ahead += await self._read()

    async def _read_body(self, exchange: Exchange) -> bytes:
        lengths = exchange.values("Content-Length")
        if exchange.values("Transfer-Encoding") or not lengths or not lengths[0].isdigit():
            return b""  # a chunked body stays among the bytes that follow: nobody may send one
        wanted = int(lengths[0])
        while len(self._ahead) < wanted and not self._is_eof:
            self._ahead += await self._read()
        body = bytes(self._ahead[:wanted])
        del self._ahead[:wanted]
        return body

    async def _wait(self, seconds: float) -> None:
        """Pass time while recording what the peer sends; returns early when it leaves."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._is_eof:
            data = await self._read(left)
            if len(self._ahead) < _AHEAD_LIMIT_BYTES:
                self._ahead += data

    async def _send(self, exchange: Exchange, reply: Reply) -> bool:
        if reply.delay_s:
            await self._wait(reply.delay_s)
        exchange.status = reply.status
        if reply.status == 101 and reply.raw is None:
            if not reply.headers:
                plain = switching(exchange, reply.tunnel or Tunnel.SINK)
                reply = dataclasses.replace(reply, headers=plain.headers, tunnel=plain.tunnel)
            await self._write(render_head(reply, None))
            return await self._tunnel(exchange, reply)
        if reply.raw is not None:
            await self._write(reply.raw)
        else:
            await self._send_body(exchange, reply)
        return await self._end(reply.ending)

    async def _send_body(self, exchange: Exchange, reply: Reply) -> None:
        is_open_ended = (
            reply.follows is not None or reply.repeat_every_s is not None or reply.ending is Ending.SILENT
        )
        is_chunked = reply.is_chunked or bool(reply.trailers) or is_open_ended
        # Counted before the client can see anything: what is added from then on is followed.
        sent = len(self._kubelet.log_lines(reply.follows)) if reply.follows is not None else 0
        await self._write(render_head(reply, None if is_chunked else len(reply.body)))
        if exchange.method == "HEAD" or reply.status in (204, 304):
            return
        body = reply.body if reply.body_bytes is None else reply.body[: reply.body_bytes]
        await self._write(chunk(body) if is_chunked else body)
        if reply.follows is not None:
            await self._follow(reply.follows, sent)
        if reply.repeat_every_s is not None:
            while not self._is_eof:
                await self._wait(reply.repeat_every_s)
                await self._write(chunk(body))
        if is_chunked and not is_open_ended and reply.body_bytes is None:
            trailer = "".join(f"{name}: {value}\r\n" for name, value in reply.trailers)
            await self._write(f"0\r\n{trailer}\r\n".encode("latin-1"))

    async def _follow(self, key: tuple[str, str, str], sent: int) -> None:
        while not self._is_eof:
            lines = self._kubelet.log_lines(key)
            for line in lines[sent:]:
                await self._write(chunk(f"{line}\n".encode()))
            sent = len(lines)
            await self._wait(_FOLLOW_POLL_S)

    async def _tunnel(self, exchange: Exchange, reply: Reply) -> bool:
        if reply.first_bytes:
            exchange.sent.add(reply.first_bytes)
            await self._write(reply.first_bytes)
        if reply.ending not in (Ending.KEEP, Ending.SILENT):
            return await self._end(reply.ending)
        if reply.tunnel is Tunnel.STALL:
            await self._writer.wait_closed()
            return False
        early = bytes(self._ahead)
        self._ahead.clear()
        while early or not self._is_eof:
            data = early or await self._read()
            early = b""
            back = data if reply.tunnel is Tunnel.ECHO else b""
            if data and reply.answer is not None:
                back = reply.answer(data)
            if back:
                exchange.sent.add(back)
                await self._write(back)
        return await self._end(Ending.CLOSE)

    async def _end(self, ending: Ending) -> bool:
        match ending:
            case Ending.KEEP:
                return not self._is_eof
            case Ending.SILENT:
                while not self._is_eof:
                    self._ahead.clear()
                    await self._read()
            case Ending.RESET:
                raw: socket.socket = self._writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            case Ending.CLOSE:
                # asyncio holds the FIN back until the peer has answered the close_notify.
                self._writer.close()
                async with asyncio.timeout(_CLOSE_DEADLINE_S):
                    await self._writer.wait_closed()
            case Ending.ABORT:
                pass
        return False

    async def _write(self, data: bytes) -> None:
        # In pieces: a body of many megabytes in one write would hold up every other connection.
        view = memoryview(data)
        while view:
            self._writer.write(view[:_WRITE_BYTES])
            view = view[_WRITE_BYTES:]
            await self._writer.drain()
            await asyncio.sleep(0)


def _common_name(certificate: dict[str, Any]) -> str:
    """The last common name of the subject, of `ssl.getpeercert()`'s shape."""
    names = [value for rdn in certificate.get("subject", ()) for key, value in rdn if key == "commonName"]
    return str(names[-1]) if names else ""
