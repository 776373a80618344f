# SPDX-License-Identifier: Apache-2.0
"""Certificates of the ring: P-256 throughout, short-lived, one authority per trust relation."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=2)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where a certificate and its key lie on disk."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class LeafCertificate:
    """A certificate with its private key, both PEM."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)

    @property
    def spki_sha256(self) -> str:
        """Lower-case hex SHA-256 of the SubjectPublicKeyInfo: what a tenant registers."""
        key = x509.load_pem_x509_certificate(self.certificate_pem).public_key()
        der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(der).hexdigest()

    def write(self, files: CertificateFiles) -> CertificateFiles:
        """Write both, each by rename, so that a reader sees an old file or a new one.

        The key goes first: readers that look at both reload when the certificate changes.
        """
        replace_file(files.key, self.key_pem, mode=0o600)
        replace_file(files.certificate, self.certificate_pem)
        return files


class Authority:
    """A certificate authority that lives in memory."""

    def __init__(self, common_name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name(common_name, ())
        ski = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = (
            _builder(name, name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .add_extension(ski, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ski), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        common_name: str,
        *,
        organizations: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
    ) -> LeafCertificate:
        """A leaf for `common_name`: a server's when it has an address or a name, else a client's."""
        key = ec.generate_private_key(ec.SECP256R1())
        is_server = bool(addresses or names)
        builder = (
            _builder(_name(common_name, organizations), self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH if is_server else ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if is_server:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(
                    [
                        *(x509.IPAddress(ipaddress.ip_address(a)) for a in addresses),
                        *(x509.DNSName(n) for n in names),
                    ]
                ),
                critical=False,
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return LeafCertificate(certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key))


def signing_key_pem() -> bytes:
    """A private key for service account tokens."""
    return _private_pem(ec.generate_private_key(ec.SECP256R1()))


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write `content` beside `path` and move it there in one step."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    beside.chmod(mode)
    beside.replace(path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )


def _name(common_name: str, organizations: tuple[str, ...]) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # "EC PRIVATE KEY": the apiserver finds the public half of a service account key in that form
    # only, not in PKCS 8.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
