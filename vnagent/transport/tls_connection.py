# SPDX-License-Identifier: Apache-2.0
"""One TLS connection on the asyncio loop: bytes in, bytes out, no streams, no futures.

asyncio's own TLS gives each connection a zero-filled buffer of 256 KiB (cpython 109534), which is
150 MB for 500 idle tunnels. Here all connections share their buffers (`transport.cipher`). A tenant's
sockets are in one epoll, which is one descriptor to the loop: a handle and a selector key for
each socket would cost 1 KB of memory, and 2 us at each event.

Rules of this file:
- The plaintext given to `ConnectionHandler.on_data` lies in a shared buffer and is valid until `on_data`
  returns. So nothing may read another connection from within `on_data`; `resume` schedules.
- Epoll reports the end of a paused connection once. If it has, `resume` schedules a read to deliver it; else
  not: with 100 tunnels of slow readers, 65 idle reads delayed the tenant's next request.
- One event handles one receive. So a stream that never pauses cannot hold the loop.
- A handler that raised has lost data: the connection ends (`fail`).

The file is one state machine: reading, writing and ending decide on the same few
flags. A separate object for unsent data would add 100 bytes to each idle connection.
"""

import select
import socket
import ssl
from collections.abc import Callable
from typing import cast

from daemonkit.admission.handshake_accounts import NO_COST, HandshakeCost
from vnagent.transport.cipher import CIPHERTEXT, CIPHERTEXT_VIEW, PLAINTEXT, RECEIVE_BYTES, Cipher
from vnagent.transport.handler import NO_USAGE, ByteUsage, ConnectionHandler, EndReason
from vnagent.transport.keepalive import INFO_BYTES, has_vanished
from vnagent.transport.poll_groups import PolledSocket, PollGroup
from vnagent.transport.poller import SocketPoller

# Unsent bytes above which the sender is paused, and below which it goes on.
HIGH_BYTES = 256 * 1024
LOW_BYTES = 64 * 1024
# How long a closed connection waits for the peer's FIN before it is reset. A reset in answer to unread bytes
# would destroy a reply on its way (RFC 9112, 9.6).
LINGER_S = 1.0
# How long data of a client that has left may wait for a kubelet that does not read.
UNDELIVERED_S = 10.0
# A peer that reads nothing cannot hold a closed connection for longer.
CLOSE_S = 10.0

# The most that one sendmsg takes (UIO_MAXIOV of Linux).
_IOV_MAX = 1024
_READ, _WRITE, _GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP
_BROKEN = select.EPOLLERR | select.EPOLLHUP
# Unsent pieces are joined up to here: each costs some 260 bytes beside its content.
_PIECE_BYTES = 4096
# Unread replies of OpenSSL (to key updates) that one peer may cause: 600.
_TLS_REPLY_BYTES = 16 * 1024
# All that a client may send until its handshake is done. A hello has up to 2 KB, an honest chain up to
# 8 KB (leaf and three intermediates of RSA-4096). OpenSSL alone would take 100 KB, which cost 360 ms of
# CPU to check and 3.5 MB to keep. Data behind the handshake waits in the socket meanwhile.
MAX_HANDSHAKE_BYTES = 12 * 1024
# Bytes received at once from a client: few at first and more as data comes. A receive is handled
# in one piece, and 128 KiB of key updates would hold up all others for 40 ms.
FIRST_RECEIVE_BYTES = 4096
_MAX_RECEIVE_BYTES = 32 * 1024
# While several tenants have connections: 128 KiB take 0.3 ms, more than a turn (`poll_groups.TURN_S`).
SHARED_RECEIVE_BYTES = 32 * 1024
# A record costs 1.6 us whatever its size: 32 KiB in records of a byte take 2.3 ms, in large ones 0.1 ms.
# So the next receive is bounded to so many records of the last size: 4 KiB where each has
# a byte of data, as a container's writes or a client's may, 16 KiB where each is a line of a log.
_MAX_RECORDS = 178
# A receive from a kubelet may be larger, as it is mostly a pod's output. It grows
# by degrees: a peer that alternates large and small records pays 2 MiB for each receive of many small ones.
_KUBELET_GROWTH_BYTES = 4096
# Bytes in records without data that a client may send in IDLE_S: more than one incomplete record (16 KiB).
# That is 38 key updates a second; honest ones come once in gigabytes, or hourly.
IDLE_BYTES = 32 * 1024
IDLE_S = 32.0


