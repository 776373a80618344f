# SPDX-License-Identifier: Apache-2.0
"""Calls of libssl for which Python's `ssl` has no method, by ctypes.

Each bounds what a client may cost before it is identified.
"""

import ctypes
import functools
import hashlib
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from daemonkit import logs
from daemonkit.tls.ssl_layout import OpenSslError, context_pointer, function, libssl

_log = logs.get(__name__)

# ContentType (RFC 8446, appendix B.1).
_HANDSHAKE = 22
_HEADER_BYTES = 4
_SERVER_HELLO = b"\x02"
# Where its random is, and the one by which the server asks for another hello (RFC 8446, 4.1.3).
_RANDOM_AT, _RANDOM_BYTES = 6, 32
_RETRY_RANDOM = hashlib.sha256(b"HelloRetryRequest").digest()
# TLS 1.3 must have P-256 and should have X25519 (RFC 8446, 9.1). OpenSSL's own list has ffdhe8192 too, with
# which the answer to one hello costs 0.13 s. ML-KEM is known from OpenSSL 3.5 on.
QUICK_GROUPS = (b"X25519MLKEM768:X25519:P-256", b"X25519:P-256")
_SSL_CTRL_SET_GROUPS_LIST = 92
# SSL_CTX_set_msg_callback: write_p, version, content_type, buf, len, ssl, arg.
_MESSAGE_CALLBACK = ctypes.CFUNCTYPE(
    *(None, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p),
)
# The bytes at an address. `ctypes.string_at` does the same by way of a function of Python.
_bytes_at: Callable[[int, int], bytes] = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t
)(("PyBytes_FromStringAndSize", ctypes.pythonapi))
# What resumes the inspection that has paused in this thread.
_paused = threading.local()


class Message(IntEnum):
    """The messages of a client that can be inspected (HandshakeType; RFC 8446, appendix B.3)."""

    CLIENT_HELLO = 1
    CERTIFICATE = 11


# The bytes to corrupt in a message that OpenSSL must not read. With all bits set OpenSSL refuses them.
_BYTES_TO_CORRUPT = {
    # The length of a session's identifier, which is 32 at most (RFC 8446, 4.1.2).
    Message.CLIENT_HELLO: (38, 39),
    # The lengths of context and list (4.4.2): a context of 255 bytes is one that no server asked for.
    Message.CERTIFICATE: (4, 8),
}


def limit_groups(context: ssl.SSLContext, lists: Sequence[bytes] = QUICK_GROUPS) -> None:
    """Agree on keys by the groups of the first of `lists` that OpenSSL knows; by P-256 alone where it knows
    none, or where this Python gives no access to its OpenSSL."""
    try:
        library, pointer = libssl(), context_pointer(context)
        types = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p)
        control = function(library, "SSL_CTX_ctrl", ctypes.c_long, *types)
        clear_errors = function(library, "ERR_clear_error", None)
    except OpenSslError:
        context.set_ecdh_curve("prime256v1")
        return
    is_known = any(control(pointer, _SSL_CTRL_SET_GROUPS_LIST, 0, each) == 1 for each in lists)
    # A list that OpenSSL does not know leaves an error behind, which `ssl` would raise in its next call.
    clear_errors()
    if not is_known:
        context.set_ecdh_curve("prime256v1")


def inspect(context: ssl.SSLContext, may_read: Mapping[Message, Callable[[bytes], bool]]) -> None:
    """Ask about each of these messages of a client (with its header, and decrypted) before OpenSSL reads it:
    False, or an exception, refuses the client with the alert `decode_error`. It is called in the thread of
    the handshake, the event loop's or another: it must not touch a metric, which is not safe for threads.

    OpenSSL decodes each key before it looks for an issuer, and one on a curve of the client's own making
    takes 0.3 s; `daemonkit.admission.client_hello` has what hellos cost. So the message is made unreadable
    where it lies, and readable again if all is well.

    OpenSSL calls Python for each message and record that it reads or sends, 31 times in a handshake. To
    inspect hellos alone, call `end_inspection` after each handshake. With `CERTIFICATE` (of TLS 1.3) the
    inspection of a connection pauses with the server's answer to the hello, and ends with the chain: call
    `take_resume` after each step of a handshake, and what it returns before the next one.

    Where this Python gives no access to its OpenSSL nothing is inspected, and the log has a warning.
    """
    # `ssl` has no public method that shows a chain before OpenSSL reads it; `ssl._msg_callback` gets a copy.
    try:
        pointer = context_pointer(context)
        types = (ctypes.c_void_p, _MESSAGE_CALLBACK)
        set_callback = function(libssl(), "SSL_CTX_set_msg_callback", None, *types)
        callback = _on_message(tuple(may_read.items()))
    except (OpenSslError, MemoryError) as error:
        _warn(str(error))
        return
    set_callback(pointer, callback)


def take_resume() -> Callable[[], None] | None:
    """What resumes the inspection that has paused in this thread since the last call, if one has.

    It refers to the connection's SSL object, which must exist when it is called.
    """
    resume: Callable[[], None] | None = getattr(_paused, "resume", None)
    _paused.resume = None
    return resume


@functools.cache  # once, not for each context
def _warn(reason: str) -> None:
    _log.warning(
        "OpenSSL reads clients' handshakes without inspection: any client that connects can hold this daemon"
        " up. Use the distribution's Python",
        reason=reason,
    )


def end_inspection(tls: ssl.SSLObject) -> None:
    """The handshake of a connection with `inspect` is over."""
    tls.context = _server_context()


@functools.cache
def _server_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


@functools.cache  # OpenSSL keeps its address for as long as any connection lives
def _on_message(readers: tuple[tuple[Message, Callable[[bytes], bool]], ...]) -> Any:
    inspected = {int(kind): (*_BYTES_TO_CORRUPT[kind], may_read) for kind, may_read in readers}
    has_pauses = Message.CERTIFICATE in inspected
    # It is called within a callback, and takes no time in which another thread could use the interpreter.
    types = (ctypes.c_void_p, ctypes.c_void_p)
    set_callback = function(libssl(ctypes.PyDLL), "SSL_set_msg_callback", None, *types)

    def on_message(
        is_write: int, _version: int, content: int, at: int, size: int, tls: int, _argument: int
    ) -> None:
        if content != _HANDSHAKE or size < _HEADER_BYTES:
            return
        if is_write:
            # With this answer the client's next message is encrypted by a key that the client does not have
            # yet. A second hello, after a retry, can be here already.
            if (
                has_pauses
                and _bytes_at(at, 1) == _SERVER_HELLO
                and _bytes_at(at + _RANDOM_AT, _RANDOM_BYTES) != _RETRY_RANDOM
            ):
                # In this order: where no memory is left for the first, the inspection does not pause.
                _paused.resume = functools.partial(set_callback, tls, address)
                set_callback(tls, None)
            return
        found = inspected.get(_bytes_at(at, 1)[0])
        if found is None:
            return
        begin, end, may_read = found
        if size < end:
            return  # OpenSSL finds it cut off
        head = _bytes_at(at, end)
        # This comes first, so that the message stays unreadable after any exception below.
        ctypes.memset(at + begin, 0xFF, end - begin)
        if may_read(head + _bytes_at(at + end, size - end)):
            ctypes.memmove(at, head, end)
            if head[0] == Message.CERTIFICATE:
                set_callback(tls, None)

    callback = _MESSAGE_CALLBACK(on_message)
    address = ctypes.cast(callback, ctypes.c_void_p)
    return callback
