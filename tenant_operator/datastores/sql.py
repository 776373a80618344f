# SPDX-License-Identifier: Apache-2.0
"""What is asked of a shared PostgreSQL to give a tenant a database, and to take it away.

Each list may be run again at any time. The database and its role have a name that no other tenant ever has.
"""

import msgspec

# Of an identifier, in bytes: PostgreSQL cuts a longer one without an error (NAMEDATALEN).
_MAX_IDENTIFIER = 63
# PostgreSQL's errors by their codes (Appendix A of its manual).
_OBJECT_EXISTS, _DATABASE_EXISTS, _NO_DATABASE = "42710", "42P04", "3D000"
_NO_ROLE, _IN_USE = "42704", "2BP01"
_NOT_CLOSED = (_NO_DATABASE, "42501")
_SERVER_DATABASES = ("postgres", "template1")
# A prepared transaction holds its database until a client connects there to end it.
_REFUSE_OPEN = """DO $$ DECLARE open text; BEGIN
SELECT string_agg(datname, ', ') INTO open FROM pg_database WHERE datname IN ('postgres', 'template1')
AND datallowconn AND has_database_privilege('public', oid, 'CONNECT');
IF open IS NOT NULL THEN
RAISE EXCEPTION 'PUBLIC may connect to %: as its owner, REVOKE ALL ON DATABASE % FROM PUBLIC', open, open;
END IF;
IF current_setting('max_prepared_transactions') <> '0' THEN
RAISE EXCEPTION 'max_prepared_transactions is not 0, by which a tenant keeps its database: set it to 0';
END IF;
END $$"""


class Statement(msgspec.Struct, frozen=True):
    """One statement: PostgreSQL makes no database within a transaction. `accepted`: codes of errors that
    are no failure."""

    text: str
    accepted: tuple[str, ...] = ()


def database_name(uid: str) -> str:
    """Of the database and the role of the VirtualCluster with this UID: one that is made later under the same
    name has another."""
    return f"t_{uid.replace('-', '')}"


def quoted_identifier(name: str) -> str:
    """An identifier as it is, whatever its characters."""
    if not 0 < len(name.encode()) <= _MAX_IDENTIFIER or "\0" in name:
        raise ValueError(f"an identifier has 1 to {_MAX_IDENTIFIER} bytes, none of them NUL: {name!r}")
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """Of text without a backslash, which PostgreSQL may be configured to take for more than itself."""
    if "\\" in text or "\0" in text:
        raise ValueError("a literal has no backslash and no NUL")
    return "'" + text.replace("'", "''") + "'"


def creation(name: str, connections: int, verifier: str) -> tuple[Statement, ...]:
    """A role that owns one database and may use no other. `connections` bounds what one tenant takes.

    `verifier` is what PostgreSQL keeps of a password: neither its log nor its statistics ever have that.
    """
    role = quoted_identifier(name)
    return (
        # By default each role may connect to these. Who does not own them gets a warning or an error.
        *(Statement(f"REVOKE ALL ON DATABASE {each} FROM PUBLIC", _NOT_CLOSED) for each in _SERVER_DATABASES),
        Statement(_REFUSE_OPEN),
        Statement(f"CREATE ROLE {role}", (_OBJECT_EXISTS,)),
        # What only a superuser may name, no new role has: SUPERUSER, REPLICATION and BYPASSRLS.
        Statement(
            f"ALTER ROLE {role} LOGIN NOCREATEDB NOCREATEROLE "
            f"CONNECTION LIMIT {connections} PASSWORD {_literal(verifier)}"
        ),
        # An administrator that is no superuser makes databases of roles alone that it is a member of.
        Statement(f"GRANT {role} TO CURRENT_USER"),
        # No client connects before PUBLIC has lost the right. A client of template1 would stop the copy, and
        # none is one of template0.
        Statement(
            f"CREATE DATABASE {role} OWNER {role} TEMPLATE template0 ALLOW_CONNECTIONS false",
            (_DATABASE_EXISTS,),
        ),
        Statement(f"REVOKE ALL ON DATABASE {role} FROM PUBLIC"),
        Statement(f"ALTER DATABASE {role} ALLOW_CONNECTIONS true"),
    )


def removal(name: str) -> tuple[Statement, ...]:
    """The database with all that it has, though clients are connected, and the role, whatever the role has
    done to them."""
    role = quoted_identifier(name)
    return (
        Statement(f"ALTER ROLE {role} NOLOGIN", (_NO_ROLE,)),
        Statement(f"ALTER DATABASE {role} IS_TEMPLATE false", (_NO_DATABASE,)),
        Statement(f"DROP DATABASE IF EXISTS {role} WITH (FORCE)"),
        # Of rights that other tenants gave it those on their databases end here, and those within them do
        # not: then the role stays, which can do nothing, and whose name no tenant gets again.
        Statement(f"DROP OWNED BY {role}", (_NO_ROLE,)),
        Statement(f"DROP ROLE IF EXISTS {role}", (_IN_USE,)),
    )
