# SPDX-License-Identifier: Apache-2.0
"""The webhook's own authorities and certificate, and their renewal.

The state directory has `authorities.pem` (newest last, each followed by its key) and `tls.pem`; only
its owner may enter it. API servers trust the authorities in the registration, so a new one is first
created, then published, and signs only after that.
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
from daemonkit.tls.issuing import authority_usage, certificate_builder

AUTHORITY_LIFE = dt.timedelta(days=3650)
LEAF_LIFE = dt.timedelta(days=90)
# Renewed with this much left, so that operators have a month to notice a failure.
LEAF_RENEWAL = dt.timedelta(days=30)
AUTHORITY_RENEWAL = 2 * LEAF_LIFE
# All are valid from here on, not from their creation: a clock that was ahead then would leave a
# certificate that is not valid yet. Its end alone limits it.
VALID_FROM = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_NAME = "dnsconfig webhook"


class CredentialsError(Exception):
    """The state directory cannot be used; the text has the file and the reason."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def left(self, now: dt.datetime) -> dt.timedelta:
        """How long it is still valid."""
        return self.certificate.not_valid_after_utc - now

    def has_begun(self, now: dt.datetime) -> bool:
        """Whether it is valid yet. Older releases made it valid from its creation only."""
        return self.certificate.not_valid_before_utc <= now


class Credentials:
    """The authorities, and the certificate of the server. `names` are DNS names and addresses."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        """Load existing ones. Raises CredentialsError also for a damaged state: it is never replaced."""
        self._directory = directory
        self._names = tuple(names)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)
            atomic.remove_leftovers(directory)
            self.authorities, leaves = read_state(directory)
        except OSError as error:
            raise CredentialsError(f"{error.filename or directory}: {error.strerror}") from None
        self.leaf = leaves[0] if leaves else None

    @property
    def certificate_file(self) -> Path:
        """The certificate of the server, with its key."""
        return self._directory / "tls.pem"

    @property
    def bundle(self) -> tuple[bytes, ...]:
        """The authorities that API servers have to trust, in PEM."""
        return tuple(each.certificate_pem for each in self.authorities)

    def renew_due(self, now: dt.datetime, published: Sequence[bytes]) -> bool:
        """Create what is due; returns whether the server's certificate changed.

        `published` are the authorities that API servers know by now. Raises CredentialsError.

        An authority that is not valid yet stays, as our own clock may be behind: API servers trust it
        until another one is published.
        """
        now = max(now, VALID_FROM)  # a clock that was never set starts in 1970
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
        self.leaf = leaf  # only now: after a failed write it stays due
        return True

    def _is_due(self, leaf: KeyPair, signer: KeyPair, now: dt.datetime) -> bool:
        try:
            leaf.certificate.verify_directly_issued_by(signer.certificate)
        except (ValueError, InvalidSignature):
            return True
        names = leaf.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_another = set(names) != set(map(_general_name, self._names))
        return is_another or leaf.left(now) < LEAF_RENEWAL or not leaf.has_begun(now)

    def _write(self, name: str, identities: Sequence[KeyPair]) -> None:
        data = b"".join(each.certificate_pem + each.key_pem for each in identities)
        try:
            atomic.write_atomically(self._directory / name, data)
        except OSError as error:
            raise CredentialsError(f"{self._directory / name}: {error.strerror}") from None


def read_state(directory: Path) -> tuple[list[KeyPair], list[KeyPair]]:
    """The authorities, and the certificate of the server if there is one. Raises CredentialsError."""
    try:
        return _read(directory / "authorities.pem"), _read(directory / "tls.pem")
    except OSError as error:
        raise CredentialsError(f"{error.filename or directory}: {error.strerror}") from None


def _read(path: Path) -> list[KeyPair]:
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
                raise CredentialsError(f"{path}: a key of another kind; move the file away")
            found.append(KeyPair(certificate, key))
    except ValueError:
        raise CredentialsError(f"{path}: not certificates with their keys; move the file away") from None
    return found


def _authority(now: dt.datetime) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    # With the date, verifiers that compare subjects distinguish two authorities.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_NAME} {now:%Y-%m-%dT%H:%M:%SZ}")])
    builder = (
        certificate_builder(subject, subject, key, VALID_FROM, now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(authority_usage(crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def _leaf(names: Sequence[str], signer: KeyPair, now: dt.datetime) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        certificate_builder(subject, signer.certificate.subject, key, VALID_FROM, now + LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False)
        .add_extension(issuer, critical=False)
    )
    return KeyPair(builder.sign(signer.key, hashes.SHA256()), key)


def _general_name(name: str) -> x509.GeneralName:
    """The name as a certificate returns it: addresses have one form, and no zone."""
    try:
        return x509.IPAddress(ipaddress.ip_address(ipaddress.ip_address(name).packed))
    except ValueError:
        return x509.DNSName(name)
