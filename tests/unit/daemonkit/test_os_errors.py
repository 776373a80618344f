# SPDX-License-Identifier: Apache-2.0
"""Errors of the operating system and of libraries around it, sorted by cause."""

import errno
import socket
import ssl

import pytest

from daemonkit.os_errors import AddressRefusedError, describe, describe_text
from daemonkit.remedies import Cause


def untrusted(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("error", "text", "cause"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 6443)"),
            "connection refused",
            Cause.REFUSED,
        ),
        (FileNotFoundError(errno.ENOENT, "x", "/run/x"), "no such file or directory", Cause.MISSING),
        (PermissionError(errno.EACCES, "x"), "permission denied", Cause.DENIED),
        (OSError(errno.EHOSTUNREACH, "x"), "no route to host", Cause.UNREACHABLE),
        (OSError(errno.EIO, "x"), "input/output error", Cause.OTHER),
        (AddressRefusedError("[Errno 111] x"), "[Errno 111] x", Cause.ADDRESS_REFUSED),
        (TimeoutError(), "no answer in time", Cause.TIMEOUT),
        (TimeoutError(errno.ETIMEDOUT, "x"), "connection timed out", Cause.TIMEOUT),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "the name cannot be resolved: Name or service not known",
            Cause.NAME_UNKNOWN,
        ),
        # As asyncio writes it when all addresses of a name fail.
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect"),
            "connection refused",
            Cause.REFUSED,
        ),
        (ConnectionResetError("the connection ended"), "the connection ended", Cause.OTHER),
        (
            untrusted(20, "unable to get local issuer certificate"),
            "certificate verify failed: unable to get local issuer certificate",
            Cause.UNTRUSTED,
        ),
        (
            untrusted(10, "certificate has expired"),
            "certificate verify failed: certificate has expired",
            Cause.EXPIRED,
        ),
        (
            untrusted(62, "Hostname mismatch"),
            "certificate verify failed: Hostname mismatch",
            Cause.WRONG_NAME,
        ),
        (ssl.SSLError(1, "[SSL] alert"), "TLS: [SSL] alert", Cause.TLS),
    ],
)
def test_an_error_has_a_text_and_a_cause(error: OSError, text: str, cause: Cause) -> None:
    assert describe(error) == (text, cause)


@pytest.mark.parametrize(
    ("details", "text", "cause"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: unix:/run/x.sock: Permission denied",
            "permission denied",
            Cause.DENIED,
        ),
        ("recvmsg:Connection reset by peer", "connection reset by peer", Cause.CLOSED),
        ("Socket closed", "socket closed", Cause.CLOSED),
        ("Deadline Exceeded", "deadline exceeded", Cause.TIMEOUT),
        ("/t: No such file or directory", "no such file or directory", Cause.MISSING),
        ("something else", "something else", Cause.OTHER),
    ],
)
def test_a_text_of_a_library_has_a_cause(details: str, text: str, cause: Cause) -> None:
    assert describe_text(details) == (text, cause)
