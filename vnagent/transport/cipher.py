# SPDX-License-Identifier: Apache-2.0
"""TLS of one connection, as bytes: ciphertext in, plaintext out, and back. No socket.

OpenSSL works on memory BIOs, which costs a twentieth of the system calls that it makes on a socket.
All connections share one pair of them, and the buffers of a receive: a pair of its own would be
3.7 KB of an idle connection, and up to 256 KB of one that was busy once, as they grow and never
shrink (docs/decisions/0001). A connection whose handshake runs in a thread has a pair of its own, which
its pieces keep below 50 KB.

The rule of this file: both BIOs are empty whenever one of its functions returns or raises. What
comes is decrypted at once, or dropped (`PLAINTEXT` has room for all of it), and what OpenSSL made is
taken out behind each call. Were a byte left behind, it would be ciphertext under another connection's
keys: that connection breaks, nobody reads anything.
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

# Small enough to stay in a core's cache on its way through, large enough that a bulk stream costs few
# system calls.
RECEIVE_BYTES = 128 * 1024
# A record holds 16 KiB of plaintext at most (RFC 8446, 5.1).
_RECORD_BYTES = 16 * 1024
# What is encrypted at once: the shared BIO stays as large as the largest piece was.
_ENCRYPT_BYTES = 128 * 1024
# The same, and what is received at once, for a connection with BIOs of its own.
_OWN_PIECE_BYTES = 16 * 1024
# Of a record that carries data, what is not data: header, content type and tag (RFC 8446, 5.2).
_RECORD_OVERHEAD_BYTES = 22

# Mapped, as a bytearray is filled with zeros: a page is in memory once so much was received at once.
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
CIPHERTEXT: Final = mmap.mmap(-1, RECEIVE_BYTES, _PRIVATE)
CIPHERTEXT_VIEW: Final = memoryview(CIPHERTEXT)
# All of a receive, with the record that the one before it left incomplete.
PLAINTEXT: Final = memoryview(mmap.mmap(-1, RECEIVE_BYTES + _RECORD_BYTES, _PRIVATE))
_IN: Final = ssl.MemoryBIO()
_OUT: Final = ssl.MemoryBIO()


class Cipher:
    """One side of a TLS connection.

    `sealed` is what is to be sent, in order, if there is anything; whoever sends it takes it out.
    `ended` is how the peer's stream ended, "closed" or "broken", once it has. `answer_bytes` is how much
    OpenSSL has made in answer to what the peer sent since the handshake; whoever sees that sent may
    set it back to 0. `idle_bytes` is how much the peer sent in records without data (key updates, empty
    records, a record that is incomplete yet). `record_count` is how many records with data the last `unseal`
    has decrypted. `cost` is what a client's handshake has cost so far, `handshake_bytes` what came until it
    was done.

    With `has_own_bios` the handshake may run in any thread, one call at a time.
    """

    __slots__ = (
        "_in",
        "_out",
        "_raw",
        "_resume",
        "answer_bytes",
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
        """`session`: of the same context, which a client resumes if the server still knows it."""
        # As bytes, which ssl takes as they are: for text it loads the codec of IDNA, which is 0.35 MB.
        name = None if server_hostname is None else server_hostname.encode("ascii")
        self._in = ssl.MemoryBIO() if has_own_bios else _IN
        self._out = ssl.MemoryBIO() if has_own_bios else _OUT
        self.piece_bytes = _OWN_PIECE_BYTES if has_own_bios else _ENCRYPT_BYTES
        self.tls: ssl.SSLObject = context.wrap_bio(self._in, self._out, is_server, name)
        # The object behind SSLObject, whose read and write only add a call: five of them a request.
        self._raw: Any = self.tls._sslobj  # type: ignore[attr-defined]  # noqa: SLF001
        if session is not None:
            session.offer(self.tls)
        # Of the inspection of what the client sends next (`daemonkit.tls.openssl`).
        self._resume: Callable[[], None] | None = None
        self.outgoing: list[bytes] | None = None
        self.peer_end: str | None = None
        self.is_server = is_server
        self.is_handshake_done = False
        self.answer_bytes = 0
        self.idle_bytes = 0
        self.record_count = 0
        self.handshake_bytes = 0
        self.cost = NO_COST

    def handshake(self, data: bytes | memoryview) -> str | None:
        """Go on with the handshake by `data`; the reason if it has failed.

        Once it is done, `unseal(0)` gives what came behind it.
        """
        failed = None
        # The CPU's clock, not the wall's: what else runs on the machine is not the client's doing. That is a
        # system call, and the kubelet's handshakes are charged to no account.
        is_server = self.is_server
        began_s = time.thread_time() if is_server else 0.0
        try:
            if data:
                self.handshake_bytes += self._in.write(data)
            if is_server:
                # What another connection has left is not for this one.
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
                failed = "untrusted"
            except ssl.SSLError:
                failed = "handshake-failed"
            finally:
                if is_server:
                    self._resume = take_resume() or self._resume
            if is_server:
                spent_s = time.thread_time() - began_s
                # A step that makes us answer and go on is our own key exchange and signature.
                is_check = self.is_handshake_done or failed is not None or not self._out.pending
                cpu_s, check_s, chain = self.cost
                chain = client_chain.take_digest() or chain
                self.cost = HandshakeCost(cpu_s + spent_s, check_s + spent_s * is_check, chain)
                if self.is_handshake_done and self._resume is not None:
                    self._resume = None
                    if not chain:  # there was no memory to inspect it
                        self.is_handshake_done, failed = False, "handshake-failed"
            self._take()
            if not self.is_handshake_done:
                self._in.read()
        except BaseException:
            self._empty()
            raise
        return failed

    def decrypt(self, size: int) -> int:
        """Decrypt the `size` bytes in `CIPHERTEXT` into `PLAINTEXT`; how many bytes that makes.

        A small answer and its end are two records, and one piece to whoever gets them.
        """
        at = data_records = 0
        try:
            if size:
                self._in.write(CIPHERTEXT_VIEW[:size])
            fed = self._in.pending
            # To ask the BIO saves raising SSLWantReadError once an event; a read takes a whole record.
            while self._in.pending:
                try:
                    got = self._raw.read(_RECORD_BYTES, PLAINTEXT[at:])
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLError as error:
                    is_clean = isinstance(error, (ssl.SSLZeroReturnError, ssl.SSLEOFError))
                    self._end("closed" if is_clean else "broken")
                else:
                    at += got
                    data_records += 1
                    if not got:
                        self._end("closed")
            self.record_count = data_records
            self.idle_bytes += fed - at - data_records * _RECORD_OVERHEAD_BYTES
            if self._out.pending:
                self.answer_bytes += self._out.pending
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
        """Seal the good-bye (close_notify); the peer's own is not waited for."""
        try:
            with contextlib.suppress(ssl.SSLError):  # "wants to read", or it is broken anyway
                self.tls.unwrap()
            self._take()
        except BaseException:
            self._empty()
            raise

    def _end(self, how: str) -> None:
        self.peer_end = how
        self._in.read()  # what lies behind the end is nobody's

    def _take(self) -> None:
        """Take out of the BIO what OpenSSL has just made for this peer."""
        data = self._out.read()
        if not data:
            return
        if self.outgoing is None:
            self.outgoing = [data]
        else:
            self.outgoing.append(data)

    def _empty(self) -> None:
        """Leave nothing to the next connection, also where memory is short."""
        for bio in (self._in, self._out):
            while bio.pending:
                bio.read(_RECORD_BYTES)
