# SPDX-License-Identifier: Apache-2.0
"""TLS contexts, and who the peer proved to be.

Every `ssl.SSLContext` of a daemon is made here, always a new one: `load_cert_chain` into a context with live
connections is undefined in OpenSSL (cpython 134698). So a rotation builds another context for the next
accept. None loads the system's authorities: they identify neither tenants nor nodes, and cost 829 KB and 17
ms a context.

Errors name the file and what to do, never its content.
"""

import _ssl
import binascii
import contextlib
import os
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from daemonkit.tls import openssl

# 1 MiB is four times a distribution's whole bundle. OpenSSL looks an issuer up by name among all
# authorities of a context; 2 000 load in 0.9 s, which is as much as a reload may cost.
MAX_PEM_BYTES = 1 << 20
MAX_CERTIFICATES = 2_000

# Forward secrecy and AEAD only for TLS 1.2 (RFC 9325, 4.2); TLS 1.3 has its own list.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:@SECLEVEL=2"

# SSL_OP_NO_TX_CERTIFICATE_COMPRESSION and SSL_OP_NO_RX_CERTIFICATE_COMPRESSION (RFC 8879), for which `ssl`
# has no names. OpenSSL takes compressed chains from 3.2 on where it was built with zlib, brotli or zstd:
# 12 KiB on the wire may be 100 KB of certificates then, and CVE-2025-66199 is more. Before 3.2 the bits mean
# nothing.
_NO_COMPRESSED_CERTIFICATES = 1 << 32 | 1 << 33

_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"


class TlsError(Exception):
    """Certificates or keys that cannot be used, or a peer that proved nothing."""


