# SPDX-License-Identifier: Apache-2.0
"""A strict walk through the DER of an X.509 certificate, to the few fields that identity needs.

Why by hand: the `cryptography` package costs a process 10 MB, a tenth of that is all that 50 idle
tunnels cost, and five fields at fixed places are all we read. OpenSSL has verified the chain before
any of this runs: signatures and purposes are not looked at here. Tests hold the
results against `cryptography`.

Strict means: definite and minimal lengths, no bytes left over, each field in its place (RFC 5280,
4.1; X.690, 10.1). Anything else raises CertificateError, and only that.
"""

import datetime as dt
import hashlib
import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

_INTEGER, _BIT_STRING, _OCTET_STRING, _OID = 0x02, 0x03, 0x04, 0x06
_BOOLEAN, _SEQUENCE, _SET = 0x01, 0x30, 0x31
# Where fields of the body are, behind the version (RFC 5280, 4.1), and where the optional ones begin.
_VALIDITY, _SUBJECT, _PUBLIC_KEY, _OPTIONAL = 3, 4, 5, 6
_VERSION, _ISSUER_UID, _SUBJECT_UID, _EXTENSIONS = 0xA0, 0x81, 0x82, 0xA3
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_URI = 0x86  # GeneralName, uniformResourceIdentifier [6] IMPLICIT IA5String
_DNS, _IP = 0x82, 0x87  # dNSName [2] IMPLICIT IA5String, iPAddress [7] IMPLICIT OCTET STRING

_SUBJECT_KEY_IDENTIFIER = b"\x55\x1d\x0e"  # 2.5.29.14
_AUTHORITY_KEY_IDENTIFIER = b"\x55\x1d\x23"  # 2.5.29.35
_KEY_IDENTIFIER = 0x80  # keyIdentifier [0] IMPLICIT OCTET STRING
SUBJECT_ALT_NAME = b"\x55\x1d\x11"  # 2.5.29.17
# id-on-SmtpUTF8Mailbox (RFC 9598, 3), 1.3.6.1.5.5.7.8.9.
_UTF8_MAILBOX = b"\x2b\x06\x01\x05\x05\x07\x08\x09"
DISTRIBUTION_POINTS = b"\x55\x1d\x1f"  # 2.5.29.31
_POINT_NAME, _RELATIVE_NAME = 0xA0, 0xA1  # distributionPoint [0], nameRelativeToCRLIssuer [1]
NAME_CONSTRAINTS = b"\x55\x1d\x1e"  # 2.5.29.30

# Ours and every CA's certificates are below 4 KiB; OpenSSL takes 100 KiB for a whole chain.
_MAX_CERTIFICATE_BYTES = 65536

# The string types that OpenSSL compares by their text (crypto/x509/x_name.c, ASN1_MASK_CANON).
_TEXT_ENCODINGS = {
    0x0C: "utf-8",
    0x13: "latin-1",
    0x14: "latin-1",
    0x16: "latin-1",
    0x1A: "latin-1",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}


class PublicKey(NamedTuple):
    """The fields of a key that determine how much CPU time the check of a signature by it takes. `algorithm`
    and `curve` are the contents of OIDs; the bits are those of an RSA key."""

    algorithm: bytes
    curve: bytes = b""
    modulus_bits: int = 0
    exponent_bits: int = 0


# What a check of a signature may cost is bounded by the kind of the key: 0.7 ms at most. Without these bounds
# it is 6 ms for an exponent as long as the modulus, and 0.3 s to read a point on a curve of one's own.
MAX_MODULUS_BITS = 8192
# 65537, which all tools take, has 17; FIPS 186-5 (A.1.1) would allow 256.
MAX_EXPONENT_BITS = 32
# P-256, P-384, P-521 (RFC 5480, 2.1.1.1).
_CURVES = frozenset({b"\x2a\x86\x48\xce\x3d\x03\x01\x07", b"\x2b\x81\x04\x00\x22", b"\x2b\x81\x04\x00\x23"})
# Ed25519 and Ed448 (RFC 8410, 3).
_EDWARDS = frozenset({b"\x2b\x65\x70", b"\x2b\x65\x71"})
# RFC 8017, appendix C: rsaEncryption and id-RSASSA-PSS; RFC 5480, 2.1.1: id-ecPublicKey.
_RSA_KEYS = frozenset({b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01", b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a"})
EC_KEY = b"\x2a\x86\x48\xce\x3d\x02\x01"


