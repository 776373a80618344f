# SPDX-License-Identifier: Apache-2.0
"""The header and the signature of a token (RFC 7515 and 7518): ES256, that is ECDSA on P-256 with SHA-256."""

import binascii

_SEGMENT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_TO_URL = bytes.maketrans(b"+/", b"-_")
_COORDINATE_BYTES = 32
_SEQUENCE, _INTEGER = 0x30, 0x02


class SignatureError(Exception):
    """A signature that is none of P-256."""


def encode_segment(data: bytes) -> bytes:
    """Base64url without padding."""
    return binascii.b2a_base64(data, newline=False).translate(_TO_URL).rstrip(b"=")


def is_segment(text: bytes) -> bool:
    """Whether this can be a segment of a token."""
    # No data leaves one character over.
    return bool(text) and len(text) % 4 != 1 and _SEGMENT.issuperset(text)


def header_segment(kid: str) -> bytes:
    """The first segment of a token that the key `kid` signs."""
    return encode_segment(b'{"alg":"ES256","kid":"%s","typ":"JWT"}' % kid.encode())


def signing_input(header: bytes, claims: bytes) -> bytes:
    """What is signed (RFC 7515, 5.1)."""
    return header + b"." + claims


def raw_signature(der: bytes) -> bytes:
    """R and S, 32 bytes each (RFC 7518, 3.4), of a signature of OpenSSL. Raises `SignatureError`."""
    body = _value(der, _SEQUENCE)
    r = _value(body, _INTEGER)
    s = _value(body[2 + len(r) :], _INTEGER)
    return b"".join(_coordinate(each) for each in (r, s))


def der_signature(raw: bytes) -> bytes:
    """The reverse of `raw_signature`, for OpenSSL to verify."""
    body = b"".join(
        _der_integer(raw[at : at + _COORDINATE_BYTES]) for at in range(0, len(raw), _COORDINATE_BYTES)
    )
    return bytes((_SEQUENCE, len(body))) + body


def _value(data: bytes, tag: int) -> bytes:
    """What the first value of `data` has; both integers together are below 128 bytes."""
    if len(data) < 2 or data[0] != tag or data[1] > 0x7F or len(data) < 2 + data[1]:
        raise SignatureError("the signature is not in DER")
    return data[2 : 2 + data[1]]


def _coordinate(integer: bytes) -> bytes:
    number = int.from_bytes(integer, "big")
    if number >> 8 * _COORDINATE_BYTES:
        raise SignatureError("the signature is of another curve")
    return number.to_bytes(_COORDINATE_BYTES, "big")


def _der_integer(coordinate: bytes) -> bytes:
    number = coordinate.lstrip(b"\0") or b"\0"
    if number[0] > 0x7F:
        number = b"\0" + number
    return bytes((_INTEGER, len(number))) + number
