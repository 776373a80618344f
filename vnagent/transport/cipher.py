# SPDX-License-Identifier: Apache-2.0
"""TLS of one connection, as bytes: ciphertext in, plaintext out, and back. No socket.

OpenSSL works on memory BIOs, which costs a twentieth of the system calls that it makes on a socket.
All connections share one pair of BIOs, and the buffers of a receive. A pair for each would be
3.7 KB of an idle connection, and up to 256 KB after a busy time, as BIOs grow and never
shrink (docs/decisions/0001). A connection whose handshake runs in a thread has a pair of its own; small
pieces keep it below 50 KB.

The rule of this file: both BIOs are empty whenever one of its functions returns or raises. Input is decrypted
at once, or dropped (`PLAINTEXT` has room for all of it), and output is taken after each call. A byte
left behind would be ciphertext under another connection's keys: that connection would break, and its
plaintext would stay secret.
"""

import contextlib
import mmap
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from daemonkit.admission.handshake_accounts import NO_COST, HandshakeCost
from daemonkit.tls.client_session import ClientSession
from daemonkit.tls.openssl import take_resume
from vnagent.core import client_chain
from vnagent.transport.handler import EndReason

# Small enough to stay in a core's cache, large enough that a bulk stream costs few system calls.
RECEIVE_BYTES = 128 * 1024
# A record holds 16 KiB of plaintext at most (RFC 8446, 5.1).
_RECORD_BYTES = 16 * 1024
# Bytes encrypted at once: the shared BIO stays as large as the largest piece.
_ENCRYPT_BYTES = 128 * 1024
# Bytes encrypted or received at once by a connection with BIOs of its own.
_OWN_PIECE_BYTES = 16 * 1024
# The overhead of a record with data: header, content type and tag (RFC 8446, 5.2).
_RECORD_OVERHEAD_BYTES = 22

# Mapped, as a bytearray would be filled with zeros: a page takes memory once it was used.
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
CIPHERTEXT: Final = mmap.mmap(-1, RECEIVE_BYTES, _PRIVATE)
CIPHERTEXT_VIEW: Final = memoryview(CIPHERTEXT)
# Room for one receive and the incomplete record of the one before.
PLAINTEXT: Final = memoryview(mmap.mmap(-1, RECEIVE_BYTES + _RECORD_BYTES, _PRIVATE))
_IN: Final = ssl.MemoryBIO()
_OUT: Final = ssl.MemoryBIO()


