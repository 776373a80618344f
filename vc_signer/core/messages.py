# SPDX-License-Identifier: Apache-2.0
"""The messages of ExternalJWTSigner (docs/spec/external-jwt-signer.md#service).

By hand: `daemonkit.protobuf` describes messages by dataclasses, and importing both takes 1.9 MB of a process
that has 7. One field is read, and seven are written.
"""

from collections.abc import Iterable

# Kubernetes 1.32 and 1.33 call the second one; the messages are the same.
_PACKAGES = ("v1", "v1alpha1")
SIGN, FETCH_KEYS, METADATA = (
    frozenset(f"/{package}.ExternalJWTSigner/{method}" for package in _PACKAGES)
    for method in ("Sign", "FetchKeys", "Metadata")
)

_VARINT, _FIXED64, _RANGE, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_CLAIMS = 1
_NS = 1_000_000_000
_MAX_VARINT_BYTES = 10


class MessageError(Exception):
    """A request that is no message of this service."""


def claims_of(request: bytes) -> bytes:
    """`SignJWTRequest.claims`; empty if there are none. Unknown fields are skipped. Raises `MessageError`."""
    claims = b""
    position = 0
    while position < len(request):
        tag, position = _varint_at(request, position)
        wire = tag & 7
        if wire == _VARINT:
            _, position = _varint_at(request, position)
            continue
        if wire == _RANGE:
            length, position = _varint_at(request, position)
        elif wire in _FIXED_BYTES:
            length = _FIXED_BYTES[wire]
        else:
            raise MessageError("a field has an unknown type")
        end = position + length
        if end > len(request):
            raise MessageError("the message is cut short")
        if tag == _CLAIMS << 3 | _RANGE:
            claims = request[position:end]
        position = end
    return claims


def sign_response(header: bytes, signature: bytes) -> bytes:
    """`SignJWTResponse`."""
    return _range(1, header) + _range(2, signature)


def fetch_keys_response(
    keys: Iterable[tuple[str, bytes]], loaded_at_ns: int, refresh_hint_seconds: int
) -> bytes:
    """`FetchKeysResponse`, with each key's id and DER; none is excluded from discovery."""
    listed = (_range(1, _range(1, key_id.encode()) + _range(2, der)) for key_id, der in keys)
    seconds, nanos = divmod(loaded_at_ns, _NS)
    timestamp = _range(2, _number(1, seconds) + _number(2, nanos))
    return b"".join(listed) + timestamp + _number(3, refresh_hint_seconds)


def metadata_response(max_token_expiration_seconds: int) -> bytes:
    """`MetadataResponse`."""
    return _number(1, max_token_expiration_seconds)


def _range(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | _RANGE) + _varint(len(data)) + data


def _number(field: int, number: int) -> bytes:
    """A positive number; 0 is not written."""
    return _varint(field << 3 | _VARINT) + _varint(number) if number else b""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint_at(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for at in range(position, min(len(data), position + _MAX_VARINT_BYTES)):
        number |= (data[at] & 0x7F) << 7 * (at - position)
        if data[at] < 0x80:
            return number, at + 1
    raise MessageError("a number is cut short or too large")
