# SPDX-License-Identifier: Apache-2.0
"""The parser agrees with `cryptography`. Arbitrary bytes raise only its documented error."""

import contextlib
import datetime as dt
import functools
import hashlib
import string

import pytest
from cryptography import x509 as reference
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy import x509
from tenancy.x509 import CertificateError

KINDS = ["rsa", "p256", "p384", "ed25519"]


@functools.cache
def key_of(kind: str) -> CertificateIssuerPrivateKeyTypes:
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(ec.SECP256R1() if kind == "p256" else ec.SECP384R1())


def certificate(
    kind: str = "p256",
    subject: reference.Name | None = None,
    uris: tuple[str, ...] = (),
    dns: tuple[str, ...] = (),
    *,
    has_identifier: bool = True,
) -> reference.Certificate:
    key = key_of(kind)
    name = subject if subject is not None else named("ca")
    builder = (
        reference.CertificateBuilder()
        .subject_name(name)
        .issuer_name(named("issuer"))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2056, 1, 1, tzinfo=dt.UTC))
        .add_extension(reference.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    names = [
        *map(reference.DNSName, dns),
        *map(reference.UniformResourceIdentifier, uris),
    ]
    if names:
        builder = builder.add_extension(reference.SubjectAlternativeName(names), critical=False)
    if has_identifier:
        identifier = reference.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    return builder.sign(key, None if kind == "ed25519" else hashes.SHA256())


def named(text: str) -> reference.Name:
    return reference.Name([reference.NameAttribute(NameOID.COMMON_NAME, text)])


def der_of(found: reference.Certificate) -> bytes:
    return found.public_bytes(Encoding.DER)


names = st.lists(
    st.lists(
        st.builds(
            reference.NameAttribute,
            st.sampled_from([NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.SURNAME]),
            st.text(min_size=1, max_size=40).filter(lambda text: len(text.encode("utf-8", "replace")) <= 64),
            _validate=st.just(value=False),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda attribute: attribute.oid,
    ).map(reference.RelativeDistinguishedName),
    max_size=4,
).map(reference.Name)
uris = st.lists(
    st.text(string.ascii_letters + string.digits + ":/%?#.-\n\0", min_size=1, max_size=60), max_size=4
).map(tuple)


@settings(deadline=None)
@given(st.sampled_from(KINDS), names, uris, st.booleans())
def test_fields_agree_with_cryptography(
    kind: str, subject: reference.Name, found_uris: tuple[str, ...], has_identifier: bool
) -> None:
    made = certificate(kind, subject, found_uris, ("a.example",), has_identifier=has_identifier)
    der = der_of(made)
    spki = made.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert x509.spki(der) == spki
    assert x509.spki_sha256(der) == hashlib.sha256(spki).hexdigest()
    assert x509.subject(der) == made.subject.public_bytes()
    assert x509.uri_sans(der) == found_uris
    identifier = reference.SubjectKeyIdentifier.from_public_key(made.public_key()).digest
    assert x509.subject_key_identifier(der) == (identifier if has_identifier else None)
    assert x509.host_sans(der) == ("a.example",)
    assert isinstance(x509.canonical_subject(der), bytes)


def test_a_certificate_may_have_no_extension() -> None:
    key = key_of("p256")
    made = (
        reference.CertificateBuilder()
        .subject_name(reference.Name([]))
        .issuer_name(named("issuer"))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2026, 2, 1, tzinfo=dt.UTC))
        .sign(key, hashes.SHA256())
    )
    der = der_of(made)
    assert (x509.subject(der), x509.uri_sans(der)) == (b"\x30\x00", ())
    assert x509.subject_key_identifier(der) is None
    assert x509.authority_key_identifier(der) is None
    assert x509.host_sans(der) == ()
    assert x509.canonical_subject(der) == b""


def text_of(kind: _ASN1Type, text: str) -> reference.Name:
    attribute = reference.NameAttribute(NameOID.COMMON_NAME, text, _type=kind, _validate=False)
    return reference.Name([attribute])


