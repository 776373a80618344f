# SPDX-License-Identifier: Apache-2.0
"""One connection to a server, with TLS or without, as a stream of bytes that is read when asked for.

asyncio's own TLS costs each connection a zero-filled buffer of 256 KiB and more beside it (cpython
109534): 0.4 MB for each of the watches that a daemon keeps open. Here OpenSSL works on memory BIOs,
which are given no more at a time than a few records, as they never shrink.

When bytes arrive they are kept, and nothing else: to decrypt them is work for the task that reads, in pieces.
So the account of that task is charged for what its peer sends.
"""

import asyncio
import math
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Protocol, cast

from daemonkit.keepalive import keep_alive
from daemonkit.tls.client_session import ClientSession, clear_errors

# What the kernel is asked for at once.
RECEIVE_BYTES = 64 << 10
# What may wait to be read before the peer is made to wait: at most this, and what one more call brings.
HIGH_BYTES = 64 << 10
LOW_BYTES = 16 << 10
# What is taken out of that at a time: a record. As records of one byte it takes a millisecond.
PIECE_BYTES = 16 << 10
# For a caller that has little work with each, as many are taken in one turn, while they have few records.
_READS_A_TURN = 4
_RECORDS_A_TURN = 64
_RECORD_BYTES = 16 << 10
# Each write of an API server is a record: an event, or some KB of a list.
FREE_RECORDS = 4_096
MIN_RECORD_BYTES = 32
# Of a peer until it has proved who it is. Chains are of some KB, and to verify them takes time by their size.
MAX_HANDSHAKE_BYTES = 64 << 10
# A deadline that is nearer has a timer of its own.
_LOOK_AHEAD_S = 1.0
# (on, 0 s): closing resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class BrokenPeerError(ConnectionError):
    """The peer sends what takes time and brings nothing."""


class WaitingBytes(Protocol):
    """Who counts what has been received and not been read."""

    @property
    def is_short(self) -> bool:
        """Whether peers are to be made to wait as soon as anything waits to be read."""

    def note_waiting(self, size_bytes: int) -> None:
        """So much more waits, or less than nothing."""


class _Uncounted:
    """Connections whose bytes are not counted."""

    is_short = False

    def note_waiting(self, size_bytes: int) -> None:
        """Nothing is to be done."""


