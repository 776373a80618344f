# SPDX-License-Identifier: Apache-2.0
"""The Secret of a shared PostgreSQL: what it must have, and what is made of it."""

import pytest

from tenant_operator.datastores.database_server import DatabaseServer, read_server

AUTHORITY = b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
ENDPOINT = b"postgres://administrator:p%40ss@db.example:5432/postgres"


def _read(endpoint: bytes, authority: bytes = AUTHORITY) -> DatabaseServer | str:
    return read_server({"endpoint": endpoint, "ca.crt": authority})


@pytest.mark.parametrize(
    ("endpoint", "server"),
    [
        (ENDPOINT, DatabaseServer("db.example", "administrator", "postgres", AUTHORITY, "p@ss")),
        (b"postgresql://a:b@192.0.2.7", DatabaseServer("192.0.2.7", "a", "postgres", AUTHORITY, "b")),
        (b"postgres://a:b@[2001:db8::7]/main", DatabaseServer("2001:db8::7", "a", "main", AUTHORITY, "b")),
    ],
)
def test_a_server_is_read(endpoint: bytes, server: DatabaseServer) -> None:
    assert _read(endpoint) == server


@pytest.mark.parametrize(
    "endpoint",
    [
        b"",
        b"\xff",
        b"https://a:b@db.example",
        b"postgres://db.example",
        b"postgres://a@db.example",
        b"postgres://a:b@/postgres",
        b"postgres://a:b@db.example:5433/postgres",
        b"postgres://a:b@db.example:port/postgres",
        b"postgres://a:b@[db.example/postgres",
    ],
)
def test_what_leads_to_no_server_is_refused(endpoint: bytes) -> None:
    assert _read(endpoint) == (
        "has no usable endpoint: write it as postgres://USER:PASSWORD@HOST:5432/postgres"
    )


def test_no_server_is_trusted_without_an_authority() -> None:
    found = _read(ENDPOINT, b"")
    assert found == "has no ca.crt: the authority of the server's certificate, which is always verified"


@pytest.mark.parametrize(
    ("host", "written"), [("db.example", "db.example"), ("2001:db8::7", "[2001:db8::7]")]
)
def test_a_tenant_verifies_the_server(host: str, written: str) -> None:
    server = DatabaseServer(host, "administrator", "postgres", AUTHORITY, "p@ss")
    assert server.tenant_endpoint("t_1", "a/b") == (
        f"postgres://t_1:a%2Fb@{written}:5432/t_1?sslmode=verify-full"
    )


def test_a_printed_server_has_no_password() -> None:
    assert "p@ss" not in repr(DatabaseServer("db.example", "administrator", "postgres", AUTHORITY, "p@ss"))
