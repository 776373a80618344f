# SPDX-License-Identifier: Apache-2.0
"""Makes a tenant's database on a shared PostgreSQL, and drops it.

The tenant's Secret is written first, with the password: whatever is killed afterwards is repeated with the
same one.
"""

import asyncio
import base64
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from tenancy import keys
from tenant_operator.core.databases import annotation
from tenant_operator.core.steps import DropDatabase, MakeDatabase
from tenant_operator.datastores import sql
from tenant_operator.datastores.database_server import AUTHORITY, ENDPOINT, DatabaseServer, read_server
from tenant_operator.datastores.sql import Statement
from tenant_operator.edge import postgresql, scram
from tenant_operator.edge.postgresql import PostgresqlError
from tenant_operator.model.objects import Object, Ref
from tenant_operator.pki import issuing

_PASSWORD = "password"  # noqa: S105 - the key of a Secret's value
_PASSWORD_BYTES = 32
_SALT_BYTES = 16

StatementRunner = Callable[
    [DatabaseServer, Iterable[Statement], Callable[[], float], Callable[[], None]], None
]


class SecretWriter(Protocol):
    """`tenant_operator.edge.requests.SuperClusterWriter`, or a fake."""

    def check_leads(self) -> None: ...
    async def get(self, ref: Ref) -> Object | None: ...
    async def apply(self, manifest: Object) -> Object: ...
    async def remove(self, ref: Ref, uid: str) -> None: ...


async def make_database(
    super_cluster: SecretWriter, step: MakeDatabase, run: StatementRunner = postgresql.run
) -> Object:
    """Make the database, or what is missing of it; returns the tenant's Secret. Raises PostgresqlError."""
    server = await _server(super_cluster, step.server)
    found = _data(await super_cluster.get(step.target) or {})
    password = found.get(_PASSWORD, b"").decode() or secrets.token_urlsafe(_PASSWORD_BYTES)
    data = {
        ENDPOINT: server.tenant_endpoint(step.name, password).encode(),
        AUTHORITY: server.authority_pem,
        _PASSWORD: password.encode(),
    }
    annotations = {keys.DATABASE: annotation(step.server, step.name)}
    if found != data:
        await super_cluster.apply(_secret(step, data, annotations))
    verifier = scram.verifier(password, secrets.token_bytes(_SALT_BYTES))
    statements = sql.creation(step.name, step.connections, verifier)
    await asyncio.to_thread(run, server, statements, time.monotonic, super_cluster.check_leads)
    annotations[keys.DATABASE_CONNECTIONS] = str(step.connections)
    return await super_cluster.apply(_secret(step, data, annotations))


async def drop_database(
    super_cluster: SecretWriter, step: DropDatabase, run: StatementRunner = postgresql.run
) -> None:
    """Drop the database and its role, and then forget them. Raises PostgresqlError."""
    server = await _server(super_cluster, step.server)
    statements = sql.removal(step.name)
    await asyncio.to_thread(run, server, statements, time.monotonic, super_cluster.check_leads)
    await super_cluster.remove(step.credential, step.uid)


async def _server(super_cluster: SecretWriter, ref: Ref) -> DatabaseServer:
    secret = await super_cluster.get(ref)
    found = "does not exist" if secret is None else read_server(_data(secret))
    if isinstance(found, str):
        raise PostgresqlError(f"{ref} {found}")
    return found


def _secret(step: MakeDatabase, data: dict[str, bytes], annotations: dict[str, str]) -> Object:
    return issuing.secret_of(step.target.namespace, step.target.name, data, step.labels, annotations)


def _data(secret: Object) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