class CertificateError(ValueError):
    """The bytes are not a certificate as RFC 5280 and DER would have it."""


def subject(der: bytes) -> bytes:
    """The subject, as the DER of its Name."""
    return _Certificate(der).subject


def spki(der: bytes) -> bytes:
    """The SubjectPublicKeyInfo, as its DER (RFC 5280, 4.1.2.7)."""
    return _Certificate(der).spki


def spki_sha256(der: bytes) -> str:
    """The SHA-256 of the SubjectPublicKeyInfo, in lower-case hex."""
    return hashlib.sha256(spki(der)).hexdigest()


def subject_key_identifier(der: bytes) -> bytes | None:
    """The key identifier extension (RFC 5280, 4.2.1.2), None where there is none."""
    value = _Certificate(der).extensions.get(_SUBJECT_KEY_IDENTIFIER)
    return None if value is None else _only(value, _OCTET_STRING)


def authority_key_identifier(der: bytes) -> bytes | None:
    """How the certificate identifies the key that signed it (RFC 5280, 4.2.1.1), None where it does not."""
    value = _Certificate(der).extensions.get(_AUTHORITY_KEY_IDENTIFIER)
    if value is None:
        return None
    return next(
        (content for tag, content, _ in _walk(_only(value, _SEQUENCE)) if tag == _KEY_IDENTIFIER), None
    )


def validity(der: bytes) -> tuple[float, float]:
    """The first and the last second of the validity (RFC 5280, 4.1.2.5), in seconds since 1970.

    Reads no more than that: of an intermediate or a trust anchor nothing else is used.
    """
    times = [_seconds(tag, content) for tag, content, _ in _walk(_body(der)[_VALIDITY][1])]
    if len(times) != 2:
        raise CertificateError("a validity is not two times")
    return times[0], times[1]


def public_key(der: bytes) -> PublicKey:
    """The kind and size of the key (RFC 5280, 4.1.2.7). Reads no more than that. The certificate need not be
    verified."""
    fields = list(_walk(_body(der)[_PUBLIC_KEY][1]))
    if [tag for tag, _, _ in fields] != [_SEQUENCE, _BIT_STRING]:
        raise CertificateError("a public key is not an algorithm and its bits")
    algorithm = list(_walk(fields[0][1]))
    if not algorithm or algorithm[0][0] != _OID:
        raise CertificateError("an algorithm has no identifier")
    oid = algorithm[0][1]
    if oid == EC_KEY:
        if len(algorithm) != 2 or algorithm[1][0] != _OID:
            raise CertificateError("a curve without a name")
        return PublicKey(oid, curve=algorithm[1][1])
    if oid not in _RSA_KEYS:
        return PublicKey(oid)
    if fields[1][1][:1] != b"\0":
        raise CertificateError("a key of broken bytes")
    numbers = list(_walk(_only(fields[1][1][1:], _SEQUENCE)))
    if [tag for tag, _, _ in numbers] != [_INTEGER, _INTEGER]:
        raise CertificateError("an RSA key is not a modulus and an exponent")
    modulus, exponent = (int.from_bytes(content) for _, content, _ in numbers)
    return PublicKey(oid, modulus_bits=modulus.bit_length(), exponent_bits=exponent.bit_length())


def check_key(der: bytes) -> None:
    """Raise CertificateError unless signatures by the certificate's key are quick to check."""
    key = public_key(der)
    if key.algorithm in _RSA_KEYS:
        is_quick = key.modulus_bits <= MAX_MODULUS_BITS and key.exponent_bits <= MAX_EXPONENT_BITS
    elif key.algorithm == EC_KEY:
        is_quick = key.curve in _CURVES
    else:
        is_quick = key.algorithm in _EDWARDS
    if not is_quick:
        raise CertificateError(
            f"a key that is slow to use; take RSA up to {MAX_MODULUS_BITS} bits, P-256, P-384 or P-521"
        )


def check_distribution_points(der: bytes) -> None:
    """Raise CertificateError if a CRL's place is given relative to the issuer's name (RFC 5280, 4.2.1.13,
    which advises against it). OpenSSL copies that name for each of them, before it checks the signature."""
    value = _Certificate(der).extensions.get(DISTRIBUTION_POINTS)
    if value is None:
        return
    for point in _each(_only(value, _SEQUENCE), _SEQUENCE):
        for tag, content, _ in _walk(point):
            if tag == _POINT_NAME and any(kind == _RELATIVE_NAME for kind, _, _ in _walk(content)):
                raise CertificateError("a distribution point that is relative to the issuer's name")


