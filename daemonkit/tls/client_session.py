# SPDX-License-Identifier: Apache-2.0
"""The TLS session of a client's connection, for its next connections to resume: calls of libssl by ctypes.

Python's `ssl` has both, `tls.session` and its setter. The first leaks a copy of the session each time
(CPython 3.11: 6 KB), and hands out the object that OpenSSL marks when the connection ends without a good-bye:
it is not offered again. The second encodes and decodes the session, peer's certificate and all: 0.2 ms,
and 5 KB that each connection keeps. libssl's own copy takes 5 us and shares the certificate.
"""

import ctypes
import functools
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from daemonkit.tls.ssl_layout import OpenSslError, connection_address, function, libssl

# The second is of an argument that cannot be converted.
_NO_MEMORY = (MemoryError, ctypes.ArgumentError)


class ClientSession:
    """A copy of a connection's session, which no connection has."""

    __slots__ = ("_at", "_calls", "_context", "_server_name")

    def __init__(self, tls: ssl.SSLObject, calls: "_Calls", at: int) -> None:
        """Use `of`. Owns the SSL_SESSION `at`."""
        self._context, self._server_name = tls.context, tls.server_hostname
        self._calls = calls
        self._at = at

    def __del__(self) -> None:
        self._calls.free(self._at)

    @classmethod
    def of(cls, tls: ssl.SSLObject) -> "ClientSession | None":
        """What the server of this connection has given by now; None where that cannot be resumed, or where
        this Python gives no access to its OpenSSL. Raises MemoryError."""
        calls, connection = _calls(), connection_address(tls)
        if not calls or not connection:
            return None
        try:
            original = calls.session_of(connection)
            if not original or not calls.is_resumable(original):
                return None
            return cls(tls, calls, _not_null(calls.copy(original)))
        except _NO_MEMORY:
            calls.clear_errors()
            raise MemoryError from None

    def offer(self, tls: ssl.SSLObject) -> None:
        """Let a connection to the same name, of the same context, resume it. Before its handshake. Raises
        MemoryError."""
        connection = connection_address(tls)
        # OpenSSL resumes under any name, and verifies nothing then.
        if tls.context is not self._context or tls.server_hostname != self._server_name or not connection:
            raise ValueError("a session is offered by connections of its own context and server name")
        calls = self._calls
        try:
            copy = _not_null(calls.copy(self._at))
            try:
                _not_null(calls.set_session(connection, copy))
            finally:
                calls.free(copy)  # the connection has a reference of its own
        except _NO_MEMORY:
            calls.clear_errors()
            raise MemoryError from None


def clear_errors() -> None:
    """Forget what went wrong in OpenSSL: `ssl` would raise it in its next call, of any connection. It leaves
    errors behind where memory is short."""
    calls = _calls()
    if calls:
        calls.clear_errors()


class _Calls(NamedTuple):
    session_of: Callable[[int], int | None]
    is_resumable: Callable[[int], int]
    copy: Callable[[int], int | None]
    set_session: Callable[[int, int], int]
    free: Callable[[int], None]
    clear_errors: Callable[[], None]


def _not_null(result: int | None) -> int:
    if not result:
        raise MemoryError
    return result


@functools.cache
def _calls() -> _Calls | None:
    pointer: Any = ctypes.c_void_p
    try:
        # Each takes no time in which another thread could use the interpreter.
        library = libssl(ctypes.PyDLL)
        return _Calls(
            function(library, "SSL_get_session", pointer, pointer),
            function(library, "SSL_SESSION_is_resumable", ctypes.c_int, pointer),
            function(library, "SSL_SESSION_dup", pointer, pointer),
            function(library, "SSL_set_session", ctypes.c_int, pointer, pointer),
            function(library, "SSL_SESSION_free", None, pointer),
            function(library, "ERR_clear_error", None),
        )
    except OpenSslError:
        return None
