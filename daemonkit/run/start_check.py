# SPDX-License-Identifier: Apache-2.0
"""Examines the files that a configuration names, with the loaders that the daemon itself uses.

`--check-config` prints all problems, and a start logs those that it goes on with. Nothing is written and
nothing connected. A problem names the key of the configuration, the file, what is wrong and what to do; no
content of a file is in it.
"""

import base64
import binascii
import datetime as dt
import enum
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.files import directories
from daemonkit.files.directories import HasDirectories
from daemonkit.tls.contexts import MAX_PEM_BYTES, TlsError
from tenancy import x509

if TYPE_CHECKING:
    from daemonkit.kube.kubeconfig import Access

# Kubernetes' own client certificates are renewed when a tenth to a third of a year is left; a week is what an
# operator needs to notice.
EXPIRY_WARNING_S = 7 * 86_400.0

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_CREATE = "create it, or correct the path in the configuration"
_RENEW = "renew the certificate"


class Severity(enum.Enum):
    """What a problem does to a start."""

    FATAL = "fatal"  # the start fails, with exit code 2
    ERROR = "error"  # the daemon starts, is not ready or lacks a part of its work, and tries again
    WARNING = "warning"  # all works for now; `--check-config` exits with 0


class FileProblem(msgspec.Struct, frozen=True):
    """A file that cannot be used as the configuration wants it. `key` is its path in the configuration."""

    key: str
    path: Path | None
    message: str
    remedy: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        place = self.key if self.path is None else f"{self.key}: {self.path}"
        text = f"{place}: {self.message}; {self.remedy}" if self.remedy else f"{place}: {self.message}"
        return f"warning: {text}" if self.severity is Severity.WARNING else text


def kubeconfig_problems(
    key: str, path: Path, now_s: float, severity: Severity = Severity.ERROR
) -> Iterator[FileProblem]:
    """Why the API client of a daemon cannot use this kubeconfig; also certificates that expire."""
    # A large import, which vn-agent needs on nodes that watch the super cluster alone.
    from daemonkit.kube.credentials import Credentials, CredentialsError
    from daemonkit.kube.kubeconfig import load

    unreadable = _unreadable(key, path, severity)
    if unreadable is not None:
        yield unreadable
        return
    try:
        access = Credentials(lambda: load(path)).current().access
    except CredentialsError as error:
        remedy = "correct it, or write a new one for this daemon"
        yield FileProblem(key, path, _without(str(error), path), remedy, severity)
        return
    yield from _credential_dates(key, path, access, now_s)


def _credential_dates(key: str, path: Path, access: "Access", now_s: float) -> Iterator[FileProblem]:
    for what, pem, file in (
        ("client certificate", access.certificate_pem, access.certificate_file),
        ("certificate authority", access.ca_pem, access.ca_file),
    ):
        data = pem or (None if file is None else read_at_most(file))
        yield from date_problems(key, path if file is None else file, data or b"", now_s, what)


def certificate_problems(
    files: Mapping[str, Path], use: Callable[[], object], now_s: float, severity: Severity = Severity.ERROR
) -> Iterator[FileProblem]:
    """Why these files, each by its key, cannot be used together; also certificates that expire.

    `use` builds what the daemon builds of them, and raises TlsError.
    """
    unreadable = [_unreadable(key, path, severity) for key, path in files.items()]
    yield from (each for each in unreadable if each is not None)
    if any(unreadable):
        return
    try:
        use()
    except TlsError as error:
        yield _tls_problem(files, str(error), severity)
        return
    for key, path in files.items():
        yield from date_problems(key, path, read_at_most(path), now_s)


def _tls_problem(files: Mapping[str, Path], text: str, severity: Severity) -> FileProblem:
    """The error of `daemonkit.tls`, which begins with the file and ends with what to do."""
    key, path = next(
        ((key, path) for key, path in files.items() if text.startswith(f"{path}:")), next(iter(files.items()))
    )
    message, _, remedy = _without(text, path).partition("; ")
    return FileProblem(key, path, message, remedy or "replace it", severity)


def scrape_problems(config: ScrapeConfig, now_s: float) -> Iterator[FileProblem]:
    """Why scrapers of other machines would not be served; the daemon starts, and tries again."""
    files = config.files
    if config.address is None or files is None:
        return
    # The listener alone needs it, on nodes that have one.
    from daemonkit.status.scrape_listener import context_of

    keys = ("metrics.certificateFile", "metrics.keyFile", "metrics.clientCAFile")
    yield from certificate_problems(dict(zip(keys, files, strict=True)), lambda: context_of(files), now_s)


