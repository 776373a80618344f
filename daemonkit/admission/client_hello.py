# SPDX-License-Identifier: Apache-2.0
"""Which TLS ClientHellos (RFC 8446, 4.1.2) a server reads at all. Pure.

A client needs no certificate to send one. OpenSSL compares each signature algorithm that a client offers with
each that it accepts in certificates. It keeps the parsed names of the client's authorities and OCSP
responders while the connection lives: a hello of 12 KB costs 0.14 s, or 0.6 MB.
"""

import struct

# One with two post-quantum key shares has 4 KB at most, and the usual one with X25519MLKEM768 1.8 KB.
MAX_BYTES = 8 * 1024
# OpenSSL sends 14, browsers 20. 1 800 that have no meaning took 1.9 ms.
MAX_EXTENSIONS = 64
# Of one list: 127 groups or algorithms. Go sends 12 algorithms, OpenSSL 3.5 some 30.
MAX_LIST_BYTES = 256
# status_request, supported_groups, signature_algorithms, certificate_authorities, signature_algorithms_cert.
_LISTS = frozenset({5, 10, 13, 47, 50})
# Type and length, legacy_version, random.
_HEADER_BYTES, _FIXED_BYTES = 4, 34
_unpack_u16 = struct.Struct(">H").unpack_from
_unpack_type_and_size = struct.Struct(">HH").unpack_from


class HelloError(ValueError):
    """The bytes are not a ClientHello."""


def may_read(message: bytes) -> bool:
    """Whether the ClientHello, with its header, is quick to process."""
    if len(message) > MAX_BYTES:
        return False
    try:
        found = extensions(message)
    except HelloError:
        return False
    for kind, _, size in found:
        if size > MAX_LIST_BYTES and kind in _LISTS:
            return False
    return len(found) <= MAX_EXTENSIONS


def extensions(message: bytes) -> list[tuple[int, int, int]]:
    """The type of each extension of a ClientHello with its header, and where its content begins and how
    long it is: MAX_EXTENSIONS of them, and one more if there are more. Raises HelloError."""
    # A list, as each exec of an apiserver comes here: a generator has a frame of Python for each extension.
    found: list[tuple[int, int, int]] = []
    at, end = _HEADER_BYTES + _FIXED_BYTES, len(message)
    try:
        at += 1 + message[at]  # legacy_session_id
        at += 2 + _unpack_u16(message, at)[0]  # cipher_suites
        at += 1 + message[at]  # legacy_compression_methods
        if at == end:
            return found  # a client of TLS 1.2 may have none (RFC 5246, 7.4.1.2)
        if at + 2 + _unpack_u16(message, at)[0] != end:
            raise HelloError("a length that is not the message's")
        at += 2
        while at < end and len(found) <= MAX_EXTENSIONS:
            kind, size = _unpack_type_and_size(message, at)
            at += 4
            if at + size > end:
                raise HelloError("cut off within an extension")
            found.append((kind, at, size))
            at += size
    except (IndexError, struct.error):
        raise HelloError("cut off within a length") from None
    return found
