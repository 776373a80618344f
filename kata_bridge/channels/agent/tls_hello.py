# SPDX-License-Identifier: Apache-2.0
"""Whether the first bytes of a connection are a TLS client that can do TLS 1.3. Pure.

grpcio cannot be told to refuse TLS 1.2. But a server that can do 1.3 picks it whenever the client
offers it, and the handshake's transcript protects that choice (RFC 8446, 4.1.3), so it is enough to
let no client through that does not offer it.
"""

import enum

from daemonkit.admission.client_hello import MAX_BYTES, HelloError, extensions, may_read

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SUPPORTED_VERSIONS, _TLS13 = 43, 0x0304
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
# RFC 8446, 5.1.
_MAX_RECORD_BYTES = 1 << 14
# Nobody spreads one over so many; it is judged anew at each read, so a byte a record would take minutes.
_MAX_RECORDS = 32


class HelloVerdict(enum.Enum):
    CUT = "more bytes are needed"
    TLS13 = "offers TLS 1.3"
    WRONG = "no ClientHello, one without TLS 1.3, or one that exceeds a limit"


def inspect_hello(data: bytes) -> HelloVerdict:
    """Judge the beginning of what a client sends."""
    message = _message(data)
    if not isinstance(message, bytes):
        return message
    try:
        return HelloVerdict.TLS13 if may_read(message) and _TLS13 in _offered(message) else HelloVerdict.WRONG
    except HelloError:
        return HelloVerdict.WRONG


def _message(data: bytes) -> bytes | HelloVerdict:
    """The first handshake message with its header, which may be spread over records."""
    gathered = b""
    position = 0
    for _ in range(_MAX_RECORDS):
        if data[position : position + 1] not in (b"", bytes((_HANDSHAKE,))):
            return HelloVerdict.WRONG
        if len(data) < position + _RECORD_HEADER:
            return HelloVerdict.CUT
        length = int.from_bytes(data[position + 3 : position + 5])
        if data[position + 1] != 3 or not 0 < length <= _MAX_RECORD_BYTES:
            return HelloVerdict.WRONG
        gathered += data[position + _RECORD_HEADER : position + _RECORD_HEADER + length]
        if gathered[0:1] not in (b"", bytes((_CLIENT_HELLO,))):
            return HelloVerdict.WRONG
        if len(gathered) >= _MESSAGE_HEADER:
            whole = _MESSAGE_HEADER + int.from_bytes(gathered[1:4])
            if whole > MAX_BYTES:
                return HelloVerdict.WRONG
            if len(gathered) >= whole:
                return gathered[:whole]
        position += _RECORD_HEADER + length
        if len(data) < position:
            return HelloVerdict.CUT
    return HelloVerdict.WRONG


def _offered(message: bytes) -> list[int]:
    """The versions in the extension `supported_versions` of a ClientHello (RFC 8446, 4.2.1)."""
    for kind, at, size in extensions(message):
        if kind == _SUPPORTED_VERSIONS:
            if not size or message[at] != size - 1:
                raise HelloError("a list of versions whose length is wrong")
            return [int.from_bytes(message[each : each + 2]) for each in range(at + 1, at + size, 2)]
    return []
