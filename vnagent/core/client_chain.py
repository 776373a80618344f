# SPDX-License-Identifier: Apache-2.0
"""Which chains of clients are checked at all. Pure.

A tenant's authority may sign any chain, and OpenSSL takes a hundred certificates, RSA keys whose exponent is
as long as the modulus (6 ms a signature) and curves that nobody uses (3 ms). So what a check may cost is
bounded before it is made: what remains takes 4 ms at most, and an honest chain 0.3 ms.
"""

from collections.abc import Iterator

from tenancy import x509

# A leaf, three intermediates and the authority, which some clients send too.
MAX_CERTIFICATES = 5
MAX_MODULUS_BITS = 8192
# 65537, which all tools take, has 17; FIPS 186-5 (A.1.1) would allow 256.
MAX_EXPONENT_BITS = 32
# P-256, P-384, P-521 (RFC 5480, 2.1.1.1).
_CURVES = frozenset(
    {b"\x2a\x86\x48\xce\x3d\x03\x01\x07", b"\x2b\x81\x04\x00\x22", b"\x2b\x81\x04\x00\x23"},
)
# Ed25519 and Ed448 (RFC 8410, 3).
_EDWARDS = frozenset({b"\x2b\x65\x70", b"\x2b\x65\x71"})


class ChainError(ValueError):
    """Why a chain is not checked."""


def may_check(message: bytes) -> bool:
    """Whether `check` has nothing against it."""
    try:
        check(message)
    except ChainError:
        return False
    return True


def check(message: bytes) -> None:
    """Raise ChainError unless the client's Certificate message of TLS 1.3 (RFC 8446, 4.4.2), with its header,
    has a chain whose signatures are quick to check."""
    certificates = list(_certificates(message))
    if len(certificates) > MAX_CERTIFICATES:
        raise ChainError("too many certificates")
    for der in certificates:
        try:
            key = x509.public_key(der)
        except x509.CertificateError as error:
            raise ChainError(str(error)) from None
        if key.algorithm in x509.RSA_KEYS:
            is_quick = key.modulus_bits <= MAX_MODULUS_BITS and key.exponent_bits <= MAX_EXPONENT_BITS
        elif key.algorithm == x509.EC_KEY:
            is_quick = key.curve in _CURVES
        else:
            is_quick = key.algorithm in _EDWARDS
        if not is_quick:
            raise ChainError("a key by which signatures are slow to check")


def _certificates(message: bytes) -> Iterator[bytes]:
    # Type and length, certificate_request_context<0..255>, certificate_list<0..2^24-1>.
    at = 4 + 1 + _number(message, 4, 1)
    end = at + 3 + _number(message, at, 3)
    at += 3
    if end != len(message):
        raise ChainError("a length that is not the message's")
    while at < end:
        size = _number(message, at, 3)
        yield message[at + 3 : at + 3 + size]
        at += 3 + size
        at += 2 + _number(message, at, 2)  # its extensions
    if at != end:
        raise ChainError("cut off within a certificate")


def _number(message: bytes, at: int, width: int) -> int:
    if at + width > len(message):
        raise ChainError("cut off within a length")
    return int.from_bytes(message[at : at + width])
