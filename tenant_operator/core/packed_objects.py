# SPDX-License-Identifier: Apache-2.0
"""Objects of one tenant and kind in one compressed text.

A thousand tenants have forty thousand objects, and what an object of Python needs for itself is more than
what differs in most of them. Tenants' objects are much alike, as the operator writes them all: the first
tenant's are the text with which the others are compressed (zlib's preset dictionary, RFC 1950, 2.2).
"""

import base64
import itertools
import zlib
from collections.abc import Iterable

import msgspec

from tenant_operator.core.live import LiveMeta, LiveObject
from tenant_operator.model.objects import Ref
from tenant_operator.pki.facts import BEGIN_CERTIFICATE, CertificateFacts, der_of

_LEVEL = 6
# The text and what is compressed are in one window. Its tables are smaller than with the longest one.
_WINDOW_BITS = 15
_MEMORY_LEVEL = 7
_MAX_TEXT_BYTES = 16 << 10
# A larger one takes the place of a first one that had little; each is some kilobytes.
_MAX_TEXTS = 4
_COUNT_BYTES = 2
_HEAD_BYTES = 1 + _COUNT_BYTES
_PEM_LINE = 64
_UID_BYTES = 16


class _PackedFacts(msgspec.Struct, frozen=True, array_like=True):
    not_before: float
    not_after: float
    spki_sha256: bytes
    key_id: bytes
    authority_key_id: bytes
    names: tuple[str, ...]


class _PackedObject(msgspec.Struct, frozen=True, array_like=True):
    """An object with bytes in the place of hex digits and base64, where they have their usual form: as digits
    they are larger, also when compressed.

    Then `uid` is bytes, and a certificate a list of those in one file.
    """

    namespace: str
    name: str
    uid: bytes | list[str]
    resource_version: str
    deletion_timestamp: str
    annotations: dict[str, str]
    labels: dict[str, str]
    body: bytes
    digests: dict[str, bytes]
    certificates: dict[str, bytes | list[bytes]]
    facts: dict[str, _PackedFacts | None]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_PackedObject])


class ObjectCodec:
    """Packs the objects of one kind, of one tenant at a time. What it has packed, it alone unpacks."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._texts: list[bytes] = [b""]

    def pack(self, objects: Iterable[LiveObject], *, is_sample: bool) -> bytes:
        """The objects as one text. `is_sample`: they are a tenant's own, whose others look alike."""
        found = [_packed(each) for each in objects]
        plain = _ENCODER.encode(found)
        if is_sample and len(self._texts) <= _MAX_TEXTS and len(plain) > 2 * len(self._texts[-1]):
            self._texts.append(plain[-_MAX_TEXT_BYTES:])
        number = len(self._texts) - 1
        compressor = zlib.compressobj(
            _LEVEL, zlib.DEFLATED, -_WINDOW_BITS, _MEMORY_LEVEL, zlib.Z_DEFAULT_STRATEGY, self._texts[number]
        )
        head = bytes([number]) + min(len(found), 0xFFFF).to_bytes(_COUNT_BYTES)
        return head + compressor.compress(plain) + compressor.flush()

    def unpack(self, packed: bytes) -> dict[Ref, LiveObject]:
        """The objects, as they were packed."""
        decompressor = zlib.decompressobj(-_WINDOW_BITS, self._texts[packed[0]])
        plain = decompressor.decompress(memoryview(packed)[_HEAD_BYTES:])
        found = map(_unpacked, _DECODER.decode(plain))
        return {Ref(self._kind, each.metadata.namespace, each.metadata.name): each for each in found}

    @staticmethod
    def count(packed: bytes) -> int:
        """How many objects it has."""
        return int.from_bytes(packed[1:_HEAD_BYTES])


def _packed(live: LiveObject) -> _PackedObject:
    meta = live.metadata
    return _PackedObject(
        meta.namespace,
        meta.name,
        _packed_uid(meta.uid),
        meta.resource_version,
        meta.deletion_timestamp,
        meta.annotations,
        meta.labels,
        live.body,
        {key: bytes.fromhex(value) for key, value in live.digests.items()},
        {key: _packed_pem(value) for key, value in live.certificates.items()},
        {key: None if each is None else _packed_facts(each) for key, each in live.facts.items()},
    )


def _unpacked(found: _PackedObject) -> LiveObject:
    meta = LiveMeta(
        found.name,
        found.namespace,
        _uid_text(found.uid) if isinstance(found.uid, bytes) else found.uid[0],
        found.resource_version,
        found.deletion_timestamp,
        found.annotations,
        found.labels,
    )
    return LiveObject(
        meta,
        found.body,
        {key: value.hex() for key, value in found.digests.items()},
        {
            key: value if isinstance(value, bytes) else b"".join(map(_pem, value))
            for key, value in found.certificates.items()
        },
        {key: None if each is None else _unpacked_facts(each) for key, each in found.facts.items()},
    )


def _packed_facts(facts: CertificateFacts) -> _PackedFacts:
    return _PackedFacts(
        facts.not_before,
        facts.not_after,
        bytes.fromhex(facts.spki_sha256),
        bytes.fromhex(facts.key_id),
        bytes.fromhex(facts.authority_key_id),
        facts.names,
    )


def _unpacked_facts(found: _PackedFacts) -> CertificateFacts:
    return CertificateFacts(
        found.not_before,
        found.not_after,
        found.spki_sha256.hex(),
        found.key_id.hex(),
        found.authority_key_id.hex(),
        found.names,
    )


def _packed_uid(uid: str) -> bytes | list[str]:
    try:
        found = bytes.fromhex(uid.replace("-", ""))
    except ValueError:
        return [uid]
    return found if len(found) == _UID_BYTES and _uid_text(found) == uid else [uid]


def _uid_text(found: bytes) -> str:
    digits = found.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _packed_pem(value: bytes) -> bytes | list[bytes]:
    try:
        found = [der_of(BEGIN_CERTIFICATE + each) for each in value.split(BEGIN_CERTIFICATE)[1:]]
    except ValueError:
        return value
    return found if b"".join(map(_pem, found)) == value else value


def _pem(der: bytes) -> bytes:
    text = base64.b64encode(der)
    lines = (text[at : at + _PEM_LINE] for at in range(0, len(text), _PEM_LINE))
    return b"\n".join(itertools.chain((BEGIN_CERTIFICATE,), lines, (b"-----END CERTIFICATE-----\n",)))
