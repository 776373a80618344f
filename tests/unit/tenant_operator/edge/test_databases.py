# SPDX-License-Identifier: Apache-2.0
"""A tenant's database is made and dropped, however often the operator is killed in between."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

import pytest

from tenant_operator.core.steps import DropDatabase, MakeDatabase
from tenant_operator.datastores import sql
from tenant_operator.datastores.database_server import DatabaseServer
from tenant_operator.datastores.sql import Statement
from tenant_operator.edge.databases import drop_database, make_database
from tenant_operator.edge.postgresql import PostgresqlError
from tenant_operator.model.objects import Object, Ref, ref_of

pytestmark = pytest.mark.asyncio

ADMINISTRATOR = Ref("Secret", "vcnode-system", "postgresql")
TARGET = Ref("Secret", "tenants-70b001-acme", "store-credentials")
NAME = "t_0b1c"
MAKE = MakeDatabase(ADMINISTRATOR, TARGET, NAME, 20, {"vcnode.io/managed-by": "vc-operator"})
DROP = DropDatabase(ADMINISTRATOR, TARGET, "uid-1", NAME)
AUTHORITY = b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


class DatabaseWorld:
    """Secrets, and a server that takes statements unless it is `away`."""

    def __init__(self) -> None:
        data = {"endpoint": b"postgres://root:pw@db.example:5432/postgres", "ca.crt": AUTHORITY}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self.secrets: dict[Ref, Object] = {ADMINISTRATOR: {"data": encoded}}
        self.away = ""
        self.ran: list[Statement] = []
        self.writes = 0

    async def get(self, ref: Ref) -> Object | None:
        return self.secrets.get(ref)

    async def apply(self, manifest: Object) -> Object:
        self.writes += 1
        self.secrets[ref_of(manifest)] = manifest
        return manifest

    async def remove(self, ref: Ref, uid: str) -> None:
        assert uid == "uid-1"
        del self.secrets[ref]

    def check_leads(self) -> None:
        """It leads."""

    def run(
        self,
        server: DatabaseServer,
        statements: Iterable[Statement],
        monotonic: Callable[[], float],
        before_send: Callable[[], None],
    ) -> None:
        assert (server.host, server.user, server.password) == ("db.example", "root", "pw")
        if self.away:
            raise PostgresqlError(self.away)
        self.ran += statements

    def data(self) -> dict[str, str]:
        return {key: base64.b64decode(value).decode() for key, value in self.secrets[TARGET]["data"].items()}

    def annotations(self) -> dict[str, str]:
        """Without the digest of the data."""
        found = self.secrets[TARGET]["metadata"]["annotations"]
        return {key: value for key, value in found.items() if key.startswith("vcnode.io/database")}


async def test_the_tenant_has_a_credential_of_its_own() -> None:
    world = DatabaseWorld()
    await make_database(world, MAKE, world.run)
    data = world.data()
    assert len(data["password"]) >= 40
    assert data == {
        "endpoint": f"postgres://{NAME}:{data['password']}@db.example:5432/{NAME}?sslmode=verify-full",
        "ca.crt": AUTHORITY.decode(),
        "password": data["password"],
    }
    assert world.annotations() == {
        "vcnode.io/database": f"vcnode-system postgresql {NAME}",
        "vcnode.io/database-connections": "20",
    }
    verifier = world.ran[4].text.split("PASSWORD '")[1].rstrip("'")
    assert verifier.startswith("SCRAM-SHA-256$4096:")
    assert tuple(world.ran) == sql.creation(NAME, 20, verifier)
    # Neither the tenant's password nor the administrator's is in what a server may log.
    assert not any(data["password"] in each.text for each in world.ran)
    assert "pw" not in data["endpoint"].split("@")[0].split(":")


async def test_a_killed_operator_goes_on_with_the_same_password() -> None:
    """What may be on the server is known before it is."""
    world = DatabaseWorld()
    world.away = "db.example:5432: timed out"
    with pytest.raises(PostgresqlError, match="timed out"):
        await make_database(world, MAKE, world.run)
    assert world.annotations() == {"vcnode.io/database": f"vcnode-system postgresql {NAME}"}
    before = world.data()
    world.away = ""
    await make_database(world, MAKE, world.run)
    assert world.data() == before
    assert world.annotations()["vcnode.io/database-connections"] == "20"


async def test_a_database_that_is_there_is_not_announced_again() -> None:
    world = DatabaseWorld()
    await make_database(world, MAKE, world.run)
    world.writes = 0
    await make_database(world, MAKE, world.run)
    assert world.writes == 1


async def test_a_dropped_database_is_forgotten() -> None:
    world = DatabaseWorld()
    await make_database(world, MAKE, world.run)
    world.ran.clear()
    await drop_database(world, DROP, world.run)
    assert tuple(world.ran) == sql.removal(NAME)
    assert TARGET not in world.secrets


async def test_what_could_not_be_dropped_is_not_forgotten() -> None:
    world = DatabaseWorld()
    await make_database(world, MAKE, world.run)
    world.away = "db.example:5432: refused"
    with pytest.raises(PostgresqlError, match="refused"):
        await drop_database(world, DROP, world.run)
    assert TARGET in world.secrets


@pytest.mark.parametrize(
    ("secret", "problem"),
    [(None, "does not exist"), ({"data": {}}, "has no ca.crt"), ({}, "has no ca.crt")],
)
async def test_a_secret_that_leads_nowhere_is_named(secret: Object | None, problem: str) -> None:
    world = DatabaseWorld()
    del world.secrets[ADMINISTRATOR]
    if secret is not None:
        world.secrets[ADMINISTRATOR] = secret
    with pytest.raises(PostgresqlError, match=f"Secret vcnode-system/postgresql {problem}"):
        await make_database(world, MAKE, world.run)
