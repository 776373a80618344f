# SPDX-License-Identifier: Apache-2.0
"""The Secret by which the operator administers a PostgreSQL that tenants share. Pure."""

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

import msgspec

PORT = 5432
"""The one port that the fence opens for it."""
ENDPOINT, AUTHORITY = "endpoint", "ca.crt"
"""Keys of the Secret, and of a tenant's own."""


class DatabaseServer(msgspec.Struct, frozen=True):
    """Where it is, and who administers it."""

    host: str
    user: str
    database: str
    authority_pem: bytes
    password: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"DatabaseServer({self.host}, {self.user})"

    def tenant_endpoint(self, name: str, password: str) -> str:
        """The URL of a tenant's database, for kine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        role, secret = quote(name, safe=""), quote(password, safe="")
        return f"postgres://{role}:{secret}@{host}:{PORT}/{role}?sslmode=verify-full"


def read_server(data: Mapping[str, bytes]) -> DatabaseServer | str:
    """The server that a Secret leads to, or what is wrong with the Secret: no value of it is repeated."""
    authority = data.get(AUTHORITY, b"")
    if b"-----BEGIN CERTIFICATE-----" not in authority:
        return f"has no {AUTHORITY}: the authority of the server's certificate, which is always verified"
    try:
        url = urlsplit(data.get(ENDPOINT, b"").decode())
        host, port = url.hostname or "", url.port or PORT
        user, password = unquote(url.username or ""), unquote(url.password or "")
    except ValueError:
        return _NO_ENDPOINT
    if url.scheme not in ("postgres", "postgresql") or not (host and user and password) or port != PORT:
        return _NO_ENDPOINT
    return DatabaseServer(host, user, unquote(url.path.strip("/")) or "postgres", authority, password)


_NO_ENDPOINT = f"has no usable {ENDPOINT}: write it as postgres://USER:PASSWORD@HOST:{PORT}/postgres"
