# SPDX-License-Identifier: Apache-2.0
"""What a TLS server shows before it knows its client (RFC 5246, 7.4).

These are its certificates, and the authorities by which it verifies clients. Up to TLS 1.2 they are not
encrypted.
"""

from collections.abc import Iterator

import msgspec

_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
_HANDSHAKE = 22
_CERTIFICATE, _CERTIFICATE_REQUEST, _HELLO_DONE = 11, 13, 14
# A server of ours has four certificates and ten authorities at most.
MAX_FLIGHT_BYTES = 1 << 18


class HandshakeError(ValueError):
    """The server's first messages are not those of a TLS 1.2 handshake."""


class ServerFlight(msgspec.Struct, frozen=True):
    """`certificates` are DER, the server's own first; `authorities` the DER of their subjects."""

    certificates: tuple[bytes, ...] = ()
    authorities: frozenset[bytes] = frozenset()


def read_flight(data: bytes) -> ServerFlight | None:
    """From the bytes that a server sent first; None if more are to come. Raises HandshakeError."""
    if len(data) > MAX_FLIGHT_BYTES:
        raise HandshakeError(f"more than {MAX_FLIGHT_BYTES} bytes")
    certificates: tuple[bytes, ...] = ()
    authorities: frozenset[bytes] = frozenset()
    for kind, body in _messages(b"".join(_records(data))):
        if kind == _CERTIFICATE:
            certificates = tuple(_vectors(_only(body, 3), 3))
        elif kind == _CERTIFICATE_REQUEST:
            # Types of certificates, and algorithms of signatures, come first.
            rest = _behind(_behind(body, 1), 2)
            authorities = frozenset(_vectors(_only(rest, 2), 2))
        elif kind == _HELLO_DONE:
            return ServerFlight(certificates, authorities)
    return None


def _records(data: bytes) -> Iterator[bytes]:
    """The fragments of whole records."""
    while len(data) >= _RECORD_HEADER:
        size = int.from_bytes(data[3:_RECORD_HEADER])
        if data[0] != _HANDSHAKE:
            raise HandshakeError(f"a record of type {data[0]}")
        if len(data) < _RECORD_HEADER + size:
            return
        yield data[_RECORD_HEADER : _RECORD_HEADER + size]
        data = data[_RECORD_HEADER + size :]


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _MESSAGE_HEADER:
        end = _MESSAGE_HEADER + int.from_bytes(data[1:_MESSAGE_HEADER])
        if len(data) < end:
            return
        yield data[0], data[_MESSAGE_HEADER:end]
        data = data[end:]


def _vector(data: bytes, digits: int) -> tuple[bytes, bytes]:
    """A vector whose length stands before it, and what is behind it."""
    end = digits + int.from_bytes(data[:digits])
    if len(data) < end or len(data) < digits:
        raise HandshakeError("a vector ends early")
    return data[digits:end], data[end:]


def _behind(data: bytes, digits: int) -> bytes:
    return _vector(data, digits)[1]


def _only(data: bytes, digits: int) -> bytes:
    content, rest = _vector(data, digits)
    if rest:
        raise HandshakeError("bytes behind a vector")
    return content


def _vectors(data: bytes, digits: int) -> Iterator[bytes]:
    while data:
        content, data = _vector(data, digits)
        yield content
