# SPDX-License-Identifier: Apache-2.0
"""The statements, whole, and identifiers that cannot be anything else."""

import pytest

from tenant_operator.datastores import sql
from tenant_operator.datastores.sql import Statement

NAME = "t_0b1c2d3e70b040019000000000000001"


def test_creation() -> None:
    found = sql.creation(NAME, 20, "SCRAM-SHA-256$4096:c2FsdA==$a:b")
    assert found[:2] + found[3:] == (
        Statement("REVOKE ALL ON DATABASE postgres FROM PUBLIC", ("3D000", "42501")),
        Statement("REVOKE ALL ON DATABASE template1 FROM PUBLIC", ("3D000", "42501")),
        Statement(f'CREATE ROLE "{NAME}"', ("42710",)),
        Statement(
            f'ALTER ROLE "{NAME}" LOGIN NOCREATEDB NOCREATEROLE '
            "CONNECTION LIMIT 20 PASSWORD 'SCRAM-SHA-256$4096:c2FsdA==$a:b'"
        ),
        Statement(f'GRANT "{NAME}" TO CURRENT_USER'),
        Statement(
            f'CREATE DATABASE "{NAME}" OWNER "{NAME}" TEMPLATE template0 ALLOW_CONNECTIONS false', ("42P04",)
        ),
        Statement(f'REVOKE ALL ON DATABASE "{NAME}" FROM PUBLIC'),
        Statement(f'ALTER DATABASE "{NAME}" ALLOW_CONNECTIONS true'),
    )
    # Before the role is there.
    assert found[2].text.startswith("DO $$ DECLARE open text;")
    assert found[2].accepted == ()


def test_removal() -> None:
    assert sql.removal(NAME) == (
        Statement(f'ALTER ROLE "{NAME}" NOLOGIN', ("42704",)),
        Statement(f'ALTER DATABASE "{NAME}" IS_TEMPLATE false', ("3D000",)),
        Statement(f'DROP DATABASE IF EXISTS "{NAME}" WITH (FORCE)'),
        Statement(f'DROP OWNED BY "{NAME}"', ("42704",)),
        Statement(f'DROP ROLE IF EXISTS "{NAME}"', ("2BP01",)),
    )


def test_each_virtual_cluster_has_a_name_of_its_own() -> None:
    """Also one that is made later under the same name."""
    assert sql.database_name("0b1c2d3e-70b0-4001-9000-000000000001") == NAME


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
    assert sql.creation("a", 1, "it's")[4].text.endswith(" PASSWORD 'it''s'")


@pytest.mark.parametrize("text", ["a\\b", "a\0b"])
def test_what_a_server_may_read_otherwise_is_no_literal(text: str) -> None:
    with pytest.raises(ValueError, match="no backslash"):
        sql.creation("a", 1, text)