class _ReceiveBuffer(threading.local):
    """Where a thread's calls of recv put what they bring: asyncio's own make a block of 256 KiB each."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVE_BYTES))


_RECEIVE_BUFFER = _ReceiveBuffer()


class Connection(asyncio.BufferedProtocol):
    """Made by `dial`. One task at a time may read. `waiting` counts what has come and was not read.

    `session` is of the same context and name: it is resumed if the server still knows it.
    """

    def __init__(
        self,
        context: ssl.SSLContext | None,
        server_hostname: str | None,
        waiting: WaitingBytes | None = None,
        session: ClientSession | None = None,
    ) -> None:
        self._waiting: WaitingBytes = _Uncounted() if waiting is None else waiting
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = (
            None
            if context is None
            else context.wrap_bio(self._in, self._out, server_hostname=server_hostname)
        )
        if self._tls is not None and session is not None:
            try:
                session.offer(self._tls)
            except MemoryError:
                clear_errors()  # the handshake is a full one
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()  # as it came
        self._handshake_bytes = 0
        self._records = 0
        self._record_bytes = 0
        self._is_paused = False
        self._is_handshake_done = context is None
        self._is_ended = False
        self._has_rest_of_handshake = False  # what came with its last bytes may be of the reply
        self._is_closed_by_peer = False  # by TLS: what follows is not read
        self._turn_reads = self._turn_records = 0  # of this turn, and of those before it
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._reads_until = math.inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def tls(self) -> ssl.SSLObject | None:
        return self._tls

    @property
    def is_resumed(self) -> bool:
        """Whether the server was verified by the handshake of an earlier connection."""
        return self._tls is not None and bool(self._tls.session_reused)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that was not read, not even the end: fit for another request."""
        has_rest = bool(self._received) or self._in.pending > 0
        return not self._is_ended and not has_rest and not self._is_closed_by_peer

    @property
    def peer_address(self) -> str:
        """The address of the other end; empty without a connection."""
        found = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(found[0]) if found else ""

    async def handshake(self) -> None:
        """Wait until the peer has proved who it is. Raises OSError (ssl.SSLError among them)."""
        while not self._is_handshake_done:
            # Before the end: an alert may stand in front of it.
            if self._tls is not None and self._received:
                self._handshake_bytes += self._in.write(self._piece())
                self._continue_handshake(self._tls)
                await asyncio.sleep(0)
            elif self._error is not None:
                raise self._error
            elif self._is_ended:
                raise ConnectionResetError("the connection ended in the handshake")
            else:
                await self._wait()

    def write(self, data: bytes) -> None:
        """Send, or buffer for sending: requests are small."""
        if self._transport is None or self._transport.is_closing():
            return  # `read` raises it
        if self._tls is None:
            self._transport.write(data)
        else:
            self._tls.write(data)
            self._flush()

    async def read(self, until: float = math.inf, *, goes_on: bool = False) -> bytes:
        """The next bytes, of a record at most; empty at the end. Raises OSError when the connection broke.

        Raises TimeoutError if nothing has come by `until`, a time of the event loop. Others have their turn
        between two reads, also while bytes are there; between some if it `goes_on`, as the caller has only
        kept what the last one brought.
        """
        if self._turn_reads >= (_READS_A_TURN if goes_on and self._has_few_records() else 1):
            await asyncio.sleep(0)
            self._begin_turn()
        self._turn_reads += 1
        while True:
            if (self._received or self._has_rest_of_handshake) and (data := self._next()):
                return data
            if self._received and not self._is_closed_by_peer:
                if asyncio.get_running_loop().time() >= until:
                    raise TimeoutError("nothing has come in time")
                await asyncio.sleep(0)
            elif self._error is not None:
                raise self._error
            elif self._is_ended or self._is_closed_by_peer:
                return b""
            else:
                if asyncio.get_running_loop().time() >= until:
                    raise TimeoutError("nothing has come in time")
                self._have_deadline(until)
                await self._wait()
                self._begin_turn()

    def _begin_turn(self) -> None:
        self._turn_reads, self._turn_records = 0, self._records

    def _has_few_records(self) -> bool:
        return self._records - self._turn_records < _RECORDS_A_TURN

    def close(self, *, discards_unsent: bool = False) -> None:
        """End the connection at once: whatever was to come is of no use.

        `discards_unsent`: nor is what the kernel has not delivered, which it would go on to send.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is None:
            self._forget_received()
            return
        found = self._transport.get_extra_info("socket") if discards_unsent else None
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()
        self._forget_received()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _have_deadline(self, until: float) -> None:
        """End the wait that follows at a time.

        A timer is left to run when the wait has ended sooner, as most do: the next one finds it there. So
        most timers find nothing to do. They run at the last whole second before, for all connections at once,
        and a wait that has not ended then has a timer of its own.
        """
        self._reads_until = until
        if self._timer is not None and self._timer.when() > until:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and until != math.inf:
            loop = asyncio.get_running_loop()
            second = math.floor(until)
            at = second if second > loop.time() + _LOOK_AHEAD_S else until
            self._timer = loop.call_at(at, self._look_at_deadline)

    def _look_at_deadline(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if asyncio.get_running_loop().time() >= self._reads_until:
            self._waiter.set_exception(TimeoutError("nothing has come in time"))
        else:
            self._have_deadline(self._reads_until)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # as all of sockets of streams are
        found = transport.get_extra_info("socket")
        if found is not None:
            keep_alive(found)
        if self._tls is not None:
            try:
                self._continue_handshake(self._tls)
            except OSError as error:
                self._end(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        # Between this and `buffer_updated` nothing else of the thread runs.
        return _RECEIVE_BUFFER.view

    def buffer_updated(self, nbytes: int) -> None:
        self._received += _RECEIVE_BUFFER.view[:nbytes]
        self._waiting.note_waiting(nbytes)
        high = 0 if self._waiting.is_short else HIGH_BYTES
        if len(self._received) > high and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        # The reply's framing shows whether it is whole: a missing close_notify does not matter.
        self._end(None)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)
        self._transport = None

    def _end(self, error: Exception | None) -> None:
        if not self._is_ended:
            self._is_ended, self._error = True, error
        self._wake()

    # ---- what is received

    def _next(self) -> bytes:
        """The bytes of the next piece; empty if it has none of them yet."""
        if self._tls is None:
            return bytes(self._piece())
        if self._is_closed_by_peer:
            return b""
        self._in.write(self._piece())
        self._has_rest_of_handshake = False
        return self._decrypted(self._tls)

    def _piece(self) -> bytes | bytearray:
        if len(self._received) <= PIECE_BYTES:
            whole, self._received = self._received, bytearray()
            piece: bytes | bytearray = whole
        else:
            piece = bytes(memoryview(self._received)[:PIECE_BYTES])
            del self._received[: len(piece)]
        self._waiting.note_waiting(-len(piece))
        if self._is_paused and self._transport is not None:
            low = 0 if self._waiting.is_short else LOW_BYTES
            if len(self._received) <= low:
                self._is_paused = False
                self._transport.resume_reading()
        return piece

    def _forget_received(self) -> None:
        self._waiting.note_waiting(-len(self._received))
        self._received = bytearray()

    # ---- TLS

    def _continue_handshake(self, tls: ssl.SSLObject) -> None:
        """Do what can be done of the handshake with the ciphertext that is there. Raises SSLError."""
        if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
            raise BrokenPeerError(f"a TLS handshake of more than {MAX_HANDSHAKE_BYTES} bytes")
        try:
            tls.do_handshake()
            self._is_handshake_done = self._has_rest_of_handshake = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self._flush()  # an alert, too

    def _decrypted(self, tls: ssl.SSLObject) -> bytes:
        """What can be decrypted of the ciphertext that is there. Raises SSLError, BrokenPeerError."""
        parts: list[bytes] = []
        try:
            while data := tls.read(_RECORD_BYTES):
                parts.append(data)
                if not (self._in.pending or tls.pending()):
                    break  # sooner than by an exception
            else:
                self._is_closed_by_peer = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._flush()  # the alert
            self.close()
            raise
        if self._out.pending:  # seldom: what TLS itself answers
            self._flush()
        found = b"".join(parts)
        # A piece without any bytes counts as a record too: it has what OpenSSL answers, or nothing whole.
        self._records += max(1, len(parts))
        self._record_bytes += len(found)
        if self._records > FREE_RECORDS + self._record_bytes // MIN_RECORD_BYTES:
            raise BrokenPeerError(f"{self._records} TLS records for {self._record_bytes} bytes")
        return found

    def _flush(self) -> None:
        if self._out.pending and self._transport is not None:
            self._transport.write(self._out.read())


async def dial(
    hosts: tuple[str, ...],
    port: int,
    context: ssl.SSLContext | None,
    server_hostname: str | None,
    waiting: WaitingBytes | None = None,
    session: ClientSession | None = None,
) -> Connection:
    """Connect to the first host that takes it, and shake hands. Raises OSError, ssl.SSLError among them; the
    caller has the deadline."""
    connection = await _opened(lambda: Connection(context, server_hostname, waiting, session), hosts, port)
    try:
        await connection.handshake()
    except BaseException:
        connection.close()
        raise
    return connection


async def _opened(make: Callable[[], Connection], hosts: tuple[str, ...], port: int) -> Connection:
    loop = asyncio.get_running_loop()
    for host in hosts[:-1]:
        try:
            return (await loop.create_connection(make, host, port))[1]
        except OSError:
            continue  # the error of the last one is as good
    return (await loop.create_connection(make, hosts[-1], port))[1]
