# SPDX-License-Identifier: Apache-2.0
"""What is asked of a shared PostgreSQL to give a tenant a database, and to take it away.

Each list may be run again at any time. The database and its role have a name that no other tenant ever has.
"""

import msgspec

# Of an identifier, in bytes: PostgreSQL cuts a longer one without an error (NAMEDATALEN).
_MAX_IDENTIFIER = 63
# PostgreSQL's errors by their codes (Appendix A of its manual).
_OBJECT_EXISTS, _DATABASE_EXISTS, _NO_DATABASE = "42710", "42P04", "3D000"


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
        Statement(f"CREATE ROLE {role}", (_OBJECT_EXISTS,)),
        Statement(
            f"ALTER ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS "
            f"CONNECTION LIMIT {connections} PASSWORD {_literal(verifier)}"
        ),
        # An administrator that is no superuser makes databases of roles alone that it is a member of.
        Statement(f"GRANT {role} TO CURRENT_USER"),
        Statement(f"CREATE DATABASE {role} OWNER {role}", (_DATABASE_EXISTS,)),
        Statement(f"REVOKE ALL ON DATABASE {role} FROM PUBLIC"),
        # By default each role may connect to these.
        *(
            Statement(f"REVOKE ALL ON DATABASE {each} FROM PUBLIC", (_NO_DATABASE,))
            for each in ("postgres", "template1")
        ),
    )


def removal(name: str) -> tuple[Statement, ...]:
    """The database with all that it has, though clients are connected, and the role."""
    role = quoted_identifier(name)
    return (
        Statement(f"DROP DATABASE IF EXISTS {role} WITH (FORCE)"),
        Statement(f"DROP ROLE IF EXISTS {role}"),
    )