def check_names(der: bytes) -> None:
    """Raise CertificateError if a subject alternative name is a mailbox in UTF-8. To compare it with a name
    constraint, OpenSSL decodes the constraint's Punycode for each such name anew, 2 us for 100 bytes."""
    # An identifier's bytes are never apart; in other values these eight mean nothing, and are as rare.
    if _UTF8_MAILBOX in _Certificate(der).extensions.get(SUBJECT_ALT_NAME, b""):
        raise CertificateError("a mailbox name in UTF-8")


def name_counts(der: bytes) -> tuple[int, int]:
    """How many subject alternative names the certificate has, and how many names its name constraints list
    (RFC 5280, 4.2.1.6 and 4.2.1.10)."""
    extensions = _Certificate(der).extensions
    names, constraints = extensions.get(SUBJECT_ALT_NAME), extensions.get(NAME_CONSTRAINTS)
    count = 0 if names is None else sum(1 for _ in _walk(_only(names, _SEQUENCE)))
    if constraints is None:
        return count, 0
    subtrees = [content for _, content, _ in _walk(_only(constraints, _SEQUENCE))]
    return count, sum(1 for each in subtrees for _ in _walk(each))


def _body(der: bytes) -> list[tuple[int, bytes, bytes]]:
    """The fields of the body behind the version, as `_walk` yields them: serial number, algorithm, issuer,
    validity, subject, public key, and the optional ones."""
    outer = list(_walk(_only(der, _SEQUENCE)))
    if [tag for tag, _, _ in outer] != [_SEQUENCE, _SEQUENCE, _BIT_STRING]:
        raise CertificateError("not a body, an algorithm and a signature")
    fields = list(_walk(outer[0][1]))
    if fields and fields[0][0] == _VERSION:
        _only(fields.pop(0)[1], _INTEGER)
    if [tag for tag, _, _ in fields[:_OPTIONAL]] != [_INTEGER] + [_SEQUENCE] * (_OPTIONAL - 1):
        raise CertificateError("a field of the body is missing or out of place")
    return fields


def _seconds(tag: int, content: bytes) -> float:
    """A Time: UTCTime YYMMDDHHMMSSZ or GeneralizedTime YYYYMMDDHHMMSSZ, as DER and RFC 5280 have them."""
    year_digits = {_UTC_TIME: 2, _GENERALIZED_TIME: 4}.get(tag, 0)
    digits = content[:-1]
    is_time = year_digits and len(digits) == year_digits + 10 and digits.isdigit() and content[-1:] == b"Z"
    if not is_time:
        raise CertificateError("a time is not in the form that RFC 5280 demands")
    year = int(digits[:year_digits])
    if tag == _UTC_TIME:
        year += 1900 if year >= 50 else 2000
    month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(year_digits, len(digits), 2))
    try:
        return dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC).timestamp()
    except ValueError:
        raise CertificateError("invalid time") from None


def uri_sans(der: bytes) -> tuple[str, ...]:
    """The URIs among the subject alternative names (RFC 5280, 4.2.1.6), in their order."""
    value = _Certificate(der).extensions.get(SUBJECT_ALT_NAME)
    if value is None:
        return ()
    uris = []
    for tag, content, _ in _walk(_only(value, _SEQUENCE)):
        if tag == _URI:
            try:
                uris.append(content.decode("ascii"))
            except UnicodeDecodeError:
                raise CertificateError("a URI name is not ASCII") from None
    return tuple(uris)


def host_sans(der: bytes) -> tuple[str, ...]:
    """The DNS names and addresses among the subject alternative names, in their order."""
    value = _Certificate(der).extensions.get(SUBJECT_ALT_NAME)
    if value is None:
        return ()
    hosts = []
    for tag, content, _ in _walk(_only(value, _SEQUENCE)):
        try:
            if tag == _DNS:
                hosts.append(content.decode("ascii"))
            elif tag == _IP:
                hosts.append(str(ipaddress.ip_address(content)))
        except ValueError:  # not ASCII, or neither 4 nor 16 bytes
            raise CertificateError("a DNS name or address that is none") from None
    return tuple(hosts)


