# SPDX-License-Identifier: Apache-2.0
"""Certificates that an operator offers for a tenant: checked as OpenSSL will check them at a handshake.

A certificate that fails only in vn-agent is an outage without a visible cause, so all problems are
reported here at once. Only certificates are taken from the files, never keys.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from daemonkit.tls.contexts import TlsError, check_authorities, pem_certificates
from tenancy import x509 as der_x509
from vcnode.terminal import ToolError, day_left, printable

# OpenSSL's own limit is 100; a tenant's chain has two or three.
_MAX_CHAIN = 8
_MAX_SUBJECT_CHARS = 120

Extension = TypeVar("Extension", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class Offer:
    """A client of a tenant, and the authorities (DER) of its chain.

    `spki` is the lower-case hex SHA-256 of the client's SubjectPublicKeyInfo. `warnings` stop nothing.
    """

    authorities: tuple[bytes, ...]
    spki: str
    subject: str
    expires: dt.datetime
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """An authority, as `vcnode tenant show` prints it."""

    subject: str
    expires: dt.datetime
    spki: str


def check(ca_pem: bytes, client_pem: bytes, now: dt.datetime) -> Offer:
    """Check that both fit. `client_pem` may hold intermediates after the client.

    Raises ToolError with all problems in one line.
    """
    authorities = _authorities(ca_pem)
    try:
        leaf, *intermediates = x509.load_pem_x509_certificates(client_pem)
    except ValueError:
        raise ToolError("client certificate: the file has no readable PEM certificate") from None
    issuers = [x509.load_der_x509_certificate(der) for der in authorities]
    problems = [*_authority_problems(issuers, now), *_leaf_problems(leaf, now)]
    if leaf in issuers:
        problems.append("client certificate: it is the authority itself")
    else:
        problems += _chain_problems(leaf, intermediates, issuers)
    if problems:
        raise ToolError("; ".join(problems))
    der = leaf.public_bytes(Encoding.DER)
    return Offer(
        authorities,
        der_x509.spki_sha256(der),
        subject_text(leaf),
        leaf.not_valid_after_utc,
        tuple(_warnings(leaf, now)),
    )


def describe(der: bytes) -> Described:
    """An authority of a tenant's file. `der` has been parsed before."""
    certificate = x509.load_der_x509_certificate(der)
    return Described(subject_text(certificate), certificate.not_valid_after_utc, der_x509.spki_sha256(der))


def subject_text(certificate: x509.Certificate) -> str:
    """The subject on one line, shortened, with characters that a comment may have."""
    text = printable(certificate.subject.rfc4514_string()) or "(no subject)"
    return text if len(text) <= _MAX_SUBJECT_CHARS else text[: _MAX_SUBJECT_CHARS - 3] + "..."


def _authorities(ca_pem: bytes) -> tuple[bytes, ...]:
    try:
        found = tuple(dict.fromkeys(pem_certificates(ca_pem)))
        check_authorities(found)
    except TlsError as error:
        raise ToolError(f"authority: {error}") from None
    return found


def _authority_problems(issuers: Sequence[x509.Certificate], now: dt.datetime) -> Iterator[str]:
    for issuer in issuers:
        name = f"authority {subject_text(issuer)}"
        yield from _time_problems(name, issuer, now)
        usage = _extension(issuer, x509.KeyUsage)
        if usage is not None and not usage.key_cert_sign:
            yield f"{name}: its key usage does not allow signing certificates"


def _leaf_problems(leaf: x509.Certificate, now: dt.datetime) -> Iterator[str]:
    name = "client certificate"
    yield from _time_problems(name, leaf, now)
    constraints = _extension(leaf, x509.BasicConstraints)
    if constraints is not None and constraints.ca:
        yield f"{name}: it is an authority, not a client"
    # As OpenSSL checks a TLS client (check_purpose_ssl_client): anyExtendedKeyUsage does not suffice.
    extended = _extension(leaf, x509.ExtendedKeyUsage)
    if extended is not None and ExtendedKeyUsageOID.CLIENT_AUTH not in extended:
        yield f"{name}: its extended key usage does not allow client authentication"
    usage = _extension(leaf, x509.KeyUsage)
    if usage is not None and not (usage.digital_signature or usage.key_agreement):
        yield f"{name}: its key usage allows no TLS handshake"


def _time_problems(name: str, certificate: x509.Certificate, now: dt.datetime) -> Iterator[str]:
    if now > certificate.not_valid_after_utc:
        yield f"{name}: expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
    if now < certificate.not_valid_before_utc:
        yield f"{name}: not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"


def _chain_problems(
    leaf: x509.Certificate, intermediates: Sequence[x509.Certificate], issuers: Sequence[x509.Certificate]
) -> Iterator[str]:
    """Walk from the client to a self-signed authority, as OpenSSL requires."""
    current = leaf
    for _ in range(_MAX_CHAIN):
        issuer = next((each for each in (*issuers, *intermediates) if _is_issuer(each, current)), None)
        if issuer is None:
            break
        if issuer in issuers and issuer.subject == issuer.issuer:
            return
        current = issuer
    if current is leaf:
        yield f"client certificate: not issued by this authority (its issuer is {_issuer_text(leaf)})"
    else:
        yield (
            f"authority: the chain stops at {subject_text(current)}, which is not self-signed;"
            " give its root as well"
        )


def _is_issuer(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _issuer_text(certificate: x509.Certificate) -> str:
    return printable(certificate.issuer.rfc4514_string())[:_MAX_SUBJECT_CHARS]


def _warnings(leaf: x509.Certificate, now: dt.datetime) -> Iterator[str]:
    organizations = {
        attribute.value for attribute in leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    }
    if "system:masters" in organizations:
        yield (
            "the certificate has group system:masters; make sure that only the tenant's kube-apiserver"
            " holds its key, which now identifies that apiserver"
        )
    if leaf.not_valid_after_utc - now < dt.timedelta(days=14):
        yield f"the certificate expires on {day_left(leaf.not_valid_after_utc, now)}"


def _extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
    except ValueError as error:  # an extension that comes twice, or bad DER
        raise ToolError(f"{subject_text(certificate)}: its extensions cannot be read: {error}") from None