def date_problems(
    key: str, path: Path, pem: bytes, now_s: float, what: str = "certificate"
) -> Iterator[FileProblem]:
    """Certificates that are not valid now or soon will not be.

    ERROR, not FATAL: a daemon starts with an expired certificate, as a node's clock may be wrong at boot, and
    takes the renewed one when it is there.
    """
    for der in _certificates(pem):
        try:
            begin, end = x509.validity(der)
        except x509.CertificateError:
            continue  # what cannot be loaded is reported by its loader
        if now_s > end:
            yield FileProblem(key, path, f"the {what} expired on {_day(end)}", _RENEW)
        elif now_s < begin:
            remedy = "check the node's clock, else " + _RENEW
            yield FileProblem(key, path, f"the {what} is not valid before {_day(begin)}", remedy)
        elif end - now_s < EXPIRY_WARNING_S:
            text = f"the {what} expires on {_day(end)}, in less than {EXPIRY_WARNING_S / 86_400:.0f} days"
            yield FileProblem(key, path, text, _RENEW, Severity.WARNING)


def directory_problem(key: str, path: Path, severity: Severity = Severity.ERROR) -> FileProblem | None:
    """Why this user cannot list a directory; None if it can."""
    try:
        with os.scandir(path):
            return None
    except OSError as error:
        return FileProblem(key, path, error.strerror or "cannot be listed", _remedy(error), severity)


def writable_problem(key: str, path: Path, severity: Severity = Severity.ERROR) -> FileProblem | None:
    """Why this user cannot write a file, which need not exist yet; None if it can."""
    # Effective, as the daemon itself: os.access() asks for the real user otherwise.
    if not path.parent.is_dir():
        return FileProblem(key, path, f"{path.parent} is not a directory", _CREATE, severity)
    if path.is_dir():
        return FileProblem(key, path, "it is a directory", "name a file", severity)
    target, mode = (path, os.W_OK) if path.exists() else (path.parent, os.W_OK | os.X_OK)
    if os.access(target, mode, effective_ids=True):
        return None
    uid = os.geteuid()
    return FileProblem(key, path, f"uid {uid} cannot write to {target}", f"chown {target} to it", severity)


def socket_problem(key: str, path: Path, owner: str) -> FileProblem | None:
    """Why this user cannot connect to the socket of another daemon, `owner`; None if it may.

    A socket that is not there yet is a warning: `owner` may start later.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if not path.parent.is_dir():
            message, remedy = f"{path.parent} is not a directory", f"start {owner}, or correct the path"
        else:
            message, remedy = error.strerror or "cannot be examined", f"start {owner}, or correct the path"
        return FileProblem(key, path, message, remedy, Severity.WARNING)
    if not stat.S_ISSOCK(mode):
        return FileProblem(key, path, "not a socket", f"name the socket of {owner}")
    if not os.access(path, os.W_OK, effective_ids=True):
        remedy = f"add its user to the group that may use {owner}"
        return FileProblem(key, path, f"uid {os.geteuid()} may not connect to it", remedy)
    return None


def directories_problems(config: object) -> Iterator[FileProblem]:
    """The directories in which a daemon could not keep its files and sockets. FATAL, as it ends then."""
    if not isinstance(config, HasDirectories):
        return
    for key, path in config.directories():
        text = directories.problem(path)
        if text:
            message, _, remedy = _without(text, path).partition("; ")
            yield FileProblem(key, path, message, remedy, Severity.FATAL)


def unique(problems: Iterable[FileProblem]) -> list[FileProblem]:
    """Each problem once."""
    return list(dict.fromkeys(problems))


def read_at_most(path: Path) -> bytes:
    """The content of a file of certificates; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_PEM_BYTES)
    except OSError:
        return b""


def _certificates(pem: bytes) -> Iterator[bytes]:
    """All certificates in a text that may have keys as well, DER."""
    for part in pem.split(_BEGIN)[1:]:
        body, end, _ = part.partition(_END)
        try:
            der = base64.b64decode(b"".join(body.split()), validate=True)
        except binascii.Error:
            continue
        if end:
            yield der


def _unreadable(key: str, path: Path, severity: Severity) -> FileProblem | None:
    try:
        # Not blocking: a FIFO under the name of a file would hold the check.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return FileProblem(key, path, error.strerror or "cannot be read", _remedy(error), severity)
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    return None if is_file else FileProblem(key, path, "not a regular file", "name a file", severity)


def _remedy(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"let uid {os.geteuid()} read it, by its owner or group, and enter its directories"
    return _CREATE


def _without(text: str, path: Path) -> str:
    """An error's text without the path in front, which the problem names itself."""
    return text.removeprefix(f"{path}: ")


def _day(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d}"
