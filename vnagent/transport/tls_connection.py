# SPDX-License-Identifier: Apache-2.0
"""One TLS connection on the asyncio loop: bytes in, bytes out, no streams, no futures.

asyncio's own TLS gives each connection a zero-filled buffer of 256 KiB (cpython 109534), which is
150 MB for 500 idle tunnels. Here all connections share their buffers (`transport.cipher`), and a tenant's
sockets are in one epoll of ours, which is one descriptor to the loop: a handle and a selector key for
each socket would cost 1 KB of memory, and 2 us at each event.

Rules of this file:
- The plaintext given to `Owner.on_data` lies in a shared buffer: it is valid until `on_data`
  returns. Nothing may therefore read another channel from within `on_data`; `resume` schedules.
- The end of a stream that was paused is never announced by the loop again: `resume` schedules a pump. It
  schedules none where no end was seen: with 100 tunnels of slow readers 65 pumps that had nothing to do
  waited in front of the tenant's next request.
- One event handles one receive. So a stream that never pauses cannot hold the loop.
- Where an owner fails, what it would go on with has a hole: the channel ends (`fail`).

The file is long because it is one state machine: reading, writing and ending decide on the same few
flags. An object apart for what is unsent would also be 100 bytes more of each idle connection.
"""

import select
import socket
import ssl
from collections.abc import Callable
from typing import cast

from daemonkit.admission.handshake_accounts import NO_COST, HandshakeCost
from vnagent.transport.cipher import CIPHERTEXT, CIPHERTEXT_VIEW, PLAINTEXT, RECEIVE_BYTES, Cipher
from vnagent.transport.handler import NO_ACCOUNT, Account, Owner
from vnagent.transport.poller import Channels, Group

# What may wait for a peer that is slower than its source: the source stops above the one and goes on
# below the other.
HIGH_BYTES = 256 * 1024
LOW_BYTES = 64 * 1024
# How long a closed connection waits for the peer's FIN before it is reset, so that a reply that is
# still on its way is not destroyed by the answer to bytes that nobody read (RFC 9112, 9.6).
LINGER_S = 1.0
# How long what a client sent before it left may wait for a kubelet that does not take it.
LAST_WORDS_S = 10.0
# A peer that reads nothing cannot hold a closed connection for longer.
CLOSE_S = 10.0

# The most that one sendmsg takes (UIO_MAXIOV of Linux).
_IOV_MAX = 1024
_READ, _WRITE, _GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP
_BROKEN = select.EPOLLERR | select.EPOLLHUP
# Pieces that wait are put together up to here: each is some 260 bytes beside what it holds.
_PIECE_BYTES = 4096
# What may wait for a peer that makes us answer and does not read the answers: 600 key updates.
_ANSWER_BYTES = 16 * 1024
# All that a client may send until its handshake is done. A hello has up to 2 KB, an honest chain up to
# 8 KB (leaf and three intermediates of RSA-4096); OpenSSL alone would take 100 KB, which cost 360 ms of
# CPU to check and 3.5 MB to keep. What is behind the handshake waits in the socket meanwhile.
MAX_HANDSHAKE_BYTES = 12 * 1024
# What is received at once from a client: little at first and more as data comes, as a receive is handled
# in one piece, and 128 KiB of key updates would hold everyone up for 40 ms.
FIRST_RECEIVE_BYTES = 4096
_MAX_RECEIVE_BYTES = 32 * 1024
# A record costs 1.6 us whatever is in it: 32 KiB in records of a byte take 2.3 ms, and in large ones 0.1 ms.
# So the next receive has no more bytes than so many records of the size that came last: 4 KiB where each has
# a byte of data, as a container's writes or a client's may, 16 KiB where each is a line of a log.
_MAX_RECORDS = 178
# From a kubelet more is received at once, as most of what comes is a pod's output. More again only by
# degrees: who alternates large and small records pays for each receive of many small ones with 2 MiB.
_KUBELET_GROWTH_BYTES = 4096
# Records without data: a client may send this much of them, more than one that is incomplete (16 KiB), in
# so many seconds. That is 38 key updates a second; honest ones come once in gigabytes, or hourly.
IDLE_BYTES = 32 * 1024
IDLE_S = 32.0


