# SPDX-License-Identifier: Apache-2.0
"""Finds OpenSSL's objects behind those of Python's `ssl`, for calls of libssl by ctypes.

`ssl` has no public way to them. Each address is checked by what Python knows of the object: where a release
lays its objects out otherwise, there is none, as a wrong one would crash the process.
"""

import _ssl
import ctypes
import ssl
from typing import Any

_FIELDS = ctypes.c_void_p * 3


class OpenSslError(Exception):
    """This Python gives no access to its OpenSSL."""


def libssl(loader: type[ctypes.CDLL] = ctypes.CDLL) -> Any:
    """The libssl that `ssl` is linked with. `PyDLL` keeps the interpreter's lock during calls. Raises
    `OpenSslError`."""
    try:
        return loader(_ssl.__file__)
    except (AttributeError, OSError) as error:
        raise OpenSslError(f"this Python's ssl has no libssl of its own: {error}") from None


def function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    """A function of `library` with its types. Raises `OpenSslError` where it has none of that name."""
    try:
        found = getattr(library, name)
    except AttributeError as error:
        raise OpenSslError(f"this Python's ssl has no libssl of its own: {error}") from None
    found.restype, found.argtypes = result, list(arguments)
    return found


def context_pointer(context: ssl.SSLContext) -> ctypes.c_void_p:
    """The SSL_CTX behind `context`. Raises `OpenSslError`."""
    options = function(libssl(), "SSL_CTX_get_options", ctypes.c_uint64, ctypes.c_void_p)
    # The SSL_CTX pointer has been the first field of an SSLContext in all releases so far.
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    if options(pointer) != context.options:
        raise OpenSslError("this Python's ssl.SSLContext is not laid out as it is known to be")
    return pointer


def connection_address(tls: ssl.SSLObject) -> int | None:
    """The SSL behind `tls`; None where it is not found."""
    inner: object = tls._sslobj  # type: ignore[attr-defined]  # noqa: SLF001 - `ssl` has no public way to it
    if type(inner).__basicsize__ < object.__basicsize__ + ctypes.sizeof(_FIELDS):
        return None
    # The socket, the SSL and the SSLContext have been the first fields in all releases so far.
    _, connection, context = _FIELDS.from_address(id(inner) + object.__basicsize__)
    return connection if context == id(tls.context) else None
