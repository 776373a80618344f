# SPDX-License-Identifier: Apache-2.0
"""Certificates for fakes, tests and the demo. Never for a real node.

Keys are P-256: quick to make, and the basis of vn-agent's handshake figures. The arguments cover all that a
hostile or careless authority might put into a certificate. So tests read real DER.
"""

import datetime as dt
import hashlib
import ipaddress
import os
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID, ObjectIdentifier

from daemonkit.tls import issuing
from devkit.files import replace_file

Key = ec.EllipticCurvePrivateKey

_USAGES: dict[str, ObjectIdentifier] = {
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
}
_DAY = dt.timedelta(days=1)
# A machine that boots with a clock somewhat behind must still accept what another one just made.
_BACKDATED = dt.timedelta(hours=1)


def new_key() -> Key:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def common_name(*names: str, organization: str | None = None) -> x509.Name:
    """A subject with any number of common names, in the order given; control characters stay."""
    attributes = []
    if organization is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    attributes += [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    return x509.Name(attributes)


def spki_sha256(key: ec.EllipticCurvePublicKey) -> str:
    """Lower-case hex SHA-256 of the SubjectPublicKeyInfo (RFC 5280, 4.1.2.7)."""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate with its key. `cert_pem` holds the leaf alone, without its chain."""

    cert_pem: bytes
    key_pem: bytes = field(repr=False)
    der: bytes
    spki_sha256: str
    key: Key

    @classmethod
    def of(cls, certificate: x509.Certificate, key: Key) -> "Leaf":
        return cls(
            cert_pem=certificate.public_bytes(Encoding.PEM),
            key_pem=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            der=certificate.public_bytes(Encoding.DER),
            spki_sha256=spki_sha256(key.public_key()),
            key=key,
        )

    @classmethod
    def from_pem(cls, cert_pem: bytes, key_pem: bytes) -> "Leaf":
        """The leaf of two PEM texts. Raises ValueError."""
        key = load_pem_private_key(key_pem, password=None)
        if not isinstance(key, Key):
            raise ValueError("not an EC key")
        return cls.of(x509.load_pem_x509_certificate(cert_pem), key)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make this the certificate that `context` shows, without a file that stays."""
        descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.cert_pem + self.key_pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")

    def write(self, directory: Path | str, name: str) -> tuple[Path, Path]:
        """Write `name.crt` and `name.key` (0600), each replaced whole; return both paths."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        # The key first: readers of both reload when the certificate changes.
        replace_file(key, self.key_pem, mode=0o600)
        replace_file(certificate, self.cert_pem)
        return certificate, key


class Authority:
    """A self-signed certificate authority that issues leaves."""

    def __init__(self, certificate: x509.Certificate, key: Key, *, has_key_identifier: bool) -> None:
        self.certificate = certificate
        self.key = key
        self._has_key_identifier = has_key_identifier

    @classmethod
    def create(
        cls,
        name: str,
        *,
        has_key_identifier: bool = True,
        subject: x509.Name | None = None,
        key: Key | None = None,
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
    ) -> "Authority":
        """A new authority with the name `name`, or with `subject`.

        Without the key identifier neither the authority nor its leaves name the key. A verifier with several
        authorities of one name then has to try them all.
        """
        own = key or new_key()
        whole = subject if subject is not None else common_name(name)
        builder = (
            certificate_builder(whole, whole, own, not_before, not_after)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(issuing.authority_usage(digital_signature=True, crl_sign=True), critical=True)
        )
        if has_key_identifier:
            identifier = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
            builder = builder.add_extension(identifier, critical=False)
        certificate = builder.sign(own, hashes.SHA256())
        return cls(certificate, own, has_key_identifier=has_key_identifier)

    @property
    def cert_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def write(self, directory: Path | str, name: str) -> Path:
        """Write the authority's certificate as `name.crt` and return the path."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        path = Path(directory) / f"{name}.crt"
        replace_file(path, self.cert_pem)
        return path

    def issue(
        self,
        name: str,
        *,
        sans_dns: Iterable[str] = (),
        sans_ip: Iterable[str] = (),
        uris: Iterable[str] = (),
        usages: Sequence[str] = ("client", "server"),
        organization: str | None = None,
        subject: x509.Name | None = None,
        not_before: dt.datetime | None = None,
        not_after: dt.datetime | None = None,
        key: Key | None = None,
        encoded_names: bytes = b"",
    ) -> Leaf:
        """A leaf called `name` (or `subject`) for `usages` out of `client` and `server`.

        `encoded_names` is the DER of alternative names that no `sans_` can have.

        `key` renews an existing key, so that the public key and its hash stay. Empty `usages` leave
        the extended key usage out.
        """
        own = key or new_key()
        whole = subject if subject is not None else common_name(name, organization=organization)
        builder = _leaf_extensions(
            certificate_builder(whole, self.certificate.subject, own, not_before, not_after),
            _alternative_names(sans_dns, sans_ip, uris),
            usages,
        )
        if encoded_names:
            names = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, encoded_names)
            builder = builder.add_extension(names, critical=False)
        if self._has_key_identifier:
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
            builder = builder.add_extension(identifier, critical=False)
        return Leaf.of(builder.sign(self.key, hashes.SHA256()), own)


def self_signed(
    name: str,
    *,
    sans_dns: Iterable[str] = (),
    sans_ip: Iterable[str] = (),
    uris: Iterable[str] = (),
    usages: Sequence[str] = ("client", "server"),
    subject: x509.Name | None = None,
    key: Key | None = None,
) -> Leaf:
    own = key or new_key()
    whole = subject if subject is not None else common_name(name)
    builder = _leaf_extensions(
        certificate_builder(whole, whole, own),
        _alternative_names(sans_dns, sans_ip, uris),
        usages,
    )
    return Leaf.of(builder.sign(own, hashes.SHA256()), own)


def certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: Key | rsa.RSAPrivateKey,
    not_before: dt.datetime | None = None,
    not_after: dt.datetime | None = None,
) -> x509.CertificateBuilder:
    """A certificate of `key` without extensions, to be signed; without dates, valid for 30 days."""
    now = dt.datetime.now(dt.UTC)
    return issuing.certificate_builder(
        subject, issuer, key, not_before or now - _BACKDATED, not_after or now + 30 * _DAY
    )


def _leaf_extensions(
    builder: x509.CertificateBuilder,
    names: list[x509.GeneralName],
    usages: Sequence[str],
) -> x509.CertificateBuilder:
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    if usages:
        extended = x509.ExtendedKeyUsage([_USAGES[usage] for usage in usages])
        builder = builder.add_extension(extended, critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder


def _alternative_names(dns: Iterable[str], ip: Iterable[str], uris: Iterable[str]) -> list[x509.GeneralName]:
    return [
        *(x509.DNSName(name) for name in dns),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in ip),
        *(x509.UniformResourceIdentifier(uri) for uri in uris),
    ]
