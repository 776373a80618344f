# SPDX-License-Identifier: Apache-2.0
"""TLS of one connection, as bytes: ciphertext in, plaintext out, and back. No socket.

OpenSSL works on memory BIOs, which costs a twentieth of the system calls that it makes on a socket.
All connections share one pair of them, and the buffers of a receive: a pair of its own would be
3.7 KB of an idle connection, and up to 256 KB of one that was busy once, as they grow and never
shrink (docs/decisions/0001).

The rule of this file: both BIOs are empty whenever one of its functions returns or raises. What
comes is decrypted at once, or dropped (`PLAINTEXT` has room for all of it), and what OpenSSL made is
taken out behind each call. Were a byte left behind, it would be ciphertext under another connection's
keys: that connection breaks, nobody reads anything.
"""

import contextlib
import mmap
import ssl
from typing import Any, Final

# Small enough to stay in a core's cache on its way through, large enough that a bulk stream costs few
# system calls.
RECEIVE_BYTES = 128 * 1024
# A record holds 16 KiB of plaintext at most (RFC 8446, 5.1).
_RECORD_BYTES = 16 * 1024
# What is encrypted at once: the shared BIO stays as large as the largest piece was.
_SEAL_BYTES = 128 * 1024

# Mapped, as a bytearray is filled with zeros: a page is in memory once so much was received at once.
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
CIPHERTEXT: Final = mmap.mmap(-1, RECEIVE_BYTES, _PRIVATE)
_CIPHERTEXT_VIEW: Final = memoryview(CIPHERTEXT)
# All of a receive, with the record that the one before it left incomplete.
PLAINTEXT: Final = memoryview(mmap.mmap(-1, RECEIVE_BYTES + _RECORD_BYTES, _PRIVATE))
_IN: Final = ssl.MemoryBIO()
_OUT: Final = ssl.MemoryBIO()


class Cipher:
    """One side of a TLS connection.

    `sealed` is what is to be sent, in order, if there is anything; whoever sends it takes it out.
    `ended` is how the peer's stream ended, "closed" or "broken", once it has. `answer_bytes` is how much
    OpenSSL has made in answer to what the peer sent since the handshake; whoever sees that sent may
    set it back to 0.
    """

    __slots__ = ("_raw", "answer_bytes", "ended", "is_handshaken", "sealed", "tls")

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, server_hostname: str | None) -> None:
        # As bytes, which ssl takes as they are: for text it loads the codec of IDNA, which is 0.35 MB.
        name = None if server_hostname is None else server_hostname.encode("ascii")
        self.tls: ssl.SSLObject = context.wrap_bio(_IN, _OUT, is_server, name)
        # The object behind SSLObject, whose read and write only add a call: five of them a request.
        self._raw: Any = self.tls._sslobj  # type: ignore[attr-defined]  # noqa: SLF001
        self.sealed: list[bytes] | None = None
        self.ended: str | None = None
        self.is_handshaken = False
        self.answer_bytes = 0

    def shake(self, size: int) -> str | None:
        """Go on with the handshake by the `size` bytes in `CIPHERTEXT`; the reason if it has failed.

        Once it is done, `unseal(0)` gives what came behind it.
        """
        failed = None
        try:
            if size:
                _IN.write(_CIPHERTEXT_VIEW[:size])
            try:
                self._raw.do_handshake()
                self.is_handshaken = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                failed = "untrusted"
            except ssl.SSLError:
                failed = "handshake-failed"
            self._take()
            if not self.is_handshaken:
                _IN.read()
        except BaseException:
            _empty()
            raise
        return failed

    def unseal(self, size: int) -> int:
        """Decrypt the `size` bytes in `CIPHERTEXT` into `PLAINTEXT`; how many bytes that makes.

        A small answer and its end are two records, and one piece to whoever gets them.
        """
        at = 0
        try:
            if size:
                _IN.write(_CIPHERTEXT_VIEW[:size])
            # To ask the BIO saves raising SSLWantReadError once an event; a read takes a whole record.
            while _IN.pending:
                try:
                    got = self._raw.read(_RECORD_BYTES, PLAINTEXT[at:])
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLError as error:
                    is_clean = isinstance(error, (ssl.SSLZeroReturnError, ssl.SSLEOFError))
                    self._end("closed" if is_clean else "broken")
                else:
                    at += got
                    if not got:
                        self._end("closed")
            if _OUT.pending:
                self.answer_bytes += _OUT.pending
                self._take()
        except BaseException:
            _empty()
            raise
        return at

    def seal(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt. Raises `ssl.SSLError` where the connection is broken."""
        try:
            size = len(data)
            done = self._raw.write(data) if size <= _SEAL_BYTES else 0
            if done != size:
                view = memoryview(data)
                while done < size:
                    done += self._raw.write(view[done : done + _SEAL_BYTES])
                    self._take()
            self._take()
        except BaseException:
            _empty()
            raise

    def part(self) -> None:
        """Seal the good-bye (close_notify); the peer's own is not waited for."""
        try:
            with contextlib.suppress(ssl.SSLError):  # "wants to read", or it is broken anyway
                self.tls.unwrap()
            self._take()
        except BaseException:
            _empty()
            raise

    def _end(self, how: str) -> None:
        self.ended = how
        _IN.read()  # what lies behind the end is nobody's

    def _take(self) -> None:
        """Take out of the shared BIO what OpenSSL has just made for this peer."""
        data = _OUT.read()
        if not data:
            return
        if self.sealed is None:
            self.sealed = [data]
        else:
            self.sealed.append(data)


def _empty() -> None:
    """Leave nothing to the next connection, also where memory is short."""
    for bio in (_IN, _OUT):
        while bio.pending:
            bio.read(_RECORD_BYTES)
