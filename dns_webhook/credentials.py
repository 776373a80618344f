# SPDX-License-Identifier: Apache-2.0
"""The webhook's own authority and certificate, and when which of them is made anew.

Layout of the state directory, which only its owner enters: `authorities.pem` (newest last, each with
its key behind it) and `tls.pem`. Who asks trusts what stands in the webhook's registration, so the
order of a change of authority is: make it, publish it, and sign with it only after that.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from daemonkit.files import atomic

AUTHORITY_LIFE = dt.timedelta(days=3650)
LEAF_LIFE = dt.timedelta(days=90)
# Renewed with this much left: a month in which somebody may notice that it fails.
LEAF_RENEWAL = dt.timedelta(days=30)
AUTHORITY_RENEWAL = 2 * LEAF_LIFE
# From when on all are good. Not from when they are made: a clock that was ahead then, and is right
# now, would leave one that nobody takes until that day. Whoever checks goes by the end alone.
VALID_FROM = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_NAME = "dnsconfig webhook"


class CredentialsError(Exception):
    """The state directory cannot be used; says which file and why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def left(self, now: dt.datetime) -> dt.timedelta:
        """How long it is still good."""
        return self.certificate.not_valid_after_utc - now

    def has_begun(self, now: dt.datetime) -> bool:
        """Whether it is good yet. Ours are; those of older releases are from the hour they were made."""
        return self.certificate.not_valid_before_utc <= now


class Credentials:
    """Authorities and the certificate that is shown. `names` are DNS names and addresses."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        """Take up what is there. Raises CredentialsError: half a state is no reason to start anew."""
        self._directory = directory
        self._names = tuple(names)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)
            atomic.remove_leftovers(directory)
            self.authorities = _read(directory / "authorities.pem")
            leaves = _read(directory / "tls.pem")
        except OSError as error:
            raise CredentialsError(f"{error.filename or directory}: {error.strerror}") from None
        self.leaf = leaves[0] if leaves else None

    @property
    def certificate_file(self) -> Path:
        """The certificate that is shown, with its key."""
        return self._directory / "tls.pem"

    @property
    def bundle(self) -> tuple[bytes, ...]:
        """The authorities that whoever asks has to trust, PEM."""
        return tuple(each.certificate_pem for each in self.authorities)

    def turn(self, now: dt.datetime, published: Sequence[bytes]) -> bool:
        """Make what is due; whether the certificate to show is another one now.

        `published` are the authorities that have been in the registration for some time. Raises
        CredentialsError.

        An authority that has not begun stays, as it may be our clock that is behind: who asks trusts
        it until another one is published.
        """
        now = max(now, VALID_FROM)  # a clock that was never set begins with 1970
        living = [each for each in self.authorities if each.left(now) > dt.timedelta(0)]
        newest = living[-1] if living else None
        if newest is None or newest.left(now) < AUTHORITY_RENEWAL or not newest.has_begun(now):
            living.append(_authority(now))
        if living != self.authorities:
            self._write("authorities.pem", living)
            self.authorities = living
        trusted = [each for each in living if each.certificate_pem in published]
        signer = trusted[-1] if trusted else living[0]
        if self.leaf is not None and not self._is_due(self.leaf, signer, now):
            return False
        leaf = _leaf(self._names, signer, now)
        self._write("tls.pem", [leaf])
        self.leaf = leaf  # only now: what could not be written is due again with the next turn
        return True

    def _is_due(self, leaf: Identity, signer: Identity, now: dt.datetime) -> bool:
        try:
            leaf.certificate.verify_directly_issued_by(signer.certificate)
        except (ValueError, InvalidSignature):
            return True
        names = leaf.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_another = set(names) != set(map(_general_name, self._names))
        return is_another or leaf.left(now) < LEAF_RENEWAL or not leaf.has_begun(now)

    def _write(self, name: str, identities: Sequence[Identity]) -> None:
        data = b"".join(each.certificate_pem + each.key_pem for each in identities)
        try:
            atomic.write_atomically(self._directory / name, data)
        except OSError as error:
            raise CredentialsError(f"{self._directory / name}: {error.strerror}") from None


def _read(path: Path) -> list[Identity]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    marker = b"-----BEGIN CERTIFICATE-----"
    found = []
    try:
        for part in data.split(marker)[1:]:
            certificate = x509.load_pem_x509_certificate(marker + part)
            key = load_pem_private_key(part[part.index(b"-----BEGIN PRIVATE KEY-----") :], None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise CredentialsError(f"{path}: a key that is not ours; move the file away")
            found.append(Identity(certificate, key))
    except ValueError as error:
        raise CredentialsError(f"{path}: {error}; move the file away") from None
    return found


def _authority(now: dt.datetime) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    # The date tells two of them apart, also for a verifier that goes by the subject.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_NAME} {now:%Y-%m-%dT%H:%M:%SZ}")])
    usage = x509.KeyUsage(
        digital_signature=False,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(subject, subject, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Identity(builder.sign(key, hashes.SHA256()), key)


def _leaf(names: Sequence[str], signer: Identity, now: dt.datetime) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        _builder(subject, signer.certificate.subject, key, now, LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
        .add_extension(issuer, critical=False)
    )
    return Identity(builder.sign(signer.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    life: dt.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(VALID_FROM)
        .not_valid_after(now + life)
    )


def _general_name(name: str) -> x509.GeneralName:
    """The name as it comes back out of a certificate: an address has one form there, and no zone."""
    try:
        return x509.IPAddress(ipaddress.ip_address(ipaddress.ip_address(name).packed))
    except ValueError:
        return x509.DNSName(name)