class TlsChannel:
    """A socket, its TLS, and whatever was not sent yet."""

    __slots__ = (
        "_channels",
        "_cipher",
        "_fd",
        "_handshake_bytes",
        "_idle_since",
        "_is_awaited",
        "_is_closing",
        "_is_mute",
        "_is_reading",
        "_is_server",
        "_owner",
        "_receive_bytes",
        "_registered_mask",
        "_saw_eof",
        "_sock",
        "_unsent",
        "_unsent_bytes",
        "account",
        "deadline",
        "group",
    )

    def __init__(
        self,
        channels: Channels,
        sock: socket.socket,
        cipher: Cipher,
        owner: Owner,
        *,
        group: Group | None = None,
    ) -> None:
        """`group`: the shared one, if none is given. The handshake of `cipher` may be done already.

        Raises OSError where the kernel has no room to watch the socket; the caller closes that.
        """
        self._channels = channels
        self._sock = sock
        self._fd = sock.fileno()
        self._cipher: Cipher | None = cipher
        self._owner: Owner | None = owner
        self._unsent: list[memoryview] | None = None  # most channels never have any
        self._unsent_bytes = 0
        self._is_awaited = False
        self.account: Account = NO_ACCOUNT
        self._handshake_bytes = 0  # that the account answers for
        self._is_server = cipher.is_server
        self._is_reading = True
        self._is_closing = False
        self._is_mute = False
        self._saw_eof = False
        # Until the handshake is done: how much of it may come still.
        self._receive_bytes = MAX_HANDSHAKE_BYTES if cipher.is_server else _MAX_RECEIVE_BYTES
        self._idle_since = channels.now
        self.deadline: float | None = None
        self.group = group or channels.shared
        # What the group's epoll reports of the socket, None while it is not registered there.
        self._registered_mask: int | None = _READ
        self.group.epoll.register(self._fd, _READ)  # before anything refers to a channel that may not be
        self.group.size += 1
        channels.by_fd[self._fd] = self

    def start(self) -> None:
        """Begin the handshake. A socket that is still connecting will do: what is to be sent waits
        until it is writable, and a refused connect is a failed receive."""
        cipher = self._cipher
        if cipher is None:
            return
        if cipher.is_handshaken and self._owner is not None:
            self._receive_bytes = FIRST_RECEIVE_BYTES
            self._owner.on_handshake()
        if self._is_server and not cipher.is_handshaken:
            # The hello is here mostly, as a client is accepted once it speaks: to wait for epoll takes a turn
            # of the loop.
            self._on_readable()
        else:
            self._pump()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The SSL object for questions about the peer; None once the channel is gone."""
        return None if self._cipher is None else self._cipher.tls

    def take_handshake_cost(self) -> HandshakeCost:
        """What the handshake has cost since the last call."""
        cipher = self._cipher
        if cipher is None:
            return NO_COST
        cost, cipher.cost = cipher.cost, NO_COST
        return cost

    @property
    def handshake_bytes(self) -> int:
        """What the peer has sent for its handshake: OpenSSL keeps its chain, taken apart, for as long as
        the connection lives."""
        return 0 if self._cipher is None else self._cipher.handshake_bytes

    def join(self, group: Group) -> None:
        """Take turns with the channels of `group` from now on; with the same as before if the kernel has no
        room for it."""
        if group is self.group or self._cipher is None:
            return
        if self._registered_mask is not None:
            try:
                group.epoll.register(self._fd, self._registered_mask)
            except OSError:
                return
            self.group.epoll.unregister(self._fd)
        self.group.size -= 1
        self.group = group
        group.size += 1

    def soon(self, call: Callable[[], None]) -> None:
        """Call something of this channel with its group's next turn."""
        self.group.soon(self, call)

    def bind(self, account: Account) -> None:
        """`account` answers for this connection from now on."""
        self.account = account
        self._handshake_bytes = self.handshake_bytes
        account.handshake_bytes += self._handshake_bytes

    @property
    def idle_bytes(self) -> int:
        """What the peer has lately sent in records without data."""
        return 0 if self._cipher is None else self._cipher.idle_bytes

    @property
    def is_open(self) -> bool:
        return self._cipher is not None and not self._is_closing

    def is_congested(self) -> bool:
        """Whether the peer is behind: whoever feeds this channel must then stop until `on_writable`.

        Not at the first byte that the socket did not take: with nothing in hand to send when it
        takes bytes again, a bulk stream would stop and go. But at the first one where the account
        holds too much already.
        """
        unsent, account = self._unsent_bytes, self.account
        limit = account.max_unsent_bytes
        if unsent > HIGH_BYTES or (unsent and limit and account.unsent_bytes > limit):
            self._is_awaited = True
            return True
        return False

    @property
    def has_unsent(self) -> bool:
        return self._unsent is not None

    def await_drain(self, seconds: float) -> None:
        """Call `on_writable` as the peer takes what is due to it, and `on_deadline` if it has not
        taken all within `seconds`."""
        self._is_awaited = True
        self.deadline = self._channels.now + seconds

    def set_owner(self, owner: Owner) -> None:
        self._owner = owner

    def on_events(self, events: int) -> None:
        """What epoll says of the socket."""
        if events & _WRITE and self._unsent:
            self._on_writable()
        if events & ~_WRITE and self._cipher is not None:  # not aborted by what was to be written
            if self._is_reading:
                self._on_readable()
            else:
                self._on_gone(events)

    def _watch(self) -> None:
        """Tell epoll what is waited for now. A paused channel still hears that its peer is gone."""
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
        """The peer of a paused channel has closed or reset.

        What a kubelet sent before is still read, at the client's pace, also behind a reset: that may be
        no more than its kernel's answer to what the client says to a kubelet that is gone. A client's
        reset ends it; what it sent before a close is still delivered, but not for ever: nobody waits
        for it any more.
        """
        if events & _BROKEN:
            if self._is_server:
                self._end("reset")
            else:
                # Epoll would say so again and again. A resume asks for it.
                self._registered_mask = None
                self.group.epoll.unregister(self._fd)
            return
        self._registered_mask = _WRITE if self._unsent else 0
        self.group.epoll.modify(self._fd, self._registered_mask)
        if self._is_server and self.deadline is None:
            self.deadline = self._channels.now + LAST_WORDS_S

    # ---- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt; nothing leaves before `flush`. Quietly drops data once the channel is closed."""
        cipher = self._cipher
        if cipher is None or self._is_closing:
            return
        try:
            cipher.seal(data)
        except ssl.SSLError:
            self._break("broken")

    def flush(self) -> None:
        """Send what was encrypted, as far as the socket takes it."""
        cipher = self._cipher
        if cipher is None or cipher.sealed is None:
            return
        sealed, cipher.sealed = cipher.sealed, None
        data = sealed[0] if len(sealed) == 1 else b"".join(sealed)
        if self._is_mute:
            return
        if self._unsent:
            self._keep(memoryview(data))
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fail_to_send(error)
            return
        if sent < len(data):
            self._keep(rest_of(memoryview(data), sent))
            self._watch()

    def _keep(self, data: memoryview) -> None:
        unsent, size = self._unsent, len(data)
        if unsent is None:
            self._unsent = [data]
        elif len(unsent[-1]) + size <= _PIECE_BYTES:
            unsent[-1] = memoryview(bytes(unsent[-1]) + bytes(data))
        else:
            unsent.append(data)
        self._unsent_bytes += size
        self.account.unsent_bytes += size

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
        self.account.unsent_bytes -= sent
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
        if self._is_awaited and self._unsent_bytes <= LOW_BYTES and self._owner is not None:
            self._is_awaited = False
            self._owner.on_writable()

    def _fail_to_send(self, error: OSError) -> None:
        """A kubelet that takes nothing more may still have been read only in part: the reading will
        come to its end. A client that takes nothing more is gone."""
        if self._is_server or self._is_closing or not isinstance(error, ConnectionError):
            self._break("reset")
            return
        self._is_mute = True
        self._unsent = None
        self.account.unsent_bytes -= self._unsent_bytes
        self._unsent_bytes = 0
        self._watch()
        if self._is_awaited and self._owner is not None:
            self._is_awaited = False
            self._owner.on_writable()

    # ---- reading

    def pause(self) -> None:
        """Stop reading: the kernel's buffers fill and the peer has to wait. What came in one receive is
        still handed over in one piece; its end is not told before `resume`."""
        if self._is_reading and self._cipher is not None and not self._is_closing:
            self._is_reading = False
            self._watch()

    def resume(self) -> None:
        """Read again. An end that has been seen would not be announced again: hand it over, soon."""
        cipher = self._cipher
        if not self._is_reading and cipher is not None and not self._is_closing:
            self._is_reading = True
            try:
                self._watch()
            except OSError:  # the kernel has no room to watch it again
                self.fail()
                return
            if self._saw_eof or cipher.ended is not None:
                self.soon(self._pump)

    def _on_readable(self) -> None:
        account, most_bytes = self.group.account, self._receive_bytes
        if account.unsent_bytes > account.max_unsent_bytes > 0:
            # Streams with nothing unsent are not paused. Each may add what it receives: 300 of them added
            # 30 MiB to a limit of 8 MiB.
            most_bytes = FIRST_RECEIVE_BYTES
        try:
            size = self._sock.recv_into(CIPHERTEXT, most_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end("reset")
            return
        if self._is_closing:
            # Read and forget, until the peer's FIN: then nothing of ours can be lost any more, but for
            # what is not sent yet. Who says nothing more may still be listening.
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
        """Go on with `size` bytes of new ciphertext: hand over all plaintext there is. The owner may
        pause, close or abort in any call."""
        owner, cipher = self._hearer(), self._cipher
        if owner is None or cipher is None:
            return
        is_new = not cipher.is_handshaken
        if is_new:
            if not self._shake(cipher, size):
                return
            size = 0
        plaintext_bytes = cipher.unseal(size)
        record_count = cipher.record_count
        if record_count > _MAX_RECORDS or (record_count and size == self._receive_bytes):
            self._receive_bytes = self._next_receive_bytes(cipher, size)
        if is_new:
            owner.on_handshake()
        if plaintext_bytes and (owner := self._hearer()) is not None:
            owner.on_data(PLAINTEXT[:plaintext_bytes])
        if (owner := self._hearer()) is not None:
            owner.on_batch_end()
        if cipher.sealed is not None:
            self.flush()  # the end of the handshake, a key update, an alert
        if (cipher.answer_bytes and not self._is_heard(cipher)) or (
            cipher.idle_bytes > IDLE_BYTES and self._is_server and not self._may_send_idle(cipher)
        ):
            self._end("broken")
        elif self._is_reading and (cipher.ended is not None or self._saw_eof):
            self._end(cipher.ended or "closed")

    def _is_heard(self, cipher: Cipher) -> bool:
        """Whether the peer reads what it makes us answer, or has made us answer little so far."""
        if not self._unsent:
            cipher.answer_bytes = 0
        return cipher.answer_bytes <= _ANSWER_BYTES

    def _may_send_idle(self, cipher: Cipher) -> bool:
        """Whether the client has taken long enough to send so much without data."""
        now = self._channels.now
        if now - self._idle_since < IDLE_S:
            return False
        self._idle_since = now
        cipher.idle_bytes = 0
        return True

    def _next_receive_bytes(self, cipher: Cipher, size: int) -> int:
        """How much to receive at once after `size` bytes that were full, or had many records."""
        if self._is_server:
            most = min(2 * size, _MAX_RECEIVE_BYTES, cipher.piece_bytes)
        else:
            most = min(size + _KUBELET_GROWTH_BYTES, RECEIVE_BYTES)
        return min(most, max(FIRST_RECEIVE_BYTES, size * _MAX_RECORDS // cipher.record_count))

    def _hearer(self) -> Owner | None:
        """The owner, as long as it wants to hear of anything."""
        return None if self._is_closing else self._owner

    def _shake(self, cipher: Cipher, size: int) -> bool:
        """Go on with the handshake; whether it is done. What is to be sent then leaves with what the
        owner says first."""
        failed = cipher.shake(CIPHERTEXT_VIEW[:size])
        if cipher.is_handshaken:
            if self._is_server:
                self._receive_bytes = FIRST_RECEIVE_BYTES
            return True
        if self._is_server and failed is None:
            self._receive_bytes -= size
            if not self._receive_bytes:
                failed = "handshake-too-large"
        self.flush()  # of a handshake that failed the alert, so that the peer knows why
        if failed is not None or self._saw_eof:
            self._end(failed or "closed")
        return False

    # ---- the end

    def expire(self) -> None:
        """The deadline passed."""
        self.deadline = None
        if self._is_closing or self._owner is None:
            self.abort()
        else:
            self._owner.on_deadline()

    def _break(self, reason: str) -> None:
        """The connection broke while somebody was writing: tell the owner from a clean stack."""
        if self._is_closing:
            self.abort()
        elif self._cipher is not None:
            self.soon(lambda: self._end(reason))

    def fail(self) -> None:
        """The owner failed at a call of ours, or the socket cannot be watched: end, without handing over what
        follows."""
        self.pause()
        self._break("broken")

    def _end(self, reason: str) -> None:
        owner = self._owner
        if self._cipher is None or owner is None or self._is_closing:
            self.abort()
            return
        self._is_reading = False
        self._owner = None  # a reset behind a FIN is no second end
        owner.on_end(reason)
        self._watch()  # behind on_end: most owners close the channel there, which needs no pause

    def close(self) -> None:
        """Say good-bye (close_notify), send all that is due, wait for the peer's FIN for LINGER_S."""
        cipher = self._cipher
        if cipher is None or self._is_closing:
            return
        if not cipher.is_handshaken:
            self.abort()
            return
        cipher.part()
        self.flush()
        if self._cipher is None:
            return
        self._is_closing = True
        self._owner = None
        self.deadline = self._channels.now + CLOSE_S
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
        self.deadline = self._channels.now + LINGER_S
        self._is_reading = True
        self._watch()

    def abort(self) -> None:
        """Close at once; data that is due is lost."""
        if self._cipher is None:
            return
        self._channels.forget(self._fd)
        self._sock.close()
        self._cipher = self._owner = None
        self._unsent = None
        self.account.unsent_bytes -= self._unsent_bytes
        self._unsent_bytes = 0
        self.account.handshake_bytes -= self._handshake_bytes
        self._handshake_bytes = 0


def rest_of(piece: memoryview, sent: int) -> memoryview:
    """What is left of a piece. A view keeps all of it in memory: less than a half is copied, so that an
    account has twice of what it answers for at most."""
    rest = piece[sent:]
    return memoryview(bytes(rest)) if 2 * len(rest) < len(cast(bytes, rest.obj)) else rest