class Cipher:
    """One side of a TLS connection.

    `outgoing` is the ciphertext to be sent, in order; the sender takes it and sets None.
    `peer_end` is how the peer's stream ended: CLOSED or BROKEN. `tls_reply_bytes` counts OpenSSL's
    replies to the peer since the handshake; the sender may reset it. `idle_bytes` counts the peer's bytes in
    records without data (key updates, empty or incomplete records). `record_count` is the number of records
    with data of the last `decrypt`. `cost` and `handshake_bytes` are the cost and size of a client's
    handshake so far.

    With `has_own_bios` the handshake may run in any thread, one call at a time.
    """

    __slots__ = (
        "_in",
        "_out",
        "_raw",
        "_resume",
        "cost",
        "handshake_bytes",
        "idle_bytes",
        "is_handshake_done",
        "is_server",
        "outgoing",
        "peer_end",
        "piece_bytes",
        "record_count",
        "tls",
        "tls_reply_bytes",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        is_server: bool,
        server_hostname: str | None = None,
        has_own_bios: bool = False,
        session: ClientSession | None = None,
    ) -> None:
        """`session`: of the same context; a client resumes it if the server still knows it."""
        # As bytes, which ssl takes as they are: for text it loads the codec of IDNA, which is 0.35 MB.
        name = None if server_hostname is None else server_hostname.encode("ascii")
        self._in = ssl.MemoryBIO() if has_own_bios else _IN
        self._out = ssl.MemoryBIO() if has_own_bios else _OUT
        self.piece_bytes = _OWN_PIECE_BYTES if has_own_bios else _ENCRYPT_BYTES
        self.tls: ssl.SSLObject = context.wrap_bio(self._in, self._out, is_server, name)
        # The object behind SSLObject, whose read and write add a call: five of them a request.
        self._raw: Any = self.tls._sslobj  # type: ignore[attr-defined]  # noqa: SLF001
        if session is not None:
            session.offer(self.tls)
        # Continues the inspection of the client's next message (`daemonkit.tls.openssl`).
        self._resume: Callable[[], None] | None = None
        self.outgoing: list[bytes] | None = None
        self.peer_end: EndReason | None = None
        self.is_server = is_server
        self.is_handshake_done = False
        self.tls_reply_bytes = 0
        self.idle_bytes = 0
        self.record_count = 0
        self.handshake_bytes = 0
        self.cost = NO_COST

    def handshake(self, data: bytes | memoryview) -> EndReason | None:
        """Continue the handshake with `data`; return the reason if it has failed.

        Once it is done, `decrypt(0)` gives the data behind it.
        """
        failed: EndReason | None = None
        # The thread's CPU time: other load on the machine is not charged to the client. Reading it is a
        # system call, and the kubelet's handshakes are charged to no account.
        is_server = self.is_server
        began_s = time.thread_time() if is_server else 0.0
        try:
            if data:
                self.handshake_bytes += self._in.write(data)
            if is_server:
                # Drop what another connection has left.
                take_resume()
                client_chain.take_digest()
            if self._resume is not None and not self.cost.chain:
                self._resume()
            try:
                self._raw.do_handshake()
                self.is_handshake_done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                failed = EndReason.UNTRUSTED
            except ssl.SSLError:
                failed = EndReason.HANDSHAKE_FAILED
            finally:
                if is_server:
                    self._resume = take_resume() or self._resume
            if is_server:
                spent_s = time.thread_time() - began_s
                # A step with an answer is our own key exchange and signature; any other checks the chain.
                is_check = self.is_handshake_done or failed is not None or not self._out.pending
                cpu_s, check_s, chain = self.cost
                chain = client_chain.take_digest() or chain
                self.cost = HandshakeCost(cpu_s + spent_s, check_s + spent_s * is_check, chain)
                if self.is_handshake_done and self._resume is not None:
                    self._resume = None
                    if not chain:  # out of memory for the inspection
                        self.is_handshake_done, failed = False, EndReason.HANDSHAKE_FAILED
            self._take()
            if not self.is_handshake_done:
                self._in.read()
        except BaseException:
            self._empty()
            raise
        return failed

    def decrypt(self, size: int) -> int:
        """Decrypt the `size` bytes in `CIPHERTEXT` into `PLAINTEXT`; return the number of plaintext bytes.

        A small answer and its end are two records; the handler gets them as one piece.
        """
        at = data_records = 0
        try:
            if size:
                self._in.write(CIPHERTEXT_VIEW[:size])
            fed = self._in.pending
            # Checking the BIO saves one SSLWantReadError for each event; a read takes a whole record.
            while self._in.pending:
                try:
                    got = self._raw.read(_RECORD_BYTES, PLAINTEXT[at:])
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLError as error:
                    is_clean = isinstance(error, (ssl.SSLZeroReturnError, ssl.SSLEOFError))
                    self._end(EndReason.CLOSED if is_clean else EndReason.BROKEN)
                else:
                    at += got
                    data_records += 1
                    if not got:
                        self._end(EndReason.CLOSED)
            self.record_count = data_records
            self.idle_bytes += fed - at - data_records * _RECORD_OVERHEAD_BYTES
            if self._out.pending:
                self.tls_reply_bytes += self._out.pending
                self._take()
        except BaseException:
            self._empty()
            raise
        return at

    def encrypt(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt. Raises `ssl.SSLError` where the connection is broken."""
        try:
            size = len(data)
            piece_bytes = self.piece_bytes
            done = self._raw.write(data) if size <= piece_bytes else 0
            if done != size:
                view = memoryview(data)
                while done < size:
                    done += self._raw.write(view[done : done + piece_bytes])
                    self._take()
            self._take()
        except BaseException:
            self._empty()
            raise

    def close_notify(self) -> None:
        """Encrypt close_notify, without waiting for the peer's."""
        try:
            with contextlib.suppress(ssl.SSLError):  # "wants to read", or it is broken anyway
                self.tls.unwrap()
            self._take()
        except BaseException:
            self._empty()
            raise

    def _end(self, how: EndReason) -> None:
        self.peer_end = how
        self._in.read()  # drop the data behind the end

    def _take(self) -> None:
        """Take OpenSSL's output for this peer out of the BIO."""
        data = self._out.read()
        if not data:
            return
        if self.outgoing is None:
            self.outgoing = [data]
        else:
            self.outgoing.append(data)

    def _empty(self) -> None:
        """Leave nothing to the next connection, also when memory is short."""
        for bio in (self._in, self._out):
            while bio.pending:
                bio.read(_RECORD_BYTES)
