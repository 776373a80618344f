# SPDX-License-Identifier: Apache-2.0
"""Certificates and chains of clients: `cryptography` reads the same, and what passes is quick to verify.

An input is a certificate, a TLS Certificate message, or text with PEM.
"""

import base64
import contextlib
from pathlib import Path

from cryptography import x509 as reference
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tenancy import document, x509
from tenancy.x509 import CertificateError
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget
from vnagent.core.client_chain import MAX_CERTIFICATES, ChainError
from vnagent.core.client_chain import check as check_chain

_READERS = (
    x509.subject,
    x509.spki,
    x509.spki_sha256,
    x509.subject_key_identifier,
    x509.validity,
    x509.public_key,
)
_SEEDS = Path(__file__).parents[1] / "seeds"


def check(data: bytes) -> None:
    for read in _READERS:
        only(CertificateError, read, data)
    for inspect in (x509.check_key, x509.check_names, x509.check_distribution_points):
        only(CertificateError, inspect, data)
    only(CertificateError, x509.canonical_subject, data)
    counts = only(CertificateError, x509.name_counts, data)
    assert counts is None or sum(counts) <= len(data)
    _compare(data)
    for message in (data, _message(data)):
        only(ChainError, check_chain, message)
    only(ChainError, check_chain, _message(data, MAX_CERTIFICATES))
    assert not _passes(_message(data, MAX_CERTIFICATES + 1)), "a chain that is too long"
    found = only(ValueError, document.certificates, data.decode("latin-1"))
    if found:
        pem = "".join(
            f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(der).decode()}\n-----END CERTIFICATE-----\n"
            for der in found
        )
        assert document.certificates(pem) == found


def _message(der: bytes, count: int = 1) -> bytes:
    """A Certificate message (RFC 8446, 4.4.2) with this certificate some times."""
    entries = (len(der).to_bytes(3) + der + b"\0\0") * count
    content = b"\0" + len(entries).to_bytes(3) + entries
    return b"\x0b" + len(content).to_bytes(3) + content


def _passes(message: bytes) -> bool:
    try:
        check_chain(message)
    except ChainError:
        return False
    return True


def _compare(der: bytes) -> None:
    """What both read must be equal. Each may refuse what the other reads."""
    subject = only(CertificateError, x509.subject, der)
    if subject is None:
        return
    try:
        theirs = reference.load_der_x509_certificate(der)
    except (ValueError, reference.InvalidVersion):  # which is no ValueError
        return
    with contextlib.suppress(ValueError, TypeError):
        # Several attributes of one RDN are a set, which `cryptography` sorts.
        is_sorted = all(len(list(each)) == 1 for each in theirs.subject.rdns)
        assert not is_sorted or theirs.subject.public_bytes() == subject
    with contextlib.suppress(ValueError, reference.ExtensionNotFound):
        extension = theirs.extensions.get_extension_for_class(reference.SubjectAlternativeName)
        theirs_uris = extension.value.get_values_for_type(reference.UniformResourceIdentifier)
        assert list(x509.uri_sans(der)) == theirs_uris
    ski = only(CertificateError, x509.subject_key_identifier, der)
    with contextlib.suppress(ValueError, reference.ExtensionNotFound):
        identifier = theirs.extensions.get_extension_for_class(reference.SubjectKeyIdentifier)
        assert ski in (None, identifier.value.digest)
    with contextlib.suppress(ValueError):
        times = theirs.not_valid_before_utc.timestamp(), theirs.not_valid_after_utc.timestamp()
        assert only(CertificateError, x509.validity, der) in (None, times)
    with contextlib.suppress(Exception):
        key = theirs.public_key()
        assert x509.spki(der) == key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _seeds() -> tuple[bytes, ...]:
    found = []
    for path in sorted((_SEEDS / "certificate").glob("*.pem")):
        pem = path.read_text()
        (der,) = document.certificates(pem)
        found += [der, pem.encode(), _message(der)]
    return tuple(found)


TARGET = FuzzTarget(
    check,
    seeds=_seeds(),
    tokens=(
        *(
            b"\x30\x00",
            b"\x30\x80",
            b"\x30\x81\x05",
            b"\x30\x82\x00\x05",
            b"\x31\x00",
            b"\x06\x03\x55\x1d\x11",
            b"\x1f\x81",
        ),
        *(
            b"\x06\x03\x55\x1d\x1e",
            b"\x06\x03\x55\x1d\x1f",
            b"\x86\x03a:b",
            b"\x82\x01a",
            b"\x02\x01\x00",
            b"\x02\x03\x01\x00\x01",
        ),
        *(
            b"-----BEGIN CERTIFICATE-----\n",
            b"-----END CERTIFICATE-----\n",
            b"-----BEGIN PRIVATE KEY-----\n",
            b"\n",
            b"=",
        ),
        *(
            b"\x17\x0d260101000000Z",
            b"\x18\x0f20260101000000Z",
            b"\x0c\x01a",
            b"\x13\x01A",
            b"\x1e\x02\x00a",
            b"\xa0\x03\x02\x01\x02",
        ),
    ),
    max_bytes=3072,
)
