# SPDX-License-Identifier: Apache-2.0
"""What an administrator's psql runs on a shared PostgreSQL to give a tenant a database, and to take it away.

Each script may run again at any time. The tenant's database and role have the name of its cluster key.
"""

# Of an identifier, in bytes: PostgreSQL cuts a longer one without an error (NAMEDATALEN).
_MAX_IDENTIFIER = 63

PASSWORD_VARIABLE = "TENANT_PASSWORD"  # noqa: S105 - the name of an environment variable
"""By which psql gets the tenant's password: no command line and no file has it."""


def quoted_identifier(name: str) -> str:
    """An identifier as it is, whatever its characters."""
    if not 0 < len(name.encode()) <= _MAX_IDENTIFIER or "\0" in name:
        raise ValueError(f"an identifier has 1 to {_MAX_IDENTIFIER} bytes, none of them NUL: {name!r}")
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def creation(key: str, connections: int) -> str:
    """A role that owns one database and may use no other. `connections` bounds what one tenant takes."""
    name = quoted_identifier(key)
    create_role = _literal(f"CREATE ROLE {name}")
    create_database = _literal(f"CREATE DATABASE {name} OWNER {name}")
    return f"""\\getenv password {PASSWORD_VARIABLE}
SELECT {create_role}
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {_literal(key)})
\\gexec
ALTER ROLE {name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
CONNECTION LIMIT {connections} PASSWORD :'password';
GRANT {name} TO CURRENT_USER;
SELECT {create_database}
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = {_literal(key)})
\\gexec
REVOKE ALL ON DATABASE {name} FROM PUBLIC;
"""  # noqa: S608 - statements of definition have no parameters; what is put in is quoted


def removal(key: str) -> str:
    """The database with all that it has, though clients are connected, and the role."""
    name = quoted_identifier(key)
    return f"""DROP DATABASE IF EXISTS {name} WITH (FORCE);
DROP ROLE IF EXISTS {name};
"""
