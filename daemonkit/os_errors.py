# SPDX-License-Identifier: Apache-2.0
"""What the operating system, OpenSSL and libraries around them say of a failure, as a text and a cause.

Only this module and the clients that call it look at the text of an error.
"""

import errno
import os
import re
import socket
import ssl

from daemonkit.remedies import Cause

_CAUSES = {
    errno.ENOENT: Cause.MISSING,
    errno.ENOTDIR: Cause.MISSING,
    errno.EACCES: Cause.DENIED,
    errno.EPERM: Cause.DENIED,
    errno.ECONNREFUSED: Cause.REFUSED,
    errno.ECONNRESET: Cause.CLOSED,
    errno.ECONNABORTED: Cause.CLOSED,
    errno.EPIPE: Cause.CLOSED,
    errno.EHOSTUNREACH: Cause.UNREACHABLE,
    errno.ENETUNREACH: Cause.UNREACHABLE,
    errno.ENETDOWN: Cause.UNREACHABLE,
    errno.EADDRNOTAVAIL: Cause.UNREACHABLE,
    errno.ETIMEDOUT: Cause.TIMEOUT,
}
# gRPC names the call and the error: `recvmsg:Connection reset by peer`.
_TEXTS = {os.strerror(number).lower(): cause for number, cause in _CAUSES.items()} | {
    "no such file": Cause.MISSING,
    "socket closed": Cause.CLOSED,
    "deadline exceeded": Cause.TIMEOUT,
}
# asyncio joins the errors of several addresses into one text (cpython, base_events.py).
_NUMBER = re.compile(r"\[Errno ([0-9]{1,4})\]")
# openssl/x509_vfy.h
_EXPIRED = frozenset({9, 10})
_NAMES = frozenset({62, 63, 64})


class AddressRefusedError(OSError):
    """A host leads to an address that this daemon does not dial; the text says why."""


def describe(error: OSError) -> tuple[str, Cause]:
    """An error of a connection or a file: `connection refused`, and its cause."""
    if isinstance(error, AddressRefusedError):
        return str(error), Cause.ADDRESS_REFUSED
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}", _certificate_cause(error.verify_code)
    if isinstance(error, ssl.SSLError):
        # Python sets `reason` on errors of OpenSSL only.
        return f"TLS: {getattr(error, 'reason', None) or error}", Cause.TLS
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved: {error.strerror}", Cause.NAME_UNKNOWN
    if isinstance(error, TimeoutError) and error.errno is None:
        return "no answer in time", Cause.TIMEOUT
    number = error.errno
    if number is None and (found := _NUMBER.search(str(error))):
        number = int(found[1])
    if number is None:
        return str(error) or type(error).__name__, Cause.OTHER
    return os.strerror(number).lower(), _CAUSES.get(number, Cause.OTHER)


def describe_text(text: str) -> tuple[str, Cause]:
    """The same for a library that keeps nothing of an error but its text."""
    lowered = text.lower()
    for known, cause in _TEXTS.items():
        if known in lowered:
            return known, cause
    return text, Cause.OTHER


def _certificate_cause(code: int) -> Cause:
    if code in _EXPIRED:
        return Cause.EXPIRED
    return Cause.WRONG_NAME if code in _NAMES else Cause.UNTRUSTED
