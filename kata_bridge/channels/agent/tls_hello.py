# SPDX-License-Identifier: Apache-2.0
"""Whether a connection begins with the hello of a TLS client that offers TLS 1.3. Pure.

grpcio has no setting that refuses TLS 1.2. But a server that supports 1.3 picks it whenever the client offers
it, and the handshake's transcript protects that choice (RFC 8446, 4.1.3). So the relay passes on only
clients that offer it.
"""

import enum

from daemonkit.admission.client_hello import MAX_BYTES, HelloError, extensions, may_read

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SUPPORTED_VERSIONS, _TLS13 = 43, 0x0304
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
# RFC 8446, 5.1.
_MAX_RECORD_BYTES = 1 << 14
# No client spreads a hello over so many.
_MAX_RECORDS = 32
# Nor sends it in so many pieces: 8 KiB are six segments of TCP. Each has all inspected that came so far: a
# byte at a time took 10 ms of the event loop, which no account was charged for.
MAX_CHUNKS = 32


class HelloVerdict(enum.Enum):
    INCOMPLETE = "more bytes are needed"
    TLS13 = "offers TLS 1.3"
    REJECTED = "not a ClientHello, one without TLS 1.3, or one that exceeds a limit"


class HelloReader:
    """Inspects what a connection begins with, as it is received."""

    __slots__ = ("_chunk_count", "received")

    def __init__(self) -> None:
        self.received = b""
        self._chunk_count = 0

    def feed(self, data: bytes) -> HelloVerdict:
        """Judge all that was received, with this piece."""
        self.received += data
        self._chunk_count += 1
        verdict = inspect_hello(self.received)
        is_late = verdict is HelloVerdict.INCOMPLETE and self._chunk_count >= MAX_CHUNKS
        return HelloVerdict.REJECTED if is_late else verdict


def inspect_hello(data: bytes) -> HelloVerdict:
    """Judge the first bytes that a client sent."""
    message = _message(data)
    if not isinstance(message, bytes):
        return message
    try:
        is_tls13 = may_read(message) and _TLS13 in _offered_versions(message)
    except HelloError:
        return HelloVerdict.REJECTED
    return HelloVerdict.TLS13 if is_tls13 else HelloVerdict.REJECTED


def _message(data: bytes) -> bytes | HelloVerdict:
    """The first handshake message with its header, which may span several records."""
    gathered = b""
    position = 0
    for _ in range(_MAX_RECORDS):
        if data[position : position + 1] not in (b"", bytes((_HANDSHAKE,))):
            return HelloVerdict.REJECTED
        if len(data) < position + _RECORD_HEADER:
            return HelloVerdict.INCOMPLETE
        length = int.from_bytes(data[position + 3 : position + 5])
        if data[position + 1] != 3 or not 0 < length <= _MAX_RECORD_BYTES:
            return HelloVerdict.REJECTED
        gathered += data[position + _RECORD_HEADER : position + _RECORD_HEADER + length]
        if gathered[0:1] not in (b"", bytes((_CLIENT_HELLO,))):
            return HelloVerdict.REJECTED
        if len(gathered) >= _MESSAGE_HEADER:
            whole = _MESSAGE_HEADER + int.from_bytes(gathered[1:4])
            if whole > MAX_BYTES:
                return HelloVerdict.REJECTED
            if len(gathered) >= whole:
                return gathered[:whole]
        position += _RECORD_HEADER + length
        if len(data) < position:
            return HelloVerdict.INCOMPLETE
    return HelloVerdict.REJECTED


def _offered_versions(message: bytes) -> list[int]:
    """The extension `supported_versions` of a ClientHello (RFC 8446, 4.2.1). Raises `HelloError`."""
    for kind, at, size in extensions(message):
        if kind == _SUPPORTED_VERSIONS:
            if not size or message[at] != size - 1:
                raise HelloError("the length of the list of versions is wrong")
            return [int.from_bytes(message[each : each + 2]) for each in range(at + 1, at + size, 2)]
    return []
