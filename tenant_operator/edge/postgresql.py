# SPDX-License-Identifier: Apache-2.0
"""Speaks to PostgreSQL, as much as it takes to make and drop databases: protocol 3.0, TLS, SCRAM-SHA-256.

It blocks, and is run in a thread: a socket that is read by single bytes until TLS begins leaves nothing that
a machine on the way could have put before it.
"""

import secrets
import socket
import ssl
import struct
from collections.abc import Callable, Iterable

from tenant_operator.datastores.database_server import PORT, DatabaseServer
from tenant_operator.datastores.sql import Statement
from tenant_operator.edge import scram

TIMEOUT_S = 5.0
"""Of all statements together."""
_PROTOCOL, _TLS_REQUEST = 196608, 80877103
# Of one message. Of what is asked here, none has a kilobyte.
_MAX_MESSAGE = 64 << 10
_MAX_TEXT = 200
_AUTHENTICATED, _SASL, _SASL_CONTINUE, _SASL_END = 0, 10, 11, 12


class PostgresqlError(Exception):
    """Why a statement was not carried out; the text has no statement and no value."""


def run(
    server: DatabaseServer,
    statements: Iterable[Statement],
    monotonic: Callable[[], float],
    before_send: Callable[[], None],
) -> None:
    """Carry the statements out, in order, as the administrator. `before_send` is called before each.

    Raises PostgresqlError, and what `before_send` raises.
    """
    try:
        with (
            socket.create_connection((server.host, PORT), timeout=TIMEOUT_S) as plain,
            _with_tls(plain, server) as connection,
        ):
            client = _DatabaseClient(connection, monotonic)
            client.log_in(server)
            for each in statements:
                before_send()
                client.execute(each)
    except (OSError, scram.ScramError, struct.error) as error:
        raise PostgresqlError(f"{server.host}:{PORT}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    return str(error)[:_MAX_TEXT] or type(error).__name__


def _with_tls(plain: socket.socket, server: DatabaseServer) -> ssl.SSLSocket:
    plain.sendall(struct.pack("!ii", 8, _TLS_REQUEST))
    if plain.recv(1) != b"S":
        raise ConnectionError("it has no TLS: set ssl = on")
    context = ssl.create_default_context(cadata=server.authority_pem.decode("ascii"))
    return context.wrap_socket(plain, server_hostname=server.host)


class _DatabaseClient:
    """A connection with one user."""

    def __init__(self, connection: ssl.SSLSocket, monotonic: Callable[[], float]) -> None:
        self._connection = connection
        self._monotonic = monotonic
        self._until = monotonic() + TIMEOUT_S

    def log_in(self, server: DatabaseServer) -> None:
        """Authenticate by SCRAM alone: the other ways show the password."""
        fields = ("user", server.user, "database", server.database, "application_name", "vc-operator")
        body = struct.pack("!i", _PROTOCOL) + b"".join(each.encode() + b"\0" for each in (*fields, ""))
        self._connection.sendall(struct.pack("!i", len(body) + 4) + body)
        nonce = secrets.token_urlsafe(24)
        proof: scram.ScramProof | None = None
        is_known = False
        while True:
            kind, payload = self._next()
            if kind == b"E":
                raise ConnectionError(_error(payload)[1])
            if kind == b"Z":
                if not is_known:
                    raise ConnectionError("it did not ask for the password: require scram-sha-256")
                return
            if kind != b"R":
                continue
            asked, rest = struct.unpack("!i", payload[:4])[0], payload[4:]
            if asked == _SASL and scram.MECHANISM.encode() in rest.split(b"\0"):
                first = scram.first_message(nonce)
                self._send(b"p", scram.MECHANISM.encode() + b"\0" + struct.pack("!i", len(first)) + first)
            elif asked == _SASL_CONTINUE:
                proof = scram.prove(server.password, nonce, rest)
                self._send(b"p", proof.message)
            elif asked == _SASL_END and proof is not None:
                scram.check_server(proof, rest)
                is_known = True
            elif asked != _AUTHENTICATED:
                raise ConnectionError("it asks for the password otherwise: require scram-sha-256")

    def execute(self, statement: Statement) -> None:
        """Carry one out. Raises ConnectionError with what the server answered."""
        self._send(b"Q", statement.text.encode() + b"\0")
        problem = ""
        while True:
            kind, payload = self._next()
            if kind == b"E":
                code, text = _error(payload)
                if code not in statement.accepted:
                    problem = problem or text
            elif kind == b"Z":
                break
        if problem:
            raise ConnectionError(problem)

    def _send(self, kind: bytes, payload: bytes) -> None:
        self._limit()
        self._connection.sendall(kind + struct.pack("!i", len(payload) + 4) + payload)

    def _next(self) -> tuple[bytes, bytes]:
        kind, size = struct.unpack("!ci", self._read(5))
        if not 4 <= size <= _MAX_MESSAGE:
            raise ConnectionError("it does not speak PostgreSQL's protocol")
        return kind, self._read(size - 4)

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            self._limit()
            part = self._connection.recv(count - len(found))
            if not part:
                raise ConnectionError("it closed the connection")
            found += part
        return found

    def _limit(self) -> None:
        left_s = self._until - self._monotonic()
        if left_s <= 0.0:
            raise TimeoutError(f"no answer within {TIMEOUT_S:.0f} s")
        self._connection.settimeout(left_s)


def _error(payload: bytes) -> tuple[str, str]:
    """The code and the text of an error; no other field, as one has the statement."""
    fields = {each[:1]: each[1:].decode("utf-8", "replace") for each in payload.split(b"\0") if each}
    code = fields.get(b"C", "")
    return code, f"{fields.get(b'M', '')[:_MAX_TEXT]} ({code})"
