# SPDX-License-Identifier: Apache-2.0
"""The credentials of a client, read again when their files change.

Tokens of service accounts live an hour, client certificates some days, and both are replaced by
writing files. Before a request the files are looked at (a stat each), once a second at most; what changed is
read whole, and what does not parse leaves the old in use until it changes again.
"""

import math
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from daemonkit import logs
from daemonkit.kube.kubeconfig import Access, KubeconfigError

_log = logs.get(__name__)

# Tokens are below 2 KB; a file of another kind named by mistake must not fill the memory.
_MAX_FILE_BYTES = 1024 * 1024
# Who replaces credentials does so long before the old ones end, and after a request that failed the next one
# looks at once. A stat takes 3 us, and each pod some requests.
LOOK_EVERY_S = 1.0

_Stamp = tuple[tuple[int, int, int, int] | None, ...]


class CredentialsError(ValueError):
    """The credentials cannot be used; the text holds no secret."""


@dataclass(frozen=True, slots=True)
class Current:
    """What the next request uses. `tls` is None for plain HTTP."""

    access: Access
    tls: ssl.SSLContext | None
    token: str | None = field(repr=False)


class Credentials:
    """The credentials that `load` finds; `watched` are files besides those that the access names.

    Raises CredentialsError if they cannot be used at the start.
    """

    def __init__(
        self,
        load: Callable[[], Access],
        *,
        watched: tuple[Path, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._watched = watched
        self._clock = clock
        self._looked_at_s = clock()
        self._current = self._read()
        self._stamp = self._stamp_of(self._current.access)
        if self._stamp:
            # Once more: what changed between reading and looking would not be noticed later.
            self._current = self._read()

    def current(self) -> Current:
        """The credentials to use now: those that were there a second ago, or later."""
        now_s = self._clock()
        if now_s - self._looked_at_s < LOOK_EVERY_S:
            return self._current
        self._looked_at_s = now_s
        # The stamp is taken before reading: a file that changes meanwhile is read once more.
        stamp = self._stamp_of(self._current.access)
        if stamp != self._stamp:
            self._stamp = stamp
            self.reload()
        return self._current

    def look_again(self) -> None:
        """A request with them failed: the next one looks at the files, whenever the last one did."""
        self._looked_at_s = -math.inf

    def reload(self) -> None:
        """Read everything again; log a failure and keep the old."""
        try:
            self._current = self._read()
        except CredentialsError as error:
            _log.warning("credentials are unusable, the old ones stay", reason=str(error))
        else:
            _log.info("credentials were read again", server=self._current.access.server)

    def _read(self) -> Current:
        try:
            access = self._load()
            tls = _context(access) if access.server.startswith("https:") else None
            return Current(access, tls, token_of(access))
        except KubeconfigError as error:
            raise CredentialsError(str(error)) from None
        except ssl.SSLError as error:
            raise CredentialsError(f"certificate, key or CA: {error.reason or error}") from None
        except OSError as error:
            raise CredentialsError(f"{error.filename}: {error.strerror}") from None
        except ValueError as error:
            raise CredentialsError(str(error)) from None

    def _stamp_of(self, access: Access) -> _Stamp:
        return tuple(_stat(path) for path in (*self._watched, *access.files))


def _stat(path: Path) -> tuple[int, int, int, int] | None:
    # Kubelet replaces a projected volume by swapping a link: the inode changes, not the name.
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _context(access: Access) -> ssl.SSLContext:
    """A context that trusts this server's CA alone.

    Without a CA in the kubeconfig the system's are used, as kubectl does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    ca_pem = access.ca_pem or _optional(access.ca_file)
    if ca_pem is None:
        context.load_default_certs()
    else:
        _load_authorities(context, ca_pem, access.ca_file or "certificate-authority-data")
    certificate = access.certificate_pem or _optional(access.certificate_file)
    key = access.key_pem or _optional(access.key_file)
    if certificate is not None and key is not None:
        _load_pem(context, certificate, key)
    return context


def _load_authorities(context: ssl.SSLContext, pem: bytes, name: Path | str) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise CredentialsError(f"{name}: not PEM certificates of an authority") from None


def _load_pem(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a pair from memory: `ssl` takes files only, and a key must not be written to a disk."""
    descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(certificate.rstrip() + b"\n" + key)
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CredentialsError("the client key is not the key of the client certificate") from None
        raise CredentialsError(
            "the client certificate or its key is not PEM, is cut or is encrypted"
        ) from None
    finally:
        os.close(descriptor)


def token_of(access: Access) -> str | None:
    """The bearer token of an access, its file read now; None without one. Raises OSError and ValueError,
    CredentialsError among them."""
    token = access.token
    if access.token_file is not None:
        token = _read_file(access.token_file).decode("ascii").strip()
        if not token:
            raise CredentialsError(f"{access.token_file}: is empty")
    if token is not None and not all("!" <= c <= "~" for c in token):
        raise CredentialsError("the token holds characters that no header may have")
    return token


def _optional(path: Path | None) -> bytes | None:
    return None if path is None else _read_file(path)


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise CredentialsError(f"{path}: is too large")
    return content
