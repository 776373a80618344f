# SPDX-License-Identifier: Apache-2.0
"""The identity of guests: kata-bridge's own certificate authority, and one certificate for each sandbox.

Layout of the state directory, which only root may enter:

    ca.crt ca.key server.crt server.key
    sandboxes/<sandbox id>/{ca.crt,tls.crt,tls.key}     copied or mounted into that guest

A certificate is valid while its directory exists, and only that very leaf. The directories are the register:
a restart reads them, and to revoke a certificate is to remove its directory.
Dates decide nothing, and no certificate is renewed. A guest's clock may be wrong just after it booted, and a
failed renewal would cut off a healthy guest. A short validity adds nothing: a stolen certificate works only
while its guest lives, and only as that guest.
For a new authority remove the state directory and restart. Agents pick up the new certificates by themselves,
because they read their directory at every attempt to connect.
"""

import datetime as dt
import hashlib
import os
import re
import shutil
from collections.abc import Iterable
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

from daemonkit.files import atomic, directories
from daemonkit.tls.issuing import authority_usage, certificate_builder

# What agents expect in the server's certificate, whatever address they dialled.
SERVER_NAME = "kata-bridge.vcnode.internal"

URI_PREFIX = "vcnode://sandbox/"

# containerd's ids are 64 hex digits. They become file names, so no part of a path may be in them.
_SANDBOX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

# RFC 5280, 4.1.2.5: "To indicate that a certificate has no well-defined expiration date, the
# notAfter SHOULD be assigned the GeneralizedTime value of 99991231235959Z."
_FROM = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_UNTIL = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_Key = ec.EllipticCurvePrivateKey


