# SPDX-License-Identifier: Apache-2.0
"""The statements for tenants' databases on a real PostgreSQL: what they need, and what tenants' roles cannot
undo."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator

import pytest

from tenant_operator.datastores import sql
from tenant_operator.datastores.database_server import DatabaseServer
from tenant_operator.datastores.sql import Statement
from tenant_operator.edge import postgresql as client
from tenant_operator.edge import scram
from tenant_operator.edge.postgresql import PostgresqlError
from tests.k8s.operator import postgresql
from tests.k8s.operator.postgresql import USER, PostgresqlServer
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import run

pytestmark = pytest.mark.timeout(120)

_PASSWORD = "password"
_LIMITED = "limited"
_DEFAULTS = ("postgres", "template1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresqlServer]:
    """A server in a network of its own, with a role that may make roles and databases beside its owner."""
    network = NetworkNamespace("databases", "192.0.2.7")
    run(["ip", "netns", "add", network.name])
    try:
        run(["ip", "-n", network.name, "link", "set", "lo", "up"])
        run(["ip", "-n", network.name, "addr", "add", f"{network.address}/32", "dev", "lo"])
        log = tmp_path_factory.mktemp("postgresql") / "postgresql.log"
        with postgresql.started(network, log) as made:
            made.ask(f"CREATE ROLE {_LIMITED} LOGIN CREATEROLE CREATEDB PASSWORD '{_PASSWORD}'")
            made.ask(f"REVOKE ALL ON DATABASE {', '.join(_DEFAULTS)} FROM PUBLIC")
            made.ask(f"GRANT CONNECT ON DATABASE postgres TO {_LIMITED}")
            yield made
    finally:
        run(["ip", "netns", "del", network.name])


@pytest.fixture(params=[USER, _LIMITED])
def administrator(request: pytest.FixtureRequest, server: PostgresqlServer) -> DatabaseServer:
    """Each that the operator may have, on a server whose own databases are closed to PUBLIC."""
    password = server.password if request.param == USER else _PASSWORD
    address, authority = server.network.address, server.authority.cert_pem
    return DatabaseServer(address, request.param, "postgres", authority, password)


@pytest.fixture
def limited(server: PostgresqlServer) -> DatabaseServer:
    """The one with fewer rights."""
    return DatabaseServer(server.network.address, _LIMITED, "postgres", server.authority.cert_pem, _PASSWORD)


@pytest.fixture
def name() -> str:
    return sql.database_name(secrets.token_hex(16))


def _run(server: PostgresqlServer, administrator: DatabaseServer, statements: Iterable[Statement]) -> None:
    server.network.inside(lambda: client.run(administrator, statements, time.monotonic, lambda: None))


def _creation(name: str) -> tuple[Statement, ...]:
    return sql.creation(name, 5, scram.verifier(_PASSWORD, secrets.token_bytes(16)))


def _may_connect(server: PostgresqlServer, role: str) -> list[str]:
    found = server.ask(
        "SELECT rolname || '/' || datname FROM pg_database, pg_roles WHERE datallowconn "
        "AND has_database_privilege(pg_roles.oid, pg_database.oid, 'CONNECT')"
    )
    return [each.partition("/")[2] for each in found if each.startswith(f"{role}/")]


def _open_to_all(server: PostgresqlServer) -> list[str]:
    return server.ask(
        "SELECT datname FROM pg_database WHERE datallowconn "
        "AND has_database_privilege('public', oid, 'CONNECT')"
    )


def _roles(server: PostgresqlServer, name: str) -> list[str]:
    """Whether it may log in, its attributes and its limit."""
    found = server.ask(
        "SELECT rolname, rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, "
        "rolconnlimit FROM pg_roles"
    )
    return [each.partition("|")[2] for each in found if each.startswith(f"{name}|")]


def _left(server: PostgresqlServer, name: str) -> list[str]:
    databases = server.ask("SELECT datname FROM pg_database")
    return [each for each in databases if each == name] + _roles(server, name)


def test_database_is_made_and_dropped(
    server: PostgresqlServer, administrator: DatabaseServer, name: str
) -> None:
    _run(server, administrator, _creation(name))
    assert _may_connect(server, name) == [name]
    assert _roles(server, name) == ["t|f|f|f|f|f|5"]
    assert server.ask_as(name, _PASSWORD, name, "SELECT 1") == ["1"]
    # Again, as after an operator that was killed.
    _run(server, administrator, _creation(name))
    _run(server, administrator, sql.removal(name))
    _run(server, administrator, sql.removal(name))
    assert _left(server, name) == []


def test_no_database_is_open_while_it_is_made(
    server: PostgresqlServer, administrator: DatabaseServer, name: str
) -> None:
    """To no role but its own, after each statement."""
    for each in _creation(name):
        _run(server, administrator, [each])
        assert name not in _open_to_all(server)
    _run(server, administrator, sql.removal(name))


@pytest.mark.parametrize("database", _DEFAULTS)
def test_open_database_of_the_server_is_refused(
    server: PostgresqlServer, limited: DatabaseServer, name: str, database: str
) -> None:
    """An administrator that does not own it cannot close it: PostgreSQL only warns."""
    server.ask(f"GRANT CONNECT ON DATABASE {database} TO PUBLIC")
    try:
        with pytest.raises(PostgresqlError, match=f"PUBLIC may connect to {database}: as its owner"):
            _run(server, limited, _creation(name))
        assert _left(server, name) == []
    finally:
        server.ask(f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")


@pytest.mark.parametrize(
    "deed",
    [
        'ALTER DATABASE "{0}" IS_TEMPLATE true',
        'ALTER DATABASE "{0}" ALLOW_CONNECTIONS false',
        'ALTER DATABASE "{0}" CONNECTION LIMIT 0',
        'ALTER DATABASE "{0}" SET default_transaction_read_only = on',
        'ALTER ROLE "{0}" SET default_transaction_read_only = on',
        'GRANT ALL ON DATABASE "{0}" TO PUBLIC',
        "CREATE TABLE kept (a int); CREATE PUBLICATION kept FOR TABLE kept",
        "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC",
        "SELECT lo_create(0)",
    ],
)
def test_what_its_owner_does_stops_no_removal(
    server: PostgresqlServer, limited: DatabaseServer, name: str, deed: str
) -> None:
    _run(server, limited, _creation(name))
    _act(server, name, deed.format(name))
    _run(server, limited, sql.removal(name))
    assert _left(server, name) == []


@pytest.mark.parametrize(
    ("deed", "left"),
    [
        ('GRANT ALL ON DATABASE "{0}" TO "{1}"', False),
        # What another tenant's database has of it nobody sees from elsewhere.
        ('CREATE TABLE a (b int); GRANT ALL ON a TO "{1}"', True),
        ('ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO "{1}"', True),
    ],
)
def test_another_tenant_stops_no_removal(
    server: PostgresqlServer, limited: DatabaseServer, name: str, deed: str, left: bool
) -> None:
    """A role that another one names stays, at most, and can do nothing."""
    other = sql.database_name(secrets.token_hex(16))
    for each in (name, other):
        _run(server, limited, _creation(each))
    _act(server, other, deed.format(other, name))
    _run(server, limited, sql.removal(name))
    assert _left(server, name) == (["f|f|f|f|f|f|5"] if left else [])
    _run(server, limited, sql.removal(other))
    _run(server, limited, sql.removal(name))
    assert _left(server, name) == []


def _act(server: PostgresqlServer, name: str, deed: str) -> None:
    """As the tenant's role, of its database from elsewhere."""
    where = "postgres" if deed.startswith("ALTER DATABASE") else name
    server.ask_as(USER, server.password, where, f'SET ROLE "{name}"; {deed}')
