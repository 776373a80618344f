# SPDX-License-Identifier: Apache-2.0
"""Servers that are no PostgreSQL, or are not asked for by the password. The ring has a real one
(tests/k8s/operator/test_databases.py)."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devkit.pki import Authority
from tenant_operator.datastores.database_server import PORT, DatabaseServer
from tenant_operator.datastores.sql import Statement
from tenant_operator.edge import postgresql
from tenant_operator.edge.postgresql import PostgresqlError

# Of the loopback network, where nobody else listens at the one port that tenants may reach.
HOST = "127.54.32.1"
AUTHORITY = Authority.create("authority of databases")
SERVER = DatabaseServer(HOST, "administrator", "postgres", AUTHORITY.cert_pem, "open sesame")
READY = b"Z\0\0\0\x05I"
AUTHENTICATED = struct.pack("!cii", b"R", 8, 0)


def message(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack("!i", len(payload) + 4) + payload


def plays(*answers: bytes) -> Callable[[socket.socket], None]:
    """Answers, one to each part that the client sends."""

    def play(connection: socket.socket) -> None:
        for answer in answers:
            if not connection.recv(4096):
                return
            connection.sendall(answer)

    return play


@contextmanager
def serving(
    directory: Path, play: Callable[[socket.socket], None], tls: bytes = b"S", *, is_refused: bool = False
) -> Iterator[None]:
    """A server for one client, by TLS if it answers the client's question with S, unless the client refuses
    its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf = AUTHORITY.issue("postgresql", sans_ip=[HOST], usages=("server",))
    context.load_cert_chain(*leaf.write(directory, "server"))

    def serve() -> None:
        plain, _ = listener.accept()
        with plain:
            assert plain.recv(8) == struct.pack("!ii", 8, 80877103)
            plain.sendall(tls)
            if is_refused:
                with pytest.raises(ssl.SSLError):
                    context.wrap_socket(plain, server_side=True)
            elif tls == b"S":
                with context.wrap_socket(plain, server_side=True) as connection:
                    play(connection)

    with socket.create_server((HOST, PORT)) as listener:
        thread = threading.Thread(target=serve, name="server")
        thread.start()
        yield
        thread.join(10.0)
    assert not thread.is_alive()


def _run(*statements: str) -> None:
    postgresql.run(SERVER, [Statement(each) for each in statements], time.monotonic, lambda: None)


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ([AUTHENTICATED + READY], "it did not ask for the password: require scram-sha-256"),
        (
            [message(b"R", struct.pack("!i", 3))],
            "it asks for the password otherwise: require scram-sha-256",
        ),
        ([message(b"R", struct.pack("!i", 12) + b"v=none")], "it asks for the password otherwise"),
        ([message(b"R", struct.pack("!i", 11) + b"r=other,s=AAAA,i=4096")], "is of another client"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "it does not speak PostgreSQL's protocol"),
        ([message(b"E", b"SFATAL\0C28000\0Mno such user\0qALTER ROLE\0\0")], r"no such user \(28000\)$"),
        ([b"R"], "it closed the connection"),
    ],
)
def test_no_other_server_is_believed(tmp_path: Path, answers: list[bytes], problem: str) -> None:
    with serving(tmp_path, plays(*answers)), pytest.raises(PostgresqlError, match=problem):
        _run("SELECT 1")


def test_nothing_is_sent_without_tls(tmp_path: Path) -> None:
    with serving(tmp_path, plays(), tls=b"N"), pytest.raises(PostgresqlError, match="it has no TLS"):
        _run()


def test_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    other = DatabaseServer(HOST, "a", "b", Authority.create("another").cert_pem, "open sesame")
    with serving(tmp_path, plays(), is_refused=True), pytest.raises(PostgresqlError, match="is not valid"):
        postgresql.run(other, [], time.monotonic, lambda: None)


def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(PostgresqlError, match=rf"^{HOST}:{PORT}: .*refused"):
        _run()
