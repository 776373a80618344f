# SPDX-License-Identifier: Apache-2.0
"""Whether the first bytes of a connection are a TLS client that can do TLS 1.3. Pure.

grpcio cannot be told to refuse TLS 1.2. But a server that can do 1.3 picks it whenever the client
offers it, and the handshake's transcript protects that choice (RFC 8446, 4.1.3), so it is enough to
let no client through that does not offer it.
"""

import enum

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SUPPORTED_VERSIONS, _TLS13 = 43, 0x0304
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
# RFC 8446, 5.1: a record has 2^14 bytes at most. Clients' hellos are 250 to 2 000 bytes.
_MAX_HELLO_BYTES = 1 << 14
# Nobody spreads one over so many; it is judged anew at each read, so a byte a record would take minutes.
_MAX_RECORDS = 32


class Hello(enum.Enum):
    CUT = "more bytes are needed"
    TLS13 = "offers TLS 1.3"
    WRONG = "is no TLS client, or one without TLS 1.3"


def judge(data: bytes) -> Hello:
    """Judge the beginning of what a client sends."""
    body = _message(data)
    if not isinstance(body, bytes):
        return body
    try:
        return Hello.TLS13 if _TLS13 in _offered(body) else Hello.WRONG
    except IndexError:
        return Hello.WRONG


def _message(data: bytes) -> bytes | Hello:
    """The body of the first handshake message, which may be spread over records."""
    gathered = b""
    position = 0
    for _ in range(_MAX_RECORDS):
        if data[position : position + 1] not in (b"", bytes((_HANDSHAKE,))):
            return Hello.WRONG
        if len(data) < position + _RECORD_HEADER:
            return Hello.CUT
        length = int.from_bytes(data[position + 3 : position + 5])
        if data[position + 1] != 3 or not 0 < length <= _MAX_HELLO_BYTES:
            return Hello.WRONG
        gathered += data[position + _RECORD_HEADER : position + _RECORD_HEADER + length]
        if gathered[0:1] not in (b"", bytes((_CLIENT_HELLO,))):
            return Hello.WRONG
        if len(gathered) >= _MESSAGE_HEADER:
            whole = _MESSAGE_HEADER + int.from_bytes(gathered[1:4])
            if whole > _MAX_HELLO_BYTES:
                return Hello.WRONG
            if len(gathered) >= whole:
                return gathered[_MESSAGE_HEADER:whole]
        position += _RECORD_HEADER + length
        if len(data) < position:
            return Hello.CUT
    return Hello.WRONG


class _Reader:
    """Takes vectors off a body. Raises `IndexError` where it is shorter than it says."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        if count > len(self.data):
            raise IndexError(count)
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def vector(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes)))


def _offered(body: bytes) -> list[int]:
    """The versions in the extension `supported_versions` of a ClientHello (RFC 8446, 4.1.2, 4.2.1)."""
    reader = _Reader(body)
    reader.take(2 + 32)  # legacy_version, random
    reader.vector(1)  # legacy_session_id
    reader.vector(2)  # cipher_suites
    reader.vector(1)  # legacy_compression_methods
    extensions = _Reader(reader.vector(2))
    while extensions.data:
        kind = int.from_bytes(extensions.take(2))
        content = extensions.vector(2)
        if kind == _SUPPORTED_VERSIONS:
            versions = _Reader(content).vector(1)
            return [int.from_bytes(versions[at : at + 2]) for at in range(0, len(versions), 2)]
    return []