@pytest.mark.parametrize(
    "other",
    [
        named("KUBERNETES ca"),
        named("  Kubernetes   CA "),
        named("kubernetes\tca"),
        text_of(_ASN1Type.PrintableString, "Kubernetes CA"),
        text_of(_ASN1Type.BMPString, "Kubernetes CA"),
        text_of(_ASN1Type.UniversalString, "Kubernetes CA"),
        text_of(_ASN1Type.T61String, "Kubernetes CA"),
        text_of(_ASN1Type.IA5String, "Kubernetes CA"),
    ],
)
def test_names_that_openssl_equates_are_equal(other: reference.Name) -> None:
    first = der_of(certificate(subject=named("Kubernetes CA")))
    second = der_of(certificate(subject=other))
    assert x509.subject(first) != x509.subject(second)
    assert x509.canonical_subject(first) == x509.canonical_subject(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (named("ca"), named("ca2")),
        (named("ca"), reference.Name([reference.NameAttribute(NameOID.ORGANIZATION_NAME, "ca")])),
        (named("ca"), reference.Name([])),
        (named("ca"), reference.Name([*named("ca"), *named("ca")])),
        (
            reference.Name([*named("a"), *named("b")]),
            reference.Name([*named("b"), *named("a")]),
        ),
    ],
)
def test_other_names_differ(one: reference.Name, other: reference.Name) -> None:
    first, second = der_of(certificate(subject=one)), der_of(certificate(subject=other))
    assert x509.canonical_subject(first) != x509.canonical_subject(second)


READERS = [
    x509.subject,
    x509.spki,
    x509.spki_sha256,
    x509.subject_key_identifier,
    x509.authority_key_identifier,
    x509.uri_sans,
    x509.host_sans,
    x509.canonical_subject,
]
GOOD = der_of(certificate(uris=("spiffe://x/tenant/a/apiserver",), dns=("a.example",)))


def read_all(der: bytes) -> None:
    """Fails by whatever else a reader raises."""
    for reader in READERS:
        with contextlib.suppress(CertificateError):
            reader(der)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_certificate_error_only(data: bytes) -> None:
    for reader in READERS:
        with pytest.raises(CertificateError):
            reader(data)


@settings(max_examples=500)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_raise_certificate_error_only(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOOD)
    for at, value in changes:
        data[at] = value
    read_all(bytes(data))


def test_a_truncated_certificate_is_refused() -> None:
    for size in range(len(GOOD)):
        with pytest.raises(CertificateError):
            x509.spki(GOOD[:size])


def element(tag: int, *parts: bytes) -> bytes:
    """DER of one element of less than 64 KiB."""
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    width = (size.bit_length() + 7) // 8
    return bytes([tag, 0x80 | width]) + size.to_bytes(width) + content


EMPTY = element(0x30)
SPKI = element(0x30, b"\x05\x00")


def by_hand(*optional: bytes, head: bytes = b"") -> bytes:
    body = element(0x30, head, b"\x02\x01\x01", EMPTY, EMPTY, EMPTY, EMPTY, SPKI, *optional)
    return element(0x30, body, EMPTY, b"\x03\x01\x00")


def extension(oid: bytes, value: bytes) -> bytes:
    return element(0x30, element(0x06, oid), element(0x04, value))


SKI, SAN = b"\x55\x1d\x0e", b"\x55\x1d\x11"


def test_the_template_of_bad_certificates_is_valid() -> None:
    value = element(0x30, element(0x86, b"spiffe://x"))
    made = by_hand(element(0xA3, element(0x30, extension(SKI, b"\x04\x01z"), extension(SAN, value))))
    assert x509.spki(made) == SPKI
    assert x509.subject_key_identifier(made) == b"z"
    assert x509.uri_sans(made) == ("spiffe://x",)


@pytest.mark.parametrize(
    "data",
    [
        by_hand() + b"\0",
        by_hand(head=element(0xA0, b"\x02\x01\x02") * 2),
        by_hand(head=element(0xA0)),
        by_hand(element(0xA3, element(0x30)), element(0xA3, element(0x30))),
        by_hand(element(0xA3, element(0x30)), element(0x81, b"\0")),
        by_hand(element(0x84, b"")),
        by_hand(element(0xA3, element(0x30, extension(SKI, b"\x04\x01z"), extension(SKI, b"\x04\x01y")))),
        by_hand(element(0xA3, element(0x30, element(0x30, element(0x06, SKI))))),
        by_hand(element(0xA3, element(0x31))),
        by_hand(element(0xA3)),
        element(0x30, element(0x30, b"\x02\x01\x01", EMPTY, EMPTY), EMPTY, b"\x03\x01\x00"),
        element(0x30, EMPTY, EMPTY, b"\x03\x01\x00"),
        b"\x30\x80" + by_hand()[2:] + b"\0\0",
        b"\x30\x81\x05" + b"\x05\x00" * 2 + b"\x05",
        b"\x30\x82\x00\x05" + b"\x05\x00" * 2 + b"\x05",
        b"\x1f\x81\x00",
        element(0x30, b"\0" * 66000),
    ],
)
def test_invalid_der_is_refused(data: bytes) -> None:
    with pytest.raises(CertificateError):
        x509.spki(data)