def server_context(
    certificate_file: Path,
    key_file: Path,
    authorities_der: Iterable[bytes],
    *,
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> ssl.SSLContext:
    """Make the context of a server that demands a client certificate from `authorities_der`.

    ALPN http/1.1 without resumption: a resumed session has no verified chain, so it would not authenticate
    the client. TLS 1.3 is the default for that reason. For TLS 1.2 Python can switch off tickets, but not
    OpenSSL's cache of sessions, which resumes by identifier. The cache keeps 20 480 sessions of 5 KB. Every
    supported release of Kubernetes has TLS 1.3. With a lower `minimum_version` the cache stays, and
    `verified_chain` refuses resumed sessions.

    Raises `TlsError`, also for an empty set of authorities: OpenSSL would refuse every client silently.
    """
    context = anonymous_server_context(certificate_file, key_file)
    if not _trust(context, authorities_der):
        raise TlsError("no certificate authority to check clients against: register a tenant first")
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = minimum_version
    return context


def anonymous_server_context(certificate_file: Path, key_file: Path) -> ssl.SSLContext:
    """Make the context of a server without client certificates, as webhooks are. Raises `TlsError`.

    Its answers must hold no secret.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    openssl.limit_groups(context)
    _present(context, certificate_file, key_file)
    return context


def client_context(
    ca: Path | bytes, certificate: Path | bytes | None = None, key: Path | bytes | None = None
) -> ssl.SSLContext:
    """Make the context of a client that verifies the server's chain against `ca` and its name.

    Each source is a PEM file or PEM bytes (a kubeconfig carries them inline). Raises `TlsError`.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.hostname_checks_common_name = False
    name = str(ca) if isinstance(ca, Path) else "the inline CA"
    try:
        _trust(context, pem_certificates(_pem(ca, name)))
    except TlsError as error:
        raise TlsError(f"{name}: {error}") from None
    context.set_alpn_protocols(["http/1.1"])
    if certificate is not None and key is not None:
        _present(context, certificate, key)
    elif certificate is not None or key is not None:
        raise TlsError("a client certificate and its key go together: give both or none")
    return context


def unverified_client_context() -> ssl.SSLContext:
    """Make the context of a client that only finds out whether a server answers. Send nothing over it.

    It takes any certificate and presents none.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def verified_chain(tls: ssl.SSLObject | ssl.SSLSocket) -> tuple[bytes, ...]:
    """Return the peer's chain as it was verified, DER, leaf first, trust anchor last.

    Call after the handshake. Raises `TlsError` when there is none: no certificate, or a resumed
    session. The chain a peer *sends* is not this; it can hold anything behind the leaf.
    """
    if tls.session_reused:
        raise TlsError("the session was resumed, so the peer's chain was not verified anew")
    chain = _verified_der(tls)
    if not chain:
        raise TlsError("the peer has no verified certificate")
    return chain


def _verified_der(tls: ssl.SSLObject | ssl.SSLSocket) -> tuple[bytes, ...]:
    if hasattr(tls, "get_verified_chain"):  # public, and DER, from Python 3.13
        return tuple(tls.get_verified_chain())
    # Before, `ssl` has no public way to the chain that was verified; the object that it wraps has the
    # same function since 3.10, which gives certificate objects or None.
    inner = cast(Any, tls)._sslobj  # noqa: SLF001 - no public way before 3.13
    chain = None if inner is None else inner.get_verified_chain()
    return tuple(each.public_bytes(_ssl.ENCODING_DER) for each in chain or ())


def pem_certificates(
    text: str | bytes,
    *,
    max_bytes: int = MAX_PEM_BYTES,
    max_certificates: int = MAX_CERTIFICATES,
) -> tuple[bytes, ...]:
    """Return the DER of each certificate in PEM `text`, in order, at least one.

    Strict (RFC 7468): only CERTIFICATE blocks, well-formed base64, nothing cut. Text between blocks
    is allowed unless it looks like a damaged marker: skipping a CA silently would cause an
    outage without an error. Raises `TlsError` with the line.
    """
    if len(text) > max_bytes:
        raise TlsError(f"larger than {max_bytes} bytes")
    try:
        lines = (text if isinstance(text, str) else text.decode()).splitlines()
    except UnicodeDecodeError:
        raise TlsError("not PEM text; convert it with `openssl x509 -inform der`") from None
    result: list[bytes] = []
    body: list[str] | None = None
    for number, line in enumerate(map(str.strip, lines), 1):
        if line == _BEGIN and body is None:
            body = []
        elif line == _END and body is not None:
            result.append(_der("".join(body), number))
            body = None
        elif body is not None:
            body.append(line)
        elif "PRIVATE KEY" in line:
            raise TlsError(f"line {number}: a private key; keep only certificates in this file")
        elif "---" in line:
            raise TlsError(f"line {number}: not the begin of a certificate; keep only certificates")
        if len(result) > max_certificates:
            raise TlsError(f"more than {max_certificates} certificates")
    if body is not None:
        raise TlsError("the last certificate has no end line; the file is cut")
    if not result:
        raise TlsError("no certificate in it; expected PEM")
    return tuple(result)


def check_authorities(authorities_der: Iterable[bytes]) -> None:
    """Raise `TlsError` unless each is a CA certificate that OpenSSL can load.

    For one source's certificates alone, before they are put among others': `server_context` fails
    as a whole, and one tenant's bad file must not keep the others out.
    """
    _trust(_context(ssl.PROTOCOL_TLS_SERVER), authorities_der)


def check_certificate(certificate_file: Path, key_file: Path) -> None:
    """Raise `TlsError` unless the certificate and its key can be presented together."""
    _present(_context(ssl.PROTOCOL_TLS_SERVER), certificate_file, key_file)


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Both sides' lists are sound; the client knows what its processor does in hardware, and a Go
    # client then asks for AES-128, which costs a tenth less than OpenSSL's own first choice.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    # Last: `~` above forgets bits without a name.
    context.options |= _NO_COMPRESSED_CERTIFICATES
    return context


def _trust(context: ssl.SSLContext, authorities_der: Iterable[bytes]) -> int:
    """Add the authorities one by one, so that an error can say which; return how many."""
    count = 0
    for count, der in enumerate(authorities_der, 1):
        if count > MAX_CERTIFICATES:
            raise TlsError(f"more than {MAX_CERTIFICATES} certificate authorities")
        try:
            context.load_verify_locations(cadata=der)
        except (ssl.SSLError, ValueError):
            raise TlsError(f"certificate {count} is not one that OpenSSL can read") from None
        stored = context.cert_store_stats()
        if stored["x509"] != stored["x509_ca"]:
            raise TlsError(
                f"certificate {count} is not an authority (basicConstraints CA is not true);"
                " give the CA that issued it"
            )
    return count


def _present(context: ssl.SSLContext, certificate: Path | bytes, key: Path | bytes) -> None:
    certificate_name = str(certificate) if isinstance(certificate, Path) else "inline certificate"
    key_name = str(key) if isinstance(key, Path) else "inline key"
    with contextlib.ExitStack() as stack:
        certificate_path = stack.enter_context(_as_file(certificate, certificate_name))
        key_path = stack.enter_context(_as_file(key, key_name))

        def refuse_password() -> str:
            # Without this OpenSSL asks on the terminal, and a daemon hangs.
            raise TlsError(f"{key_name}: the key is encrypted; give one without passphrase")

        try:
            context.load_cert_chain(certificate_path, key_path, refuse_password)
        except ssl.SSLError as error:
            raise TlsError(_load_problem(error, certificate_name, key_name)) from None
        except OSError as error:
            raise TlsError(f"{certificate_name} or {key_name}: {error.strerror}") from None


def _load_problem(error: ssl.SSLError, certificate_name: str, key_name: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{key_name}: not the key of {certificate_name}; write both at once"
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"):
        return f"{certificate_name}: key or signature too weak; use P-256 with SHA-256"
    return f"{certificate_name}, {key_name}: one of them is not a PEM certificate or key, or is cut"


@contextlib.contextmanager
def _as_file(source: Path | bytes, name: str) -> Iterator[str]:
    """Give the path of a source. `ssl` reads certificate and key from files only."""
    data = _pem(source, name)
    if isinstance(source, Path):
        yield str(source)
        return
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)  # a key must not touch a disk for this
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _pem(source: Path | bytes, name: str) -> bytes:
    """Read a source, so that a file that is not there or not readable is named."""
    if isinstance(source, bytes):
        return source
    try:
        with source.open("rb") as file:
            data = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise TlsError(f"{name}: {error.strerror}") from None
    if len(data) > MAX_PEM_BYTES:
        raise TlsError(f"{name}: larger than {MAX_PEM_BYTES} bytes")
    return data


def _der(body: str, line: int) -> bytes:
    try:
        der = binascii.a2b_base64(body, strict_mode=True)
    except (binascii.Error, ValueError):
        raise TlsError(f"line {line}: the certificate that ends here is not base64") from None
    if not _is_one_sequence(der):
        raise TlsError(f"line {line}: the certificate that ends here is not DER, or is cut")
    return der


def _is_one_sequence(der: bytes) -> bool:
    """Tell whether the bytes are exactly one DER SEQUENCE, the outer form of a certificate."""
    if len(der) < 4 or der[0] != 0x30:
        return False
    if der[1] < 0x80:
        return der[1] == len(der) - 2
    size = der[1] & 0x7F
    return 1 <= size <= 3 and int.from_bytes(der[2 : 2 + size]) == len(der) - 2 - size
