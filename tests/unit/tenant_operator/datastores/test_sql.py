# SPDX-License-Identifier: Apache-2.0
"""The scripts for psql, whole, and identifiers that cannot be anything else."""

import pytest

from tenant_operator.datastores import sql

KEY = "tenants-70b001-acme"


def test_creation() -> None:
    assert (
        sql.creation(KEY, 20)
        == r"""\getenv password TENANT_PASSWORD
SELECT 'CREATE ROLE "tenants-70b001-acme"'
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'tenants-70b001-acme')
\gexec
ALTER ROLE "tenants-70b001-acme" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
CONNECTION LIMIT 20 PASSWORD :'password';
GRANT "tenants-70b001-acme" TO CURRENT_USER;
SELECT 'CREATE DATABASE "tenants-70b001-acme" OWNER "tenants-70b001-acme"'
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = 'tenants-70b001-acme')
\gexec
REVOKE ALL ON DATABASE "tenants-70b001-acme" FROM PUBLIC;
"""
    )


def test_removal() -> None:
    assert (
        sql.removal(KEY)
        == """DROP DATABASE IF EXISTS "tenants-70b001-acme" WITH (FORCE);
DROP ROLE IF EXISTS "tenants-70b001-acme";
"""
    )


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("acme", '"acme"'),
        ("Acme-1", '"Acme-1"'),
        ('a"; DROP DATABASE b; --', '"a""; DROP DATABASE b; --"'),
        ("x" * 63, f'"{"x" * 63}"'),
    ],
)
def test_identifiers_are_quoted(name: str, quoted: str) -> None:
    assert sql.quoted_identifier(name) == quoted


@pytest.mark.parametrize("name", ["", "x" * 64, "ä" * 32, "a\0b"])
def test_what_would_be_cut_is_no_identifier(name: str) -> None:
    """Two tenants whose names begin alike would share a database."""
    with pytest.raises(ValueError, match="1 to 63 bytes"):
        sql.quoted_identifier(name)


def test_literals_are_quoted() -> None:
    script = sql.creation("a'b", 1)
    assert "rolname = 'a''b'" in script
    assert """'CREATE ROLE "a''b"'""" in script