@pytest.mark.parametrize("value", [b"", b"\x04\x01z\x04\x01z", b"\x05\x00", b"\x04\x02z"])
def test_a_malformed_key_identifier_is_refused(value: bytes) -> None:
    made = by_hand(element(0xA3, element(0x30, extension(SKI, value))))
    with pytest.raises(CertificateError):
        x509.subject_key_identifier(made)


@pytest.mark.parametrize(
    "value", [b"", element(0x31), element(0x30, element(0x86, b"\xff")), element(0x30, b"\x86\x05a")]
)
def test_malformed_names_are_refused(value: bytes) -> None:
    made = by_hand(element(0xA3, element(0x30, extension(SAN, value))))
    with pytest.raises(CertificateError):
        x509.uri_sans(made)


# ---- validity


def with_times(*times: tuple[int, bytes]) -> bytes:
    """A certificate with this validity; its other sequences are empty."""

    def tlv(tag: int, content: bytes) -> bytes:
        assert len(content) < 128
        return bytes((tag, len(content))) + content

    validity = tlv(0x30, b"".join(tlv(tag, content) for tag, content in times))
    empty = tlv(0x30, b"")
    body = tlv(0x30, tlv(0x02, b"\x07") + empty * 2 + validity + empty * 2)
    return tlv(0x30, body + empty + tlv(0x03, b"\0"))


NEW_YEAR = (0x17, b"260101000000Z")


@given(st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(9999, 12, 31), timezones=st.just(dt.UTC)))  # noqa: DTZ001 - hypothesis wants naive bounds
def test_validity_agrees_with_cryptography(moment: dt.datetime) -> None:
    moment = moment.replace(microsecond=0)
    key = key_of("p256")
    certificate = (
        reference.CertificateBuilder()
        .subject_name(named("x"))
        .issuer_name(named("x"))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(moment)
        .not_valid_after(dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC))
        .sign(key, hashes.SHA256())
    )
    first_s, last_s = x509.validity(certificate.public_bytes(Encoding.DER))
    assert first_s == moment.timestamp()
    assert last_s == 253_402_300_799


@pytest.mark.parametrize(
    "times",
    [
        (),
        (NEW_YEAR,),
        (NEW_YEAR,) * 3,
        (NEW_YEAR, (0x17, b"2601010000Z")),
        (NEW_YEAR, (0x17, b"260101000000+0100")),
        (NEW_YEAR, (0x17, b"260101000000")),
        (NEW_YEAR, (0x17, b"20260101000000Z")),
        (NEW_YEAR, (0x18, b"260101000000Z")),
        (NEW_YEAR, (0x18, b"20260101000000.5Z")),
        (NEW_YEAR, (0x17, b"26010100000-Z")),
        (NEW_YEAR, (0x17, b"260230000000Z")),
        (NEW_YEAR, (0x17, b"260101240000Z")),
        (NEW_YEAR, (0x13, b"260101000000Z")),
        (NEW_YEAR, (0x17, b"")),
    ],
)
def test_a_malformed_validity_is_refused(times: tuple[tuple[int, bytes], ...]) -> None:
    assert x509.validity(with_times(NEW_YEAR, NEW_YEAR)) == (1_767_225_600.0,) * 2
    with pytest.raises(CertificateError):
        x509.validity(with_times(*times))


@given(st.binary(max_size=60))
def test_validity_of_any_bytes_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(CertificateError):
        x509.validity(data)


# ---- the public key


@functools.cache
def der_of_kind(kind: str) -> bytes:
    return certificate(kind).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("rsa", x509.PublicKey(bytes.fromhex("2a864886f70d010101"), b"", 2048, 17)),
        ("p256", x509.PublicKey(x509.EC_KEY, bytes.fromhex("2a8648ce3d030107"))),
        ("p384", x509.PublicKey(x509.EC_KEY, bytes.fromhex("2b81040022"))),
        ("ed25519", x509.PublicKey(bytes.fromhex("2b6570"))),
    ],
)
def test_keys_are_recognised(kind: str, expected: x509.PublicKey) -> None:
    assert x509.public_key(der_of_kind(kind)) == expected


@given(st.sampled_from(KINDS), st.data())
def test_damaged_keys_raise_certificate_error_only(kind: str, data: st.DataObject) -> None:
    damaged = bytearray(der_of_kind(kind))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CertificateError):
        x509.public_key(bytes(damaged))
