# SPDX-License-Identifier: Apache-2.0
"""One connection to the fake kubelet: reads requests, answers as configured, records all other bytes."""

import asyncio
import dataclasses
import socket
import time
from contextlib import AbstractContextManager
from typing import Any, Protocol

from devkit.kubelet.replies import (
    Exchange,
    FakeReply,
    ReplyEnd,
    Tunnel,
    chunk,
    parse_head,
    render_head,
    switching,
    text,
)

# The kubelet's own limit: net/http's 1 MiB of header bytes.
HEAD_LIMIT_BYTES = 1024 * 1024

_READ_BYTES = 65536
_WRITE_BYTES = 128 * 1024
# What a peer may send ahead of its turn before this end only counts it.
_AHEAD_LIMIT_BYTES = 4 * 1024 * 1024
_CLOSE_DEADLINE_S = 2.0


class ReplySource(Protocol):
    """What a connection asks of its kubelet."""

    exchanges: list[Exchange]

    def answer(self, exchange: Exchange) -> FakeReply: ...
    def log_lines(self, key: tuple[str, str, str]) -> list[str]: ...
    def until_next_line(self, until: asyncio.Timeout) -> AbstractContextManager[None]: ...


class FakeKubeletConnection:
    """One accepted connection: reads requests, answers them, records what else arrives."""

    def __init__(
        self,
        kubelet: ReplySource,
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
        exchange = Exchange(self._number, head, peer=self._peer)
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

    async def _read(self, until: asyncio.Timeout | None = None) -> bytes:
        """Some bytes; empty at EOF and when the time is up."""
        if self._is_eof:
            return b""
        try:
            async with until or asyncio.timeout(None):
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
            if self._is_eof or len(self._ahead) > HEAD_LIMIT_BYTES:
                return None
            self._ahead += await self._read()

    async def _read_body(self, exchange: Exchange) -> bytes:
        lengths = exchange.values("Content-Length")
        if exchange.values("Transfer-Encoding") or not lengths or not lengths[0].isdigit():
            return b""  # a chunked body stays among the bytes that follow: vn-agent never sends one
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
            self._keep(await self._read(asyncio.timeout(left)))

    def _keep(self, data: bytes) -> None:
        if len(self._ahead) < _AHEAD_LIMIT_BYTES:
            self._ahead += data

    async def _send(self, exchange: Exchange, reply: FakeReply) -> bool:
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

    async def _send_body(self, exchange: Exchange, reply: FakeReply) -> None:
        is_open_ended = (
            reply.follows is not None or reply.repeat_every_s is not None or reply.ending is ReplyEnd.SILENT
        )
        is_chunked = reply.is_chunked or bool(reply.trailers) or is_open_ended
        # Counted before the client gets the first byte: later lines are followed.
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
            # Others append to the list while these are written.
            while lines := self._kubelet.log_lines(key)[sent:]:
                for line in lines:
                    await self._write(chunk(f"{line}\n".encode()))
                sent += len(lines)
            # Not polled: 300 followed logs would take all the time of this thread. No await from where the
            # lines were read: what is appended after that ends the read.
            until = asyncio.timeout(None)
            with self._kubelet.until_next_line(until):
                self._keep(await self._read(until))

    async def _tunnel(self, exchange: Exchange, reply: FakeReply) -> bool:
        if reply.first_bytes:
            exchange.sent.add(reply.first_bytes)
            await self._write(reply.first_bytes)
        if reply.ending not in (ReplyEnd.KEEP, ReplyEnd.SILENT):
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
            exchange.answered_bytes += len(data)
            if back:
                await self._write(back)
        return await self._end(ReplyEnd.CLOSE)

    async def _end(self, ending: ReplyEnd) -> bool:
        match ending:
            case ReplyEnd.KEEP:
                return not self._is_eof
            case ReplyEnd.SILENT:
                while not self._is_eof:
                    self._ahead.clear()
                    await self._read()
            case ReplyEnd.RESET:
                raw: socket.socket = self._writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            case ReplyEnd.CLOSE:
                # asyncio holds the FIN back until the peer has answered the close_notify.
                self._writer.close()
                async with asyncio.timeout(_CLOSE_DEADLINE_S):
                    await self._writer.wait_closed()
            case ReplyEnd.ABORT:
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
