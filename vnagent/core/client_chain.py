# SPDX-License-Identifier: Apache-2.0
"""Bounds the cost of a client's certificate chain before OpenSSL reads it.

Two digests are state: those of the messages that passed, and of the last one.

A client without a registered certificate may send any chain, and OpenSSL takes a hundred certificates, keys
on curves of the client's own (0.3 s each) and thousands of names to compare. `check` bounds that cost before
OpenSSL reads the chain: one that passes takes some 5 ms at most, an honest one 0.3 ms.
"""

import hashlib
import threading
from collections.abc import Iterator

from tenancy import x509

# A leaf, three intermediates and the authority, which some clients send too.
MAX_CERTIFICATES = 5
# Each name that a constraint lists is compared with each name of the chain: 10 to 100 ns.
MAX_COMPARISONS = 10_000
# Digests of messages that passed. Each exec of an apiserver is a new connection with the same chain, and
# checking it takes 0.1 ms of the exec's 2 ms.
MAX_PASSED = 256
_passed: set[bytes] = set()
_last_read = threading.local()


class ChainError(ValueError):
    """Why a chain is refused."""


def accept(message: bytes) -> bool:
    """Return whether `check` accepts the message, and remember its digest."""
    digest = hashlib.sha256(message).digest()
    if digest not in _passed:
        try:
            check(message)
        except ChainError:
            return False
        if len(_passed) >= MAX_PASSED:
            _passed.clear()
        _passed.add(digest)
    _last_read.digest = digest
    return True


def take_digest() -> bytes:
    """Take the digest of the last message that passed in this thread; empty if there is none."""
    digest: bytes = getattr(_last_read, "digest", b"")
    _last_read.digest = b""
    return digest


def check(message: bytes) -> None:
    """Raise ChainError unless the client's Certificate message of TLS 1.3 (RFC 8446, 4.4.2), with its header,
    has a chain that is quick to parse and to verify."""
    certificates = list(_certificates(message))
    if len(certificates) > MAX_CERTIFICATES:
        raise ChainError("too many certificates")
    try:
        for der in certificates:
            x509.check_key(der)
            if x509.SUBJECT_ALT_NAME in der:
                x509.check_names(der)
            if x509.DISTRIBUTION_POINTS in der:
                x509.check_distribution_points(der)
        if certificates and x509.NAME_CONSTRAINTS in message:
            counts = [x509.name_counts(der) for der in certificates]
            names, constraints = (sum(each) for each in zip(*counts, strict=True))
            if names * constraints > MAX_COMPARISONS:
                raise ChainError("too many names to be compared with constraints")
    except x509.CertificateError as error:
        raise ChainError(str(error)) from None


def _certificates(message: bytes) -> Iterator[bytes]:
    # Type and length, certificate_request_context<0..255>, certificate_list<0..2^24-1>.
    at = 4 + 1 + _number(message, 4, 1)
    end = at + 3 + _number(message, at, 3)
    at += 3
    if end != len(message):
        raise ChainError("a length that is not the message's")
    while at < end:
        size = _number(message, at, 3)
        yield message[at + 3 : at + 3 + size]
        at += 3 + size
        at += 2 + _number(message, at, 2)  # its extensions
    if at != end:
        raise ChainError("cut off within a certificate")


def _number(message: bytes, at: int, width: int) -> int:
    if at + width > len(message):
        raise ChainError("cut off within a length")
    return int.from_bytes(message[at : at + width])