def canonical_subject(der: bytes) -> bytes:
    """The subject in a form that is equal for names that OpenSSL takes as equal.

    It folds case and blanks and forgets the string type, as OpenSSL does when it looks an issuer
    up by name. Where in doubt this folds more than OpenSSL: its use is to find CAs that might be
    confused.
    """
    parts: list[bytes] = []
    for tag, rdn, _ in _walk(_only(subject(der), _SEQUENCE)):
        if tag != _SET:
            raise CertificateError("a name holds something other than a SET")
        attributes = sorted(_canonical_attribute(item) for item in _each(rdn, _SEQUENCE))
        parts.append(hashlib.sha256(b"".join(attributes)).digest())
    return b"".join(parts)


def _canonical_attribute(content: bytes) -> bytes:
    fields = list(_walk(content))
    if len(fields) != 2 or fields[0][0] != _OID:
        raise CertificateError("a name attribute is not a type and a value")
    (_, kind, _), (tag, value, whole) = fields
    encoding = _TEXT_ENCODINGS.get(tag)
    if encoding is None:
        text = whole
    else:
        # What does not decode is compared as Latin-1: confusable with more, never with less.
        try:
            words = value.decode(encoding)
        except UnicodeDecodeError:
            words = value.decode("latin-1")
        text = " ".join(words.casefold().split()).encode("utf-8", "surrogatepass")
    return hashlib.sha256(len(kind).to_bytes(4) + kind + text).digest()


class _Certificate:
    """The parts of one certificate, each as found."""

    __slots__ = ("extensions", "spki", "subject")

    def __init__(self, der: bytes) -> None:
        if len(der) > _MAX_CERTIFICATE_BYTES:
            raise CertificateError("larger than any certificate that we issue")
        fields = _body(der)
        self.subject = fields[_SUBJECT][2]
        self.spki = fields[_PUBLIC_KEY][2]
        self.extensions: dict[bytes, bytes] = {}
        last = 0
        for tag, content, _ in fields[_OPTIONAL:]:
            if tag not in (_ISSUER_UID, _SUBJECT_UID, _EXTENSIONS) or tag & 0x1F <= last:
                raise CertificateError("an optional field is unknown or out of place")
            last = tag & 0x1F
            if tag == _EXTENSIONS:
                self.extensions = _extensions(_only(content, _SEQUENCE))


def _extensions(content: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for item in _each(content, _SEQUENCE):
        fields = list(_walk(item))
        tags = [tag for tag, _, _ in fields]
        if tags not in ([_OID, _OCTET_STRING], [_OID, _BOOLEAN, _OCTET_STRING]):
            raise CertificateError("an extension is not an identifier and a value")
        oid = fields[0][1]
        # "A certificate MUST NOT include more than one instance of a particular extension"
        # (RFC 5280, 4.2). Two readers might each believe another one.
        if oid in found:
            raise CertificateError("an extension comes twice")
        found[oid] = fields[-1][1]
    return found


def _only(data: bytes, tag: int) -> bytes:
    """The content of the one element of type `tag` that `data` must be."""
    elements = list(_walk(data))
    if len(elements) != 1 or elements[0][0] != tag:
        raise CertificateError(f"expected exactly one element of type {tag:#04x}")
    return elements[0][1]


def _each(data: bytes, tag: int) -> Iterator[bytes]:
    for found, content, _ in _walk(data):
        if found != tag:
            raise CertificateError(f"expected only elements of type {tag:#04x}")
        yield content


def _walk(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each element in `data`: tag byte, content, and the whole element."""
    at, end = 0, len(data)
    while at < end:
        start = at
        tag = data[at]
        if tag & 0x1F == 0x1F:
            raise CertificateError("a tag of more than one byte")
        if at + 2 > end:
            raise CertificateError("cut off within a header")
        size = data[at + 1]
        at += 2
        if size >= 0x80:
            width = size & 0x7F
            if not 1 <= width <= 4 or at + width > end:
                raise CertificateError("a length that is indefinite, too wide or cut off")
            size = int.from_bytes(data[at : at + width])
            if size < 0x80 or size >> (8 * (width - 1)) == 0:
                raise CertificateError("a length that is not minimal")
            at += width
        if size > end - at:
            raise CertificateError("cut off within an element")
        yield tag, data[at : at + size], data[start : at + size]
        at += size