class GuestCertificateError(Exception):
    """The state directory cannot be used, or a sandbox's id is invalid; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Issued:
    """The certificate of one sandbox: the directory of its files, and the SHA-256 of the leaf's DER."""

    sandbox: str
    directory: Path
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The certificate, key and authority of the server that guests connect to, PEM."""

    authority_pem: bytes
    certificate_pem: bytes
    key_pem: bytes


class GuestCertificates:
    """The authority and its register. Make one with `open`; nothing here waits for a network."""

    def __init__(
        self, directory: Path, server: ServerIdentity, authority: x509.Certificate, key: _Key
    ) -> None:
        self._server = server
        self._sandboxes = directory / "sandboxes"
        self._authority = authority
        self._key = key
        self._issued: dict[str, Issued] = {}
        self._by_fingerprint: dict[str, str] = {}

    @property
    def server(self) -> ServerIdentity:
        """The identity of the server that guests connect to."""
        return self._server

    @classmethod
    def open(cls, directory: Path) -> "GuestCertificates":
        """Load the state directory, or make it. Raises `GuestCertificateError`.

        An incomplete state is an error: guests trust the authority that was there.
        """
        try:
            directories.prepare(directory, 0o700)
            atomic.remove_leftovers(directory)
            authority, key = _authority(directory)
            server = _server(directory, authority, key)
            self = cls(directory, server, authority, key)
            self._load()
        except OSError as error:
            raise GuestCertificateError(f"{error.filename or directory}: {error.strerror}") from None
        return self

    def issue(self, sandbox: str) -> Issued:
        """Return the certificate of `sandbox`, a new one if it has none. Raises `GuestCertificateError`."""
        known = self._issued.get(sandbox)
        if known is not None:
            return known
        if not _SANDBOX.fullmatch(sandbox):
            raise GuestCertificateError(f"{sandbox!r} is not a valid sandbox id")
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = _certificate(
            f"sandbox {sandbox}"[:64],
            key,
            issuer=(self._authority.subject, self._key),
            name=x509.UniformResourceIdentifier(URI_PREFIX + sandbox),
            usage=ExtendedKeyUsageOID.CLIENT_AUTH,
        )
        content = {"ca.crt": self._server.authority_pem, "tls.crt": _pem(leaf), "tls.key": _key_pem(key)}
        directory = self._sandboxes / sandbox
        try:
            self._write(directory, content)
        except OSError as error:
            raise GuestCertificateError(f"{directory}: {error.strerror}") from None
        return self._register(sandbox, leaf)

    def revoke(self, sandbox: str) -> None:
        """Revoke the certificate of `sandbox`, if it has one.

        Raises `GuestCertificateError` when its files cannot be removed; it is refused in any case, until a
        restart reads the files again.
        """
        issued = self._issued.pop(sandbox, None)
        if issued is None:
            return
        self._by_fingerprint.pop(issued.fingerprint, None)
        try:
            # The leaf first: a restart ignores a directory without it.
            (issued.directory / "tls.crt").unlink(missing_ok=True)
            shutil.rmtree(issued.directory)
        except OSError as error:
            raise GuestCertificateError(f"{issued.directory}: {error.strerror}") from None

    def retain(self, sandboxes: Iterable[str]) -> tuple[str, ...]:
        """Revoke all but these, after a start; return the sandboxes whose certificate was revoked.

        Raises `GuestCertificateError`, after all are refused, if the files of some cannot be removed.
        """
        gone = tuple(sorted(self._issued.keys() - set(sandboxes)))
        failures = []
        for sandbox in gone:
            try:
                self.revoke(sandbox)
            except GuestCertificateError as error:
                failures.append(str(error))
        if failures:
            more = f"; and {len(failures) - 1} more of {len(gone)}" if len(failures) > 1 else ""
            raise GuestCertificateError(failures[0] + more)
        return gone

    def sandboxes(self) -> frozenset[str]:
        """The sandboxes that have a certificate."""
        return frozenset(self._issued)

    def sandbox_of(self, leaf_pem: bytes) -> str | None:
        """The sandbox whose registered certificate this is, byte for byte; else None.

        The caller has verified its chain and the possession of its key, by TLS.
        """
        try:
            leaf = x509.load_pem_x509_certificate(leaf_pem)
        except ValueError:
            return None
        return self._by_fingerprint.get(_fingerprint(leaf))

    def _load(self) -> None:
        directories.prepare(self._sandboxes, 0o700)
        for directory in self._sandboxes.iterdir():
            leaf = self._leaf_in(directory)
            if leaf is None:
                # Written or removed only in part: no guest has it, or none may use it.
                shutil.rmtree(directory)
            else:
                self._register(directory.name, leaf)

    def _leaf_in(self, directory: Path) -> x509.Certificate | None:
        if not _SANDBOX.fullmatch(directory.name) or not (directory / "tls.key").is_file():
            return None
        try:
            leaf = x509.load_pem_x509_certificate((directory / "tls.crt").read_bytes())
            leaf.verify_directly_issued_by(self._authority)
        except (FileNotFoundError, ValueError, TypeError, InvalidSignature):
            return None
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        return leaf if uris == [URI_PREFIX + directory.name] else None

    def _register(self, sandbox: str, leaf: x509.Certificate) -> Issued:
        issued = Issued(sandbox, self._sandboxes / sandbox, _fingerprint(leaf))
        self._issued[sandbox] = issued
        self._by_fingerprint[issued.fingerprint] = sandbox
        return issued

    def _write(self, directory: Path, content: dict[str, bytes]) -> None:
        """Make a directory with these files, all or none: it may be mounted at once."""
        # `_SANDBOX` excludes a leading dot, so that the next start removes what is left of it.
        unfinished = directory.with_name(f".{directory.name}")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            unfinished.mkdir(mode=0o700)
            for name, data in content.items():
                # Not synced to the disk: after a crash of the node there is no such sandbox.
                with os.fdopen(os.open(unfinished / name, _NEW_FILE, 0o600), "wb") as file:
                    file.write(data)
            unfinished.rename(directory)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


def state_problem(directory: Path) -> str:
    """Why `GuestCertificates.open` would fail at the files that are there; empty if it would not."""
    try:
        authority = _saved_authority(directory)
        if authority is not None:
            _saved_server(directory, authority[0])
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror}"
    except GuestCertificateError as error:
        return str(error)
    return ""


def _saved_authority(directory: Path) -> tuple[x509.Certificate, _Key] | None:
    certificate, key = directory / "ca.crt", directory / "ca.key"
    if certificate.exists():
        return _loaded(certificate, key)
    if any((directory / "sandboxes").glob("*")):
        raise GuestCertificateError(
            f"{certificate} is missing, but guests have certificates of it; restore it, or remove {directory}"
        )
    return None


def _saved_server(directory: Path, authority: x509.Certificate) -> tuple[x509.Certificate, _Key] | None:
    certificate_file, key_file = directory / "server.crt", directory / "server.key"
    if not certificate_file.exists():
        return None
    leaf, key = _loaded(certificate_file, key_file)
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise GuestCertificateError(
            f"{certificate_file} was not issued by {directory / 'ca.crt'}; remove it"
        ) from None
    return leaf, key


def _authority(directory: Path) -> tuple[x509.Certificate, _Key]:
    certificate, key = directory / "ca.crt", directory / "ca.key"
    if _saved_authority(directory) is None:
        made = ec.generate_private_key(ec.SECP256R1())
        # The key first: the certificate marks a complete authority.
        atomic.write_atomically(key, _key_pem(made))
        atomic.write_atomically(certificate, _pem(_self_signed("vcnode kata-bridge", made)))
    return _loaded(certificate, key)


def _server(directory: Path, authority: x509.Certificate, key: _Key) -> ServerIdentity:
    certificate_file, key_file = directory / "server.crt", directory / "server.key"
    if _saved_server(directory, authority) is None:
        own = ec.generate_private_key(ec.SECP256R1())
        leaf = _certificate(
            SERVER_NAME,
            own,
            issuer=(authority.subject, key),
            name=x509.DNSName(SERVER_NAME),
            usage=ExtendedKeyUsageOID.SERVER_AUTH,
        )
        atomic.write_atomically(key_file, _key_pem(own))
        atomic.write_atomically(certificate_file, _pem(leaf))
    leaf, own = _loaded(certificate_file, key_file)
    return ServerIdentity(_pem(authority), _pem(leaf), _key_pem(own))


def _loaded(certificate_file: Path, key_file: Path) -> tuple[x509.Certificate, _Key]:
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    except ValueError:
        raise GuestCertificateError(f"{certificate_file} is not a PEM certificate") from None
    try:
        key = load_pem_private_key(key_file.read_bytes(), password=None)
    except (ValueError, TypeError):
        raise GuestCertificateError(f"{key_file} is not a PEM key without passphrase") from None
    if not isinstance(key, _Key) or key.public_key() != certificate.public_key():
        raise GuestCertificateError(f"{key_file} is not the key of {certificate_file}")
    return certificate, key


def _self_signed(subject: str, key: _Key) -> x509.Certificate:
    name = _name(subject)
    return (
        certificate_builder(name, name, key, _FROM, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(authority_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    subject: str,
    key: _Key,
    *,
    issuer: tuple[x509.Name, _Key],
    name: x509.GeneralName,
    usage: x509.ObjectIdentifier,
) -> x509.Certificate:
    issuer_name, issuer_key = issuer
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        certificate_builder(_name(subject), issuer_name, key, _FROM, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: _Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _fingerprint(leaf: x509.Certificate) -> str:
    return hashlib.sha256(leaf.public_bytes(Encoding.DER)).hexdigest()