class TlsConnection(PolledSocket):
    """A socket, its TLS, and the ciphertext that is not sent yet."""

    __slots__ = (
        "_cipher",
        "_fd",
        "_handler",
        "_handshake_bytes",
        "_idle_since",
        "_is_awaited",
        "_is_closing",
        "_is_reading",
        "_is_server",
        "_is_write_shut",
        "_poller",
        "_receive_bytes",
        "_registered_mask",
        "_saw_eof",
        "_sock",
        "_unsent",
        "_unsent_bytes",
        "usage",
    )

    def __init__(
        self,
        poller: SocketPoller,
        sock: socket.socket,
        cipher: Cipher,
        handler: ConnectionHandler,
        *,
        group: PollGroup | None = None,
    ) -> None:
        """`group`: the shared one by default. The handshake of `cipher` may be done already.

        Raises OSError where the kernel has no room to watch the socket; the caller then closes it.
        """
        super().__init__(group or poller.shared)
        self._poller = poller
        self._sock = sock
        self._fd = sock.fileno()
        self._cipher: Cipher | None = cipher
        self._handler: ConnectionHandler | None = handler
        self._unsent: list[memoryview] | None = None  # most connections never have any
        self._unsent_bytes = 0
        self._is_awaited = False
        self.usage: ByteUsage = NO_USAGE
        self._handshake_bytes = 0  # that the usage counts
        self._is_server = cipher.is_server
        self._is_reading = True
        self._is_closing = False
        self._is_write_shut = False
        self._saw_eof = False
        # Until the handshake is done: how much of it may come still.
        self._receive_bytes = MAX_HANDSHAKE_BYTES if cipher.is_server else _MAX_RECEIVE_BYTES
        self._idle_since = poller.now
        # What the group's epoll reports of the socket, None while it is not registered there.
        self._registered_mask: int | None = _READ
        self.group.epoll.register(self._fd, _READ)  # may raise: before anything refers to this object
        poller.add(self._fd, self)

    def start(self) -> None:
        """Begin the handshake. The socket may still be connecting: data waits until it is writable, and a
        refused connect is a failed receive."""
        cipher = self._cipher
        if cipher is None:
            return
        if cipher.is_handshake_done and self._handler is not None:
            self._receive_bytes = FIRST_RECEIVE_BYTES
            self._handler.on_handshake()
        if self._is_server and not cipher.is_handshake_done:
            # The hello is mostly here, as a client is served once it sends: waiting for epoll would take an
            # iteration of the loop.
            self._on_readable()
        else:
            self._pump()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The SSL object for questions about the peer; None once the connection is closed."""
        return None if self._cipher is None else self._cipher.tls

    def take_handshake_cost(self) -> HandshakeCost:
        """The cost of the handshake since the last call."""
        cipher = self._cipher
        if cipher is None:
            return NO_COST
        cost, cipher.cost = cipher.cost, NO_COST
        return cost

    @property
    def handshake_bytes(self) -> int:
        """The bytes of the peer's handshake. OpenSSL keeps the parsed chain while the connection is open."""
        return 0 if self._cipher is None else self._cipher.handshake_bytes

    def join(self, group: PollGroup) -> None:
        """Be polled with `group` from now on, or stay where the kernel has no room for it there."""
        if group is self.group or self._cipher is None:
            return
        if self._registered_mask is not None:
            try:
                group.epoll.register(self._fd, self._registered_mask)
            except OSError:
                return
            self.group.epoll.unregister(self._fd)
        self.group.leave()
        self.group = group
        group.join()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make a call for this connection when its group is next served."""
        self.group.call_soon(self, call)

    def bind(self, usage: ByteUsage) -> None:
        """`usage` counts this connection's bytes from now on, also those that wait already."""
        self.usage.unsent_bytes -= self._unsent_bytes
        usage.unsent_bytes += self._unsent_bytes
        self.usage = usage
        self._handshake_bytes = self.handshake_bytes
        usage.handshake_bytes += self._handshake_bytes

    @property
    def idle_bytes(self) -> int:
        """The bytes that the peer has lately sent in records without data."""
        return 0 if self._cipher is None else self._cipher.idle_bytes

    @property
    def is_open(self) -> bool:
        return self._cipher is not None and not self._is_closing

    def await_if_congested(self) -> bool:
        """Return whether the peer is behind. The sender must then pause until `on_writable`, which will come.

        The first byte that the socket refuses does not count as congestion: with nothing to send when the
        socket is writable again, a bulk stream would stop and go. It is one where the usage is above its
        limit.
        """
        unsent, usage = self._unsent_bytes, self.usage
        limit = usage.max_unsent_bytes
        if unsent > HIGH_BYTES or (unsent and limit and usage.unsent_bytes + usage.peer_unsent_bytes > limit):
            self._is_awaited = True
            return True
        return False

    @property
    def has_unsent(self) -> bool:
        return self._unsent is not None

    def await_drain(self, seconds: float) -> None:
        """Call `on_writable` as the peer reads, and `on_deadline` unless it has read all within `seconds`."""
        self._is_awaited = True
        self.deadline = self._poller.now + seconds

    def set_handler(self, handler: ConnectionHandler) -> None:
        self._handler = handler

    def on_events(self, events: int) -> None:
        """Epoll reports `events` of the socket."""
        if events & _WRITE and self._unsent:
            self._on_writable()
        if events & ~_WRITE and self._cipher is not None:  # not aborted by what was to be written
            if self._is_reading:
                self._on_readable()
            else:
                self._on_gone(events)

    def _watch(self) -> None:
        """Update the epoll registration. A paused connection still learns that its peer is gone."""
        if self._cipher is None:
            return
        mask = self._mask()
        if self._registered_mask is None:
            if self._is_reading:
                self.group.epoll.register(self._fd, mask)
                self._registered_mask = mask
        elif mask != self._registered_mask:
            self.group.epoll.modify(self._fd, mask)
            self._registered_mask = mask

    def _mask(self) -> int:
        mask = 0 if self._saw_eof else _READ if self._is_reading else _GONE
        return mask | _WRITE if self._unsent else mask

    def _on_gone(self, events: int) -> None:
        """The peer of a paused connection has closed or reset.

        A kubelet's data is still read at the client's pace, also after a reset: that may only be
        its kernel's answer to data for a process that has ended. A client's reset ends the connection.
        Data that a client sent before its close is delivered within UNDELIVERED_S.
        """
        if events & _BROKEN:
            if self._is_server:
                self._end(EndReason.RESET)
            else:
                # Epoll would report it again and again. `resume` registers the socket anew.
                self._registered_mask = None
                self.group.epoll.unregister(self._fd)
            return
        self._registered_mask = _WRITE if self._unsent else 0
        self.group.epoll.modify(self._fd, self._registered_mask)
        if self._is_server and self.deadline is None:
            self.deadline = self._poller.now + UNDELIVERED_S

    # ---- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt; `flush` sends. Data for a closed connection is dropped."""
        cipher = self._cipher
        if cipher is None or self._is_closing:
            return
        if cipher.is_server:
            self.usage.sent_bytes += len(data)
        try:
            cipher.encrypt(data)
        except ssl.SSLError:
            self._break(EndReason.BROKEN)

    def flush(self) -> None:
        """Send the ciphertext, as far as the socket takes it."""
        cipher = self._cipher
        if cipher is None or cipher.outgoing is None:
            return
        outgoing, cipher.outgoing = cipher.outgoing, None
        data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
        if self._is_write_shut:
            return
        if self._unsent:
            self._queue_unsent(memoryview(data))
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fail_to_send(error)
            return
        if sent < len(data):
            self._queue_unsent(rest_of(memoryview(data), sent))
            self._watch()

    def _queue_unsent(self, data: memoryview) -> None:
        unsent, size = self._unsent, len(data)
        if unsent is None:
            self._unsent = [data]
        elif len(unsent[-1]) + size <= _PIECE_BYTES:
            unsent[-1] = memoryview(bytes(unsent[-1]) + bytes(data))
        else:
            unsent.append(data)
        self._unsent_bytes += size
        self.usage.unsent_bytes += size

    def _on_writable(self) -> None:
        unsent = self._unsent
        if unsent is None:
            return
        try:
            sent = self._sock.sendmsg(unsent[:_IOV_MAX])
        except BlockingIOError:
            return
        except OSError as error:
            self._fail_to_send(error)
            return
        self._unsent_bytes -= sent
        self.usage.unsent_bytes -= sent
        while unsent and sent >= len(unsent[0]):
            sent -= len(unsent.pop(0))
        if sent:
            unsent[0] = rest_of(unsent[0], sent)
        if not unsent:
            self._unsent = None
            self._watch()
            if self._is_closing:
                self._shut()
                return
        if self._is_awaited and self._unsent_bytes <= LOW_BYTES and self._handler is not None:
            self._is_awaited = False
            self._handler.on_writable()

    def _fail_to_send(self, error: OSError) -> None:
        """The peer reads no more. A client is gone then; a kubelet's data is still read to its end."""
        if self._is_server or self._is_closing or not isinstance(error, ConnectionError):
            self._break(EndReason.RESET)
            return
        self._is_write_shut = True
        self._unsent = None
        self.usage.unsent_bytes -= self._unsent_bytes
        self._unsent_bytes = 0
        self._watch()
        if self._is_awaited and self._handler is not None:
            self._is_awaited = False
            self._handler.on_writable()

    # ---- reading

    def pause(self) -> None:
        """Stop reading: the kernel's buffers fill and the peer has to wait. The data of one receive is
        still delivered in one piece; its end is reported after `resume`."""
        if self._is_reading and self._cipher is not None and not self._is_closing:
            self._is_reading = False
            self._watch()

    def resume(self) -> None:
        """Read again. Epoll does not report a seen end again: schedule its delivery."""
        cipher = self._cipher
        if not self._is_reading and cipher is not None and not self._is_closing:
            self._is_reading = True
            try:
                self._watch()
            except OSError:  # the kernel has no room to watch it again
                self.fail()
                return
            if self._saw_eof or cipher.peer_end is not None:
                self.call_soon(self._pump)

    def _on_readable(self) -> None:
        usage, most_bytes = self.group.usage, self._receive_bytes
        if usage.unsent_bytes + usage.peer_unsent_bytes > usage.max_unsent_bytes > 0:
            # Streams with nothing unsent are not paused. Each may add what it receives: 300 of them added
            # 30 MiB to a limit of 8 MiB.
            most_bytes = FIRST_RECEIVE_BYTES
        elif most_bytes > SHARED_RECEIVE_BYTES and self._poller.tenant_count > 1:
            most_bytes = SHARED_RECEIVE_BYTES
        try:
            size = self._sock.recv_into(CIPHERTEXT, most_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end(EndReason.RESET)
            return
        if self._is_closing:
            # Read and drop until the peer's FIN. Then nothing sent can be lost any more; unsent data still
            # goes to a peer that has closed its side only.
            if size == 0 and self._unsent:
                self._saw_eof = True
                self._watch()
            elif size == 0:
                self.abort()
            return
        if size == 0:
            self._saw_eof = True
            self._watch()
        self._pump(size)

    def _pump(self, size: int = 0) -> None:
        """Decrypt `size` bytes of new ciphertext and deliver all plaintext. The handler may pause, close or
        abort in any call."""
        handler, cipher = self._active_handler(), self._cipher
        if handler is None or cipher is None:
            return
        is_new = not cipher.is_handshake_done
        if is_new:
            if not self._handshake(cipher, size):
                return
            size = 0
        plaintext_bytes = cipher.decrypt(size)
        record_count = cipher.record_count
        if record_count > _MAX_RECORDS or (record_count and size == self._receive_bytes):
            self._receive_bytes = self._next_receive_bytes(cipher, size)
        if is_new:
            handler.on_handshake()
        if plaintext_bytes and (handler := self._active_handler()) is not None:
            handler.on_data(PLAINTEXT[:plaintext_bytes])
        if (handler := self._active_handler()) is not None:
            handler.on_batch_end()
        if cipher.outgoing is not None:
            self.flush()  # the end of the handshake, a key update, an alert
        if (cipher.tls_reply_bytes and not self._check_tls_reply_bytes(cipher)) or (
            cipher.idle_bytes > IDLE_BYTES and self._is_server and not self._renew_idle_allowance(cipher)
        ):
            self._end(EndReason.BROKEN)
        elif self._is_reading and (cipher.peer_end is not None or self._saw_eof):
            self._end(cipher.peer_end or EndReason.CLOSED)

    def _check_tls_reply_bytes(self, cipher: Cipher) -> bool:
        """Reset the count of reply bytes if all were sent; return whether it is within its limit."""
        if not self._unsent:
            cipher.tls_reply_bytes = 0
        return cipher.tls_reply_bytes <= _TLS_REPLY_BYTES

    def _renew_idle_allowance(self, cipher: Cipher) -> bool:
        """Start a new period of IDLE_S if the last one is over; return whether it was."""
        now = self._poller.now
        if now - self._idle_since < IDLE_S:
            return False
        self._idle_since = now
        cipher.idle_bytes = 0
        return True

    def _next_receive_bytes(self, cipher: Cipher, size: int) -> int:
        """The size of the next receive, after `size` bytes that filled the last one or had many records."""
        if self._is_server:
            most = min(2 * size, _MAX_RECEIVE_BYTES, cipher.piece_bytes)
        else:
            most = min(size + _KUBELET_GROWTH_BYTES, RECEIVE_BYTES)
        return min(most, max(FIRST_RECEIVE_BYTES, size * _MAX_RECORDS // cipher.record_count))

    def _active_handler(self) -> ConnectionHandler | None:
        """The handler, or None once the connection is closing."""
        return None if self._is_closing else self._handler

    def _handshake(self, cipher: Cipher, size: int) -> bool:
        """Continue the handshake; return whether it is done. Its last flight leaves with the handler's first
        data."""
        failed = cipher.handshake(CIPHERTEXT_VIEW[:size])
        if cipher.is_handshake_done:
            if self._is_server:
                self._receive_bytes = FIRST_RECEIVE_BYTES
            return True
        if self._is_server and failed is None:
            self._receive_bytes -= size
            if not self._receive_bytes:
                failed = EndReason.HANDSHAKE_TOO_LARGE
        self.flush()  # a failed handshake sends its alert
        if failed is not None or self._saw_eof:
            self._end(failed or EndReason.CLOSED)
        return False

    # ---- the end

    def expire(self) -> None:
        """The deadline passed."""
        self.deadline = None
        if self._is_closing or self._handler is None:
            self.abort()
        else:
            self._handler.on_deadline()

    def check_peer(self) -> None:
        """End the connection if its peer has vanished with data in flight. An idle one the kernel ends."""
        if self._cipher is None or self._is_closing:
            return
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
        except OSError:  # not TCP, as in tests
            return
        if has_vanished(info):
            self._end(EndReason.RESET)

    def _break(self, reason: EndReason) -> None:
        """The connection broke within a write: report it from a clean stack."""
        if self._is_closing:
            self.abort()
        elif self._cipher is not None:
            self.call_soon(lambda: self._end(reason))

    def fail(self) -> None:
        """The handler raised, or the socket cannot be watched: end, and deliver nothing more."""
        self.pause()
        self._break(EndReason.BROKEN)

    def _end(self, reason: EndReason) -> None:
        handler = self._handler
        if self._cipher is None or handler is None or self._is_closing:
            self.abort()
            return
        self._is_reading = False
        self._handler = None  # a reset behind a FIN must not report a second end
        handler.on_end(reason)
        self._watch()  # after on_end: most handlers close there, which needs no pause

    def close(self) -> None:
        """Send all unsent data and close_notify, then wait LINGER_S for the peer's FIN."""
        cipher = self._cipher
        if cipher is None or self._is_closing:
            return
        if not cipher.is_handshake_done:
            self.abort()
            return
        cipher.close_notify()
        self.flush()
        if self._cipher is None:
            return
        self._is_closing = True
        self._handler = None
        self.deadline = self._poller.now + CLOSE_S
        if not self._unsent:
            self._shut()

    def _shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()
            return
        if self._saw_eof:
            self.abort()
            return
        self.deadline = self._poller.now + LINGER_S
        self._is_reading = True
        self._watch()

    def abort(self) -> None:
        """Close at once; unsent data is lost."""
        if self._cipher is None:
            return
        self._poller.forget(self._fd)
        self._sock.close()
        self._cipher = self._handler = None
        self._unsent = None
        self.usage.unsent_bytes -= self._unsent_bytes
        self._unsent_bytes = 0
        self.usage.handshake_bytes -= self._handshake_bytes
        self._handshake_bytes = 0


def rest_of(piece: memoryview, sent: int) -> memoryview:
    """The rest of a piece. A view keeps the whole piece in memory, so less than half of it is copied: a
    tenant holds at most twice the bytes that are counted for it."""
    rest = piece[sent:]
    return memoryview(bytes(rest)) if 2 * len(rest) < len(cast(bytes, rest.obj)) else rest
